/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/memory/memory.h"
#include "engine/rank/registry-internal.h"
#include "engine/swap/swapper.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

const struct tier_ops *const registry_tiers[STATE_TIERS] = {
	[STATE_HOST] = &registry_tier_host,
	[STATE_SWAP] = &registry_tier_swap,
	[STATE_DEVICE] = &registry_tier_device,
};

int registry_init(struct registry *r)
{
	memset(r, 0, sizeof(*r));
	r->control =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (r->control == MAP_FAILED)
		return -ENOMEM;
	if (getrandom(r->control->cookie, sizeof(r->control->cookie), 0) !=
	    sizeof(r->control->cookie)) {
		munmap(r->control, 4096);
		return -EIO;
	}
	/* in a forked child the cookie is 0: nobody takes its memory for this rank's */
	madvise(r->control, 4096, MADV_WIPEONFORK);
	pthread_mutex_init(&r->lock, NULL);
	r->states.epoch = 1;
	atomic_store(&r->control->registry_epoch, 1);
	return 0;
}

static void free_owned(struct registry *r, const struct state_row *row)
{
	void *memory = row->owned ? (void *)(uintptr_t)row->extents[0].address : NULL;

	if (memory && row->tier == STATE_DEVICE)
		devices_free(r->devices, row->device, memory);
	else if (memory)
		memory_free(memory, states_row_whole(row));
}

void registry_fini(struct registry *r)
{
	if (!r->control)
		return;
	for (uint32_t i = 0; i < r->states.nrows; i++)
		free_owned(r, &r->states.rows[i]);
	for (uint32_t i = 0; i < r->states.nshares; i++)
		close(r->states.shares[i].fd);
	states_fini(&r->states);
	registry_unpin_buffers(r); /* while their memory is there */
	if (r->swapper)
		swapper_close(r->swapper);
	if (r->devices)
		devices_close(r->devices);
	pthread_mutex_destroy(&r->lock);
	munmap(r->control, 4096);
	r->control = NULL;
}

void registry_count(struct registry *r, const struct state_row *row, int64_t bytes)
{
	_Atomic uint64_t *words[STATE_TIERS] = { [STATE_HOST] = &r->control->bytes_host,
						 [STATE_SWAP] = &r->control->swap_bytes,
						 [STATE_DEVICE] = &r->control->bytes_device };

	if (row->kind != STATE_PUBLISHED && row->kind != STATE_HYPER)
		atomic_fetch_add_explicit(words[row->tier], (uint64_t)bytes,
					  memory_order_relaxed);
}

void registry_new_epoch(struct registry *r)
{
	r->states.epoch++;
	atomic_store_explicit(&r->control->registry_epoch, r->states.epoch,
			      memory_order_release);
}

/* Sets the tier and device of a row's first segment; later segments must have the same. */
static int settle_in(struct state_row *row, const struct registry_tier *in)
{
	if (row->nextents && (row->tier != in->tier || row->device != in->device))
		return -EINVAL;
	row->tier = (uint8_t)in->tier;
	row->device = in->device;
	return 0;
}

/* Under the lock.  Adds a segment and returns the row's number.  On error the row is dropped if
 * it has no segments and was not declared without them: the caller has just added it.
 */
static int add_segment(struct registry *r, int number, struct state_segment segment,
		       const struct registry_tier *in)
{
	int rc = settle_in(&r->states.rows[number], in);

	if (!rc)
		rc = states_add_segment(&r->states, (uint32_t)number, segment);
	if (rc && !r->states.rows[number].nextents && !r->states.rows[number].moves)
		states_drop(&r->states, (uint32_t)number);
	return rc ? rc : number;
}

int registry_keep(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		  const char *key, enum frag_dtype dtype, uint64_t numel, void *memory)
{
	struct registry_tier in;
	int row = registry_where(r, memory, &in);

	assert(thread_may_be_trainer());
	if (row)
		return row;
	LOCKED(&r->lock);
	row = states_add(&r->states, kind, index, sub, key, dtype, numel,
			 (struct state_segment){ 0 });
	if (row >= 0 && memory)
		row = add_segment(r, row, (struct state_segment){ 0, numel, (uintptr_t)memory },
				  &in);
	if (row >= 0) {
		r->states.rows[row].moves = !memory;
		registry_count(r, &r->states.rows[row],
			       (int64_t)states_row_bytes(&r->states.rows[row]));
		registry_new_epoch(r);
	}
	return row < 0 ? row : 0;
}

