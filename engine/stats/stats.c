/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/stats/stats.h"

#include "engine/base/dtype.h"
#include "engine/stats/block.h"

#include <math.h>
#include <string.h>

/* Elements are added block by block.  Finite float32, and what widens to it, takes one pass of
 * vectors: engine/stats/block.h.  All else, and bins, is widened to float64 first: a block
 * stays in the processor's nearest cache, so that it can be visited more than once.
 */
enum { BLOCK = 1024, LANES = 8 };

/* The deviations are squares - sum * sum / n for float32 in one pass: that has some 12 digits
 * where it is more than so much of the squares.
 */
#define CANCELLATION 0x1p-10

/* 2^64 squares of numbers below 2^400 add up to a finite float64, and squares of numbers above
 * 2^-400 are no subnormals.
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
			sum[l] += values[i + l] * 0.0; /* NaN where a value is not finite */
	return sum_of(sum) == 0;
}

/* Counts the NaNs and infinities among n values, and moves the finite ones together.  Returns
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

/* Statistics of finite elements, without bins, which would have to be cleared. */
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

/* Rounding may carry a mean beyond the greatest element, and so beyond the range of float64. */
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

/* Chooses the greater scale; that of a sum of squares which is 0 does not count, as all its
 * elements are 0.
 */
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

/* Makes the statistics of a block of float32, or of what widens to it.  False: not all are
 * finite, or they lie so close together that the sum of deviations loses too much to
 * cancellation.
 */
static bool of_narrow(struct values_block *b, const struct block_ways *ways,
		      enum frag_dtype dtype, const void *values, unsigned n)
{
	struct block_sums sums;

	if (!block_add_up(&sums, ways, dtype, values, n))
		return false;
	*b = (struct values_block){
		.finite = n,
		.zero = sums.zero,
		.min = sums.min,
		.max = sums.max,
		.mean = mean_within(sums.sum / n, sums.min, sums.max),
		.squares = sums.squares,
	};
	if (sums.min != sums.max)
		b->deviations = fmax(0, sums.squares - sums.sum * (sums.sum / n));
	return sums.min == sums.max || b->deviations > sums.squares * CANCELLATION;
}

/* Adds n <= BLOCK elements of any dtype. */
static void add_block(struct stats *s, enum frag_dtype dtype, const void *values, unsigned n,
		      uint64_t first)
{
	struct values_block b = { 0 };
	double block[BLOCK];
	unsigned left = n;

	widen(block, dtype, values, n);
	if (n % LANES || !all_finite(block, n))
		left = take_out(s, block, n, first);
	if (s->with_bins)
		add_bins(s, block, left);
	if (left)
		of_any_block(&b, block, left);
	join_finite(s, &b);
}

/* Adds n <= BLOCK_MAX elements by add_block. */
static void add_widened(struct stats *s, enum frag_dtype dtype, const uint8_t *values,
			unsigned n, uint64_t first)
{
	for (unsigned done = 0, some; done < n; done += some) {
		some = n - done < BLOCK ? n - done : BLOCK;
		add_block(s, dtype, values + done * frag_dtype_size(dtype), some, first + done);
	}
}

void stats_add(struct stats *s, enum frag_dtype dtype, const void *values, uint64_t n,
	       uint64_t first)
{
	const struct block_ways *ways =
		s->with_bins || !block_has(dtype) ? NULL : block_ways(0);
	const uint8_t *at = values;

	s->count += n;
	for (uint64_t done = 0, some; done < n; done += some) {
		const uint8_t *from = at + done * frag_dtype_size(dtype);
		struct values_block b;

		some = u64_min(BLOCK_MAX, n - done);
		/* the last elements, less than a multiple, go by add_widened */
		if (ways && some > BLOCK_MULTIPLE)
			some -= some % BLOCK_MULTIPLE;
		if (ways && some % BLOCK_MULTIPLE == 0 &&
		    of_narrow(&b, ways, dtype, from, (unsigned)some))
			join_finite(s, &b);
		else
			add_widened(s, dtype, from, (unsigned)some, first + done);
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
	/* so that the difference of two scales does not overflow */
	s->scale = (int16_t)from->scale;
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
