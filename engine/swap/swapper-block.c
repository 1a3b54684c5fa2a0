/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/frag.h"
#include "engine/swap/swapper-internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SAY_MS = 10000 };

/* ---- memory ---- */

static bool take_spare(struct swapper *sw, uint64_t bytes)
{
	if (bytes > sw->spare_limit || sw->spare > sw->spare_limit - bytes)
		return false;
	sw->spare += bytes;
	sw->spare_max = u64_max(sw->spare_max, sw->spare);
	return true;
}

bool swapper_charge(struct swapper *sw, enum swapper_memory kind, uint64_t bytes)
{
	if (kind == SWAPPER_SPARE)
		return take_spare(sw, bytes);
	if (kind == SWAPPER_SMALL)
		sw->small += bytes;
	return true;
}

void swapper_uncharge(struct swapper *sw, enum swapper_memory kind, uint64_t bytes)
{
	if (kind == SWAPPER_SPARE)
		sw->spare -= bytes;
	if (kind == SWAPPER_SMALL)
		sw->small -= bytes;
}

static void set_stuck(struct swapper_block *b, bool stuck)
{
	if (b->stuck == stuck)
		return;
	b->stuck = stuck;
	b->swapper->stuck += stuck ? 1u : -1u;
	b->swapper->returning += stuck ? -1u : 1u;
}

static void drop_pinned(struct swapper_block *b)
{
	set_stuck(b, false);
	pinned_put(b->swapper->pinned, b->memory);
	b->swapper->returning--;
	pthread_cond_broadcast(&b->swapper->changed);
}

static void drop_memory(struct swapper_block *b)
{
	if (b->kind == SWAPPER_PINNED) {
		drop_pinned(b);
	} else {
		free(b->memory);
		swapper_uncharge(b->swapper, b->kind, b->bytes);
	}
	b->memory = NULL;
}

/* Returns true if no write or copy of the block is under way, whose end would settle it. */
static bool is_idle(const struct swapper_block *b)
{
	return !b->writing && !b->copying && !b->written;
}

/* The trainer needs the pinned buffer sooner than the disk may take the block.  The copy is
 * made without the lock, which readers want; `readers` and `copying` keep the block until then.
 */
static bool move_to_spare(struct swapper_block *b)
{
	struct swapper *sw = b->swapper;
	void *to;

	if (!swapper_charge(sw, SWAPPER_SPARE, b->bytes))
		return false;
	b->readers++;
	b->copying++;
	pthread_mutex_unlock(&sw->lock);
	to = aligned_alloc(SWAP_BLOCK, swapper_whole_blocks(b->bytes));
	if (to)
		memcpy(to, b->memory, b->bytes);
	pthread_mutex_lock(&sw->lock);
	b->copying--;
	b->readers--;
	if (!to || !is_idle(b)) {
		free(to);
		swapper_uncharge(sw, SWAPPER_SPARE, b->bytes);
		return false;
	}
	drop_memory(b);
	b->memory = to;
	b->kind = SWAPPER_SPARE;
	return true;
}

/* Returns true if the block's memory must stay as it is, or the block has none. */
static bool is_settled(const struct swapper_block *b)
{
	return !b->memory || b->writing || b->copying;
}

/* Moves or frees the block's memory once nobody uses it: an unwritten block leaves its pinned
 * buffer, a written one leaves memory.  May let go of the lock.
 */
static void block_settle(struct swapper_block *b)
{
	if (is_settled(b))
		return;
	if (b->unwritten && b->kind == SWAPPER_PINNED) {
		bool moved = move_to_spare(b);

		if (!b->writing)
			set_stuck(b, !moved);
	}
	if (b->written && !is_settled(b))
		drop_memory(b);
}

/* ---- blocks ---- */

static struct swapper_block *block_new(struct swapper_slice *slice, struct swapper *sw,
				       void *memory, enum swapper_memory kind)
{
	struct swapper_block *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->refs = 1;
	b->swapper = sw;
	b->state = slice->state;
	b->slice = (uint64_t)(slice - slice->state->slices);
	b->bytes = swapper_slice_bytes(b->state, b->slice);
	b->memory = memory;
	b->kind = kind;
	pthread_mutex_lock(&sw->lock);
	b->state->refs++;
	if (kind == SWAPPER_PINNED)
		sw->returning++;
	pthread_mutex_unlock(&sw->lock);
	return b;
}

