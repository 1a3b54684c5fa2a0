/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/stats/stats.h"

#include "engine/base/dtype.h"

#include <math.h>
#include <string.h>

/* Elements are added block by block.  Finite float32, and what widens to it, takes one pass of
 * vectors.  All else, and bins, is widened to float64 first: a block stays in the processor's
 * nearest cache, so that it can be visited more than once.
 */
enum { BLOCK = 1024, LANES = 8 };

/* 2^64 squares of numbers below 2^400 are a float64, and those of numbers above 2^-400 are no
 * subnormals.
 */
enum { EXPONENT_UNSCALED = 400 };

/* Elements i, i + LANES, i + 2 * LANES ... are added up in lane i, by vector instructions.  The
 * order of additions is thus the same on all machines.
 */
#define EACH_LANE(l) for (unsigned l = 0; l < LANES; l++)

bool stats_has(enum frag_dtype dtype)
{
	return frag_dtype_size(dtype) && dtype != FRAG_C32 && dtype != FRAG_C64 &&
	       dtype != FRAG_C128;
}

void stats_init(struct stats *s, bool with_bins)
{
	memset(s, 0, with_bins ? sizeof(*s) : offsetof(struct stats, bins));
	s->first_nan = s->first_inf = STATS_NONE;
	s->min = s->max = NAN;
	s->with_bins = with_bins;
}

/* ---- to float64 ---- */

#define WIDEN(name, type)                                                                      \
	static void name(double *to, const void *values, unsigned n)                           \
	{                                                                                      \
		const type *from = values;                                                     \
                                                                                               \
		for (unsigned i = 0; i < n; i++)                                               \
			to[i] = (double)from[i];                                               \
	}

WIDEN(widen_f32, float)
WIDEN(widen_i32, int32_t)
WIDEN(widen_u32, uint32_t)
WIDEN(widen_i64, int64_t)
WIDEN(widen_u64, uint64_t)

static void widen_f64(double *to, const void *values, unsigned n)
{
	memcpy(to, values, n * sizeof(*to));
}

static void widen(double *to, enum frag_dtype dtype, const void *values, unsigned n)
{
	static void (*const by_dtype[])(double *to, const void *values, unsigned n) = {
		[FRAG_F32] = widen_f32, [FRAG_F64] = widen_f64, [FRAG_I32] = widen_i32,
		[FRAG_U32] = widen_u32, [FRAG_I64] = widen_i64, [FRAG_U64] = widen_u64,
	};
	float narrow[BLOCK];

	if ((size_t)dtype < ARRAY_SIZE(by_dtype) && by_dtype[dtype]) {
		by_dtype[dtype](to, values, n);
		return;
	}
	dtype_convert(FRAG_F32, narrow, dtype, values, n);
	widen_f32(to, narrow, n);
}

/* ---- a block ---- */

static double sum_of(const double lane[LANES])
{
	return ((lane[0] + lane[1]) + (lane[2] + lane[3])) +
	       ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

/* Returns true if all n values are finite; n is a multiple of LANES. */
static bool all_finite(const double *values, unsigned n)
{
	double sum[LANES] = { 0 };

	for (unsigned i = 0; i < n; i += LANES)
		EACH_LANE (l)
			sum[l] += values[i + l] * 0.0; /* NaN where one is not */
	return sum_of(sum) == 0;
}

/* Counts those of n values that are not finite, and closes the gaps that they leave.  Returns
 * how many are left.
 */
static unsigned take_out(struct stats *s, double *values, unsigned n, uint64_t first)
{
	unsigned left = 0;

	for (unsigned i = 0; i < n; i++) {
		bool nan = isnan(values[i]), inf = isinf(values[i]);

		if (nan && !s->nan++)
			s->first_nan = u64_min(s->first_nan, first + i);
		if (inf && !s->inf++)
			s->first_inf = u64_min(s->first_inf, first + i);
		if (!nan && !inf)
			values[left++] = values[i];
	}
	return left;
}

static void add_bins(struct stats *s, const double *values, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		int exponent;
		uint64_t bits;

		memcpy(&bits, &values[i], sizeof(bits));
		exponent = (int)(bits >> 52 & 0x7ff) - 1023;
		if (values[i] == 0)
			continue;
		if (exponent == -1023) /* a subnormal number */
			exponent = ilogb(values[i]);
		s->bins[exponent - STATS_EXPONENT_MIN]++;
	}
}

