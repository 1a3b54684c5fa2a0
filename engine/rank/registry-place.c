/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/memory/memory.h"
#include "engine/rank/registry-internal.h"
#include "engine/rank/registry-place.h"
#include "engine/swap/swapper.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- what is to move: any thread, under the lock ---- */

void registry_place_forget(struct registry *r, struct state_row *row)
{
	if (!row->wanted)
		return;
	row->wanted = 0;
	r->placing.waiting_bytes -= states_row_whole(row);
	atomic_fetch_sub_explicit(&r->placing.waiting, 1, memory_order_relaxed);
}

/* Returns true if the row is in the tier, or as near to it as its size allows. */
static bool is_there(const struct registry *r, const struct state_row *row, enum state_tier to)
{
	if (row->tier == to || !row->numel)
		return true;
	return to == STATE_SWAP && r->swapper && row->placeable &&
	       states_row_whole(row) < swapper_least(r->swapper);
}

/* Returns the reason why the row cannot move; NULL: it can. */
static const char *why_not(const struct registry *r, const struct state_row *row,
			   enum state_tier to)
{
	if (is_there(r, row, to))
		return NULL;
	if (!row->placeable)
		return "the trainer has its address";
	if (to == STATE_SWAP)
		return r->swapper ? NULL : "the job was started without a swap folder";
	return to == STATE_HOST ? NULL
				: "the library has no memory on devices; frag_state_move is "
				  "for the trainer's";
}

static void want(struct registry *r, struct state_row *row, enum state_tier to)
{
	registry_place_forget(r, row);
	if (is_there(r, row, to))
		return;
	row->wanted = (uint8_t)(to + 1);
	r->placing.waiting_bytes += states_row_whole(row);
	atomic_fetch_add_explicit(&r->placing.waiting, 1, memory_order_relaxed);
}

int registry_place_want(struct registry *r, registry_place_names names, void *arg,
			enum state_tier to, char *why, size_t whysize)
{
	bool found = false;

	LOCKED(&r->lock);
	for (uint32_t i = 0; i < r->states.nrows; i++) {
		const struct state_row *row = &r->states.rows[i];
		const char *reason;

		if (!names(arg, row->kind, row->index, row->sub, row->key))
			continue;
		found = true;
		reason = why_not(r, row, to);
		if (reason) {
			if (row->kind == STATE_PARTITION || row->kind == STATE_WHOLE)
				snprintf(why, whysize, "group %u sub %u %s: %s", row->index,
					 row->sub, row->key, reason);
			else
				snprintf(why, whysize, "low-precision values: %s", reason);
			return -EOPNOTSUPP;
		}
	}
	if (!found)
		return -ENOENT;
	if (!registry_place_is_due(r)) {
		r->placing.moved = r->placing.moved_bytes = r->placing.failed = 0;
		r->placing.error = 0;
	}
	for (uint32_t i = 0; i < r->states.nrows; i++) {
		struct state_row *row = &r->states.rows[i];

		if (names(arg, row->kind, row->index, row->sub, row->key))
			want(r, row, to);
	}
	return 0;
}

void registry_place_print(struct registry *r, FILE *out)
{
	const struct registry_placing *p = &r->placing;

	LOCKED(&r->lock);
	fprintf(out,
		"%" PRIu64 "\t%" PRIu32 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64
		"\t%s\n",
		r->states.epoch, atomic_load_explicit(&p->waiting, memory_order_relaxed),
		p->waiting_bytes, p->moved, p->moved_bytes, p->failed,
		p->error ? strerror(-p->error) : "none");
}

/* ---- moving: the trainer's thread ---- */

bool registry_place_next(struct registry *r, uint32_t *row)
{
	LOCKED(&r->lock);
	while (*row < r->states.nrows && !r->states.rows[*row].wanted)
		++*row;
	return *row < r->states.nrows;
}

bool registry_place_stays_in_host(struct registry *r, uint32_t row)
{
	const struct state_row *state;

	LOCKED(&r->lock);
	state = &r->states.rows[row];
	return row < r->states.nrows && state->tier == STATE_HOST && !state->wanted;
}

/* Copies the row, and the address that a row in the host's memory has.  Neither changes without
 * the lock, which copy_to_swap() has not: this thread alone moves and drops rows.
 */
static int look_up(struct registry *r, uint32_t number, struct registry_move *m,
		   struct state_row *row)
{
	LOCKED(&r->lock);
	*row = r->states.rows[number];
	if (!row->wanted)
		return -ENOENT;
	*m = (struct registry_move){ .row = number,
				     .to = (enum state_tier)(row->wanted - 1),
				     .bytes = states_row_whole(row),
				     .fd = -1 };
	if (row->nsegments)
		m->from = (void *)(uintptr_t)row->segments[0].address;
	return 0;
}

