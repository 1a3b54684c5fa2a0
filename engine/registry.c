/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/registry.h"
#include "engine/memory.h"
#include "engine/place.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

enum {
	REGISTRY_PARTS = 1024,
	ONCE = 1 << 30, /* bytes; process_vm_readv copies less than 2 GiB in a call */
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
	madvise(r->control, 4096, MADV_WIPEONFORK);
	pthread_mutex_init(&r->lock, NULL);
	r->states.epoch = 1;
	atomic_store(&r->control->registry_epoch, 1);
	return 0;
}

static void free_owned(struct state_row *row)
{
	if (row->owned)
		memory_free((void *)(uintptr_t)row->segments[0].address,
			    row->numel * frag_dtype_size(row->dtype));
}

void registry_fini(struct registry *r)
{
	if (!r->control)
		return;
	for (uint32_t i = 0; i < r->states.nrows; i++)
		free_owned(&r->states.rows[i]);
	for (uint32_t i = 0; i < r->states.nshares; i++)
		close(r->states.shares[i].fd);
	states_fini(&r->states);
	if (r->place)
		place_close(r->place);
	pthread_mutex_destroy(&r->lock);
	munmap(r->control, 4096);
	r->control = NULL;
}

/* Under the lock, after any change, by which so many bytes came or, negative, went. */
static void new_epoch(struct registry *r, int64_t bytes)
{
	r->states.epoch++;
	atomic_fetch_add_explicit(&r->control->bytes_host, (uint64_t)bytes,
				  memory_order_relaxed);
	atomic_store_explicit(&r->control->registry_epoch, r->states.epoch,
			      memory_order_release);
}

/* Under the lock.  Row number, which goes again when it is left without memory. */
static int add_segment(struct registry *r, int number, struct state_segment segment)
{
	int rc = states_add_segment(&r->states, (uint32_t)number, segment);

	if (rc && !r->states.rows[number].nsegments)
		states_drop(&r->states, (uint32_t)number);
	return rc;
}

int registry_keep(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		  const char *key, enum frag_dtype dtype, uint64_t numel, void *memory)
{
	int row;

	pthread_mutex_lock(&r->lock);
	row = states_add(&r->states, kind, index, sub, key, dtype, numel,
			 (struct state_segment){ 0 });
	if (row >= 0 && memory)
		row = add_segment(r, row,
				  (struct state_segment){ 0, numel, (uintptr_t)memory });
	if (row >= 0)
		new_epoch(r, (int64_t)(numel * frag_dtype_size(dtype)));
	pthread_mutex_unlock(&r->lock);
	return row < 0 ? row : 0;
}

void registry_resize(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		     const char *key, uint64_t numel)
{
	int row;

	pthread_mutex_lock(&r->lock);
	row = states_find(&r->states, kind, index, sub, key);
	if (row >= 0 && r->states.rows[row].nsegments == 1) {
		r->states.rows[row].numel = numel;
		r->states.rows[row].segments[0].numel = numel;
		new_epoch(r, (int64_t)states_row_bytes(&r->states.rows[row]));
	}
	pthread_mutex_unlock(&r->lock);
}

static int row_for_segments(struct registry *r, uint32_t index, uint32_t sub, const char *key,
			    enum frag_dtype dtype, uint64_t numel)
{
	int row = states_find(&r->states, STATE_PARTITION, index, sub, key);

	if (row < 0)
		return states_add(&r->states, STATE_PARTITION, index, sub, key, dtype, numel,
				  (struct state_segment){ 0 });
	return r->states.rows[row].dtype == dtype ? row : -EINVAL;
}

int registry_keep_segment(struct registry *r, uint32_t index, uint32_t sub, const char *key,
			  enum frag_dtype dtype, uint64_t numel, struct state_segment segment)
{
	int row;

