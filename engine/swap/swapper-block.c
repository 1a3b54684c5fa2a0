/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/frag.h"
#include "engine/swap/swapper-internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SAY_MS = 10000 };

/* ---- memory ---- */

static bool take_spare(struct swapper *p, uint64_t bytes)
{
	if (bytes > p->spare_limit || p->spare > p->spare_limit - bytes)
		return false;
	p->spare += bytes;
	p->spare_max = u64_max(p->spare_max, p->spare);
	return true;
}

bool swapper_take(struct swapper *p, enum swapper_memory kind, uint64_t bytes)
{
	if (kind == SWAPPER_SPARE)
		return take_spare(p, bytes);
	if (kind == SWAPPER_SMALL)
		p->small += bytes;
	return true;
}

void swapper_give(struct swapper *p, enum swapper_memory kind, uint64_t bytes)
{
	if (kind == SWAPPER_SPARE)
		p->spare -= bytes;
	if (kind == SWAPPER_SMALL)
		p->small -= bytes;
}

static void stick(struct swapper_block *b, bool stuck)
{
	if (b->stuck == stuck)
		return;
	b->stuck = stuck;
	b->place->stuck += stuck ? 1u : -1u;
	b->place->returning += stuck ? -1u : 1u;
}

static void drop_pinned(struct swapper_block *b)
{
	stick(b, false);
	pinned_put(b->place->pinned, b->memory);
	b->place->returning--;
	pthread_cond_broadcast(&b->place->changed);
}

static void drop_memory(struct swapper_block *b)
{
	if (b->kind == SWAPPER_PINNED) {
		drop_pinned(b);
	} else {
		free(b->memory);
		swapper_give(b->place, b->kind, b->bytes);
	}
	b->memory = NULL;
}

/* Whoever had it meanwhile, to read or to write, settles it then. */
static bool is_idle(const struct swapper_block *b)
{
	return !b->writing && !b->copying && !b->written;
}

/* Others need the buffer sooner than the disk may take this.  It is copied without the lock,
 * which readers want.
 */
static bool move_to_spare(struct swapper_block *b)
{
	struct swapper *p = b->place;
	void *to;

	if (!swapper_take(p, SWAPPER_SPARE, b->bytes))
		return false;
	b->readers++;
	b->copying++;
	pthread_mutex_unlock(&p->lock);
	to = aligned_alloc(SWAP_BLOCK, swapper_whole(b->bytes));
	if (to)
		memcpy(to, b->memory, b->bytes);
	pthread_mutex_lock(&p->lock);
	b->copying--;
	b->readers--;
	if (!to || !is_idle(b)) {
		free(to);
		swapper_give(p, SWAPPER_SPARE, b->bytes);
		return false;
	}
	drop_memory(b);
	b->memory = to;
	b->kind = SWAPPER_SPARE;
	return true;
}

static bool is_settled(const struct swapper_block *b)
{
	return !b->memory || b->writing || b->copying;
}

void swapper_block_settle(struct swapper_block *b)
{
	if (is_settled(b))
		return;
	if (b->unwritten && b->kind == SWAPPER_PINNED) {
		bool moved = move_to_spare(b);

		if (!b->writing)
			stick(b, !moved);
	}
	if (b->written && !is_settled(b))
		drop_memory(b);
}

/* ---- bodies ---- */

struct swapper_block *swapper_block_new(struct swapper_slice *slice, struct swapper *p,
					void *memory, enum swapper_memory kind)
{
	struct swapper_block *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->refs = 1;
	b->place = p;
	b->state = slice->state;
	b->slice = (uint64_t)(slice - slice->state->slices);
	b->bytes = swapper_slice_bytes(b->state, b->slice);
	b->memory = memory;
	b->kind = kind;
	pthread_mutex_lock(&p->lock);
	b->state->refs++;
	if (kind == SWAPPER_PINNED)
		p->returning++;
	pthread_mutex_unlock(&p->lock);
	return b;
}

static void unlink_unwritten(struct swapper_block *b)
{
	if (!b->unwritten)
		return;
	b->unwritten = false;
	if (b->prev_unwritten)
		b->prev_unwritten->next_unwritten = b->next_unwritten;
	else
		b->place->unwritten = b->next_unwritten;
	if (b->next_unwritten)
		b->next_unwritten->prev_unwritten = b->prev_unwritten;
}

