/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/serve/tier-fetch.h"

#include <errno.h>

/* A waiting thread looks every LOOK_MS whether its fetch is still wanted. */
enum { LOOK_MS = 100, TRIES = 3 };

struct tier_fetch {
	pthread_mutex_t lock; /* guards ended, status and left; under it no lock is taken */
	pthread_cond_t came;
	bool ended, left; /* left: nobody waits, and on_fetched frees this */
	int status;
	struct view_look shown;
	struct registry_fetch fetch;
	uint8_t bytes[];
};

const void *tier_fetch_result(const struct tier_fetch *t)
{
	return t->bytes;
}

void tier_fetch_free(struct tier_fetch *t)
{
	registry_version_put(t->shown.version);
	pthread_cond_destroy(&t->came);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

static void on_fetched(struct registry_fetch *f, int status)
{
	struct tier_fetch *t = container_of(f, struct tier_fetch, fetch);
	bool left;

	pthread_mutex_lock(&t->lock);
	t->ended = true;
	t->status = status;
	left = t->left;
	pthread_cond_signal(&t->came);
	/* the waiting thread may have freed t, unless it has left */
	pthread_mutex_unlock(&t->lock);
	if (left)
		tier_fetch_free(t);
}

static struct tier_fetch *fetch_new(const struct wire_read *read, enum device_what what,
				    const struct view_look *shown)
{
	size_t room = device_is_sums(what) ? sizeof(struct device_sums) : read->size;
	struct tier_fetch *t = malloc(sizeof(*t) + room);

	if (!t)
		return NULL;
	*t = (struct tier_fetch){ .shown = *shown,
				  .fetch = { .version = shown->version,
					     .offset = shown->at,
					     .size = read->size,
					     .what = what,
					     .memory = t->bytes,
					     .done = on_fetched } };
	pthread_mutex_init(&t->lock, NULL);
	thread_cond_init(&t->came);
	return t;
}

/* Under the lock: waits until the fetch has ended.
 * -ECANCELED: *abandoned is true.
 * -ETIMEDOUT: end_ms has come.
 */
static int wait_until(struct tier_fetch *t, uint64_t end_ms, const _Atomic bool *abandoned)
{
	while (!t->ended) {
		struct timespec soon = thread_in_ms(LOOK_MS);

		if (abandoned && atomic_load_explicit(abandoned, memory_order_relaxed))
			return -ECANCELED;
		if (monotonic_ms() >= end_ms)
			return -ETIMEDOUT;
		pthread_cond_timedwait(&t->came, &t->lock, &soon);
	}
	return 0;
}

/* Cancels a fetch, and waits for its end.  A device ends it by itself, within wait_ms and
 * stuck_ms of struct device_options; a disk may never end it: then it is left to on_fetched.
 * Returns true if it has ended.
 */
static bool cancel(struct tier_fetch *t)
{
	bool may_leave = registry_fetch_cancel(&t->fetch);

	LOCKED(&t->lock);
	wait_until(t, may_leave ? monotonic_ms() + SWAPPER_END_MS : UINT64_MAX, NULL);
	t->left = !t->ended;
	return t->ended;
}

static int fetch(struct engine *e, const struct wire_read *read, enum device_what what,
		 const _Atomic bool *abandoned, struct tier_fetch **fetched)
{
	struct view_look shown;
	struct tier_fetch *t;
	int rc = tier_read_find(e, read, &shown);

	if (rc)
		return rc;
	t = fetch_new(read, what, &shown);
	if (!t) {
		registry_version_put(shown.version);
		return -ENOMEM;
	}
	rc = registry_fetch_begin(&e->registry, &t->fetch);
	if (rc) {
		tier_fetch_free(t);
		return rc;
	}
	pthread_mutex_lock(&t->lock);
	rc = wait_until(t, monotonic_ms() + e->timeout_ms, abandoned);
	pthread_mutex_unlock(&t->lock);
	if (rc && !cancel(t))
		return rc;
	if (!rc)
		rc = tier_read_check(e, read, &t->shown, &t->fetch, t->status);
	if (rc)
		tier_fetch_free(t);
	else
		*fetched = t;
	return rc;
}

int tier_fetch_now(struct engine *e, const struct wire_read *read, enum device_what what,
		   const _Atomic bool *abandoned, struct tier_fetch **fetched)
{
	int rc = -EAGAIN;

	/* live bytes of a view that change meanwhile are preserved: the next try finds them */
	for (unsigned i = 0; i < TRIES && rc == -EAGAIN; i++)
		rc = fetch(e, read, what, abandoned, fetched);
	return rc;
}