	pthread_mutex_lock(&r->lock);
	row = row_for_segments(r, index, sub, key, dtype, numel);
	if (row >= 0)
		row = add_segment(r, row, segment);
	if (row >= 0)
		new_epoch(r, (int64_t)(segment.numel * frag_dtype_size(dtype)));
	pthread_mutex_unlock(&r->lock);
	return row < 0 ? row : 0;
}

int registry_alloc(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		   const char *key, enum frag_dtype dtype, uint64_t numel, void **memory)
{
	uint64_t bytes;
	void *allocated;
	int row, fd, rc;

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
		if (fd >= 0 &&
		    !states_add_share(&r->states,
				      (struct state_share){ fd, (uintptr_t)allocated, bytes }))
			fd = -1;
		*memory = allocated;
		new_epoch(r, (int64_t)bytes);
	}
	pthread_mutex_unlock(&r->lock);
	if (fd >= 0)
		close(fd);
	if (row < 0)
		memory_free(allocated, bytes);
	return row < 0 ? row : 0;
}

static uint64_t row_bytes(const struct state_row *row)
{
	return row->numel * frag_dtype_size(row->dtype);
}

static void count_swapped(struct registry *r, uint64_t bytes)
{
	atomic_fetch_add_explicit(&r->control->swap_bytes, bytes, memory_order_relaxed);
}

static int add_place(struct registry *r, uint32_t index, uint32_t sub, const char *key,
		     enum frag_dtype dtype, uint64_t numel, struct place_state **s)
{
	enum place_kind kind = strcmp(key, "grad") ? PLACE_STATE : PLACE_GRADIENT;
	char name[FRAG_KEY_MAX + 40];

	snprintf(name, sizeof(name), "group %u sub %u %s", index, sub, key);
	return place_add(r->place, name, kind, (uint32_t)frag_dtype_size(dtype), numel, s);
}

/* Without elements it is in no tier. */
int registry_swap(struct registry *r, uint32_t index, uint32_t sub, const char *key,
		  enum frag_dtype dtype, uint64_t numel)
{
	struct place_state *s;
	int row, rc = r->place ? 0 : -EOPNOTSUPP;

	if (!rc && !numel)
		return registry_keep(r, STATE_PARTITION, index, sub, key, dtype, 0, NULL);
	if (!rc)
		rc = add_place(r, index, sub, key, dtype, numel, &s);
	if (rc)
		return rc;
	pthread_mutex_lock(&r->lock);
	row = states_add(&r->states, STATE_PARTITION, index, sub, key, dtype, numel,
			 (struct state_segment){ 0 });
	if (row >= 0) {
		r->states.rows[row].tier = STATE_SWAP;
		r->states.rows[row].place = s;
		count_swapped(r, row_bytes(&r->states.rows[row]));
		new_epoch(r, 0);
	}
	pthread_mutex_unlock(&r->lock);
	if (row < 0)
		place_drop(r->place, s);
	return row < 0 ? row : 0;
}

static void drop_share(struct states *s, uint64_t address)
{
	for (uint32_t i = 0; i < s->nshares; i++) {
		if (s->shares[i].address != address)
			continue;
		close(s->shares[i].fd);
		s->shares[i] = s->shares[--s->nshares];
		return;
	}
}

/* The epoch first: who reads the memory after it was freed, and perhaps used for something else, finds
 * the new one in the control page behind it.  Returns what it had on NVMe.
 */
static struct place_state *drop_row(struct registry *r, uint32_t number)
{
	struct state_row old = r->states.rows[number];
	uint64_t address = old.nsegments ? old.segments[0].address : 0;
	int64_t bytes = old.in_arena ? 0 : (int64_t)states_row_bytes(&old);

	states_drop(&r->states, number);
	new_epoch(r, -bytes);
	if (old.place)
		count_swapped(r, -row_bytes(&old));
	if (old.owned) {
		drop_share(&r->states, address);
		memory_free((void *)(uintptr_t)address, row_bytes(&old));
	}
	return old.place;
}

