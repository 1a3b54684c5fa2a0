/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/unit/swap/read-now.h"

#include <semaphore.h>
#include <stdlib.h>
#include <time.h>

enum { SECONDS = 60 };

struct waited {
	struct swapper_read read;
	sem_t over;
	int rc;
};

static void end(struct swapper_read *r, int rc)
{
	struct waited *w = container_of(r, struct waited, read);

	w->rc = rc;
	sem_post(&w->over);
}

int read_now(struct swapper *sw, struct swapper_state *s, struct swapper_pin *pin,
	     uint64_t offset, uint64_t size, void *memory)
{
	struct waited w = { .read = { .state = s,
				      .pin = pin,
				      .offset = offset,
				      .size = size,
				      .memory = memory,
				      .done = end } };
	struct timespec latest;

	sem_init(&w.over, 0, 0);
	swapper_read(sw, &w.read);
	clock_gettime(CLOCK_REALTIME, &latest);
	latest.tv_sec += SECONDS;
	if (sem_timedwait(&w.over, &latest))
		abort();
	swapper_log_failure(sw, &w.read.failure);
	return w.rc;
}