/* What is known of some finite elements: without bins, which would have to be cleared. */
struct values_block {
	uint64_t finite, zero;
	double min, max, mean, deviations, squares;
	int scale;
};

/* Makes the statistics of n > 0 finite values. */
static void of_block(struct values_block *b, const double *values, unsigned n)
{
	double min[LANES], max[LANES], sum[LANES] = { 0 }, squares[LANES] = { 0 };
	double deviations[LANES] = { 0 };
	unsigned whole = n - n % LANES;
	uint64_t zeros[LANES] = { 0 };
	double rest = 0;

	EACH_LANE (l)
		min[l] = max[l] = values[0];
	for (unsigned i = 0; i < whole; i += LANES) {
		const double *v = values + i;

		EACH_LANE (l) {
			min[l] = v[l] < min[l] ? v[l] : min[l];
			max[l] = v[l] > max[l] ? v[l] : max[l];
			zeros[l] += v[l] == 0;
			sum[l] += v[l];
			squares[l] += v[l] * v[l];
		}
	}
	for (unsigned i = whole; i < n; i++)
		rest += values[i];
	b->finite = n;
	b->mean = (sum_of(sum) + rest) / n;
	for (unsigned i = 0; i < whole; i += LANES)
		EACH_LANE (l)
			deviations[l] += (values[i + l] - b->mean) * (values[i + l] - b->mean);
	b->deviations = sum_of(deviations);
	b->squares = sum_of(squares);
	b->min = b->max = values[0];
	EACH_LANE (l) {
		b->min = min[l] < b->min ? min[l] : b->min;
		b->max = max[l] > b->max ? max[l] : b->max;
		b->zero += zeros[l];
	}
	for (unsigned i = whole; i < n; i++) {
		b->min = values[i] < b->min ? values[i] : b->min;
		b->max = values[i] > b->max ? values[i] : b->max;
		b->zero += values[i] == 0;
		b->squares += values[i] * values[i];
		b->deviations += (values[i] - b->mean) * (values[i] - b->mean);
	}
}

/* Rounding may carry a mean beyond the greatest element, and that beyond float64. */
static double mean_within(double mean, double min, double max)
{
	return fmin(fmax(mean, min), max);
}

/* Makes the statistics of n > 0 finite values of any magnitude; changes the values. */
static void of_any_block(struct values_block *b, double *values, unsigned n)
{
	struct values_block scaled = { 0 };
	int exponent;

	of_block(b, values, n);
	frexp(fmax(fabs(b->min), fabs(b->max)), &exponent);
	if (abs(exponent) <= EXPONENT_UNSCALED)
		return;
	for (unsigned i = 0; i < n; i++)
		values[i] = ldexp(values[i], -exponent);
	of_block(&scaled, values, n);
	b->mean = mean_within(ldexp(scaled.mean, exponent), b->min, b->max);
	b->deviations = scaled.deviations;
	b->squares = scaled.squares;
	b->scale = exponent;
}

/* ---- all ---- */

/* Chooses the greater scale; a sum of squares that is 0 has none, as all its elements are 0. */
static int common_scale(const struct stats *s, const struct values_block *other)
{
	if (!s->squares || !other->squares)
		return s->squares ? s->scale : other->scale;
	return s->scale > other->scale ? s->scale : other->scale;
}

static void join_finite(struct stats *s, const struct values_block *added)
{
	struct values_block other = *added;
	double na = (double)s->finite, nb = (double)other.finite, n = na + nb, apart;
	bool scales = s->scale || other.scale;
	int scale = scales ? common_scale(s, added) : 0;

	if (!other.finite)
		return;
	if (scales) {
		s->mean = ldexp(s->mean, -scale);
		s->deviations = ldexp(s->deviations, 2 * (s->scale - scale));
		s->squares = ldexp(s->squares, 2 * (s->scale - scale));
		other.mean = ldexp(other.mean, -scale);
		other.deviations = ldexp(other.deviations, 2 * (other.scale - scale));
		other.squares = ldexp(other.squares, 2 * (other.scale - scale));
		s->scale = scale;
	}
	apart = other.mean - s->mean;
	s->min = other.min < s->min || !s->finite ? other.min : s->min;
	s->max = other.max > s->max || !s->finite ? other.max : s->max;
	s->mean = s->finite ? s->mean + apart * (nb / n) : other.mean;
	s->deviations += other.deviations + (s->finite ? apart * apart * (na * nb / n) : 0);
	s->squares += other.squares;
	s->zero += other.zero;
	s->finite += other.finite;
	if (scales)
		s->mean = mean_within(ldexp(s->mean, scale), s->min, s->max);
}

