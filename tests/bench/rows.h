/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_ROWS_H
#define BENCH_ROWS_H

/* Lines for table.sh of what was measured in rounds: each way runs once in each round, in
 * another order in each.  A ratio is the median of the rounds' ratios.
 */

#include "engine/base/base.h"

enum { ROWS_ROUNDS_MAX = 1000 };

struct row {
	const char *name, *unit, *reference; /* reference NULL: the row has none */
	bool less;                           /* less is better */
	double goal;                         /* 0: no goal */
};

double rows_median(const double *values, unsigned n);
/* Returns how far from the median the true one may be (95 %): half of the distance between the
 * order statistics around it.
 */
double rows_spread(const double *values, unsigned n);

/* Prints a row; ratios NULL: without a reference. */
void rows_print(const struct row *r, double value, double of, const double *ratios, unsigned n);
/* Prints a row; value[i] and of[i] are of round i. */
void rows_compare(const struct row *r, const double *value, const double *of, unsigned n);

struct rows_way {
	double (*run)(const void *arg); /* returns what it measured */
	const void *arg;
	double measured[ROWS_ROUNDS_MAX];
};
#define WAY(RUN, ARG)                                                                          \
	{                                                                                      \
		.run = (RUN), .arg = (ARG)                                                     \
	}

/* Puts this thread, and those that it starts, at SCHED_FIFO; if that is not allowed, a line
 * says so.
 */
void rows_go_first(const char *who);
/* Returns FRAG_BENCH_ROUNDS, or `otherwise`. */
unsigned rows_rounds(unsigned otherwise);
/* Measures each way in `rounds` rounds, after a round to warm up. */
void rows_run(struct rows_way *ways, unsigned n, unsigned rounds);

#endif