void registry_resize(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		     const char *key, uint64_t numel)
{
	int row;

	LOCKED(&r->lock);
	row = states_find(&r->states, kind, index, sub, key);
	if (row >= 0 && r->states.rows[row].nextents == 1) {
		r->states.rows[row].numel = numel;
		r->states.rows[row].extents[0].end = numel;
		registry_count(r, &r->states.rows[row],
			       (int64_t)states_row_bytes(&r->states.rows[row]));
		registry_new_epoch(r);
	}
}

static int row_for_segments(struct registry *r, uint32_t index, uint32_t sub, const char *key,
			    enum frag_dtype dtype, uint64_t numel)
{
	int row = states_find(&r->states, STATE_PARTITION, index, sub, key);

	if (row < 0)
		return states_add(&r->states, STATE_PARTITION, index, sub, key, dtype, numel,
				  (struct state_segment){ 0 });
	if (r->states.rows[row].dtype != dtype || r->states.rows[row].tier == STATE_SWAP)
		return -EINVAL;
	return row;
}

int registry_keep_segment(struct registry *r, uint32_t index, uint32_t sub, const char *key,
			  enum frag_dtype dtype, uint64_t numel, struct state_segment segment)
{
	struct registry_tier in;
	int row = registry_where(r, (void *)(uintptr_t)segment.address, &in);

	assert(thread_may_be_trainer());
	if (row)
		return row;
	LOCKED(&r->lock);
	row = row_for_segments(r, index, sub, key, dtype, numel);
	if (row >= 0 && segment.address)
		row = add_segment(r, row, segment, &in);
	if (row >= 0) {
		r->states.rows[row].moves |= !segment.address;
		registry_count(r, &r->states.rows[row],
			       segment.address
				       ? (int64_t)(segment.numel * frag_dtype_size(dtype))
				       : 0);
		registry_new_epoch(r);
	}
	return row < 0 ? row : 0;
}

int registry_alloc(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		   const char *key, enum frag_dtype dtype, uint64_t numel, void **memory)
{
	uint64_t bytes;
	void *allocated;
	int row, fd, rc;

	assert(thread_may_be_trainer());
	if (!u64_mul(numel, frag_dtype_size(dtype), &bytes))
		return -ENOMEM;
	rc = memory_alloc(bytes, &allocated, &fd);
	if (rc)
		return rc;
	pthread_mutex_lock(&r->lock);
	row = states_add(&r->states, kind, index, sub, key, dtype, numel,
			 (struct state_segment){ 0, numel, (uintptr_t)allocated });
	if (row >= 0) {
		r->states.rows[row].owned = numel > 0;
		r->states.rows[row].placeable = !memory && numel;
		if (fd >= 0 &&
		    !states_add_share(&r->states,
				      (struct state_share){ fd, (uintptr_t)allocated, bytes }))
			fd = -1;
		if (memory)
			*memory = allocated;
		registry_count(r, &r->states.rows[row], (int64_t)bytes);
		registry_new_epoch(r);
	}
	pthread_mutex_unlock(&r->lock);
	if (fd >= 0)
		close(fd);
	if (row < 0)
		memory_free(allocated, bytes);
	return row < 0 ? row : 0;
}

void registry_drop_share(struct states *s, uint64_t address)
{
	for (uint32_t i = 0; i < s->nshares; i++) {
		if (s->shares[i].address != address)
			continue;
		close(s->shares[i].fd);
		s->shares[i] = s->shares[--s->nshares];
		return;
	}
}

void registry_forget_move(struct registry *r, struct state_row *row)
{
	if (!row->wanted)
		return;
	row->wanted = 0;
	r->placing.waiting_bytes -= states_row_whole(row);
	atomic_fetch_sub_explicit(&r->placing.waiting, 1, memory_order_relaxed);
}

/* Drops the row, and frees memory of the library that it had.  The epoch grows first: a
 * one-sided reader of memory that is freed, and perhaps used again, then reads the new epoch in
 * the control page.  Returns the old row, and in *device its memory on a device: to free that
 * waits for the device, so the caller does it without the lock.
 */
