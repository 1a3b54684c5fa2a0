/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/api/api.h"
#include "engine/rank/registry-place.h"
#include "engine/rank/swapped-params.h"
#include "engine/swap/swapper.h"

#include <errno.h>
#include <string.h>

/* States on NVMe, by the trainer's thread. */

enum {
	ADD_CHUNK = 1 << 12,    /* elements that FRAG_ADD adds at a time */
	DEVICE_SLICE = 1 << 20, /* elements that a sweep copies from a device at a time */
};

/* ---- sweeps ---- */

struct swept {
	uint8_t *base; /* in memory; NULL: in another tier */
	size_t element;
	unsigned walked; /* on NVMe: its number in the walk */
	bool on_device;
	bool dirty;     /* on a device: the trainer may have changed the slice */
	uint32_t row;   /* on a device */
	uint8_t *slice; /* on a device: the host's copy of the slice */
};

struct frag_sweep {
	struct frag *f;
	struct swapper_sweep *walk; /* NULL: all are in memory */
	uint64_t numel;
	/* elements of the slice that is visited; slice 0: no slice yet */
	uint64_t first, slice;
	bool unread; /* the slice of states on devices is still to be copied to the host */
	uint32_t group, sub;
	size_t n;
	struct swept states[FRAG_SWEEP_MAX];
	struct frag_swept asked[FRAG_SWEEP_MAX]; /* keys are copies, freed with the sweep */
};

static unsigned use_of(unsigned flags)
{
	if (flags == FRAG_READ_ONLY)
		return SWAPPER_READ;
	return flags == FRAG_WRITE_ONLY ? SWAPPER_WRITE : SWAPPER_READ | SWAPPER_WRITE;
}

/* Adds a state to the sweep: its memory, or, for a state on NVMe, its number in the walk. */
static int add_swept(struct frag_sweep *s, uint32_t group, uint32_t sub,
		     const struct frag_swept *state, struct swapper_swept *walked, unsigned *n)
{
	struct registry *r = &s->f->engine->registry;
	struct swept *swept = &s->states[s->n++];
	enum frag_dtype dtype;
	uint64_t at;
	struct swapper_state *swapped =
		registry_swap_state(r, STATE_PARTITION, group, sub, state->key, &at);
	int row;

	if (state->flags & ~(unsigned)(FRAG_READ_ONLY | FRAG_WRITE_ONLY) ||
	    state->flags == (FRAG_READ_ONLY | FRAG_WRITE_ONLY))
		return -EINVAL;
	if (swapped) {
		swept->walked = *n;
		walked[(*n)++] = (struct swapper_swept){ swapped, use_of(state->flags) };
		return 0;
	}
	row = registry_find(r, STATE_PARTITION, group, sub, state->key, &dtype);
	if (row < 0)
		return -ENOENT;
	swept->element = frag_dtype_size(dtype);
	swept->row = (uint32_t)row;
	swept->on_device = registry_tier(r, (uint32_t)row) == STATE_DEVICE;
	if (swept->on_device)
		return registry_place_can(r, (uint32_t)row) ? 0 : -EOPNOTSUPP;
	swept->base = registry_memory(r, STATE_PARTITION, group, sub, state->key, 0, s->numel,
				      &dtype);
	return swept->base || !s->numel ? 0 : -EINVAL;
}

static bool is_twice(const struct frag_swept *states, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (!strcmp(states[k].key, states[i].key))
			return true;
	return false;
}

static int begin_walk(struct frag_sweep *s, const struct swapper_swept *walked, unsigned n)
{
	const struct frag_sweep *before = s->f->sweep;

	if (before && before->walk)
		return swapper_sweep_then(before->walk, walked, n, &s->walk);
	return swapper_sweep_begin(s->f->engine->registry.swapper, walked, n, &s->walk);
}