static void unlink_unwritten(struct swapper_block *b)
{
	if (!b->unwritten)
		return;
	b->unwritten = false;
	LIST_REMOVE(b, in_unwritten);
}

static void link_unwritten(struct swapper_block *b)
{
	if (b->unwritten)
		return;
	b->unwritten = true;
	LIST_INSERT_HEAD(&b->swapper->unwritten, b, in_unwritten);
}

static void drop_extent(struct swapper_block *b)
{
	if (!b->extent)
		return;
	swap_file_extent_drop(b->swapper->file, b->extent);
	b->extent = NULL;
	b->swapper->freed++;
}

static void block_free(struct swapper_block *b)
{
	unlink_unwritten(b);
	if (b->memory)
		drop_memory(b);
	drop_extent(b);
	swapper_state_unref(b->state);
	free(b);
}

static void block_unref(struct swapper_block *b)
{
	if (--b->refs)
		return;
	if (!b->readers) {
		block_free(b);
		return;
	}
	b->swapper->dying++;
}

static void block_drop(struct swapper_block *b)
{
	if (b->kind == SWAPPER_PINNED)
		b->swapper->returning--;
	b->memory = NULL;
	block_unref(b);
}

bool swapper_block_read_begin(struct swapper_block *b)
{
	bool from_memory = b->memory && !b->written;

	b->readers++;
	b->copying += from_memory;
	return from_memory;
}

void swapper_block_read_end(struct swapper_block *b, bool from_memory)
{
	struct swapper *sw = b->swapper;

	b->readers--;
	b->copying -= from_memory;
	block_settle(b);
	if (b->refs || b->readers)
		return;
	sw->dying--;
	block_free(b);
	pthread_cond_broadcast(&sw->changed);
}

/* ---- results of the disk ---- */

static void count_error(struct swapper *sw, struct swapper_state *s, int rc, bool damaged)
{
	sw->figures.error = s->error = rc;
	sw->figures.damaged += damaged;
	s->damaged += damaged;
	sw->figures.errors += !damaged;
	s->errors += !damaged;
}

void swapper_read_failed(struct swapper_block *b, const struct swap_io *io, int rc,
			 struct swapper_failure *failure)
{
	uint64_t first = b->slice * b->state->slice_bytes, now = monotonic_ms();
	bool damaged = io->damaged != UINT64_MAX;

	if (rc == -ECANCELED)
		return;
	count_error(b->swapper, b->state, rc, damaged);
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

void swapper_log_failure(struct swapper *sw, struct swapper_failure *f)
{
	char name[FRAG_NAME_MAX + 200];

	if (!f->unsaid)
		return;
	f->unsaid = false;
	snprintf(name, sizeof(name), "%s", f->state->name);
	if (f->is_read && sw->name_range)
		sw->name_range(sw->owner, f->state, f->from, f->to, name, sizeof(name));
	if (f->damaged)
		log_error("swap: %s, bytes %" PRIu64 " to %" PRIu64 ": damaged", name, f->from,
			  f->to);
	else
		log_error("swap: %s, bytes %" PRIu64 " to %" PRIu64 ": %s: %s", name, f->from,
			  f->to, f->what, strerror(-f->rc));
}

static void write_failed(struct swapper_block *b, int rc, const char *what,
			 struct swapper_failure *failure)
{
	struct swapper_state *s = b->state;
	uint64_t from = b->slice * s->slice_bytes, now = monotonic_ms();