static struct state_row drop_row(struct registry *r, uint32_t number, void **device)
{
	struct state_row old = r->states.rows[number];
	uint64_t address = old.nextents ? old.extents[0].address : 0;
	uint64_t bytes = old.in_arena     ? 0
			 : old.swap_state ? states_row_whole(&old)
					  : states_row_bytes(&old);

	registry_forget_move(r, &r->states.rows[number]);
	states_drop(&r->states, number);
	registry_new_epoch(r);
	registry_count(r, &old, -(int64_t)bytes);
	if (old.owned && old.tier == STATE_DEVICE) {
		*device = (void *)(uintptr_t)address;
	} else if (old.owned) {
		registry_drop_share(&r->states, address);
		memory_free((void *)(uintptr_t)address, states_row_whole(&old));
	}
	old.extents = NULL;
	return old;
}

int registry_drop(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		  const char *key)
{
	struct state_row old;
	void *device = NULL;
	int row;

	assert(thread_may_be_trainer());
	pthread_mutex_lock(&r->lock);
	row = states_find(&r->states, kind, index, sub, key);
	if (row >= 0)
		old = drop_row(r, (uint32_t)row, &device);
	pthread_mutex_unlock(&r->lock);
	if (row >= 0 && registry_tiers[old.tier]->dropped)
		registry_tiers[old.tier]->dropped(r, &old);
	if (device)
		devices_free(r->devices, old.device, device);
	return row < 0 ? row : 0;
}

static void set_address(struct registry *r, struct state_row *row, struct state_extent *extent,
			uint64_t address)
{
	uint64_t numel = states_segment(row, (uint32_t)(extent - row->extents)).numel;
	int64_t bytes = (int64_t)(numel * frag_dtype_size(row->dtype));

	registry_count(r, row, (address ? bytes : 0) - (extent->address ? bytes : 0));
	extent->address = address;
}

static int replace(struct registry *r, uint32_t number, struct state_segment segment,
		   const struct registry_tier *in)
{
	struct state_row *row = &r->states.rows[number];
	struct state_extent *old = states_find_extent(row, segment.start, segment.numel);
	uint64_t before;

	if (!old) {
		struct state_segment empty = { segment.start, segment.numel, 0 };
		int rc = states_add_segment(&r->states, number, empty);

		if (rc)
			return rc == -EEXIST ? -EINVAL : rc;
		old = states_find_extent(row, segment.start, segment.numel);
	}
	before = old->address;
	set_address(r, row, old, 0); /* a row may change its tier with its only segment */
	if (segment.address && (row->tier != in->tier || row->device != in->device)) {
		if (states_row_bytes(row)) {
			set_address(r, row, old, before);
			return -EINVAL;
		}
		row->tier = (uint8_t)in->tier;
		row->device = in->device;
	}
	set_address(r, row, old, segment.address);
	return 0;
}

/* Under the lock. */
static int replace_any(struct registry *r, uint32_t number, struct state_segment segment,
		       const struct registry_tier *in)
{
	struct state_row *row = &r->states.rows[number];

	if (row->owned || row->in_arena || row->tier == STATE_SWAP)
		return -EOPNOTSUPP;
	if (!row->moves) { /* readers have its addresses */
		row->moves = true;
		registry_new_epoch(r);
	}
	for (uint32_t i = 0; !segment.numel && !segment.address && i < row->nextents; i++)
		set_address(r, row, &row->extents[i], 0);
	if (!segment.numel && segment.address)
		segment.numel = row->numel;
	return segment.numel ? replace(r, number, segment, in) : 0;
}

/* The row keeps its number while the lock is released: this thread alone adds and drops rows.
 */
