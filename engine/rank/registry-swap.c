/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/rank/registry-internal.h"
#include "engine/swap/swapper.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Rows on NVMe: partitions, and pieces of parameters. */

int registry_swap_add(struct registry *r, uint32_t index, uint32_t sub, const char *key,
		      enum frag_dtype dtype, uint64_t numel, struct swapper_state **s)
{
	enum swapper_kind kind = strcmp(key, "grad") ? SWAPPER_STATE : SWAPPER_GRADIENT;
	char name[FRAG_KEY_MAX + 40];

	snprintf(name, sizeof(name), "group %u sub %u %s", index, sub, key);
	return swapper_add(r->swapper, name, kind, (uint32_t)frag_dtype_size(dtype), numel, s);
}

/* Registers in memory a state that does not go to NVMe. */
static int keep_here(struct registry *r, uint32_t index, uint32_t sub, const char *key,
		     enum frag_dtype dtype, uint64_t numel)
{
	int rc = registry_alloc(r, STATE_PARTITION, index, sub, key, dtype, numel, NULL);

	if (!rc)
		registry_stays(r, STATE_PARTITION, index, sub, key);
	return rc;
}

/* A partition without elements is in no tier. */
int registry_swap(struct registry *r, uint32_t index, uint32_t sub, const char *key,
		  enum frag_dtype dtype, uint64_t numel, bool stays)
{
	uint64_t bytes;
	struct swapper_state *s;
	int row, rc = r->swapper ? 0 : -EOPNOTSUPP;

	assert(thread_may_be_trainer());
	if (!rc && !numel)
		return registry_keep(r, STATE_PARTITION, index, sub, key, dtype, 0, NULL);
	if (!rc && u64_mul(numel, frag_dtype_size(dtype), &bytes) &&
	    (stays || bytes < swapper_least(r->swapper)))
		return keep_here(r, index, sub, key, dtype, numel);
	if (!rc)
		rc = registry_swap_add(r, index, sub, key, dtype, numel, &s);
	if (rc)
		return rc;
	pthread_mutex_lock(&r->lock);
	row = states_add(&r->states, STATE_PARTITION, index, sub, key, dtype, numel,
			 (struct state_segment){ 0 });
	if (row >= 0) {
		r->states.rows[row].tier = STATE_SWAP;
		r->states.rows[row].placeable = true;
		r->states.rows[row].swap_state = s;
		registry_count(r, &r->states.rows[row],
			       (int64_t)(numel * frag_dtype_size(dtype)));
		registry_new_epoch(r);
	}
	pthread_mutex_unlock(&r->lock);
	if (row < 0)
		swapper_drop(r->swapper, s);
	return row < 0 ? row : 0;
}

/* Under the lock.  Returns the number of the shard's row, which now has no segments: its memory
 * is the caller's again.
 */
static int empty_shard(struct registry *r, uint32_t param, enum frag_dtype dtype,
		       uint64_t numel)
{
	int number = states_find(&r->states, STATE_LP_SHARD, param, 0, "");
	struct state_row *row;

	if (number < 0)
		return states_add(&r->states, STATE_LP_SHARD, param, 0, "", dtype, numel,
				  (struct state_segment){ 0 });
	row = &r->states.rows[number];
	registry_count(r, row, -(int64_t)states_row_bytes(row));
	row->nextents = 0;
	return number;
}

int registry_swap_shard(struct registry *r, uint32_t param, enum frag_dtype dtype,
			uint64_t numel, struct swapper_state *s, uint64_t at)
{
	int number;

	pthread_mutex_lock(&r->lock);
	number = empty_shard(r, param, dtype, numel);
	if (number >= 0) {
		struct state_row *row = &r->states.rows[number];

		row->tier = STATE_SWAP;
		row->swap_state = s;
		row->swap_at = at;
		registry_count(r, row, (int64_t)states_row_whole(row));
		registry_new_epoch(r);
		row->since = r->states.epoch;
	}
	pthread_mutex_unlock(&r->lock);
	if (r->devices) /* the old memory is the caller's again */
		devices_drain(r->devices);
	return number < 0 ? number : 0;
}

void registry_stays(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		    const char *key)
{
	int number;

	LOCKED(&r->lock);
	number = states_find(&r->states, kind, index, sub, key);
	if (number >= 0)
		r->states.rows[number].stays = true;
}

struct swapper_state *registry_swap_state(struct registry *r, enum state_kind kind,
					  uint32_t index, uint32_t sub, const char *key,
					  uint64_t *at)
{
	int row;

	LOCKED(&r->lock);
	row = states_find(&r->states, kind, index, sub, key);
	if (row < 0)
		return NULL;
	*at = r->states.rows[row].swap_at;
	return r->states.rows[row].swap_state;
}

void registry_pin_buffers(struct registry *r)
{
	const struct iovec *slabs;
	unsigned n = 0, i = 0;
	int rc = 0;

	assert(thread_may_be_trainer());
	if (!r->swapper || !r->devices || r->buffers_on_devices)
		return;
	for (n = swapper_slabs(r->swapper, &slabs); i < n && !rc; i += !rc)
		rc = devices_pin(r->devices, slabs[i].iov_base, slabs[i].iov_len);
	if (rc)
		log_warn("swap: the devices cannot pin the buffers: %s", strerror(-rc));
	while (rc && i--)
		devices_unpin(r->devices, slabs[i].iov_base);
	LOCKED(&r->lock);
	r->buffers_on_devices = n && !rc;
}

