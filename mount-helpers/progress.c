/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/progress.h"

#include "engine/base/thread.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

enum { SHOW_AFTER_MS = 1000, SHOW_EVERY_MS = 100 };

static void show(const struct progress *p)
{
	char done[80] = "";

	if (p->total)
		snprintf(done, sizeof(done), "%" PRIu64 " of %" PRIu64 " (%" PRIu64 " %%), ",
			 p->done, p->total, p->done * 100 / p->total);
	else if (p->done)
		snprintf(done, sizeof(done), "%" PRIu64 ", ", p->done);
	fprintf(stderr, "\r\033[K%s: %s%" PRIu64 " s", p->what, done,
		(monotonic_ms() - p->began_ms) / 1000);
}

static void *run(void *arg)
{
	struct progress *p = arg;
	struct timespec next = thread_in_ms(SHOW_AFTER_MS);
	bool shown = false;

	LOCKED(&p->lock);
	while (!p->over) {
		if (!pthread_cond_timedwait(&p->over_cond, &p->lock, &next))
			continue;
		show(p);
		shown = true;
		next = thread_in_ms(SHOW_EVERY_MS);
	}
	if (shown)
		fputs("\r\033[K", stderr);
	return NULL;
}

void progress_begin(struct progress *p, const char *what)
{
	*p = (struct progress){ .what = what, .began_ms = monotonic_ms() };
	pthread_mutex_init(&p->lock, NULL);
	thread_cond_init(&p->over_cond);
	p->has_thread = isatty(STDERR_FILENO) && !thread_start(&p->thread, run, p);
}

void progress_step(struct progress *p, uint64_t done, uint64_t total)
{
	LOCKED(&p->lock);
	p->done = done;
	p->total = total;
}

void progress_end(struct progress *p)
{
	if (!p->what)
		return;
	pthread_mutex_lock(&p->lock);
	p->over = true;
	pthread_cond_signal(&p->over_cond);
	pthread_mutex_unlock(&p->lock);
	if (p->has_thread)
		pthread_join(p->thread, NULL);
	pthread_cond_destroy(&p->over_cond);
	pthread_mutex_destroy(&p->lock);
	p->what = NULL;
}