int registry_replace(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		     const char *key, const struct state_segment *segments, size_t n)
{
	enum frag_dtype dtype;
	int row = registry_find(r, kind, index, sub, key, &dtype), rc = row < 0 ? row : 0;
	bool was_on_device = row >= 0 && registry_tier(r, (uint32_t)row) == STATE_DEVICE;

	assert(thread_may_be_trainer());
	for (size_t i = 0; i < n && !rc; i++) {
		struct registry_tier in;

		rc = registry_where(r, (void *)(uintptr_t)segments[i].address, &in);
		if (rc)
			break;
		pthread_mutex_lock(&r->lock);
		rc = replace_any(r, (uint32_t)row, segments[i], &in);
		pthread_mutex_unlock(&r->lock);
	}
	if (was_on_device) /* the old memory is the caller's again: no copy may use it */
		devices_drain(r->devices);
	return rc;
}

/* Under the lock. */
static int settle(struct registry *r, uint32_t number, void *to)
{
	const struct state_row *arena =
		&r->states.rows[states_find(&r->states, STATE_ARENA, 0, 0, "")];
	struct state_row *row = &r->states.rows[number];
	struct state_extent *extents = realloc(row->extents, 2 * sizeof(*extents));

	if (!extents)
		return -ENOMEM;
	row->extents = extents;
	row->extents_room = 2;
	if (!row->in_arena)
		registry_count(r, row, -(int64_t)states_row_bytes(row));
	registry_new_epoch(r);
	row->tier = arena->tier;
	row->device = arena->device;
	extents[0] = (struct state_extent){ row->numel, (uintptr_t)to };
	row->nextents = row->numel > 0;
	row->in_arena = true;
	return 0;
}

/* Copies a row's values into the arena.  This thread alone changes the row. */
static int bring_values(struct registry *r, uint32_t row, void *to, uint64_t bytes)
{
	int number = registry_arena_device(r);
	CLEANUP(free) void *chunk = NULL;
	int rc = 0;

	if (number == DEVICE_NONE)
		return registry_read(r, 0, row, 0, to, bytes);
	chunk = malloc(u64_min(bytes, REGISTRY_ARENA_CHUNK) + 1);
	if (!chunk)
		return -ENOMEM;
	for (uint64_t done = 0, n; done < bytes && !rc; done += n) {
		n = u64_min(bytes - done, REGISTRY_ARENA_CHUNK);
		rc = registry_read(r, 0, row, done, chunk, n);
		if (!rc)
			rc = registry_put_on_device(r, number, (uint8_t *)to + done, chunk, n);
	}
	return rc;
}

int registry_assign(struct registry *r, enum state_kind kind, uint32_t index,
		    enum frag_dtype dtype, uint64_t numel, void *to)
{
	enum frag_dtype found;
	int row = registry_find(r, kind, index, 0, "", &found), rc = 0;
	bool is_new = row < 0;

	assert(thread_may_be_trainer());
	if (!is_new && registry_tier(r, (uint32_t)row) == STATE_SWAP)
		return -EBUSY;
	if (!is_new)
		rc = bring_values(r, (uint32_t)row, to, numel * frag_dtype_size(dtype));
	if (rc)
		return rc;
	pthread_mutex_lock(&r->lock);
	if (is_new)
		rc = row = states_add(&r->states, kind, index, 0, "", dtype, numel,
				      (struct state_segment){ 0 });
	if (rc >= 0)
		rc = settle(r, (uint32_t)row, to);
	if (rc && is_new && row >= 0)
		states_drop(&r->states, (uint32_t)row);
	pthread_mutex_unlock(&r->lock);
	if (r->devices) /* the old memory is the caller's again: no copy may use it */
		devices_drain(r->devices);
	return rc;
}

void registry_move(struct registry *r, void *to, const void *from, size_t size,
		   void (*repoint)(void *arg), void *arg)
{
	LOCKED(&r->lock);
	registry_new_epoch(r);
	/* a one-sided reader that copies moved bytes sees the new epoch after them */
	atomic_thread_fence(memory_order_seq_cst);
	memmove(to, from, size);
	repoint(arg);
}

int registry_move_begin(struct registry *r)
{
	int rc = registry_put_on_device(r, registry_arena_device(r), NULL, NULL, 0);

	assert(thread_may_be_trainer());
	if (rc)
		return rc;
	pthread_mutex_lock(&r->lock);
	r->arena_moves = true;
	pthread_mutex_unlock(&r->lock);
	devices_drain(r->devices);
	return 0;
}