	count_error(b->swapper, s, rc, false);
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

static void block_begin_write(struct swapper_block *b)
{
	b->refs++;
	b->writing = true;
	b->swapper->writing++;
	phase_begin(PHASE_SWAP_OUT, &b->span);
	swapper_timer_begin(b->swapper, b->state->kind, SWAPPER_OUT);
	set_stuck(b, false); /* the buffer comes back, or is stuck once more */
}

static void block_write_failed(struct swapper_block *b, int rc, struct swapper_failure *failure)
{
	if (rc != -ECANCELED) /* the swapper is being closed */
		write_failed(b, rc, "not written, kept in memory", failure);
	b->error = rc;
	drop_extent(b);
	link_unwritten(b);
	block_settle(b);
}

static bool block_keep(struct swapper_block *b, int rc)
{
	struct swapper_failure failure;
	bool kept;

	pthread_mutex_lock(&b->swapper->lock);
	kept = b->kind != SWAPPER_PINNED || move_to_spare(b);
	write_failed(b, rc, kept ? "not written, kept in memory" : "not written", &failure);
	b->error = rc;
	if (kept)
		link_unwritten(b);
	pthread_mutex_unlock(&b->swapper->lock);
	swapper_log_failure(b->swapper, &failure);
	return kept;
}

static void block_written(struct swapper_block *b, uint64_t ns)
{
	swapper_timer_add(b->swapper, b->state, b->slice, SWAPPER_OUT, b->bytes, ns);
	b->state->writes++;
	b->written = true;
	set_stuck(b, false);
	unlink_unwritten(b);
	block_settle(b);
}

/* ---- versions ---- */

struct swapper_version *swapper_version_new(struct swapper_block *block, unsigned npatches)
{
	struct swapper_version *v = calloc(1, sizeof(*v) + npatches * sizeof(v->patches[0]));

