/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/phase.h"

#include "engine/base/base.h"

#include <inttypes.h>

/* The limits of buckets: 2^10 ns (1 us), then each four times the one before, to 69 s. */
enum { LIMIT_FIRST = 10, LIMIT_LAST = 36, LIMIT_STEP = 2 };

static double seconds(uint64_t ns)
{
	return (double)ns / 1e9;
}

void phase_put_histograms(FILE *out, const char *prefix, const char *labels)
{
	struct histogram ever, last;

	for (int i = 0; i < PHASES; i++) {
		const char *name = phase_name((enum phase)i);

		phase_times((enum phase)i, &ever, &last);
		if (!ever.count)
			continue;
		for (unsigned bit = LIMIT_FIRST; bit <= LIMIT_LAST; bit += LIMIT_STEP)
			fprintf(out,
				"%s_seconds_bucket{%sphase=\"%s\",le=\"%.9g\"} %" PRIu64 "\n",
				prefix, labels, name, seconds(1ULL << bit),
				histogram_below(&ever, bit));
		fprintf(out,
			"%s_seconds_bucket{%sphase=\"%s\",le=\"+Inf\"} %" PRIu64 "\n"
			"%s_seconds_sum{%sphase=\"%s\"} %.9f\n"
			"%s_seconds_count{%sphase=\"%s\"} %" PRIu64 "\n",
			prefix, labels, name, ever.count, prefix, labels, name,
			seconds(ever.sum), prefix, labels, name, ever.count);
	}
}

void phase_put_last_step(FILE *out, const char *prefix, const char *labels)
{
	static const double quantiles[] = { 0, 0.5, 0.99, 1 };
	struct histogram ever, last;

	for (int i = 0; i < PHASES; i++) {
		phase_times((enum phase)i, &ever, &last);
		for (unsigned q = 0; last.count && q < ARRAY_SIZE(quantiles); q++)
			fprintf(out,
				"%s_last_step_seconds{%sphase=\"%s\",quantile=\"%g\"} %.9f\n",
				prefix, labels, phase_name((enum phase)i), quantiles[q],
				seconds(histogram_quantile(&last, quantiles[q])));
	}
}

static void put_row(FILE *out, enum phase phase, const char *of, const struct histogram *h)
{
	fprintf(out, "%s\t%s\t%" PRIu64 "\t%.9f\t%.9f\t%.9f\t%.9f\t%.9f\n", phase_name(phase),
		of, h->count, seconds(h->sum), seconds(h->min),
		seconds(histogram_quantile(h, 0.5)), seconds(histogram_quantile(h, 0.99)),
		seconds(h->max));
}

void phase_put_table(FILE *out)
{
	struct histogram ever, last;

	fputs("phase\tof\tcount\tsum\tmin\tmedian\tp99\tmax\n", out);
	for (int i = 0; i < PHASES; i++) {
		phase_times((enum phase)i, &ever, &last);
		if (!ever.count)
			continue;
		put_row(out, (enum phase)i, "last step", &last);
		put_row(out, (enum phase)i, "ever", &ever);
	}
}