int registry_drop(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		  const char *key)
{
	struct place_state *swapped = NULL;
	int row;

	pthread_mutex_lock(&r->lock);
	row = states_find(&r->states, kind, index, sub, key);
	if (row >= 0)
		swapped = drop_row(r, (uint32_t)row);
	pthread_mutex_unlock(&r->lock);
	if (swapped)
		place_drop(r->place, swapped);
	return row < 0 ? row : 0;
}

/* Under the lock. */
static int settle(struct registry *r, uint32_t number, void *to)
{
	struct state_row *row = &r->states.rows[number];
	struct state_segment *segments = realloc(row->segments, 2 * sizeof(*segments));

	if (!segments)
		return -ENOMEM;
	row->segments = segments;
	new_epoch(r, row->in_arena ? 0 : -(int64_t)states_row_bytes(row));
	segments[0] = (struct state_segment){ 0, row->numel, (uintptr_t)to };
	row->nsegments = row->numel > 0;
	row->in_arena = true;
	return 0;
}

int registry_assign(struct registry *r, enum state_kind kind, uint32_t index,
		    enum frag_dtype dtype, uint64_t numel, void *to)
{
	enum frag_dtype found;
	int row = registry_find(r, kind, index, 0, "", &found), rc = 0;
	bool is_new = row < 0;

	if (!is_new)
		rc = registry_read(r, 0, (uint32_t)row, 0, to, numel * frag_dtype_size(dtype));
	pthread_mutex_lock(&r->lock);
	if (is_new)
		rc = row = states_add(&r->states, kind, index, 0, "", dtype, numel,
				      (struct state_segment){ 0 });
	if (rc >= 0)
		rc = settle(r, (uint32_t)row, to);
	if (rc && is_new && row >= 0)
		states_drop(&r->states, (uint32_t)row);
	pthread_mutex_unlock(&r->lock);
	return rc;
}

void registry_move(struct registry *r, void *to, const void *from, size_t size,
		   void (*repoint)(void *arg), void *arg)
{
	pthread_mutex_lock(&r->lock);
	new_epoch(r, 0);
	atomic_thread_fence(memory_order_seq_cst);
	memmove(to, from, size);
	repoint(arg);
	pthread_mutex_unlock(&r->lock);
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
		uint64_t numel = parts[i].iov_len / frag_dtype_size(row->dtype);

		row->segments[i] =
			(struct state_segment){ at, numel, (uintptr_t)parts[i].iov_base };
		at += numel;
	}
	row->nsegments = n;
}

int registry_find(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		  const char *key, enum frag_dtype *dtype)
{
	int row;

	pthread_mutex_lock(&r->lock);
	row = states_find(&r->states, kind, index, sub, key);
	if (row >= 0)
		*dtype = r->states.rows[row].dtype;
	pthread_mutex_unlock(&r->lock);
	return row;
}

void *registry_memory(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		      const char *key, uint64_t at, uint64_t numel, enum frag_dtype *dtype)
{
	void *memory = NULL;
	int row;

	pthread_mutex_lock(&r->lock);
	row = states_find(&r->states, kind, index, sub, key);
	if (row >= 0) {
		const struct state_row *found = &r->states.rows[row];
		uint64_t element = frag_dtype_size(found->dtype);
		struct iovec part;

		if (states_resolve(found, at * element, numel * element, &part, 1) == 1) {
			memory = part.iov_base;
			*dtype = found->dtype;
		}
	}
	pthread_mutex_unlock(&r->lock);
	return memory;
}

struct place_state *registry_place(struct registry *r, uint32_t index, uint32_t sub,
				   const char *key, enum frag_dtype *dtype)
{
	struct place_state *s = NULL;
	int row;

	pthread_mutex_lock(&r->lock);
	row = states_find(&r->states, STATE_PARTITION, index, sub, key);
	if (row >= 0) {
		s = r->states.rows[row].place;
		*dtype = r->states.rows[row].dtype;
	}
	pthread_mutex_unlock(&r->lock);
	return s;
}