	if (!v)
		return NULL;
	v->refs = 1;
	v->block = block;
	return v;
}

void swapper_version_ref(struct swapper_version *v)
{
	if (v)
		v->refs++;
}

static void patch_unref(struct swapper *sw, struct swapper_patch *patch)
{
	if (--patch->refs)
		return;
	swapper_uncharge(sw, SWAPPER_SPARE, patch->size);
	free(patch);
}

void swapper_version_unref(struct swapper *sw, struct swapper_version *v)
{
	if (!v || --v->refs)
		return;
	for (unsigned i = 0; i < v->npatches; i++)
		patch_unref(sw, v->patches[i]);
	if (v->block)
		block_unref(v->block);
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

static void clear_slot(struct swapper *sw, struct swapper_version **slot)
{
	struct swapper_version *v = *slot;

	*slot = NULL;
	if (!v)
		return;
	v->slots--;
	swapper_version_unref(sw, v);
}

void swapper_set_next(struct swapper *sw, struct swapper_slice *slice,
		      struct swapper_version *v)
{
	clear_slot(sw, &slice->next);
	slice->next = v;
	if (v)
		v->slots++;
	if (slice->has_next)
		return;
	slice->has_next = true;
	LIST_INSERT_HEAD(&sw->changed_slices, slice, in_changed);
}

static void publish(struct swapper *sw, struct swapper_slice *slice)
{
	clear_slot(sw, &slice->current);
	slice->current = slice->next; /* with its reference */
	LIST_REMOVE(slice, in_changed);
	slice->next = NULL;
	slice->has_next = slice->lost = false;
}

void swapper_publish_changed(struct swapper *sw, const struct swapper_state *s)
{
	struct swapper_slice *slice, *next;

	LIST_FOREACH_SAFE (slice, &sw->changed_slices, in_changed, next)
		if (!s || slice->state == s)
			publish(sw, slice);
}

void swapper_drop_current(struct swapper *sw, struct swapper_slice *slice)
{
	clear_slot(sw, &slice->current);
}

void swapper_state_unref(struct swapper_state *s)
{
	if (--s->refs)
		return;
	free(s->name);
	free(s);
}

/* ---- room in the container ---- */

/* Takes the block from a version: readers of it get -ESTALE from now on. */
static void evict(struct swapper *sw, struct swapper_version *v)
{
	struct swapper_block *b = v->block;

	v->evicted = true;
	v->block = NULL;
	sw->figures.evicted++;
	block_unref(b);
}

static bool has_extent(const struct swapper_version *v)
{
	return v && v->block && v->block->written;
}

static bool is_in_spare(const struct swapper_version *v)
{
	return v && v->block && v->block->memory && v->block->kind == SWAPPER_SPARE &&
	       !v->block->writing;
}

typedef bool (*has_room_of)(const struct swapper_version *v);

static bool is_block_of(const struct swapper_block *b, const struct swapper_version *v)
{
	return v && v->block == b;
}

/* Evicting v makes no room where current or next is the same block with other patches. */
static bool is_for_readers(const struct swapper_slice *slice, const struct swapper_version *v)
{
	return !v->slots && !is_block_of(v->block, slice->current) &&
	       !is_block_of(v->block, slice->next);
}

static bool evict_pinned(struct swapper *sw, has_room_of has)
{
	struct swapper_pin *pin;

	TAILQ_FOREACH (pin, &sw->pins, in_pins)
		for (uint64_t i = 0; i < pin->n; i++)
			if (has(pin->versions[i]) &&
			    is_for_readers(&pin->state->slices[pin->first + i],
					   pin->versions[i])) {
				evict(sw, pin->versions[i]);
				return true;
			}
	return false;
}

/* Evicts a current version whose slice has a next one of another block. */
static bool evict_current(struct swapper *sw, has_room_of has)
{
	struct swapper_slice *s;

	LIST_FOREACH (s, &sw->changed_slices, in_changed)
		if (has(s->current) && (!s->next || s->next->block != s->current->block)) {
			evict(sw, s->current);
			s->lost = true;
			return true;
		}
	return false;
}

/* Blocks that only reads under way still use are freed soon. */
static bool wait_for_dying(struct swapper *sw)
{
	struct timespec end = thread_in_ms(swapper_time_left_ms(sw));
	unsigned dying = sw->dying;

	while (dying && sw->dying >= dying)
		if (swapper_wait_changed(sw, &end))
			return false;
	return dying;
}

/* A block being written may be of a version that has been replaced since. */
static bool wait_for_writing(struct swapper *sw)
{
	struct timespec end = thread_in_ms(swapper_time_left_ms(sw));
	unsigned writing = sw->writing;

	while (writing && sw->writing >= writing)
		if (swapper_wait_changed(sw, &end))
			return false;
	return writing;
}

static uint64_t freed(struct swapper *sw)
{
	uint64_t n;

	pthread_mutex_lock(&sw->lock);
	n = sw->freed;
	pthread_mutex_unlock(&sw->lock);
	return n;
}

/* freed_before: as many extents had been freed before the disk was full; where more are by now,
 * there is room already.
 */
static bool make_room(struct swapper *sw, uint64_t freed_before)
{
	bool made;

	pthread_mutex_lock(&sw->lock);
	made = sw->freed != freed_before || evict_pinned(sw, has_extent) ||
	       evict_current(sw, has_extent) || wait_for_dying(sw) || wait_for_writing(sw);
	pthread_mutex_unlock(&sw->lock);
	return made;
}

/* Makes room in ordinary memory: unwritten blocks there may be of pinned versions only. */
static void make_spare(struct swapper *sw, uint64_t bytes)
{
	pthread_mutex_lock(&sw->lock);
	while (bytes <= sw->spare_limit && sw->spare > sw->spare_limit - bytes &&
	       (evict_pinned(sw, is_in_spare) || evict_current(sw, is_in_spare) ||
		wait_for_dying(sw)))
		;
	pthread_mutex_unlock(&sw->lock);
}

static int new_extent(struct swapper_block *b)
{
	struct swapper *sw = b->swapper;
	uint64_t before;
	int rc;

	do {
		before = freed(sw);
		rc = swap_file_extent_new(sw->file, b->slice, b->bytes, &b->extent);
	} while (rc == -ENOSPC && make_room(sw, before));
	return rc;
}

/* ---- writing ---- */

/* Under the lock, which is let go of for the line. */
static void say(struct swapper *sw, struct swapper_failure *failure)
{
	if (!failure->unsaid)
		return;
	pthread_mutex_unlock(&sw->lock);
	swapper_log_failure(sw, failure);
	pthread_mutex_lock(&sw->lock);
}

static void on_written(struct swap_io *io, int rc)
{
	struct swapper_block *b = container_of(io, struct swapper_block, io);
	struct swapper_failure failure = { 0 };
	struct swapper *sw = b->swapper;
	uint64_t ns;

	pthread_mutex_lock(&sw->lock);
	b->writing = false;
	swapper_timer_end(sw, b->state->kind, SWAPPER_OUT);
	ns = phase_end(PHASE_SWAP_OUT, &b->span, rc);
	if (rc)
		block_write_failed(b, rc, &failure);
	else
		block_written(b, ns);
	say(sw, &failure);
	block_unref(b);
	sw->writing--; /* from here on the swapper may be closed */
	pthread_cond_broadcast(&sw->changed);
	pthread_mutex_unlock(&sw->lock);
}

static void submit(struct swapper_block *b)
{
	struct swapper *sw = b->swapper;

	pthread_mutex_lock(&sw->lock);
	block_begin_write(b);
	pthread_mutex_unlock(&sw->lock);
	b->io = (struct swap_io){ .extent = b->extent,
				  .what = DISK_WRITE,
				  .slab = b->kind == SWAPPER_PINNED
						  ? (uint16_t)pinned_slab_of(sw->pinned,
									     b->memory)
						  : DISK_NO_SLAB,
				  .bytes = b->bytes,
				  .memory = b->memory,
				  .done = on_written };
	swap_file_submit(sw->file, &b->io);
}

static int block_write(struct swapper_block *b)
{
	int rc = new_extent(b);

	if (!rc)
		submit(b);
	return rc;
}

int swapper_version_write(struct swapper *sw, struct swapper_slice *slice, void *memory,
			  enum swapper_memory kind, struct swapper_version **out)
{
	struct swapper_block *b = block_new(slice, sw, memory, kind);
	struct swapper_version *v = b ? swapper_version_new(b, 0) : NULL;
	int rc = v ? 0 : -ENOMEM;

	if (v && kind != SWAPPER_SMALL) {
		rc = block_write(b);
		if (rc && kind == SWAPPER_PINNED)
			make_spare(sw, b->bytes);
		rc = rc && block_keep(b, rc) ? 0 : rc;
	}
	if (!rc) {
		*out = v;
		return 0;
	}
	free(v);
	if (b) {
		pthread_mutex_lock(&sw->lock);
		block_drop(b);
		pthread_mutex_unlock(&sw->lock);
	}
	return rc;
}

/* ---- flushing ---- */

/* Returns an unwritten block that this flush has not tried yet, with a reference for the
 * caller; NULL: none.
 */
static struct swapper_block *next_to_try(struct swapper *sw, uint64_t flush)
{
	struct swapper_block *b;

	LIST_FOREACH (b, &sw->unwritten, in_unwritten)
		if (b->tried != flush && !b->writing) {
			b->tried = flush;
			b->refs++;
			return b;
		}
	return NULL;
}

void swapper_retry_writes(struct swapper *sw)
{
	struct swapper_block *b;
	uint64_t flush;

	pthread_mutex_lock(&sw->lock);
	flush = ++sw->flushes;
	while ((b = next_to_try(sw, flush))) {
		struct swapper_failure failure;
		int rc;

		pthread_mutex_unlock(&sw->lock);
		rc = block_write(b);
		pthread_mutex_lock(&sw->lock);
		if (rc) {
			b->error = rc;
			write_failed(b, rc, "not written", &failure);
			say(sw, &failure);
		}
		block_unref(b);
	}
	pthread_mutex_unlock(&sw->lock);
}

static int wait_for_all(struct swapper *sw, const struct timespec *end)
{
	int rc = 0;

	pthread_mutex_lock(&sw->lock);
	while (sw->writing && !rc)
		rc = swapper_wait_changed(sw, end);
	pthread_mutex_unlock(&sw->lock);
	return rc;
}

static int flush(struct swapper *sw, const struct timespec *end)
{
	int settled = swapper_swap_out_puts(sw, NULL), rc = wait_for_all(sw, end);

	if (!rc) {
		swapper_retry_writes(sw);
		rc = wait_for_all(sw, end);
	}
	pthread_mutex_lock(&sw->lock);
	if (!rc && !LIST_EMPTY(&sw->unwritten))
		rc = LIST_FIRST(&sw->unwritten)->error;
	pthread_mutex_unlock(&sw->lock);
	return rc ? rc : settled;
}

void swapper_set_deadline(struct swapper *sw, uint64_t until_ms)
{
	sw->until_ms = until_ms;
}

int swapper_flush(struct swapper *sw, uint64_t wait_ms)
{
	struct timespec end = thread_in_ms(wait_ms);
	int rc;

	swapper_set_deadline(sw, monotonic_ms() + wait_ms);
	rc = flush(sw, &end);
	swapper_set_deadline(sw, 0);
	return rc;
}