static void link_unwritten(struct swapper_block *b)
{
	struct swapper *p = b->place;

	if (b->unwritten)
		return;
	b->unwritten = true;
	b->prev_unwritten = NULL;
	b->next_unwritten = p->unwritten;
	if (p->unwritten)
		p->unwritten->prev_unwritten = b;
	p->unwritten = b;
}

static void drop_extent(struct swapper_block *b)
{
	if (!b->extent)
		return;
	swap_extent_drop(b->place->file, b->extent);
	b->extent = NULL;
	b->place->freed++;
}

static void body_free(struct swapper_block *b)
{
	unlink_unwritten(b);
	if (b->memory)
		drop_memory(b);
	drop_extent(b);
	swapper_state_unref(b->state);
	free(b);
}

void swapper_block_unref(struct swapper_block *b)
{
	if (--b->refs)
		return;
	if (!b->readers) {
		body_free(b);
		return;
	}
	b->place->dying++;
}

void swapper_block_forget(struct swapper_block *b)
{
	if (b->kind == SWAPPER_PINNED)
		b->place->returning--;
	b->memory = NULL;
	swapper_block_unref(b);
}

bool swapper_block_read(struct swapper_block *b)
{
	bool from_memory = b->memory && !b->written;

	b->readers++;
	b->copying += from_memory;
	return from_memory;
}

void swapper_block_read_end(struct swapper_block *b, bool from_memory)
{
	struct swapper *p = b->place;

	b->readers--;
	b->copying -= from_memory;
	swapper_block_settle(b);
	if (b->refs || b->readers)
		return;
	p->dying--;
	body_free(b);
	pthread_cond_broadcast(&p->changed);
}

/* ---- what the disk said ---- */

static void count_error(struct swapper *p, struct swapper_state *s, int rc)
{
	p->figures.errors++;
	p->figures.error = s->error = rc;
	s->errors++;
}

void swapper_not_read(struct swapper_block *b, const struct swap_io *io, int rc,
		      struct swapper_failure *failure)
{
	uint64_t first = b->slice * b->state->slice_bytes, now = monotonic_ms();
	bool damaged = io->damaged != UINT64_MAX;

	if (rc == -ECANCELED)
		return;
	count_error(b->place, b->state, rc);
	*failure = (struct swapper_failure){
		.state = b->state,
		.from = first + (damaged ? io->damaged : io->offset),
		.to = first +
		      (damaged ? u64_min(io->damaged_end, b->bytes) : io->offset + io->bytes),
		.rc = rc,
		.what = "not read",
		.is_read = true,
		.damaged = damaged,
		.unsaid = !b->said_ms || now - b->said_ms >= SAY_MS,
	};
	if (failure->unsaid)
		b->said_ms = now;
}

void swapper_say(struct swapper *p, struct swapper_failure *f)
{
	char name[FRAG_NAME_MAX + 200];

	if (!f->unsaid)
		return;
	f->unsaid = false;
	snprintf(name, sizeof(name), "%s", f->state->name);
	if (f->is_read && p->name_range)
		p->name_range(p->owner, f->state, f->from, f->to, name, sizeof(name));
	if (f->damaged)
		log_error("swap: %s, bytes %" PRIu64 " to %" PRIu64 ": damaged", name, f->from,
			  f->to);
	else
		log_error("swap: %s, bytes %" PRIu64 " to %" PRIu64 ": %s: %s", name, f->from,
			  f->to, f->what, strerror(-f->rc));
}

void swapper_failed(struct swapper_block *b, int rc, const char *what,
		    struct swapper_failure *failure)
{
	struct swapper_state *s = b->state;
	uint64_t from = b->slice * s->slice_bytes, now = monotonic_ms();

	count_error(b->place, s, rc);
	*failure = (struct swapper_failure){ .state = s,
					     .from = from,
					     .to = from + b->bytes,
					     .rc = rc,
					     .what = what,
					     .unsaid = s->said != rc ||
						       now - s->said_ms >= SAY_MS };
	if (!failure->unsaid)
		return;
	s->said = rc;
	s->said_ms = now;
}

void swapper_block_writes(struct swapper_block *b)
{
	b->refs++;
	b->writing = true;
	b->since = monotonic_ns();
	b->place->writing++;
	swapper_busy(b->place, b->state->kind, SWAPPER_OUT);
	stick(b, false); /* it comes back, or is stuck once more */
}

