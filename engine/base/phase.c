/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/phase.h"

#include "engine/base/base.h"
#include "engine/base/thread.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/sdt.h>

#ifdef HAVE_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

static const char *const names[PHASES] = {
	[PHASE_VIEW] = "view",         [PHASE_COMMIT] = "commit",
	[PHASE_ROUND] = "round",       [PHASE_SWAP_IN] = "swap_in",
	[PHASE_SWAP_OUT] = "swap_out", [PHASE_SWAP_WAIT] = "swap_wait",
	[PHASE_STALL] = "stall",
};

static struct {
	pthread_mutex_t lock;
	struct phase_figures {
		struct histogram ever, step, last_step;
	} phases[PHASES];
	_Atomic bool any; /* a phase has ended in this step or the last one */
} times = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Returns the name in a register: bpftrace cannot read an argument of a probe that is an
 * indexed address.
 */
static const char *name_of(enum phase phase)
{
	const char *name = names[phase];

	__asm__("" : "+r"(name));
	return name;
}

#ifdef HAVE_NVTX
static pthread_once_t nvtx_once = PTHREAD_ONCE_INIT;

/* Without it the first call of NVTX initializes it, while other threads may call NVTX. */
static void init_nvtx(void)
{
	nvtxInitialize(NULL);
}
#endif

void phase_begin(enum phase phase, struct phase_span *span)
{
	span->since_ns = monotonic_ns();
#ifdef HAVE_NVTX
	pthread_once(&nvtx_once, init_nvtx);
	span->range = nvtxRangeStartA(names[phase]);
#endif
	DTRACE_PROBE2(fragfs, phase_begin, name_of(phase), span);
}

uint64_t phase_end(enum phase phase, struct phase_span *span, int result)
{
	uint64_t ns;

	if (!span->since_ns)
		return 0;
	ns = monotonic_ns() - span->since_ns;
	DTRACE_PROBE4(fragfs, phase_end, name_of(phase), span, ns, (int64_t)result);
#ifdef HAVE_NVTX
	nvtxRangeEnd(span->range);
#endif
	*span = (struct phase_span){ 0 };
	pthread_mutex_lock(&times.lock);
	histogram_add(&times.phases[phase].ever, ns);
	histogram_add(&times.phases[phase].step, ns);
	atomic_store_explicit(&times.any, true, memory_order_relaxed);
	pthread_mutex_unlock(&times.lock);
	return ns;
}

void phase_step(void)
{
	bool any = false;

	/* a step without phases takes no lock */
	if (!atomic_load_explicit(&times.any, memory_order_relaxed))
		return;
	pthread_mutex_lock(&times.lock);
	for (int i = 0; i < PHASES; i++) {
		struct phase_figures *p = &times.phases[i];

		any |= p->step.count > 0;
		p->last_step = p->step;
		memset(&p->step, 0, sizeof(p->step));
	}
	atomic_store_explicit(&times.any, any, memory_order_relaxed);
	pthread_mutex_unlock(&times.lock);
}

void phase_times(enum phase phase, struct histogram *ever, struct histogram *last_step)
{
	pthread_mutex_lock(&times.lock);
	*ever = times.phases[phase].ever;
	*last_step = times.phases[phase].last_step;
	pthread_mutex_unlock(&times.lock);
}

/* ---- texts ---- */

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
		const char *name = names[i];

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
				prefix, labels, names[i], quantiles[q],
				seconds(histogram_quantile(&last, quantiles[q])));
	}
}

static void put_row(FILE *out, enum phase phase, const char *of, const struct histogram *h)
{
	fprintf(out, "%s\t%s\t%" PRIu64 "\t%.9f\t%.9f\t%.9f\t%.9f\t%.9f\n", names[phase], of,
		h->count, seconds(h->sum), seconds(h->min), seconds(histogram_quantile(h, 0.5)),
		seconds(histogram_quantile(h, 0.99)), seconds(h->max));
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
