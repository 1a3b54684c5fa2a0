/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/machine.h"
#include "engine/base/thread.h"
#include "engine/swap/swapper-internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- opening ---- */

static int refuse(char *why, size_t whysize, int rc, const char *what)
{
	if (what)
		snprintf(why, whysize, "%s: %s", what, strerror(-rc));
	return rc;
}

static int open_pinned(struct swapper *p, const struct swapper_options *o)
{
	uint64_t count = p->slice ? o->budget / p->slice : 0;

	if (o->budget > machine_memory()) /* which would end this process, or another */
		return -ENOMEM;
	if (count < 2 || count > UINT32_MAX || p->slice % SWAP_BLOCK)
		return -EINVAL;
	return pinned_open(&(struct pinned_options){ .size = p->slice,
						     .count = (unsigned)count,
						     .on_node = o->on_node,
						     .unlocked = o->unlocked,
						     .node = o->node },
			   &p->pinned);
}

static int open_slabs(struct swapper *p)
{
	struct iovec *slabs;

	p->setup.n = pinned_slabs(p->pinned, NULL);
	slabs = calloc(p->setup.n, sizeof(*slabs));
	if (!slabs)
		return -ENOMEM;
	pinned_slabs(p->pinned, slabs);
	p->setup.slabs = slabs;
	return p->setup.n < DISK_NO_SLAB ? 0 : -EINVAL;
}

static int open_disk(struct swapper *p, const struct disk_ops *ops)
{
	int rc;

	p->disk_ops = ops ? ops : &disk_uring;
	rc = p->disk_ops->open(&p->disk, &p->setup);
	if (!rc && p->disk_ops == &disk_uring && p->setup.threads > 1)
		log_warn("swap: aio.intra_op_parallelism: has no effect: io_uring needs no "
			 "threads");
	if (!rc || ops)
		return rc;
	log_info("swap: no io_uring: %s: by threads", strerror(-rc));
	p->disk_ops = &disk_threads;
	return p->disk_ops->open(&p->disk, &p->setup);
}

static int open_file(struct swapper *p, const struct swapper_options *o, char *why,
		     size_t whysize)
{
	const struct swap_file_config config = { .dir = o->dir,
						 .name = o->name,
						 .disk_ops = p->disk_ops,
						 .disk = p->disk,
						 .no_direct = o->no_direct,
						 .chunk = p->chunk };

	return swap_file_create(&p->file, &config, why, whysize);
}

static int open_parts(struct swapper *p, const struct swapper_options *o, char *why,
		      size_t whysize)
{
	int rc = open_pinned(p, o);

	if (rc) {
		snprintf(why, whysize,
			 "pinned buffers of %llu bytes in all (FRAG_PINNED_MEM), of %llu that "
			 "this machine has: %s",
			 (unsigned long long)o->budget, (unsigned long long)machine_memory(),
			 strerror(-rc));
		return rc;
	}
	rc = open_slabs(p);
	if (rc)
		return refuse(why, whysize, rc, "pinned buffers");
	rc = open_disk(p, o->disk_ops);
	if (rc)
		return refuse(why, whysize, rc, "no thread for the disk");
	return open_file(p, o, why, whysize);
}

enum { GENERATIONS = 3 };

/* Under the lock, or before others know of it. */
static void limit_file(struct swapper *p)
{
	swap_file_limit(p->file, p->capacity ? p->capacity : GENERATIONS * p->room + p->slice);
}