static int fill_sweep(struct frag_sweep *s, const struct frag_swept *states, size_t n)
{
	struct swapper_swept walked[FRAG_SWEEP_MAX];
	unsigned nwalked = 0;
	int rc = 0;

	for (size_t i = 0; i < n && !rc; i++) {
		if (!states[i].key || is_twice(states, i))
			return -EINVAL;
		rc = add_swept(s, s->group, s->sub, &states[i], walked, &nwalked);
		s->asked[i].flags = states[i].flags;
		s->asked[i].key = rc ? NULL : strdup(states[i].key);
		if (!rc && !s->asked[i].key)
			rc = -ENOMEM;
	}
	return rc || !nwalked ? rc : begin_walk(s, walked, nwalked);
}

static void sweep_free(struct frag_sweep *s)
{
	for (size_t i = 0; i < s->n; i++) {
		free((void *)(uintptr_t)s->asked[i].key);
		free(s->states[i].slice);
	}
	if (s->walk)
		swapper_sweep_end(s->walk);
	free(s);
}

static int sweep_new(struct frag *f, int group, uint32_t sub, const struct frag_swept *states,
		     size_t n, struct frag_sweep **out)
{
	struct frag_sweep *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	s->f = f;
	s->numel = frag_partition_numel(f, group, sub);
	s->group = (uint32_t)group;
	s->sub = sub;
	rc = fill_sweep(s, states, n);
	if (rc)
		sweep_free(s);
	else
		*out = s;
	return rc;
}

void api_sweep_forget(struct frag *f)
{
	if (f->sweep && f->sweep->walk)
		swapper_sweep_alone(f->sweep->walk);
	if (f->next)
		sweep_free(f->next);
	f->next = NULL;
}

static bool is_next(const struct frag *f, int group, uint32_t sub,
		    const struct frag_swept *states, size_t n)
{
	const struct frag_sweep *s = f->next;

	if (!s || s->group != (uint32_t)group || s->sub != sub || s->n != n)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!states[i].key || strcmp(s->asked[i].key, states[i].key) ||
		    s->asked[i].flags != states[i].flags)
			return false;
	return true;
}

int frag_sweep_begin(struct frag *f, int group, uint32_t sub, const struct frag_swept *states,
		     size_t n, struct frag_sweep **sweep)
{
	struct frag_sweep *s = NULL;
	int rc = 0;

	if (!api_engine(f) || group < 0 || !states || !n || n > FRAG_SWEEP_MAX)
		return -EINVAL;
	if (f->sweep)
		return -EBUSY;
	if (is_next(f, group, sub, states, n)) {
		s = f->next;
		f->next = NULL;
	} else {
		api_sweep_forget(f);
		rc = sweep_new(f, group, sub, states, n, &s);
	}
	if (!rc)
		*sweep = f->sweep = s;
	return rc;
}

int frag_sweep_then(struct frag_sweep *s, int group, uint32_t sub)
{
	if (!s || !api_engine(s->f) || group < 0)
		return -EINVAL;
	api_sweep_forget(s->f);
	return sweep_new(s->f, group, sub, s->asked, s->n, &s->f->next);
}

static bool is_any_on_device(const struct frag_sweep *s)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->states[i].on_device)
			return true;
	return false;
}

/* Finds the next elements of a sweep of which no state is on NVMe: all of them, or a slice
 * where some state is copied from a device and back.  Returns 1; 0: there are no more.
 */
static int next_in_memory(struct frag_sweep *s, uint64_t *first, uint64_t *numel)
{
	*first = s->first + s->slice;
	*numel = u64_min(s->numel - *first, is_any_on_device(s) ? DEVICE_SLICE : s->numel);
	return *numel > 0;
}

/* Copies the slices that the trainer may have changed back to the device. */
static int put_slices(struct frag_sweep *s)
{
	int rc = 0;

	for (size_t i = 0; i < s->n && !rc; i++) {
		struct swept *swept = &s->states[i];

		if (!swept->dirty)
			continue;
		rc = registry_write(&s->f->engine->registry, 0, swept->row,
				    s->first * swept->element, swept->slice,
				    s->slice * swept->element);
		swept->dirty = rc != 0;
	}
	return rc;
}

