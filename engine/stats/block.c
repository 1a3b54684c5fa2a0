/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/stats/block.h"

#include "engine/base/dtype.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define EACH_LANE(l) for (unsigned l = 0; l < BLOCK_LANES; l++)

/* ---- by plain C ---- */

static void add_lanes(struct block_lanes *to, const float *v)
{
	EACH_LANE (l) {
		double d = (double)v[l];

		to->sums[l] += d;
		to->squares[l] += d * d;
		to->min[l] = v[l] < to->min[l] ? v[l] : to->min[l];
		to->max[l] = v[l] > to->max[l] ? v[l] : to->max[l];
		to->zero += v[l] == 0;
	}
}

static void begin(struct block_lanes *to, float first)
{
	memset(to, 0, sizeof(*to));
	EACH_LANE (l)
		to->min[l] = to->max[l] = first;
}

static void of_f32(struct block_lanes *to, const void *values, unsigned n)
{
	float v[BLOCK_LANES];

	memcpy(v, values, sizeof(*v));
	begin(to, *v);
	for (unsigned i = 0; i < n; i += BLOCK_LANES) {
		memcpy(v, (const uint8_t *)values + i * sizeof(*v), sizeof(v));
		add_lanes(to, v);
	}
}

static float widen_bf16(uint16_t half)
{
	uint32_t bits = (uint32_t)half << 16;
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static void of_bf16(struct block_lanes *to, const void *values, unsigned n)
{
	uint16_t half[BLOCK_LANES];

	memcpy(half, values, sizeof(*half));
	begin(to, widen_bf16(*half));
	for (unsigned i = 0; i < n; i += BLOCK_LANES) {
		float v[BLOCK_LANES];

		memcpy(half, (const uint8_t *)values + i * sizeof(*half), sizeof(half));
		EACH_LANE (l)
			/* the lanes of the vector ways, which split 32-bit words into even and
			 * odd elements
			 */
			v[l / 2 + l % 2 * (BLOCK_LANES / 2)] = widen_bf16(half[l]);
		add_lanes(to, v);
	}
}

static const struct block_ways *block_plain(void)
{
	static const struct block_ways ways = { of_f32, of_bf16, NULL };

	return &ways;
}

/* ---- the ways ---- */

const struct block_ways *block_ways(unsigned i)
{
	static const struct block_ways *(*const all[])(void) = { block_avx512, block_avx2,
								 block_plain };
	const struct block_ways *ways;

	for (unsigned w = 0; w < ARRAY_SIZE(all); w++) {
		ways = all[w]();
		if (ways && !i--)
			return ways;
	}
	return NULL;
}

bool block_has(enum frag_dtype dtype)
{
	switch (dtype) {
	case FRAG_F64:
	case FRAG_I32:
	case FRAG_U32:
	case FRAG_I64:
	case FRAG_U64:
	case FRAG_C32:
	case FRAG_C64:
	case FRAG_C128:
		return false;
	default:
		return true;
	}
}

static double sum_of(const double lanes[BLOCK_LANES])
{
	double left[BLOCK_LANES];

	memcpy(left, lanes, sizeof(left));
	for (unsigned n = BLOCK_LANES / 2; n; n /= 2)
		for (unsigned l = 0; l < n; l++)
			left[l] += left[l + n];
	return left[0];
}

static void add_up(struct block_lanes *lanes, const struct block_ways *ways,
		   enum frag_dtype dtype, const void *values, unsigned n)
{
	float wide[BLOCK_MAX];

	if (dtype == FRAG_F32) {
		ways->of_f32(lanes, values, n);
	} else if (dtype == FRAG_BF16) {
		ways->of_bf16(lanes, values, n);
	} else if (dtype == FRAG_F16 && ways->of_f16) {
		ways->of_f16(lanes, values, n);
	} else {
		dtype_convert(FRAG_F32, wide, dtype, values, n);
		ways->of_f32(lanes, wide, n);
	}
}

bool block_add_up(struct block_sums *to, const struct block_ways *ways, enum frag_dtype dtype,
		  const void *values, unsigned n)
{
	struct block_lanes lanes;
	float min, max;

	assert(n && n <= BLOCK_MAX && n % BLOCK_MULTIPLE == 0);
	add_up(&lanes, ways, dtype, values, n);
	to->sum = sum_of(lanes.sums);
	to->squares = sum_of(lanes.squares);
	to->zero = lanes.zero;
	min = lanes.min[0];
	max = lanes.max[0];
	EACH_LANE (l) {
		min = lanes.min[l] < min ? lanes.min[l] : min;
		max = lanes.max[l] > max ? lanes.max[l] : max;
	}
	/* which of 0 and -0 is found differs by the instructions */
	to->min = (double)min + 0.0;
	to->max = (double)max + 0.0;
	return isfinite(to->squares); /* squares of finite float32 do not add up to infinity */
}
