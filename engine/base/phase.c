/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/phase.h"

#include "engine/base/base.h"
#include "engine/base/thread.h"

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

const char *phase_name(enum phase phase)
{
	return names[phase];
}

/* The name in a register: bpftrace knows no argument of a probe that is an indexed address. */
static const char *name_of(enum phase phase)
{
	const char *name = names[phase];

	__asm__("" : "+r"(name));
	return name;
}

#ifdef HAVE_NVTX
static pthread_once_t nvtx_once = PTHREAD_ONCE_INIT;

/* Else the first call does it, while other threads may call. */
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
