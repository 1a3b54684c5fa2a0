/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/stats/stats.h"

#include "engine/base/dtype.h"

#include <math.h>
#include <string.h>

/* Elements are widened to float64 and added block by block: a block stays in the processor's
 * nearest cache, so that it can be visited more than once.
 */
enum { BLOCK = 1024, LANES = 8 };

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
	*s = (struct stats){ .first_nan = STATS_NONE,
			     .first_inf = STATS_NONE,
			     .min = NAN,
			     .max = NAN,
			     .with_bins = with_bins };
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
		EACH_LANE(l)
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
		exponent = exponent < STATS_EXPONENT_MIN ? STATS_EXPONENT_MIN : exponent;
		exponent = exponent > STATS_EXPONENT_MAX ? STATS_EXPONENT_MAX : exponent;
		s->bins[exponent - STATS_EXPONENT_MIN]++;
	}
}

/* Makes the statistics of n > 0 finite values. */
static void of_block(struct stats *b, const double *values, unsigned n)
{
	double min[LANES], max[LANES], sum[LANES] = { 0 }, squares[LANES] = { 0 };
	double deviations[LANES] = { 0 };
	unsigned whole = n - n % LANES;
	uint64_t zeros[LANES] = { 0 };
	double rest = 0;

	EACH_LANE(l)
	min[l] = max[l] = values[0];
	for (unsigned i = 0; i < whole; i += LANES) {
		const double *v = values + i;

		EACH_LANE(l)
		{
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
		EACH_LANE(l)
	deviations[l] += (values[i + l] - b->mean) * (values[i + l] - b->mean);
	b->deviations = sum_of(deviations);
	b->squares = sum_of(squares);
	b->min = b->max = values[0];
	EACH_LANE(l)
	{
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

/* ---- all ---- */

static void join_finite(struct stats *s, const struct stats *other)
{
	double na = (double)s->finite, nb = (double)other->finite, n = na + nb;
	double apart = other->mean - s->mean;

	if (!other->finite)
		return;
	s->min = other->min < s->min || !s->finite ? other->min : s->min;
	s->max = other->max > s->max || !s->finite ? other->max : s->max;
	s->mean = s->finite ? s->mean + apart * (nb / n) : other->mean;
	s->deviations += other->deviations + (s->finite ? apart * apart * (na * nb / n) : 0);
	s->squares += other->squares;
	s->zero += other->zero;
	s->finite += other->finite;
}

void stats_add(struct stats *s, enum frag_dtype dtype, const void *values, uint64_t n,
	       uint64_t first)
{
	const uint8_t *at = values;

	for (uint64_t done = 0, some; done < n; done += some) {
		double block[BLOCK];
		struct stats b = { 0 };
		unsigned left;

		some = u64_min(BLOCK, n - done);
		widen(block, dtype, at + done * frag_dtype_size(dtype), (unsigned)some);
		left = (unsigned)some;
		if (some % LANES || !all_finite(block, left))
			left = take_out(s, block, left, first + done);
		if (s->with_bins)
			add_bins(s, block, left);
		if (left)
			of_block(&b, block, left);
		join_finite(s, &b);
		s->count += some;
	}
}

void stats_join(struct stats *s, const struct stats *other)
{
	join_finite(s, other);
	s->count += other->count;
	s->nan += other->nan;
	s->inf += other->inf;
	s->first_nan = u64_min(s->first_nan, other->first_nan);
	s->first_inf = u64_min(s->first_inf, other->first_inf);
	for (unsigned i = 0; i < STATS_BINS && s->with_bins; i++)
		s->bins[i] += other->bins[i];
}

double stats_norm(const struct stats *s)
{
	return s->finite ? sqrt(s->squares) : NAN;
}

double stats_mean(const struct stats *s)
{
	return s->finite ? s->mean : NAN;
}

double stats_deviation(const struct stats *s)
{
	return s->finite ? sqrt(s->deviations / (double)s->finite) : NAN;
}

double stats_absmax(const struct stats *s)
{
	return s->finite ? fmax(fabs(s->min), fabs(s->max)) : NAN;
}
