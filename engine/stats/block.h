/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_STATS_BLOCK_H
#define ENGINE_STATS_BLOCK_H

/* Sums of a block of float32, or of what widens to it, by the vector instructions that the
 * processor has.  The square of a float32 is a float64 without rounding, and each element goes
 * to the same of 16 lanes on all machines: so all processors come to the same bits, with fused
 * multiplications and additions or without.  Any thread.
 */

#include "engine/base/base.h"
#include "engine/frag.h"

enum {
	BLOCK_LANES = 16,
	BLOCK_MULTIPLE = 32, /* a block has a multiple of so many elements */
	BLOCK_MAX = 8192,    /* elements */
};

struct block_sums {
	double sum, squares;
	double min, max; /* 0 for -0 */
	uint64_t zero;
};

/* Sums by lane, before block_add_up joins the lanes. */
struct block_lanes {
	double sums[BLOCK_LANES], squares[BLOCK_LANES];
	float min[BLOCK_LANES], max[BLOCK_LANES];
	uint64_t zero;
};

typedef void block_fn(struct block_lanes *to, const void *values, unsigned n);

struct block_ways {
	block_fn *of_f32; /* element i goes to lane i % 16 */
	/* Element i goes to lane i / 2 % 8 + i % 2 * 8. */
	block_fn *of_bf16;
	block_fn *of_f16; /* as of_f32; NULL: float16 is widened before */
};

/* Returns the ways of this processor, the fastest first; NULL behind the last. */
const struct block_ways *block_ways(unsigned i);

/* Returns true for float32 and what dtype_convert widens to it. */
bool block_has(enum frag_dtype dtype);

/* Adds up n elements, a multiple of BLOCK_MULTIPLE and BLOCK_MAX at most.  False: not all are
 * finite, and *to is of no use.
 */
bool block_add_up(struct block_sums *to, const struct block_ways *ways, enum frag_dtype dtype,
		  const void *values, unsigned n);

/* Return the ways by AVX-512, and by AVX2 with F16C; NULL: this processor lacks them. */
const struct block_ways *block_avx512(void);
const struct block_ways *block_avx2(void);

#endif
