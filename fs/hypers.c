/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/hypers.h"

#include <errno.h>
#include <string.h>

struct hyper_read {
	LIST_ENTRY(hyper_read) entry;
	struct hypers *all;
	struct engine_address address;
	struct engine_file *file;
	struct engine_read read;
	uint64_t began_ns;
	bool over; /* under the lock, as what follows */
	int64_t result;
	double value;
};

/* The last change of a value.  Its time is not the job's generation: an editor takes a file
 * whose mtime has moved for a file that somebody else has written.
 */
struct hyper_change {
	LIST_ENTRY(hyper_change) entry;
	struct engine_address address;
	double value;
	uint64_t ns;
};

void hypers_init(struct hypers *all, struct deferred *deferred)
{
	*all = (struct hypers){ .deferred = deferred };
	pthread_mutex_init(&all->lock, NULL);
	pthread_cond_init(&all->changed, NULL);
}

/* Called with the lock, when r is over. */
static void take_out(struct hyper_read *r)
{
	LIST_REMOVE(r, entry);
	if (r->file)
		engine_file_close(r->file);
	free(r);
}

/* The done function of a read.  While hypers_fini cancels r, it waits: once r->over is set r
 * may be freed.
 */
static void came(struct engine_read *read, const void *data, int64_t result)
{
	struct hyper_read *r = read->owner;
	struct hypers *all = r->all;

	pthread_mutex_lock(&all->lock);
	while (all->cancelling == r)
		pthread_cond_wait(&all->changed, &all->lock);
	r->result = result;
	if (result == sizeof(r->value))
		memcpy(&r->value, data, sizeof(r->value));
	r->over = true;
	if (!all->stop)
		deferred_wake(all->deferred);
	pthread_cond_broadcast(&all->changed);
	pthread_mutex_unlock(&all->lock);
}

/* ---- asking ---- */

static struct hyper_read *find_read(struct hypers *all, const struct engine_address *a)
{
	struct hyper_read *r;

	LIST_FOREACH (r, &all->reads, entry)
		if (r->address.group == a->group && !strcmp(r->address.key, a->key))
			break;
	return r;
}

/* Starts a read.  Called with the lock, which is let go in engine_read(), because that may call
 * came().
 */
static int begin(struct hypers *all, const struct engine_address *address)
{
	struct engine *e = all->deferred->engine;
	struct hyper_read *r = calloc(1, sizeof(*r));
	uint64_t bytes;
	int rc = r ? engine_file_open(e, address, &r->file, &bytes) : -ENOMEM;

	if (rc) {
		free(r);
		return rc;
	}
	r->all = all;
	r->address = *address;
	r->began_ns = monotonic_ns();
	r->read = (struct engine_read){ .file = r->file,
					.size = sizeof(r->value),
					.nowait = true,
					.done = came,
					.owner = r };
	LIST_INSERT_HEAD(&all->reads, r, entry);
	pthread_mutex_unlock(&all->lock);
	engine_read(e, &r->read);
	pthread_mutex_lock(&all->lock);
	return 0;
}

static struct hyper_change *find_change(struct hypers *all, const struct engine_address *a)
{
	struct hyper_change *c;

	LIST_FOREACH (c, &all->changes, entry)
		if (c->address.group == a->group && !strcmp(c->address.key, a->key))
			break;
	return c;
}

/* Returns the time of the value's last change.  Called with the lock. */
static uint64_t note_change(struct hypers *all, const struct engine_address *a, double value)
{
	struct hyper_change *c = find_change(all, a);
	bool is_new = !c;

	if (is_new) {
		c = calloc(1, sizeof(*c));
		if (!c)
			return 0;
		c->address = *a;
		LIST_INSERT_HEAD(&all->changes, c, entry);
	}
	if (is_new || memcmp(&c->value, &value, sizeof(value)))
		c->ns = engine_changed_ns(all->deferred->engine, a);
	c->value = value;
	return c->ns;
}

/* Gives the value of a read, which stays listed: a handler that needs several values finds all
 * of them in one of its tries.
 */
static int take_value(struct hyper_read *r, double *value)
{
	int64_t result = r->result;

	*value = r->value;
	if (result != sizeof(*value)) {
		take_out(r);
		return result < 0 ? (int)result : -EIO;
	}
	if (r->file)
		engine_file_close(r->file);
	r->file = NULL;
	return 0;
}

int hypers_get(struct hypers *all, const struct engine_address *address, double *value,
	       uint64_t *changed_ns)
{
	uint64_t since = engine_asked_since();
	struct hyper_read *r;
	int rc = 0;

	pthread_mutex_lock(&all->lock);
	r = find_read(all, address);
	if (r && r->over && r->began_ns < since)
		take_out(r); /* the value is too old for this handler */
	if (all->stop)
		rc = -EINTR;
	else if (!find_read(all, address))
		rc = begin(all, address);
	r = rc ? NULL : find_read(all, address);
	if (!rc)
		rc = r && r->over ? take_value(r, value) : -EAGAIN;
	if (!rc)
		*changed_ns = note_change(all, address, *value);
	pthread_mutex_unlock(&all->lock);
	return rc;
}

/* ---- the end ---- */

void hypers_stop(struct hypers *all)
{
	pthread_mutex_lock(&all->lock);
	all->stop = true;
	pthread_mutex_unlock(&all->lock);
}

static void cancel(struct hypers *all, struct hyper_read *r)
{
	all->cancelling = r;
	pthread_mutex_unlock(&all->lock);
	engine_read_cancel(all->deferred->engine, &r->read);
	pthread_mutex_lock(&all->lock);
	all->cancelling = NULL;
	pthread_cond_broadcast(&all->changed);
	while (!r->over)
		pthread_cond_wait(&all->changed, &all->lock);
}

void hypers_fini(struct hypers *all)
{
	struct hyper_change *c;

	pthread_mutex_lock(&all->lock);
	while (!LIST_EMPTY(&all->reads)) {
		struct hyper_read *r = LIST_FIRST(&all->reads);

		if (!r->over)
			cancel(all, r);
		take_out(r);
	}
	while ((c = LIST_FIRST(&all->changes))) {
		LIST_REMOVE(c, entry);
		free(c);
	}
	pthread_mutex_unlock(&all->lock);
	pthread_cond_destroy(&all->changed);
	pthread_mutex_destroy(&all->lock);
}
