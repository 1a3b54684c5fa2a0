/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/device/device-sums.h"
#include "engine/rank/devices-internal.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

struct devices_mark {
	struct device_event *event;
	_Atomic unsigned users;
};

int devices_open(struct devices **out, const struct device_ops *ops,
		 const struct device_options *options)
{
	struct devices *d = calloc(1, sizeof(*d));
	int rc = d ? ops->open(&d->device, options) : -ENOMEM;

	if (rc) {
		free(d);
		return rc;
	}
	d->ops = ops;
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->ended, NULL);
	*out = d;
	return 0;
}

void devices_close(struct devices *d)
{
	struct used_device *u;

	while ((u = LIST_FIRST(&d->used))) {
		LIST_REMOVE(u, link);
		devices_mark_put(d, u->mark);
		free(u);
	}
	devices_host_free(d);
	d->ops->close(d->device);
	pthread_cond_destroy(&d->ended);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

struct device *devices_port(struct devices *d)
{
	return d->device;
}

int devices_pin(struct devices *d, void *memory, uint64_t size)
{
	return d->ops->pin(d->device, memory, size);
}

void devices_unpin(struct devices *d, void *memory)
{
	d->ops->unpin(d->device, memory);
}

struct used_device *devices_find(struct devices *d, int number)
{
	struct used_device *u;

	LIST_FOREACH (u, &d->used, link)
		if (u->number == number)
			return u;
	return NULL;
}

int devices_alloc(struct devices *d, uint64_t size, int *number, void **memory)
{
	const struct used_device *u, *first = NULL;

	assert(thread_may_be_trainer());
	/* add inserts at the head: the last is the device that was taken into use first */
	LIST_FOREACH (u, &d->used, link)
		first = u;
	if (!first)
		return -ENODEV;
	*number = first->number;
	return d->ops->alloc(d->device, first->number, size, memory);
}

void devices_free(struct devices *d, int number, void *memory)
{
	/* a copy of 0 bytes ends when the stream has made its copies of the memory for views */
	struct devices_copy nothing = { .number = number,
					.n = 1,
					.parts = &(struct iovec){ memory, 0 } };
	int rc = devices_copy_now(d, &nothing);

	assert(thread_may_be_trainer());
	if (rc) {
		log_warn("memory of device %d is not freed: %s", number, strerror(-rc));
		return;
	}
	devices_drain(d);
	d->ops->free(d->device, number, memory);
}

static int add_device(struct devices *d, int number, void *stream)
{
	struct used_device *u = calloc(1, sizeof(*u));
	int rc = u ? d->ops->use(d->device, number) : -ENOMEM;

	if (rc) {
		free(u);
		return rc;
	}
	u->number = number;
	u->stream = stream;
	LOCKED(&d->lock);
	LIST_INSERT_HEAD(&d->used, u, link);
	return 0;
}

int devices_use(struct devices *d, int number, void *stream)
{
	struct used_device *u = devices_find(d, number);

	assert(thread_may_be_trainer());
	if (!u)
		return add_device(d, number, stream);
	u->stream = stream;
	return 0;
}

int devices_where(struct devices *d, const void *memory, int *number)
{
	struct device_where where;
	int rc = d->ops->where(d->device, memory, &where);

	if (rc)
		return rc;
	*number = where.number;
	return where.number == DEVICE_NONE || devices_find(d, where.number) ? 0 : -EINVAL;
}

/* ---- marks ---- */

static int make_mark(struct devices *d, const struct used_device *u, struct devices_mark **out)
{
	struct devices_mark *m = malloc(sizeof(*m));
	int rc = m ? d->ops->mark(d->device, u->number, u->stream, &m->event) : -ENOMEM;

	if (rc) {
		free(m);
		return rc;
	}
	m->users = 1;
	*out = m;
	return 0;
}

/* Replaces the newest mark; new is NULL where making it failed with status. */
static void take_mark(struct devices *d, struct used_device *u, struct devices_mark *new,
		      int status)
{
	struct devices_mark *old;

	pthread_mutex_lock(&d->lock);
	old = u->mark;
	u->mark = new;
	u->status = status;
	pthread_mutex_unlock(&d->lock);
	devices_mark_put(d, old);
}

void devices_mark(struct devices *d)
{
	struct used_device *u;

	assert(thread_may_be_trainer());
	LIST_FOREACH (u, &d->used, link) {
		struct devices_mark *new = NULL;
		int rc = make_mark(d, u, &new);

		take_mark(d, u, new, rc);
	}
}

int devices_newest(struct devices *d, int number, struct devices_mark **mark)
{
	const struct used_device *u;

	LOCKED(&d->lock);
	u = devices_find(d, number);
	*mark = u->mark;
	if (*mark)
		atomic_fetch_add_explicit(&(*mark)->users, 1, memory_order_relaxed);
	return u->status;
}

void devices_mark_put(struct devices *d, struct devices_mark *m)
{
	if (!m || atomic_fetch_sub_explicit(&m->users, 1, memory_order_acq_rel) > 1)
		return;
	d->ops->unmark(d->device, m->event);
	free(m);
}

struct device_event *devices_mark_event(const struct devices_mark *mark)
{
	return mark ? mark->event : NULL;
}

/* ---- copies ---- */

struct devices_part {
	struct device_io io;
	struct devices_copy *copy;
	struct iovec pinned; /* copied by on_part, when the event has passed */
	void *host;
	struct device_sums sums;
};

static void count(_Atomic uint64_t *word, uint64_t n)
{
	atomic_fetch_add_explicit(word, n, memory_order_relaxed);
}

void devices_figures(struct devices *d, struct devices_figures *f)
{
	struct device_figures port;

	d->ops->figures(d->device, &port);
	*f = (struct devices_figures){
		.kept = port.kept,
		.from_bytes = atomic_load_explicit(&d->from_bytes, memory_order_relaxed),
		.to_bytes = atomic_load_explicit(&d->to_bytes, memory_order_relaxed),
		.errors = atomic_load_explicit(&d->errors, memory_order_relaxed),
	};
}

static void enlist(struct devices *d, struct devices_copy *c)
{
	LOCKED(&d->lock);
	c->sequence = ++d->sequence;
	LIST_INSERT_HEAD(&d->copies, c, link);
}

static bool is_any_until(const struct devices *d, uint64_t sequence)
{
	const struct devices_copy *c;

	LIST_FOREACH (c, &d->copies, link)
		if (c->sequence <= sequence)
			return true;
	return false;
}

void devices_drain(struct devices *d)
{
	uint64_t sequence;

	LOCKED(&d->lock);
	sequence = d->sequence; /* copies that begin from here on are not waited for */
	while (is_any_until(d, sequence))
		pthread_cond_wait(&d->ended, &d->lock);
}

static void join_sums(struct devices_copy *c)
{
	struct device_sums *sums = c->host;
	uint64_t first = 0;

	device_sums_init(sums);
	for (unsigned i = 0; i < c->n; first += c->ours[i++].io.size)
		device_sums_join(sums, &c->ours[i].sums, first);
}

static void end_copy(struct devices_copy *c)
{
	int result = atomic_load(&c->result);

	if (!result && device_is_sums(c->what))
		join_sums(c);
	pthread_mutex_lock(&c->devices->lock);
	LIST_REMOVE(c, link);
	pthread_cond_broadcast(&c->devices->ended);
	pthread_mutex_unlock(&c->devices->lock);
	free(c->ours);
	if (result && result != -ENOSYS)
		count(&c->devices->errors, 1);
	c->done(c, result);
}

static void on_part(struct device_io *io, int rc)
{
	struct devices_part *p = container_of(io, struct devices_part, io);
	struct devices_copy *c = p->copy;

	if (!rc && c->pinned)
		memcpy(p->host, p->pinned.iov_base, p->pinned.iov_len);
	if (rc)
		atomic_store(&c->result, rc);
	else if (!c->from && c->what == DEVICE_COPY)
		count(c->to_device ? &c->devices->to_bytes : &c->devices->from_bytes, io->size);
	if (atomic_fetch_sub(&c->left, 1) == 1)
		end_copy(c);
}

static void fill_part(struct devices_part *p, struct devices_copy *c, const struct iovec *part,
		      void *host)
{
	*p = (struct devices_part){
		.io = { .what = DEVICE_COPY,
			.number = c->number,
			.size = c->pinned ? 0 : part->iov_len,
			.to = c->to_device ? part->iov_base : host,
			.from = c->to_device ? host : part->iov_base,
			.after = c->after,
			.done = on_part },
		.copy = c,
		.pinned = *part,
		.host = host,
	};
}

static void fill_on_device(struct devices_copy *c)
{
	for (unsigned i = 0; i < c->n; i++)
		c->ours[i] = (struct devices_part){ .io = { .what = c->what,
							    .number = c->number,
							    .size = c->from[i].iov_len,
							    .to = c->parts[i].iov_base,
							    .from = c->from[i].iov_base,
							    .after = c->after,
							    .done = on_part },
						    .copy = c };
}

static bool can_sum(const struct devices_copy *c)
{
	for (unsigned i = 0; i < c->n; i++)
		if (c->parts[i].iov_len % device_element_size(c->what))
			return false;
	return !c->pinned;
}

static void fill_sums(struct devices_copy *c)
{
	for (unsigned i = 0; i < c->n; i++)
		c->ours[i] = (struct devices_part){
			.io = { .what = c->what,
				.number = c->number,
				.size = c->parts[i].iov_len / device_element_size(c->what),
				.to = &c->ours[i].sums,
				.from = c->parts[i].iov_base,
				.after = c->after,
				.done = on_part },
			.copy = c,
		};
}

static void fill(struct devices_copy *c)
{
	uint8_t *host = c->host;

	for (unsigned i = 0; i < c->n; i++) {
		fill_part(&c->ours[i], c, &c->parts[i], host);
		host += c->parts[i].iov_len;
	}
}

int devices_copy_begin(struct devices *d, struct devices_copy *c)
{
	unsigned n = c->n;
	struct devices_part *parts;

	if (device_is_sums(c->what) && !can_sum(c))
		return -EOPNOTSUPP;
	parts = calloc(n ? n : 1, sizeof(*parts));
	if (!parts)
		return -ENOMEM;
	c->ours = parts;
	c->devices = d;
	atomic_store(&c->result, 0);
	atomic_store(&c->left, n + 1);
	if (c->from)
		fill_on_device(c);
	else if (device_is_sums(c->what))
		fill_sums(c);
	else
		fill(c);
	enlist(d, c);
	for (unsigned i = 0; i < n; i++)
		d->ops->submit(d->device, &parts[i].io);
	if (atomic_fetch_sub(&c->left, 1) == 1) /* the 1 that kept c from ending meanwhile */
		end_copy(c);
	return 0;
}

struct copy_wait {
	pthread_mutex_t lock;
	pthread_cond_t came;
	bool over;
	int result;
};

static void on_waited(struct devices_copy *c, int result)
{
	struct copy_wait *w = c->owner;

	LOCKED(&w->lock); /* begin_and_wait may return, and w end, once it is released */
	w->over = true;
	w->result = result;
	pthread_cond_signal(&w->came);
}

static int begin_and_wait(struct devices *d, struct devices_copy *c)
{
	struct copy_wait w = { .lock = PTHREAD_MUTEX_INITIALIZER,
			       .came = PTHREAD_COND_INITIALIZER };
	int rc;

	c->done = on_waited;
	c->owner = &w;
	rc = devices_copy_begin(d, c);
	if (rc)
		return rc;
	pthread_mutex_lock(&w.lock);
	while (!w.over)
		pthread_cond_wait(&w.came, &w.lock);
	pthread_mutex_unlock(&w.lock);
	return w.result;
}

int devices_copy_now(struct devices *d, struct devices_copy *c)
{
	struct used_device *u = devices_find(d, c->number);
	struct devices_mark *mark;
	int rc = make_mark(d, u, &mark);

	assert(thread_may_be_trainer());
	if (rc)
		return rc;
	c->after = mark->event;
	rc = begin_and_wait(d, c);
	if (c->to_device) /* a new mark: readers must not join a fetch of the old bytes */
		take_mark(d, u, mark, 0);
	else
		devices_mark_put(d, mark);
	return rc;
}