void registry_move_end(struct registry *r, void (*repoint)(void *arg), void *arg)
{
	LOCKED(&r->lock);
	registry_new_epoch(r);
	if (repoint)
		repoint(arg);
	r->arena_moves = false;
}

void registry_point(struct registry *r, enum state_kind kind, uint32_t index,
		    const struct iovec *parts, uint32_t n)
{
	int number = states_find(&r->states, kind, index, 0, "");
	struct state_row *row;
	uint64_t at = 0;

	assert(number >= 0 && n <= 2);
	row = &r->states.rows[number];
	assert(row->in_arena);
	for (uint32_t i = 0; i < n; i++) {
		at += parts[i].iov_len / frag_dtype_size(row->dtype);
		row->extents[i] = (struct state_extent){ at, (uintptr_t)parts[i].iov_base };
	}
	row->nextents = n;
}

int registry_find(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		  const char *key, enum frag_dtype *dtype)
{
	int row;

	LOCKED(&r->lock);
	row = states_find(&r->states, kind, index, sub, key);
	if (row >= 0)
		*dtype = r->states.rows[row].dtype;
	return row;
}

void *registry_memory(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		      const char *key, uint64_t at, uint64_t numel, enum frag_dtype *dtype)
{
	const struct state_row *found;
	struct iovec part;
	uint64_t element;
	int row;

	LOCKED(&r->lock);
	row = states_find(&r->states, kind, index, sub, key);
	if (row < 0)
		return NULL;
	found = &r->states.rows[row];
	element = frag_dtype_size(found->dtype);
	if (states_parts(found, at * element, numel * element, &part, 1) != 1)
		return NULL;
	*dtype = found->dtype;
	return part.iov_base;
}

const struct state_row *registry_row_at(const struct registry *r, uint64_t epoch,
					uint32_t number)
{
	const struct state_row *row = number < r->states.nrows ? &r->states.rows[number] : NULL;

	if (!row || row->kind == STATE_NONE || epoch > r->states.epoch ||
	    (epoch && row->since > epoch))
		return NULL;
	return row;
}

/* ---- by tiers: the trainer's thread ---- */

const struct tier_ops *registry_tier_ops(struct registry *r, uint64_t epoch, uint32_t number)
{
	const struct state_row *row;

	LOCKED(&r->lock);
	row = registry_row_at(r, epoch, number);
	return row ? registry_tiers[row->tier] : NULL;
}

int registry_read(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset, void *out,
		  size_t size)
{
	const struct tier_ops *ops = registry_tier_ops(r, epoch, row);

	assert(thread_may_be_trainer());
	return ops ? ops->read(r, epoch, row, offset, out, size) : -ESTALE;
}

int registry_write(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
		   const void *data, size_t size)
{
	const struct tier_ops *ops = registry_tier_ops(r, epoch, row);

	assert(thread_may_be_trainer());
	return ops ? ops->write(r, epoch, row, offset, data, size) : -ESTALE;
}

int registry_put(struct registry *r, uint32_t row, uint64_t offset, const void *data,
		 size_t size)
{
	const struct tier_ops *ops = registry_tier_ops(r, 0, row);

	assert(thread_may_be_trainer());
	if (!ops)
		return -ESTALE;
	return ops->put ? ops->put(r, row, offset, data, size)
			: ops->write(r, 0, row, offset, data, size);
}

int registry_clear(struct registry *r, uint32_t row)
{
	const struct tier_ops *ops = registry_tier_ops(r, 0, row);

	assert(thread_may_be_trainer());
	return ops ? ops->clear(r, row) : -ESTALE;
}

bool registry_is_grad(struct registry *r, uint32_t row)
{
	LOCKED(&r->lock);
	return row < r->states.nrows && !strcmp(r->states.rows[row].key, "grad");
}

int registry_dtype(struct registry *r, uint64_t epoch, uint32_t number, enum frag_dtype *dtype)
{
	const struct state_row *row;

	LOCKED(&r->lock);
	row = registry_row_at(r, epoch, number);
	if (row)
		*dtype = row->dtype;
	return row ? 0 : -ESTALE;
}

enum state_tier registry_tier(struct registry *r, uint32_t row)
{
	LOCKED(&r->lock);
	return row < r->states.nrows ? r->states.rows[row].tier : STATE_HOST;
}