static void place_free(struct swapper *p)
{
	swap_file_close(p->file);
	if (p->disk)
		p->disk_ops->close(p->disk);
	free((void *)p->setup.slabs);
	pinned_close(p->pinned);
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

int swapper_open(struct swapper **out, const struct swapper_options *o, char *why,
		 size_t whysize)
{
	struct swapper *p = calloc(1, sizeof(*p));
	int rc;

	if (!p)
		return refuse(why, whysize, -ENOMEM, "swap");
	pthread_mutex_init(&p->lock, NULL);
	thread_cond_init(&p->changed);
	p->slice = o->slice;
	p->capacity = o->capacity;
	p->wait_ms = o->wait_ms ? o->wait_ms : SWAPPER_WAIT_MS;
	p->least = o->least ? o->least : SWAPPER_LEAST;
	p->spare_limit = o->spare;
	p->setup.depth = o->depth;
	p->setup.threads = o->threads;
	p->no_ahead = o->no_ahead;
	p->no_behind = o->no_behind;
	p->debug = o->debug;
	p->chunk = o->chunk ? o->chunk : SWAP_CHUNK;
	p->name_range = o->name_range;
	p->owner = o->owner;
	rc = open_parts(p, o, why, whysize);
	if (rc) {
		place_free(p);
		return rc;
	}
	limit_file(p);
	*out = p;
	return 0;
}

/* What is read for slices that were returned meanwhile, too, and for readers. */
static int wait_for_disk(struct swapper *p)
{
	struct timespec end = thread_in_ms(u64_min(p->wait_ms, SWAPPER_END_MS));
	int rc = 0;

	pthread_mutex_lock(&p->lock);
	while ((p->writing || p->bringing || p->oldest) && !rc)
		rc = swapper_wait_until(p, &end);
	pthread_mutex_unlock(&p->lock);
	return rc;
}

void swapper_close(struct swapper *p)
{
	if (!p)
		return;
	while (p->states)
		swapper_drop(p, p->states);
	swap_cancel_all(p->file);
	if (wait_for_disk(p)) {
		log_error("swap: the disk does not answer: what it has is left to it");
		return;
	}
	place_free(p);
}

/* ---- states ---- */

static uint64_t slice_bytes(const struct swapper *p, enum swapper_kind kind, uint32_t element)
{
	if (kind == SWAPPER_PARAM && element == 1)
		return p->slice;
	return p->slice / u64_max(element, 4) * element;
}

static struct swapper_state *state_new(const char *name, uint64_t nslices)
{
	struct swapper_state *s;
	uint64_t size;

	if (!u64_mul(nslices, sizeof(s->slices[0]), &size) || !u64_add(size, sizeof(*s), &size))
		return NULL;
	s = calloc(1, size);
	if (!s)
		return NULL;
	s->name = strdup(name);
	if (s->name)
		return s;
	free(s);
	return NULL;
}

static uint64_t room_of(const struct swapper_state *s)
{
	return s->small ? 0 : s->nslices * swapper_whole(s->slice_bytes);
}

static bool is_element(uint32_t element)
{
	return element == 1 || element == 2 || element == 4 || element == 8;
}

int swapper_add(struct swapper *p, const char *name, enum swapper_kind kind, uint32_t element,
		uint64_t numel, struct swapper_state **out)
{
	uint64_t bytes, slice;
	struct swapper_state *s;

	if (!is_element(element))
		return -EINVAL;
	if (!u64_mul(numel, element, &bytes))
		return -EOVERFLOW;
	slice = slice_bytes(p, kind, element);
	s = state_new(name, u64_div_ceil(bytes, slice));
	if (!s)
		return -ENOMEM;
	s->refs = 1;
	s->kind = kind;
	s->element = element;
	s->bytes = bytes;
	s->slice_bytes = slice;
	s->nslices = u64_div_ceil(bytes, slice);
	s->small = bytes < p->least;
	for (uint64_t i = 0; i < s->nslices; i++)
		s->slices[i].state = s;
	pthread_mutex_lock(&p->lock);
	s->next = p->states;
	p->states = s;
	p->room += room_of(s);
	limit_file(p);
	pthread_mutex_unlock(&p->lock);
	*out = s;
	return 0;
}

static void unlink_state(struct swapper *p, struct swapper_state *s)
{
	struct swapper_state **link = &p->states;

	while (*link != s)
		link = &(*link)->next;
	*link = s->next;
}

void swapper_drop(struct swapper *p, struct swapper_state *s)
{
	swapper_forget_put(p, s);
	pthread_mutex_lock(&p->lock);
	unlink_state(p, s);
	p->room -= room_of(s);
	limit_file(p);
	swapper_publish_changed(p, s);
	for (uint64_t i = 0; i < s->nslices; i++) {
		assert(!s->slices[i].lent);
		swapper_forget_current(p, &s->slices[i]);
	}
	swapper_state_unref(s);
	pthread_mutex_unlock(&p->lock);
}

uint64_t swapper_least(const struct swapper *p)
{
	return p->least;
}

uint64_t swapper_slice_numel(const struct swapper_state *s)
{
	return s->slice_bytes / s->element;
}

/* ---- generations ---- */

int swapper_publish(struct swapper *p)
{
	int rc = p->half ? -EBUSY : swapper_settle(p, NULL);

	if (rc)
		return rc;
	pthread_mutex_lock(&p->lock);
	p->figures.publishes += p->first_changed != NULL;
	swapper_publish_changed(p, NULL);
	pthread_mutex_unlock(&p->lock);
	return 0;
}

int swapper_publish_state(struct swapper *p, struct swapper_state *s)
{
	int rc = swapper_settle(p, s);

	if (rc)
		return rc;
	pthread_mutex_lock(&p->lock);
	swapper_publish_changed(p, s);
	pthread_mutex_unlock(&p->lock);
	return 0;
}

/* Under the lock. */
static bool is_in(const struct swapper_state *s)
{
	for (uint64_t i = 0; i < s->nslices; i++)
		if (s->slices[i].lent)
			return true;
	return false;
}

int swapper_clear(struct swapper *p, struct swapper_state *s)
{
	bool busy;

	swapper_forget_put(p, s);
	pthread_mutex_lock(&p->lock);
	busy = is_in(s);
	for (uint64_t i = 0; i < s->nslices && !busy; i++)
		if (swapper_newest(&s->slices[i]))
			swapper_set_next(p, &s->slices[i], NULL);
	pthread_mutex_unlock(&p->lock);
	return busy ? -EBUSY : 0;
}