/* ---- float32, in one pass ---- */

/* Vectors of 8 elements, in operations that all processors round alike: without AVX2 the
 * compiler makes them of smaller ones.
 */
typedef float floats __attribute__((vector_size(32)));
typedef int32_t ints __attribute__((vector_size(32)));
typedef double doubles __attribute__((vector_size(32)));
typedef float half_floats __attribute__((vector_size(16)));

#define SELECT(mask, a, b) ((floats)(((ints)(a) & (mask)) | ((ints)(b) & ~(mask))))

/* Makes the statistics of n > 0 elements, n a multiple of LANES.  Squares are of the distances
 * from `shift`, which is best near the mean: so the sum of deviations loses nothing to
 * cancellation.  False: not all elements are finite, and *b is of no use.
 */
static inline __attribute__((always_inline)) bool
of_floats(struct values_block *b, const float *values, unsigned n, double shift)
{
	doubles sums[2] = { { 0 } }, squares[2] = { { 0 } };
	doubles from = { shift, shift, shift, shift };
	floats min, max;
	ints zeros = { 0 };
	double sum, square;

	memcpy(&min, values, sizeof(min));
	max = min;
	for (unsigned i = 0; i < n; i += LANES) {
		half_floats half[2];
		floats v;

		memcpy(&v, values + i, sizeof(v));
		memcpy(half, values + i, sizeof(half));
		min = SELECT(v < min, v, min);
		max = SELECT(v > max, v, max);
		zeros -= (ints)(v == 0);
		for (unsigned h = 0; h < 2; h++) {
			doubles d = __builtin_convertvector(half[h], doubles) - from;

			sums[h] += d;
			squares[h] += d * d;
		}
	}
	sums[0] += sums[1];
	squares[0] += squares[1];
	sum = (sums[0][0] + sums[0][1]) + (sums[0][2] + sums[0][3]);
	square = (squares[0][0] + squares[0][1]) + (squares[0][2] + squares[0][3]);
	if (!isfinite(square)) /* no finite float32 makes it so */
		return false;
	b->finite = n;
	b->mean = shift + sum / n;
	b->deviations = fmax(0, square - sum * (sum / n));
	b->squares = square + shift * (2 * sum + n * shift);
	b->min = min[0];
	b->max = max[0];
	for (unsigned l = 0; l < LANES; l++) {
		b->min = min[l] < b->min ? min[l] : b->min;
		b->max = max[l] > b->max ? max[l] : b->max;
		b->zero += (uint64_t)zeros[l];
	}
	return true;
}

static inline __attribute__((always_inline)) void widen_bf16(float *to, const uint16_t *from,
							     unsigned n)
{
	typedef uint16_t shorts __attribute__((vector_size(16)));
	typedef uint32_t words __attribute__((vector_size(32)));

	for (unsigned i = 0; i < n; i += LANES) {
		shorts v;
		words w;

		memcpy(&v, from + i, sizeof(v));
		w = __builtin_convertvector(v, words) << 16;
		memcpy(to + i, &w, sizeof(w));
	}
}

typedef bool of_floats_fn(struct values_block *b, const float *values, unsigned n,
			  double shift);
typedef void widen_fn(float *to, const uint16_t *from, unsigned n);

static bool of_floats_any(struct values_block *b, const float *values, unsigned n, double shift)
{
	return of_floats(b, values, n, shift);
}

static void widen_bf16_any(float *to, const uint16_t *from, unsigned n)
{
	widen_bf16(to, from, n);
}

#ifdef __x86_64__
/* AVX2 alone, without the fused multiplication and addition, which rounds otherwise. */
__attribute__((target("avx2"))) static bool
of_floats_avx2(struct values_block *b, const float *values, unsigned n, double shift)
{
	return of_floats(b, values, n, shift);
}

__attribute__((target("avx2"))) static void widen_bf16_avx2(float *to, const uint16_t *from,
							    unsigned n)
{
	widen_bf16(to, from, n);
}
#endif

struct kernels {
	of_floats_fn *of_floats;
	widen_fn *widen_bf16;
};

static struct kernels kernels(void)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx2"))
		return (struct kernels){ of_floats_avx2, widen_bf16_avx2 };
#endif
	return (struct kernels){ of_floats_any, widen_bf16_any };
}