/* What else came or went since epoch does not matter: an edit, once decided, must not fail for that.  NULL: it is not
 * what it was.
 */
static const struct state_row *row_at(const struct registry *r, uint64_t epoch, uint32_t number)
{
	const struct state_row *row = number < r->states.nrows ? &r->states.rows[number] : NULL;

	if (!row || row->kind == STATE_NONE || epoch > r->states.epoch ||
	    (epoch && row->since > epoch))
		return NULL;
	return row;
}

static int resolve(struct registry *r, uint64_t epoch, uint32_t number, uint64_t offset,
		   size_t size, struct iovec *parts)
{
	const struct state_row *row = row_at(r, epoch, number);

	return row ? states_resolve(row, offset, size, parts, REGISTRY_PARTS) : -ESTALE;
}

/* Trainer's thread: NULL: not on NVMe. */
static struct place_state *swapped(struct registry *r, uint64_t epoch, uint32_t number)
{
	const struct state_row *row;
	struct place_state *s;

	pthread_mutex_lock(&r->lock);
	row = row_at(r, epoch, number);
	s = row ? row->place : NULL;
	pthread_mutex_unlock(&r->lock);
	return s;
}

enum way { READ, COPY, WRITE, PROBE, FIND };

static void copy_plainly(const struct iovec *parts, unsigned n, uint8_t *out)
{
	for (unsigned i = 0; i < n; i++) {
		memcpy(out, parts[i].iov_base, parts[i].iov_len);
		out += parts[i].iov_len;
	}
}

static int copy(enum way way, const struct state_row *row, const struct iovec *parts,
		unsigned n, uint8_t *data, size_t size)
{
	if (way == COPY && row->owned) {
		copy_plainly(parts, n, data);
		return 0;
	}
	if (way == PROBE && row->owned) /* mapped until it is dropped, which takes the lock */
		return 0;
	switch (way) {
	case READ:
	case COPY:
		return memory_read_own(data, parts, n, size);
	case WRITE:
		return memory_write_own(parts, n, data, size);
	case PROBE:
		return memory_probe_own(parts, n);
	case FIND:
		return 0;
	}
	return -EINVAL;
}

/* The lock is held over the copy, so that registry_drop cannot free what is being copied.  What is large, or
 * in very many small segments, goes in several calls.
 */
static int access_bytes(enum way way, struct registry *r, uint64_t epoch, uint32_t row,
			uint64_t offset, uint8_t *data, size_t size)
{
	struct iovec parts[REGISTRY_PARTS];
	size_t done = 0, chunk = ONCE;
	int n = 0;

	pthread_mutex_lock(&r->lock);
	do {
		chunk = u64_min(chunk, size - done);
		n = resolve(r, epoch, row, offset + done, chunk, parts);
		if (n == -E2BIG) {
			chunk /= 2;
			continue;
		}
		if (n == -EREMOTE && (way == PROBE || way == FIND))
			n = 0;
		if (n > 0)
			n = copy(way, &r->states.rows[row], parts, (unsigned)n,
				 data ? data + done : NULL, chunk);
		done += chunk;
	} while (done < size && (!n || n == -E2BIG));
	pthread_mutex_unlock(&r->lock);
	return n;
}

int registry_check(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
		   size_t size)
{
	return access_bytes(PROBE, r, epoch, row, offset, NULL, size);
}

int registry_covers(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
		    uint64_t size)
{
	return access_bytes(FIND, r, epoch, row, offset, NULL, size);
}

int registry_read_memory(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
			 void *out, size_t size)
{
	return access_bytes(READ, r, epoch, row, offset, out, size);
}