/* Copies the slices of states on a device to the host. */
static int get_slices(struct frag_sweep *s)
{
	for (size_t i = 0; i < s->n; i++) {
		struct swept *swept = &s->states[i];
		uint64_t bytes = s->slice * swept->element;
		int rc = 0;

		if (!swept->on_device)
			continue;
		free(swept->slice);
		swept->slice = malloc(bytes);
		if (!swept->slice)
			return -ENOMEM;
		if (s->asked[i].flags != FRAG_WRITE_ONLY)
			rc = registry_read(&s->f->engine->registry, 0, swept->row,
					   s->first * swept->element, swept->slice, bytes);
		if (rc)
			return rc;
	}
	for (size_t i = 0; i < s->n; i++)
		s->states[i].dirty =
			s->states[i].on_device && s->asked[i].flags != FRAG_READ_ONLY;
	s->unread = false;
	return 0;
}

bool api_sweep_changes(const struct frag *f, int row)
{
	const struct frag_sweep *s = f->sweep;

	for (size_t i = 0; s && i < s->n; i++)
		if (s->states[i].dirty && s->states[i].row == (uint32_t)row)
			return true;
	return false;
}

/* After an error: sets memory[i] to NULL where the slice is no longer the caller's. */
static void forget_taken(const struct frag_sweep *s, void **memory)
{
	for (size_t i = 0; i < s->n; i++) {
		const struct swept *swept = &s->states[i];

		if (swept->base)
			continue;
		if (s->unread ||
		    (swept->on_device ? !swept->dirty
				      : !swapper_sweep_memory(s->walk, swept->walked)))
			memory[i] = NULL;
	}
}

static int next_slice(struct frag_sweep *s)
{
	uint64_t first = 0, numel = 0;
	int rc = s->walk ? swapper_sweep_next(s->walk, &first, &numel)
			 : next_in_memory(s, &first, &numel);

	/* parameters that were read ahead may hold the buffers */
	if (rc == -ENOBUFS && s->f->trainer.swapped_params &&
	    swapped_params_make_room(s->f->trainer.swapped_params))
		rc = swapper_sweep_next(s->walk, &first, &numel);
	if (rc != 1)
		return rc;
	s->first = first;
	s->slice = numel;
	s->unread = is_any_on_device(s);
	return 1;
}

int frag_sweep_next(struct frag_sweep *s, uint64_t *first, uint64_t *numel, void **memory)
{
	int rc;

	if (!s || !api_engine(s->f))
		return -EINVAL;
	rc = put_slices(s);
	if (!rc && !s->unread) {
		rc = next_slice(s);
		if (!rc)
			return 0;
	}
	if (rc >= 0)
		rc = s->unread ? get_slices(s) : 0;
	if (rc) {
		forget_taken(s, memory);
		return rc;
	}
	*first = s->first;
	*numel = s->slice;
	for (size_t i = 0; i < s->n; i++) {
		const struct swept *swept = &s->states[i];

		memory[i] = swept->base        ? swept->base + *first * swept->element
			    : swept->on_device ? swept->slice
					       : swapper_sweep_memory(s->walk, swept->walked);
	}
	return 1;
}

void frag_sweep_end(struct frag_sweep *s)
{
	if (!s || !api_engine(s->f))
		return;
	s->f->sweep = NULL;
	sweep_free(s);
}

/* ---- states ---- */

int frag_state_swap(struct frag *f, int group, uint32_t sub, const char *key,
		    enum frag_dtype dtype)
{
	int rc = api_check_state(f, group, sub, key, dtype);
	const struct engine *e;

	if (!rc && frag_dtype_size(dtype) > 8)
		rc = -EINVAL;
	if (rc)
		return rc;
	e = f->engine;
	return registry_swap(&f->engine->registry, (uint32_t)group, sub, key, dtype,
			     frag_partition_numel(f, group, sub),
			     catalog_is_among_first(e->own, e->rank, (uint32_t)group, sub,
						    e->launch.swap.in_memory));
}