/* Makes the statistics of a block whose elements are float32 or widen to it.  False: not all
 * are finite, or there is another reason to go the long way.
 */
static bool of_narrow(struct values_block *b, const struct kernels *k,
		      const struct stats *before, enum frag_dtype dtype, const void *values,
		      unsigned n)
{
	const float *wide = values;
	float narrow[BLOCK];

	if (n % LANES)
		return false;
	switch (dtype) {
	case FRAG_F32:
		break;
	case FRAG_BF16:
		k->widen_bf16(narrow, values, n);
		wide = narrow;
		break;
	case FRAG_F16:
		dtype_convert(FRAG_F32, narrow, dtype, values, n);
		wide = narrow;
		break;
	default:
		return false;
	}
	return k->of_floats(b, wide, n, before->finite ? before->mean : (double)wide[0]);
}

void stats_add(struct stats *s, enum frag_dtype dtype, const void *values, uint64_t n,
	       uint64_t first)
{
	const struct kernels k = kernels();
	const uint8_t *at = values;

	for (uint64_t done = 0, some; done < n; done += some) {
		const void *from = at + done * frag_dtype_size(dtype);
		struct values_block b = { 0 };
		double block[BLOCK];
		unsigned left;

		some = u64_min(BLOCK, n - done);
		s->count += some;
		if (!s->with_bins && of_narrow(&b, &k, s, dtype, from, (unsigned)some)) {
			join_finite(s, &b);
			continue;
		}
		b = (struct values_block){ 0 };
		widen(block, dtype, from, (unsigned)some);
		left = (unsigned)some;
		if (some % LANES || !all_finite(block, left))
			left = take_out(s, block, left, first + done);
		if (s->with_bins)
			add_bins(s, block, left);
		if (left)
			of_any_block(&b, block, left);
		join_finite(s, &b);
	}
}

void stats_join(struct stats *s, const struct stats *other)
{
	join_finite(s, &(struct values_block){ .finite = other->finite,
					       .zero = other->zero,
					       .min = other->min,
					       .max = other->max,
					       .mean = other->mean,
					       .deviations = other->deviations,
					       .squares = other->squares,
					       .scale = other->scale });
	s->count += other->count;
	s->nan += other->nan;
	s->inf += other->inf;
	s->first_nan = u64_min(s->first_nan, other->first_nan);
	s->first_inf = u64_min(s->first_inf, other->first_inf);
	for (unsigned i = 0; i < STATS_BINS && s->with_bins && other->with_bins; i++)
		s->bins[i] += other->bins[i];
}

static uint64_t bits_of(double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static double double_of(uint64_t bits)
{
	double value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

void stats_to_wire(struct wire_sums *to, const struct stats *s)
{
	*to = (struct wire_sums){
		.scale = s->scale,
		.count = s->count,
		.finite = s->finite,
		.nan = s->nan,
		.inf = s->inf,
		.zero = s->zero,
		.first_nan = s->first_nan,
		.first_inf = s->first_inf,
		.min = bits_of(s->min),
		.max = bits_of(s->max),
		.mean = bits_of(s->mean),
		.deviations = bits_of(s->deviations),
		.squares = bits_of(s->squares),
	};
}

void stats_from_wire(struct stats *s, const struct wire_sums *from, uint64_t first)
{
	stats_init(s, false);
	s->count = from->count;
	s->finite = from->finite;
	s->nan = from->nan;
	s->inf = from->inf;
	s->zero = from->zero;
	if (from->first_nan != STATS_NONE)
		s->first_nan = first + from->first_nan;
	if (from->first_inf != STATS_NONE)
		s->first_inf = first + from->first_inf;
	s->min = double_of(from->min);
	s->max = double_of(from->max);
	s->mean = double_of(from->mean);
	s->deviations = double_of(from->deviations);
	s->squares = double_of(from->squares);
	s->scale = (int16_t)from->scale; /* differences of two of them are ints */
}

double stats_norm(const struct stats *s)
{
	return s->finite ? ldexp(sqrt(s->squares), s->scale) : NAN;
}

double stats_mean(const struct stats *s)
{
	return s->finite ? s->mean : NAN;
}

double stats_deviation(const struct stats *s)
{
	return s->finite ? ldexp(sqrt(s->deviations / (double)s->finite), s->scale) : NAN;
}

double stats_absmax(const struct stats *s)
{
	return s->finite ? fmax(fabs(s->min), fabs(s->max)) : NAN;
}
