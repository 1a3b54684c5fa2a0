/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_UNIT_WAITER_H
#define TESTS_UNIT_WAITER_H

/* For a test that waits until a request at the engine's door has ended. */

#include "engine/base/thread.h"
#include "engine/engine.h"

#include <check.h>
#include <string.h>

enum { WAITER_MS = 60000 };

struct waiter {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool ended;
	int64_t result;
	void *out; /* of a read; the caller's */
};

static inline void waiter_init(struct waiter *w, void *out)
{
	*w = (struct waiter){ .lock = PTHREAD_MUTEX_INITIALIZER, .out = out };
	thread_cond_init(&w->changed);
}

static inline void waiter_end(struct waiter *w, int64_t result)
{
	pthread_mutex_lock(&w->lock);
	ck_assert(!w->ended);
	w->result = result;
	w->ended = true;
	pthread_cond_signal(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

static inline int64_t waiter_wait(struct waiter *w)
{
	struct timespec until = thread_in_ms(WAITER_MS);

	pthread_mutex_lock(&w->lock);
	while (!w->ended)
		ck_assert_int_eq(pthread_cond_timedwait(&w->changed, &w->lock, &until), 0);
	pthread_mutex_unlock(&w->lock);
	return w->result;
}

/* engine_read's done. */
static inline void waiter_was_read(struct engine_read *read, const void *data, int64_t result)
{
	struct waiter *w = read->owner;

	if (result > 0)
		memcpy(w->out, data, (size_t)result);
	waiter_end(w, result);
}

/* What engine_read gives, waited for. */
static inline int64_t waiter_read(struct engine *e, struct engine_file *file, uint64_t offset,
				  size_t size, void *out)
{
	struct waiter w;
	struct engine_read read = { .file = file,
				    .offset = offset,
				    .size = size,
				    .done = waiter_was_read,
				    .owner = &w };

	waiter_init(&w, out);
	engine_read(e, &read);
	return waiter_wait(&w);
}

#endif