/* Adds values to a state in memory, chunk by chunk. */
static int add_in_memory(struct registry *r, uint32_t row, uint64_t first, const float *values,
			 uint64_t numel)
{
	float sum[ADD_CHUNK];
	int rc = 0;

	for (uint64_t done = 0; done < numel && !rc; done += ADD_CHUNK) {
		uint64_t n = u64_min(ADD_CHUNK, numel - done);
		uint64_t at = (first + done) * sizeof(*sum);

		rc = registry_read(r, 0, row, at, sum, n * sizeof(*sum));
		for (uint64_t i = 0; i < n && !rc; i++)
			sum[i] += values[done + i];
		if (!rc)
			rc = registry_write(r, 0, row, at, sum, n * sizeof(*sum));
	}
	return rc;
}

static int put_on_disk(struct swapper *p, struct swapper_state *s, uint64_t first,
		       const void *values, uint64_t numel, bool add)
{
	return add ? swapper_accumulate(p, s, first, values, numel)
		   : swapper_put(p, s, first, values, numel);
}

static int put(struct registry *r, uint32_t row, struct swapper_state *s, enum frag_dtype dtype,
	       uint64_t first, const void *values, uint64_t numel, bool add)
{
	size_t element = frag_dtype_size(dtype);

	if (s)
		return put_on_disk(r->swapper, s, first, values, numel, add);
	if (add)
		return add_in_memory(r, row, first, values, numel);
	return registry_write(r, 0, row, first * element, values, numel * element);
}

void api_make_room(struct frag *f)
{
	struct swapped_params *shards = f->trainer.swapped_params;
	struct swapper_figures figures;

	if (!f->sweep)
		api_sweep_forget(f);
	if (!shards)
		return;
	swapper_figures(f->engine->registry.swapper, &figures);
	if (figures.pinned.lent == figures.pinned.count)
		swapped_params_make_room(shards);
}

int frag_state_put(struct frag *f, int group, uint32_t sub, const char *key, uint64_t first,
		   const void *values, uint64_t numel, unsigned flags)
{
	struct engine *e = api_engine(f);
	uint64_t all = frag_partition_numel(f, group, sub), at;
	enum frag_dtype dtype;
	int row;

	if (!e || group < 0 || !key || (numel && !values) || flags & ~(unsigned)FRAG_ADD ||
	    first > all || numel > all - first)
		return -EINVAL;
	row = registry_find(&e->registry, STATE_PARTITION, (uint32_t)group, sub, key, &dtype);
	if (row < 0)
		return row;
	if (flags & FRAG_ADD && dtype != FRAG_F32)
		return -EOPNOTSUPP;
	if (!numel)
		return 0;
	if (api_sweep_changes(f, row))
		return -EBUSY;
	api_make_room(f);
	return put(&e->registry, (uint32_t)row,
		   registry_swap_state(&e->registry, STATE_PARTITION, (uint32_t)group, sub, key,
				       &at),
		   dtype, first, values, numel, flags & FRAG_ADD);
}

int frag_state_clear(struct frag *f, int group, uint32_t sub, const char *key)
{
	struct engine *e = api_engine(f);
	enum frag_dtype dtype;
	int row;

	if (!e || group < 0 || !key)
		return -EINVAL;
	row = registry_find(&e->registry, STATE_PARTITION, (uint32_t)group, sub, key, &dtype);
	if (row < 0)
		return row;
	if (f->sweep && registry_tier(&e->registry, (uint32_t)row) == STATE_SWAP)
		return -EBUSY;
	if (api_sweep_changes(f, row))
		return -EBUSY;
	api_sweep_forget(f);
	return registry_clear(&e->registry, (uint32_t)row);
}

int frag_swap_flush(struct frag *f, unsigned timeout_ms)
{
	struct engine *e = api_engine(f);
	uint64_t until = monotonic_ms() + timeout_ms, now;
	int rc, unsent;

	if (!e)
		return -EINVAL;
	if (!e->registry.swapper)
		return 0;
	swapper_set_deadline(e->registry.swapper, until);
	unsent = e->trainer->swapped_params ? swapped_params_settle(e->trainer->swapped_params)
					    : 0;
	now = monotonic_ms();
	rc = swapper_flush(e->registry.swapper, until > now ? until - now : 0);
	return rc ? rc : unsent;
}