int registry_read(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset, void *out,
		  size_t size)
{
	struct place_state *s = swapped(r, epoch, row);

	return s ? place_look(r->place, s, offset, size, out)
		 : registry_read_memory(r, epoch, row, offset, out, size);
}

int registry_copy(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset, void *out,
		  size_t size)
{
	return access_bytes(COPY, r, epoch, row, offset, out, size);
}

int registry_write(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
		   const void *data, size_t size)
{
	struct place_state *s = swapped(r, epoch, row);

	return s ? place_write(r->place, s, offset, data, size)
		 : access_bytes(WRITE, r, epoch, row, offset, (uint8_t *)(uintptr_t)data, size);
}

static int clear_segment(const struct state_segment *segment, size_t element)
{
	static const uint8_t zeros[65536];
	uint64_t bytes = segment->numel * element;
	int rc = 0;

	for (uint64_t done = 0; done < bytes && !rc; done += sizeof(zeros)) {
		struct iovec part = { (void *)(uintptr_t)(segment->address + done),
				      u64_min(sizeof(zeros), bytes - done) };

		rc = memory_write_own(&part, 1, zeros, part.iov_len);
	}
	return rc;
}

int registry_clear(struct registry *r, uint32_t number)
{
	struct place_state *s = swapped(r, 0, number);
	const struct state_row *row;
	int rc = 0;

	if (s)
		return place_clear(r->place, s);
	pthread_mutex_lock(&r->lock);
	row = number < r->states.nrows ? &r->states.rows[number] : NULL;
	if (!row || row->kind == STATE_NONE)
		rc = -ESTALE;
	for (uint32_t i = 0; !rc && i < row->nsegments; i++)
		rc = clear_segment(&row->segments[i], frag_dtype_size(row->dtype));
	pthread_mutex_unlock(&r->lock);
	return rc;
}

/* ---- for readers of what is on NVMe ---- */

static int hold_row(struct registry *r, const struct state_row *row, uint64_t offset,
		    uint64_t size, struct registry_hold **out)
{
	struct registry_hold *h = malloc(sizeof(*h));
	int rc;

	if (!h)
		return -ENOMEM;
	*h = (struct registry_hold){ .place = r->place, .state = row->place, .users = 1 };
	rc = place_hold(r->place, row->place, offset, size, &h->hold);
	if (rc)
		free(h);
	else
		*out = h;
	return rc == -ESTALE ? -EAGAIN : rc;
}

int registry_hold(struct registry *r, uint64_t epoch, uint32_t number, uint64_t offset,
		  uint64_t size, struct registry_hold **hold)
{
	const struct state_row *row;
	int rc = 0;

	*hold = NULL;
	pthread_mutex_lock(&r->lock);
	row = row_at(r, epoch, number);
	if (!row)
		rc = -ESTALE;
	else if (row->place)
		rc = hold_row(r, row, offset, size, hold);
	pthread_mutex_unlock(&r->lock);
	return rc;
}

struct registry_hold *registry_hold_get(struct registry_hold *h)
{
	atomic_fetch_add_explicit(&h->users, 1, memory_order_relaxed);
	return h;
}

void registry_hold_put(struct registry_hold *h)
{
	if (!h || atomic_fetch_sub_explicit(&h->users, 1, memory_order_acq_rel) > 1)
		return;
	place_release(h->place, h->hold);
	free(h);
}

bool registry_is_grad(struct registry *r, uint32_t row)
{
	bool grad;

	pthread_mutex_lock(&r->lock);
	grad = row < r->states.nrows && !strcmp(r->states.rows[row].key, "grad");
	pthread_mutex_unlock(&r->lock);
	return grad;
}

bool registry_is_swapped(struct registry *r, uint32_t row)
{
	bool swapped;

	pthread_mutex_lock(&r->lock);
	swapped = row < r->states.nrows && r->states.rows[row].tier == STATE_SWAP;
	pthread_mutex_unlock(&r->lock);
	return swapped;
}