void swapper_block_fail(struct swapper_block *b, int rc, struct swapper_failure *failure)
{
	if (rc != -ECANCELED) /* the place is closed */
		swapper_failed(b, rc, "not written, kept in memory", failure);
	b->error = rc;
	drop_extent(b);
	link_unwritten(b);
	swapper_block_settle(b);
}

bool swapper_block_keep(struct swapper_block *b, int rc)
{
	struct swapper_failure failure;
	bool kept;

	pthread_mutex_lock(&b->place->lock);
	kept = b->kind != SWAPPER_PINNED || move_to_spare(b);
	swapper_failed(b, rc, kept ? "not written, kept in memory" : "not written", &failure);
	b->error = rc;
	if (kept)
		link_unwritten(b);
	pthread_mutex_unlock(&b->place->lock);
	swapper_say(b->place, &failure);
	return kept;
}

void swapper_block_wrote(struct swapper_block *b)
{
	swapper_timed(b->place, b->state, b->slice, SWAPPER_OUT, b->bytes, b->since);
	b->state->writes++;
	b->written = true;
	stick(b, false);
	unlink_unwritten(b);
	swapper_block_settle(b);
}

/* ---- versions ---- */

struct swapper_version *swapper_version_new(struct swapper_block *body, unsigned npatches)
{
	struct swapper_version *v = calloc(1, sizeof(*v) + npatches * sizeof(v->patches[0]));

	if (!v)
		return NULL;
	v->refs = 1;
	v->body = body;
	return v;
}

void swapper_version_ref(struct swapper_version *v)
{
	if (v)
		v->refs++;
}

void swapper_patch_unref(struct swapper *p, struct swapper_patch *patch)
{
	if (--patch->refs)
		return;
	swapper_give(p, SWAPPER_SPARE, patch->size);
	free(patch);
}

void swapper_version_unref(struct swapper *p, struct swapper_version *v)
{
	if (!v || --v->refs)
		return;
	for (unsigned i = 0; i < v->npatches; i++)
		swapper_patch_unref(p, v->patches[i]);
	if (v->body)
		swapper_block_unref(v->body);
	free(v);
}

void swapper_version_patch(const struct swapper_version *v, uint64_t offset, uint64_t size,
			   uint8_t *memory)
{
	for (unsigned i = 0; i < v->npatches; i++) {
		const struct swapper_patch *patch = v->patches[i];
		uint64_t from = u64_max(offset, patch->offset);
		uint64_t to = u64_min(offset + size, patch->offset + patch->size);

		if (from < to)
			memcpy(memory + (from - offset), patch->bytes + (from - patch->offset),
			       to - from);
	}
}

bool swapper_version_covers(const struct swapper_version *v, uint64_t offset, uint64_t size)
{
	for (unsigned i = 0; i < v->npatches; i++)
		if (v->patches[i]->offset <= offset &&
		    offset + size <= v->patches[i]->offset + v->patches[i]->size)
			return true;
	return false;
}

/* ---- slots ---- */

static void clear_slot(struct swapper *p, struct swapper_version **slot)
{
	struct swapper_version *v = *slot;

	*slot = NULL;
	if (!v)
		return;
	v->slots--;
	swapper_version_unref(p, v);
}

void swapper_set_next(struct swapper *p, struct swapper_slice *slice, struct swapper_version *v)
{
	clear_slot(p, &slice->next);
	slice->next = v;
	if (v)
		v->slots++;
	if (slice->has_next)
		return;
	slice->has_next = true;
	slice->changed = p->first_changed;
	p->first_changed = slice;
}

static void publish(struct swapper *p, struct swapper_slice *slice)
{
	clear_slot(p, &slice->current);
	slice->current = slice->next; /* with its reference */
	slice->next = NULL;
	slice->has_next = slice->lost = false;
}

void swapper_publish_changed(struct swapper *p, const struct swapper_state *s)
{
	struct swapper_slice **link = &p->first_changed;

	while (*link) {
		struct swapper_slice *slice = *link;

		if (s && slice->state != s) {
			link = &slice->changed;
			continue;
		}
		*link = slice->changed;
		publish(p, slice);
	}
}

void swapper_forget_current(struct swapper *p, struct swapper_slice *slice)
{
	clear_slot(p, &slice->current);
}

void swapper_state_unref(struct swapper_state *s)
{
	if (--s->refs)
		return;
	free(s->name);
	free(s);
}
