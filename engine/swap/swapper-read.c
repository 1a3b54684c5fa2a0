/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/swap/swapper-internal.h"

#include <errno.h>
#include <string.h>

/* ---- holds ---- */

static void link_hold(struct swapper *p, struct swapper_pin *h)
{
	h->prev = p->newest;
	if (p->newest)
		p->newest->next = h;
	else
		p->oldest = h;
	p->newest = h;
	p->figures.holds++;
}

static void unlink_hold(struct swapper *p, struct swapper_pin *h)
{
	*(h->prev ? &h->prev->next : &p->oldest) = h->next;
	*(h->next ? &h->next->prev : &p->newest) = h->prev;
	p->figures.holds--;
}

static bool has_lost(const struct swapper_pin *h)
{
	for (uint64_t i = 0; i < h->n; i++)
		if (h->state->slices[h->first + i].lost)
			return true;
	return false;
}

/* Under the lock. */
static int hold_versions(struct swapper *p, struct swapper_pin *h)
{
	if (has_lost(h))
		return -ESTALE;
	for (uint64_t i = 0; i < h->n; i++) {
		h->versions[i] = h->state->slices[h->first + i].current;
		swapper_version_ref(h->versions[i]);
	}
	h->state->refs++;
	link_hold(p, h);
	return 0;
}

static struct swapper_pin *hold_new(struct swapper_state *s, uint64_t offset, uint64_t size)
{
	uint64_t first = offset / s->slice_bytes;
	uint64_t n = u64_div_ceil(offset + size, s->slice_bytes) - first;
	struct swapper_pin *h = calloc(1, sizeof(*h) + n * sizeof(h->versions[0]));

	if (!h)
		return NULL;
	h->state = s;
	h->offset = offset;
	h->size = size;
	h->first = first;
	h->n = n;
	return h;
}

int swapper_pin(struct swapper *p, struct swapper_state *s, uint64_t offset, uint64_t size,
		struct swapper_pin **hold)
{
	struct swapper_pin *h;
	uint64_t end;
	int rc;

	if (!size || !u64_add(offset, size, &end) || end > s->bytes)
		return -EINVAL;
	h = hold_new(s, offset, size);
	if (!h)
		return -ENOMEM;
	pthread_mutex_lock(&p->lock);
	rc = hold_versions(p, h);
	pthread_mutex_unlock(&p->lock);
	if (rc)
		free(h);
	else
		*hold = h;
	return rc;
}

bool swapper_pins_same(const struct swapper_pin *a, const struct swapper_pin *b)
{
	return a->state == b->state && a->offset == b->offset && a->size == b->size &&
	       !memcmp(a->versions, b->versions, a->n * sizeof(struct swapper_version *));
}

void swapper_release(struct swapper *p, struct swapper_pin *h)
{
	pthread_mutex_lock(&p->lock);
	unlink_hold(p, h);
	for (uint64_t i = 0; i < h->n; i++)
		swapper_version_unref(p, h->versions[i]);
	swapper_state_unref(h->state);
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
	free(h);
}

int swapper_pin_newest(struct swapper *p, struct swapper_state *s, uint64_t offset,
		       uint64_t size, struct swapper_pin **hold)
{
	struct swapper_pin *h = hold_new(s, offset, size);

	if (!h)
		return -ENOMEM;
	pthread_mutex_lock(&p->lock);
	h->versions[0] = swapper_newest(&s->slices[h->first]);
	swapper_version_ref(h->versions[0]);
	s->refs++;
	link_hold(p, h);
	pthread_mutex_unlock(&p->lock);
	*hold = h;
	return 0;
}

bool swapper_pin_has(const struct swapper_pin *h, const struct swapper_state *s,
		     uint64_t offset, uint64_t size)
{
	uint64_t end;

	return s == h->state && offset >= h->offset && u64_add(offset, size, &end) &&
	       end <= h->offset + h->size;
}

int swapper_pin_part(struct swapper *p, const struct swapper_pin *whole, uint64_t offset,
		     uint64_t size, struct swapper_pin **hold)
{
	struct swapper_pin *h = hold_new(whole->state, offset, size);

	if (!h)
		return -ENOMEM;
	pthread_mutex_lock(&p->lock);
	for (uint64_t i = 0; i < h->n; i++) {
		h->versions[i] = whole->versions[h->first - whole->first + i];
		swapper_version_ref(h->versions[i]);
	}
	h->state->refs++;
	link_hold(p, h);
	pthread_mutex_unlock(&p->lock);
	*hold = h;
	return 0;
}

/* ---- reading: one slice after the other ---- */

static const struct swapper_pin *hold_of(const struct swapper_read *r)
{
	return r->hold ? r->hold : r->own;
}

static uint64_t slice_of(const struct swapper_read *r)
{
	return (r->offset + r->gone) / hold_of(r)->state->slice_bytes;
}

static struct swapper_version *version_of(const struct swapper_read *r)
{
	return hold_of(r)->versions[slice_of(r) - hold_of(r)->first];
}

