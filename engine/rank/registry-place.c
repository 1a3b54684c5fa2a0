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

enum { CHUNK = 1 << 20 }; /* bytes of a copy between a device and NVMe */

/* ---- what is to move: any thread, under the lock ---- */

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
	return to == STATE_HOST || r->devices ? NULL : "the rank has no devices (frag_devices)";
}

static void want(struct registry *r, struct state_row *row, enum state_tier to)
{
	registry_forget_move(r, row);
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

int registry_place_check(struct registry *r, registry_place_names names, void *arg,
			 enum state_tier to)
{
	int rc = -ENOENT;

	LOCKED(&r->lock);
	for (uint32_t i = 0; i < r->states.nrows; i++) {
		const struct state_row *row = &r->states.rows[i];

		if (!names(arg, row->kind, row->index, row->sub, row->key))
			continue;
		if (row->wanted ? row->wanted != to + 1 : !is_there(r, row, to))
			return -ECANCELED;
		if (row->wanted)
			rc = -EBUSY;
		else if (rc == -ENOENT)
			rc = 0;
	}
	return rc;
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
	assert(thread_may_be_trainer());
	LOCKED(&r->lock);
	while (*row < r->states.nrows && !r->states.rows[*row].wanted)
		++*row;
	return *row < r->states.nrows;
}

bool registry_place_can(struct registry *r, uint32_t row)
{
	LOCKED(&r->lock);
	return row < r->states.nrows && r->states.rows[row].placeable;
}

bool registry_place_stays_in_host(struct registry *r, uint32_t row)
{
	const struct state_row *state;

	LOCKED(&r->lock);
	state = &r->states.rows[row];
	return row < r->states.nrows && state->tier == STATE_HOST && !state->wanted;
}

/* Fills *m and *row; *from: the address of a row in the host's memory, NULL of any other.  All
 * stay true without the lock: this thread alone moves and drops rows.
 */
static int look_up(struct registry *r, uint32_t number, struct registry_move *m,
		   struct state_row *row, const uint8_t **from)
{
	LOCKED(&r->lock);
	*row = r->states.rows[number];
	if (!row->wanted)
		return -ENOENT;
	*m = (struct registry_move){ .row = number,
				     .to = (enum state_tier)(row->wanted - 1),
				     .bytes = states_row_whole(row) };
	m->other = (struct registry_spot){ .tier = m->to, .fd = -1 };
	*from = row->tier == STATE_HOST ? (void *)(uintptr_t)row->extents[0].address : NULL;
	return 0;
}

static void free_spot(struct registry *r, struct registry_spot *spot, uint64_t bytes)
{
	if (spot->memory && spot->tier == STATE_DEVICE)
		devices_free(r->devices, spot->device, spot->memory);
	else if (spot->memory)
		memory_free(spot->memory, bytes);
	if (spot->fd >= 0)
		close(spot->fd);
	if (spot->swap_state)
		swapper_drop(r->swapper, spot->swap_state);
}

static int make_spot(struct registry *r, const struct state_row *row,
		     struct registry_spot *spot, uint64_t bytes)
{
	if (spot->tier == STATE_HOST)
		return memory_alloc(bytes, &spot->memory, &spot->fd);
	if (spot->tier == STATE_DEVICE)
		return devices_alloc(r->devices, bytes, &spot->device, &spot->memory);
	return registry_swap_add(r, row->index, row->sub, row->key, row->dtype, row->numel,
				 &spot->swap_state);
}

/* Writes n bytes of the row, whole elements, to a spot on a device or on NVMe. */
static int write_spot(struct registry *r, const struct registry_spot *spot, size_t element,
		      uint64_t at, const void *from, uint64_t n)
{
	if (spot->tier == STATE_DEVICE)
		return registry_put_on_device(r, spot->device, (uint8_t *)spot->memory + at,
					      from, n);
	return swapper_put(r->swapper, spot->swap_state, at / element, from, n / element);
}

/* from NULL: the row is on a device or on NVMe, and is copied chunk by chunk. */
static int fill_spot(struct registry *r, const struct registry_move *m, size_t element,
		     const uint8_t *from)
{
	CLEANUP(free) void *chunk = from ? NULL : malloc(CHUNK);
	int rc = from || chunk ? 0 : -ENOMEM;

	for (uint64_t at = 0, n; at < m->bytes && !rc; at += n) {
		n = u64_min(m->bytes - at, from ? m->bytes : CHUNK);
		if (!from)
			rc = registry_read(r, 0, m->row, at, chunk, n);
		if (!rc)
			rc = write_spot(r, &m->other, element, at, from ? from : chunk, n);
	}
	return rc;
}

/* Copies the row to a new spot.  On NVMe the first version of the new state is published before
 * any reader knows of the state.
 */
static int copy(struct registry *r, struct registry_move *m, const struct state_row *row,
		const uint8_t *from)
{
	int rc = make_spot(r, row, &m->other, m->bytes);

	if (rc)
		return rc;
	if (m->to == STATE_HOST)
		rc = registry_read(r, 0, m->row, 0, m->other.memory, m->bytes);
	else
		rc = fill_spot(r, m, frag_dtype_size(row->dtype), from);
	if (!rc && m->to == STATE_SWAP)
		rc = swapper_publish_state(r->swapper, m->other.swap_state);
	if (rc)
		free_spot(r, &m->other, m->bytes);
	return rc;
}

/* Under the lock. */
static void count_failed(struct registry *r, struct state_row *row, int rc)
{
	registry_forget_move(r, row);
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
	/* disk or device is silent: the trainer would wait as long for each other row */
	for (uint32_t i = 0; i < r->states.nrows; i++)
		if (r->states.rows[i].wanted)
			count_failed(r, &r->states.rows[i], rc);
}

int registry_place_copy(struct registry *r, uint32_t number, struct registry_move *m)
{
	struct state_row row;
	const uint8_t *from;
	int rc = look_up(r, number, m, &row, &from);

	assert(thread_may_be_trainer());
	if (rc)
		return rc;
	rc = copy(r, m, &row, from);
	if (rc)
		fail(r, m, &row, rc);
	return rc;
}

/* Under the lock.  Gives the row the address of its new memory; 0: it has none. */
static int set_address(struct registry *r, struct state_row *row, uint64_t address)
{
	if (!address)
		row->nextents = 0;
	else if (row->nextents)
		row->extents[0].address = address;
	else
		return states_add_segment(&r->states, (uint32_t)(row - r->states.rows),
					  (struct state_segment){ 0, row->numel, address });
	return 0;
}

/* Under the lock.  Exchanges the row's place and the other one. */
static int exchange(struct registry *r, struct registry_move *m)
{
	struct state_row *row = &r->states.rows[m->row];
	struct registry_spot new = m->other;
	struct registry_spot old = { .tier = row->tier,
				     .fd = -1,
				     .device = row->device,
				     .swap_state = row->swap_state };
	int rc;

	if (row->nextents)
		old.memory = (void *)(uintptr_t)row->extents[0].address;
	rc = set_address(r, row, (uintptr_t) new.memory);
	if (rc)
		return rc;
	if (old.tier == STATE_HOST)
		registry_drop_share(&r->states, (uintptr_t)old.memory);
	if (new.fd >= 0 &&
	    states_add_share(&r->states,
			     (struct state_share){ new.fd, (uintptr_t) new.memory, m->bytes }))
		old.fd = new.fd; /* readers do without the memfd: closed with the old spot */
	row->tier = (uint8_t) new.tier;
	row->owned = new.memory != NULL;
	row->device = new.device;
	row->swap_state = new.swap_state;
	row->swap_at = 0;
	m->other = old;
	return 0;
}

void registry_place_switch(struct registry *r, struct registry_move *m)
{
	struct state_row *row = &r->states.rows[m->row];
	struct state_row from;
	int rc = 0;

	assert(thread_may_be_trainer());
	pthread_mutex_lock(&r->lock);
	from = *row;
	if (row->wanted != m->to + 1) /* a mount has asked for another tier meanwhile */
		rc = -EAGAIN;
	else
		rc = exchange(r, m);
	if (!rc) {
		registry_forget_move(r, row);
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

/* The epoch has grown before the old memory is freed: see drop_row() in registry.c. */
void registry_place_end(struct registry *r, struct registry_move *m)
{
	assert(thread_may_be_trainer());
	free_spot(r, &m->other, m->bytes);
}