static int copy_to_host(struct registry *r, struct registry_move *m,
			const struct state_row *row)
{
	int rc = memory_alloc(m->bytes, &m->memory, &m->fd);

	if (rc)
		return rc;
	rc = swapper_read_newest(r->swapper, row->swap_state, row->swap_at, m->bytes,
				 m->memory);
	if (!rc)
		return 0;
	memory_free(m->memory, m->bytes);
	if (m->fd >= 0)
		close(m->fd);
	return rc;
}

/* The new state's first version is current before any reader knows of the state. */
static int copy_to_swap(struct registry *r, struct registry_move *m,
			const struct state_row *row)
{
	int rc = registry_swap_add(r, row->index, row->sub, row->key, row->dtype, row->numel,
				   &m->swap_state);

	if (rc)
		return rc;
	rc = swapper_put(r->swapper, m->swap_state, 0, m->from, row->numel);
	if (!rc)
		rc = swapper_publish_state(r->swapper, m->swap_state);
	if (rc)
		swapper_drop(r->swapper, m->swap_state);
	return rc;
}

/* Under the lock. */
static void count_failed(struct registry *r, struct state_row *row, int rc)
{
	registry_place_forget(r, row);
	r->placing.failed++;
	r->placing.error = rc;
}

static void fail(struct registry *r, const struct registry_move *m, const struct state_row *row,
		 int rc)
{
	log_warn("group %u sub %u %s stays where it is, and does not move to %s: %s",
		 row->index, row->sub, row->key, states_tier_names[m->to], strerror(-rc));
	LOCKED(&r->lock);
	count_failed(r, &r->states.rows[m->row], rc);
	if (rc != -ETIMEDOUT)
		return;
	/* the disk is silent: the trainer would wait as long for each other row */
	for (uint32_t i = 0; i < r->states.nrows; i++)
		if (r->states.rows[i].wanted)
			count_failed(r, &r->states.rows[i], rc);
}

int registry_place_copy(struct registry *r, uint32_t number, struct registry_move *m)
{
	struct state_row row;
	int rc = look_up(r, number, m, &row);

	if (rc)
		return rc;
	rc = m->to == STATE_HOST ? copy_to_host(r, m, &row) : copy_to_swap(r, m, &row);
	if (rc)
		fail(r, m, &row, rc);
	return rc;
}

/* Under the lock. */
static int switch_to_host(struct registry *r, struct registry_move *m)
{
	struct state_row *row = &r->states.rows[m->row];
	uint64_t address = (uintptr_t)m->memory;
	int rc;

	row->tier = STATE_HOST;
	rc = states_add_segment(&r->states, m->row,
				(struct state_segment){ 0, row->numel, address });
	if (rc) {
		row->tier = STATE_SWAP;
		return rc;
	}
	m->swap_state = row->swap_state;
	row->swap_state = NULL;
	row->owned = true;
	m->memory = NULL;
	if (m->fd >= 0 &&
	    !states_add_share(&r->states, (struct state_share){ m->fd, address, m->bytes }))
		m->fd = -1;
	return 0;
}

/* Under the lock. */
static void switch_to_swap(struct registry *r, struct registry_move *m)
{
	struct state_row *row = &r->states.rows[m->row];

	m->memory = (void *)(uintptr_t)row->segments[0].address;
	registry_drop_share(&r->states, row->segments[0].address);
	row->nsegments = 0;
	row->owned = false;
	row->tier = STATE_SWAP;
	row->swap_state = m->swap_state;
	row->swap_at = 0;
	m->swap_state = NULL;
}

void registry_place_switch(struct registry *r, struct registry_move *m)
{
	struct state_row *row = &r->states.rows[m->row];
	struct state_row from;
	int rc = 0;

	pthread_mutex_lock(&r->lock);
	from = *row;
	if (row->wanted != m->to + 1) /* a mount has asked for another tier meanwhile */
		rc = -EAGAIN;
	else if (m->to == STATE_HOST)
		rc = switch_to_host(r, m);
	else
		switch_to_swap(r, m);
	if (!rc) {
		registry_place_forget(r, row);
		row->stays = false;
		r->placing.moved++;
		r->placing.moved_bytes += m->bytes;
		registry_count(r, &from, -(int64_t)m->bytes);
		registry_count(r, row, (int64_t)m->bytes);
		registry_new_epoch(r);
	}
	pthread_mutex_unlock(&r->lock);
	if (rc && rc != -EAGAIN)
		fail(r, m, row, rc);
}

/* *m has the old place of a row that has moved, or the new one of a row that has not.  The
 * epoch has grown before the old memory is freed: see drop_row() in registry.c.
 */
void registry_place_end(struct registry *r, struct registry_move *m)
{
	if (m->memory)
		memory_free(m->memory, m->bytes);
	if (m->fd >= 0)
		close(m->fd);
	if (m->swap_state)
		swapper_drop(r->swapper, m->swap_state);
}