static uint64_t offset_of(const struct swapper_read *r)
{
	return (r->offset + r->gone) % hold_of(r)->state->slice_bytes;
}

static uint8_t *memory_of(const struct swapper_read *r)
{
	return (uint8_t *)r->memory + r->gone;
}

static void end(struct swapper_read *r, int rc)
{
	struct swapper *p = r->place;

	if (r->own)
		swapper_release(p, r->own);
	r->done(r, rc);
}

static void part_is_there(struct swapper_read *r)
{
	const struct swapper_version *v = version_of(r);

	if (v)
		swapper_version_patch(v, offset_of(r), r->part, memory_of(r));
	r->gone += r->part;
}

static void go_on(struct swapper_read *r);

static void on_read(struct swap_io *io, int rc)
{
	struct swapper_read *r = container_of(io, struct swapper_read, io);
	struct swapper *p = r->place;

	pthread_mutex_lock(&p->lock);
	r->submitted = false;
	if (rc)
		swapper_not_read(r->body, io, rc, &r->failure);
	swapper_block_read_end(r->body, false);
	pthread_mutex_unlock(&p->lock);
	if (rc) {
		end(r, rc);
		return;
	}
	part_is_there(r);
	go_on(r);
}

enum from { FROM_NOTHING, FROM_MEMORY, FROM_DISK, FROM_NOWHERE, CANCELED };

/* Under the lock. */
static void prepare(struct swapper_read *r)
{
	r->io = (struct swap_io){ .extent = r->body->extent,
				  .what = DISK_READ,
				  .slab = DISK_NO_SLAB,
				  .offset = offset_of(r),
				  .bytes = r->part,
				  .memory = memory_of(r),
				  .done = on_read };
	r->submitted = true;
}

/* Under the lock. */
static enum from choose(struct swapper_read *r)
{
	const struct swapper_version *v = version_of(r);

	if (r->canceled)
		return CANCELED;
	if (v && v->given_up)
		return FROM_NOWHERE;
	r->body = v ? v->body : NULL;
	if (!r->body || swapper_version_covers(v, offset_of(r), r->part))
		return FROM_NOTHING;
	if (swapper_block_read(r->body))
		return FROM_MEMORY;
	prepare(r);
	return FROM_DISK;
}

static void from_memory(struct swapper_read *r)
{
	memcpy(memory_of(r), r->body->memory + offset_of(r), r->part);
	pthread_mutex_lock(&r->place->lock);
	swapper_block_read_end(r->body, true);
	pthread_mutex_unlock(&r->place->lock);
	part_is_there(r);
}

/* 1: the disk will go on with it. */
static int read_part(struct swapper_read *r)
{
	enum from from;

	r->part = u64_min(r->size - r->gone,
			  swapper_slice_bytes(hold_of(r)->state, slice_of(r)) - offset_of(r));
	pthread_mutex_lock(&r->place->lock);
	from = choose(r);
	pthread_mutex_unlock(&r->place->lock);
	if (from == CANCELED || from == FROM_NOWHERE)
		return from == CANCELED ? -ECANCELED : -ESTALE;
	if (from == FROM_MEMORY)
		from_memory(r);
	if (from == FROM_DISK)
		swap_submit(r->place->file, &r->io);
	if (from != FROM_NOTHING)
		return from == FROM_DISK;
	memset(memory_of(r), 0, r->part);
	part_is_there(r);
	return 0;
}

static void go_on(struct swapper_read *r)
{
	int rc = 0;

	while (!rc && r->gone < r->size)
		rc = read_part(r);
	if (rc != 1)
		end(r, rc);
}

static void begin(struct swapper *p, struct swapper_read *r)
{
	r->gone = 0;
	r->failure = (struct swapper_failure){ 0 };
	r->submitted = r->canceled = false;
	pthread_mutex_lock(&p->lock);
	p->figures.reads++;
	p->figures.read_bytes += r->size;
	pthread_mutex_unlock(&p->lock);
	go_on(r);
}

void swapper_read(struct swapper *p, struct swapper_read *r)
{
	int rc = 0;

	r->place = p;
	r->own = NULL;
	if (!r->hold)
		rc = r->size ? swapper_pin(p, r->state, r->offset, r->size, &r->own) : -EINVAL;
	else if (!swapper_pin_has(r->hold, r->state, r->offset, r->size))
		rc = -EINVAL;
	if (rc)
		r->done(r, rc);
	else
		begin(p, r);
}

void swapper_read_cancel(struct swapper_read *r)
{
	struct swapper *p = r->place;

	pthread_mutex_lock(&p->lock);
	r->canceled = true;
	if (r->submitted)
		swap_cancel(p->file, &r->io);
	pthread_mutex_unlock(&p->lock);
}

void swapper_read_part(struct swapper *p, struct swapper_read *r, struct swapper_pin *own)
{
	r->place = p;
	r->hold = NULL;
	r->own = own;
	begin(p, r);
}
