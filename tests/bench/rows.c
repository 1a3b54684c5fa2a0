/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/bench/rows.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void sort(double *sorted, const double *values, unsigned n)
{
	assert(n && n <= ROWS_ROUNDS_MAX);
	memcpy(sorted, values, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), by_value);
}

double rows_median(const double *values, unsigned n)
{
	double sorted[ROWS_ROUNDS_MAX];

	sort(sorted, values, n);
	return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

double rows_spread(const double *values, unsigned n)
{
	double sorted[ROWS_ROUNDS_MAX];
	unsigned off = 0, low, high;

	sort(sorted, values, n);
	/* 0.98 * sqrt(n): 1.96 standard deviations of the median's rank, sqrt(n) / 2. */
	while (off * off < 0.98 * 0.98 * n)
		off++;
	low = n / 2 > off ? n / 2 - off : 0;
	high = (n - 1) / 2 + off < n ? (n - 1) / 2 + off : n - 1;
	return (sorted[high] - sorted[low]) / 2;
}

void rows_print(const struct row *r, double value, double of, const double *ratios, unsigned n)
{
	printf("{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", ", r->name, value,
	       r->unit);
	if (ratios)
		printf("\"reference\": \"%s\", \"reference_value\": %.6g, \"ratio\": %.6g, "
		       "\"spread\": %.3g, ",
		       r->reference, of, rows_median(ratios, n), rows_spread(ratios, n));
	else
		printf("\"reference\": null, \"reference_value\": null, \"ratio\": null, "
		       "\"spread\": null, ");
	if (r->goal > 0)
		printf("\"goal\": %g, ", r->goal);
	else
		printf("\"goal\": null, ");
	printf("\"better\": \"%s\"}\n", r->less ? "lower" : "higher");
	/* so that the row is not lost if the program is ended in the next one */
	fflush(stdout);
}

void rows_compare(const struct row *r, const double *value, const double *of, unsigned n)
{
	double ratios[ROWS_ROUNDS_MAX];

	for (unsigned i = 0; i < n; i++)
		ratios[i] = value[i] / of[i];
	rows_print(r, rows_median(value, n), rows_median(of, n), ratios, n);
}

/* Runs this thread before others: another program takes a core for milliseconds, in which a
 * disk, or a peer, waits.
 */
void rows_go_first(const char *who)
{
	if (sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){ .sched_priority = 1 }))
		fprintf(stderr, "%s: not at SCHED_FIFO: %s\n", who, strerror(errno));
}

unsigned rows_rounds(unsigned otherwise)
{
	const char *given = getenv("FRAG_BENCH_ROUNDS");
	unsigned long n = given ? strtoul(given, NULL, 10) : otherwise;

	return n && n <= ROWS_ROUNDS_MAX ? (unsigned)n : otherwise;
}

static void run_round(struct rows_way *ways, unsigned n, unsigned round)
{
	for (unsigned i = 0; i < n; i++) {
		struct rows_way *w =
			&ways[round / n % 2 ? n - 1 - (i + round) % n : (i + round) % n];

		w->measured[round] = w->run(w->arg);
	}
}

void rows_run(struct rows_way *ways, unsigned n, unsigned rounds)
{
	run_round(ways, n, 0);
	for (unsigned round = 0; round < rounds; round++)
		run_round(ways, n, round);
}