void registry_unpin_buffers(struct registry *r)
{
	const struct iovec *slabs;
	unsigned n = r->buffers_on_devices ? swapper_slabs(r->swapper, &slabs) : 0;

	for (unsigned i = 0; i < n; i++)
		devices_unpin(r->devices, slabs[i].iov_base);
	r->buffers_on_devices = false;
}

static bool is_in_row(const struct state_row *row, uint64_t offset, uint64_t size)
{
	uint64_t end;

	return u64_add(offset, size, &end) && end <= states_row_whole(row);
}

/* The place of a row's bytes on NVMe. */
struct spot {
	struct swapper_state *state;
	uint64_t at;      /* in the state */
	uint64_t element; /* the state's */
};

/* Finds the state that has the bytes of a row.
 * -ESTALE: the row was dropped or replaced, or is not on NVMe.
 * -EINVAL: the range ends behind the row.
 */
static int find_spot(struct registry *r, uint64_t epoch, uint32_t number, uint64_t offset,
		     uint64_t size, struct spot *spot)
{
	const struct state_row *row;

	LOCKED(&r->lock);
	row = registry_row_at(r, epoch, number);
	if (!row || !row->swap_state)
		return -ESTALE;
	*spot = (struct spot){ .state = row->swap_state,
			       .at = row->swap_at + offset,
			       .element = row->kind == STATE_PARTITION
						  ? frag_dtype_size(row->dtype)
						  : 1 };
	return is_in_row(row, offset, size) ? 0 : -EINVAL;
}

static int read_state(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
		      void *out, size_t size)
{
	struct spot spot;
	int rc = find_spot(r, epoch, row, offset, size, &spot);

	return rc ? rc : swapper_read_newest(r->swapper, spot.state, spot.at, size, out);
}

static int write_state(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
		       const void *data, size_t size)
{
	struct spot spot;
	int rc = find_spot(r, epoch, row, offset, size, &spot);

	return rc ? rc : swapper_write(r->swapper, spot.state, spot.at, data, size);
}

static int put_state(struct registry *r, uint32_t row, uint64_t offset, const void *data,
		     size_t size)
{
	struct spot spot;
	int rc = find_spot(r, 0, row, offset, size, &spot);

	if (!rc)
		rc = swapper_put(r->swapper, spot.state, spot.at / spot.element, data,
				 size / spot.element);
	/* -EBUSY: the trainer has the state in, and swapper_write writes to its memory too */
	return rc == -EBUSY ? swapper_write(r->swapper, spot.state, spot.at, data, size) : rc;
}

static int clear_state(struct registry *r, uint32_t row)
{
	struct spot spot;
	int rc = find_spot(r, 0, row, 0, 0, &spot);

	return rc ? rc : swapper_clear(r->swapper, spot.state);
}

static void drop_state(struct registry *r, const struct state_row *old)
{
	swapper_drop(r->swapper, old->swap_state);
}

/* ---- versions ---- */

static int pin_row(struct registry *r, uint64_t epoch, uint32_t number, uint64_t offset,
		   uint64_t size, struct registry_version *v)
{
	const struct state_row *row;
	int rc = -ESTALE;

	pthread_mutex_lock(&r->lock);
	row = registry_row_at(r, epoch, number);
	if (row && row->swap_state) {
		v->swap.swapper = r->swapper;
		v->swap.state = row->swap_state;
		v->swap.row_at = row->swap_at;
		rc = !is_in_row(row, offset, size)
			     ? -EINVAL
			     : swapper_pin(r->swapper, row->swap_state, row->swap_at + offset,
					   size, &v->swap.pin);
		if (rc == -ESTALE) /* the versions were evicted: the next publish makes new */
			rc = -EAGAIN;
	}
	pthread_mutex_unlock(&r->lock);
	return rc;
}

static void unpin(struct registry_version *v)
{
	swapper_unpin(v->swap.swapper, v->swap.pin);
}

static bool same(const struct registry_version *a, const struct registry_version *b)
{
	return swapper_pins_same(a->swap.pin, b->swap.pin);
}

static void on_swapper_read(struct swapper_read *io, int rc)
{
	struct registry_fetch *f = container_of(io, struct registry_fetch, swap);

	f->done(f, rc);
}

static int begin_fetch(struct registry *r, struct registry_fetch *f)
{
	const struct registry_version *v = f->version;

	(void)r;
	if (f->what != DEVICE_COPY)
		return -EOPNOTSUPP;
	f->swap = (struct swapper_read){ .state = v->swap.state,
					 .pin = v->swap.pin,
					 .offset = v->swap.row_at + f->offset,
					 .size = f->size,
					 .memory = f->memory,
					 .done = on_swapper_read };
	swapper_read(v->swap.swapper, &f->swap);
	return 0;
}

static void cancel(struct registry_fetch *f)
{
	swapper_read_cancel(&f->swap);
}

static void log_failure(struct registry_fetch *f)
{
	swapper_log_failure(f->version->swap.swapper, &f->swap.failure);
}

const struct tier_ops registry_tier_swap = {
	.read = read_state,
	.write = write_state,
	.put = put_state,
	.clear = clear_state,
	.dropped = drop_state,
	.newest = pin_row,
	.hold = pin_row,
	.release = unpin,
	.same = same,
	.begin = begin_fetch,
	.cancel = cancel,
	.log = log_failure,
};
