/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_STATS_STATS_H
#define ENGINE_STATS_STATS_H

/* Statistics of elements of any dtype but the complex ones.  NaNs and infinities are counted;
 * all else is of the finite elements, in float64.  Parts of a state are added apart and joined,
 * by Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
 * variances" (1979).  Any thread.
 */

#include "engine/base/base.h"
#include "engine/catalog/wire.h"
#include "engine/frag.h"

#define STATS_NONE UINT64_MAX

enum {
	STATS_EXPONENT_MIN = -1074, /* of the least float64 other than 0 */
	STATS_EXPONENT_MAX = 1023,
	STATS_BINS = STATS_EXPONENT_MAX - STATS_EXPONENT_MIN + 1,
};

struct stats {
	uint64_t count;  /* elements */
	uint64_t finite; /* of these, those that are neither NaN nor infinite */
	uint64_t nan, inf, zero;
	/* numbers of elements; STATS_NONE: there is no such element */
	uint64_t first_nan, first_inf;
	double min, max;   /* of the finite elements; NaN: there are none */
	double mean;       /* of the finite elements; 0: there are none */
	double deviations; /* the sum of squares of the distances from the mean */
	double squares;    /* the sum of squares */
	/* deviations and squares are of elements divided by 2^scale, since the square of a
	 * float64 may overflow, or be 0.  scale is 0 unless the magnitude of an element is
	 * above 2^400, or that of all is below 2^-400.
	 */
	int scale;
	/* How many finite elements other than 0 have a magnitude in [2^e, 2^(e+1)), where e is
	 * STATS_EXPONENT_MIN + i.  They are set only if with_bins is.
	 */
	bool with_bins;
	uint64_t bins[STATS_BINS];
};

/* Returns true if elements of the dtype have statistics. */
bool stats_has(enum frag_dtype dtype);

/* Sets *s to the statistics of no elements. */
void stats_init(struct stats *s, bool with_bins);

/* Adds n elements, the first of which has the number `first`; numbers grow from call to call.
 * The dtype is one that stats_has.
 */
void stats_add(struct stats *s, enum frag_dtype dtype, const void *values, uint64_t n,
	       uint64_t first);

/* Adds the statistics of other elements; their numbers may lie anywhere. */
void stats_join(struct stats *s, const struct stats *other);

/* Convert all but the bins.  stats_from_wire adds `first` to the numbers of elements. */
void stats_to_wire(struct wire_sums *to, const struct stats *s);
void stats_from_wire(struct stats *s, const struct wire_sums *from, uint64_t first);

/* All NaN where no element is finite.  The deviation is that of a population, as numpy's. */
double stats_norm(const struct stats *s);
double stats_mean(const struct stats *s);
double stats_deviation(const struct stats *s);
double stats_absmax(const struct stats *s);

#endif
