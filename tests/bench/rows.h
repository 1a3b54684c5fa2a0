/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_ROWS_H
#define BENCH_ROWS_H

/* Lines that table.sh takes, of what was measured in rounds: each way once in each, in another
 * order in each.  A ratio is the median of those of the rounds.
 */

#include "engine/base/base.h"

enum { ROWS_ROUNDS_MAX = 1000 };

struct row {
	const char *name, *unit, *reference; /* NULL: it is compared with nothing */
	bool less;                           /* is better */
	double goal;                         /* 0: none */
};

double rows_median(const double *values, unsigned n);
/* How far from it the true median may be (95 %): half of what lies between the order statistics
 * around it.
 */
double rows_spread(const double *values, unsigned n);

/* ratios: NULL: of nothing. */
void rows_print(const struct row *r, double value, double of, const double *ratios, unsigned n);
/* value[i] and of[i] are of one round. */
void rows_compare(const struct row *r, const double *value, const double *of, unsigned n);

struct rows_way {
	double (*run)(const void *arg); /* what it measured */
	const void *arg;
	double measured[ROWS_ROUNDS_MAX];
};
#define WAY(RUN, ARG)                                                                          \
	{                                                                                      \
		.run = (RUN), .arg = (ARG)                                                     \
	}

/* At SCHED_FIFO, this thread and those that it starts; where that is not allowed, a line says
 * so.
 */
void rows_go_first(const char *who);
/* FRAG_BENCH_ROUNDS, or so many. */
unsigned rows_rounds(unsigned otherwise);
/* After one round to warm up. */
void rows_run(struct rows_way *ways, unsigned n, unsigned rounds);

#endif
