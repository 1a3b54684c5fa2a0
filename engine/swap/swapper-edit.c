/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/swap/swapper-internal.h"
#include "engine/base/thread.h"

#include <errno.h>
#include <string.h>

/* An edit is a patch in memory on top of the slice's newest version: most slices are swapped
 * out before they have many.  Where the edit is too large, or the version has SWAPPER_PATCHES
 * already, the slice is read, changed and written.
 */

struct slice_edit { /* of one slice */
	struct swapper *swapper;
	struct swapper_slice *slice;
	struct swapper_version *old, *new;
	uint64_t offset, size; /* in the slice */
	const uint8_t *data;
};

/* ---- as a patch ---- */

static bool covers(const struct slice_edit *e, const struct swapper_patch *patch)
{
	return e->offset <= patch->offset && patch->offset + patch->size <= e->offset + e->size;
}

static struct swapper_patch *patch_new(const struct slice_edit *e)
{
	struct swapper_patch *patch = malloc(sizeof(*patch) + e->size);

	if (!patch)
		return NULL;
	patch->refs = 1;
	patch->offset = e->offset;
	patch->size = e->size;
	memcpy(patch->bytes, e->data, e->size);
	return patch;
}

static void patch_over(struct slice_edit *e, struct swapper_patch *patch)
{
	struct swapper_version *v = e->new;

	for (unsigned i = 0; e->old && i < e->old->npatches; i++)
		if (!covers(e, e->old->patches[i])) {
			v->patches[v->npatches] = e->old->patches[i];
			v->patches[v->npatches++]->refs++;
		}
	v->patches[v->npatches++] = patch;
}

static bool take_spare(struct slice_edit *e)
{
	bool taken;

	pthread_mutex_lock(&e->swapper->lock);
	taken = swapper_charge(e->swapper, SWAPPER_SPARE, e->size);
	pthread_mutex_unlock(&e->swapper->lock);
	return taken;
}

/* Under the lock. */
static int make_patched(struct slice_edit *e, struct swapper_patch *patch)
{
	unsigned npatches = e->old ? e->old->npatches : 0;

	e->new =
		patch ? swapper_version_new(e->old ? e->old->block : NULL, npatches + 1) : NULL;
	if (!e->new) {
		free(patch);
		swapper_uncharge(e->swapper, SWAPPER_SPARE, e->size);
		return -ENOMEM;
	}
	if (e->new->block)
		e->new->block->refs++;
	patch_over(e, patch);
	e->swapper->figures.patches++;
	return 0;
}

static bool is_small(const struct slice_edit *e)
{
	return e->size <= e->slice->state->slice_bytes / 4 &&
	       (!e->old || e->old->npatches < SWAPPER_PATCHES);
}

/* Returns 1 if the edit is too large for a patch, or the version has too many. */
static int try_patch(struct slice_edit *e)
{
	struct swapper_patch *patch;
	int rc;

	if (!is_small(e) || !take_spare(e))
		return 1;
	patch = patch_new(e);
	pthread_mutex_lock(&e->swapper->lock);
	rc = make_patched(e, patch);
	pthread_mutex_unlock(&e->swapper->lock);
	return rc;
}

/* ---- as another slice ---- */

static uint64_t bytes_of(const struct slice_edit *e)
{
	return swapper_slice_bytes(e->slice->state,
				   (uint64_t)(e->slice - e->slice->state->slices));
}

static void free_memory(struct slice_edit *e, void *memory, enum swapper_memory kind)
{
	struct swapper *sw = e->swapper;

	pthread_mutex_lock(&sw->lock);
	if (kind == SWAPPER_PINNED)
		pinned_put(sw->pinned, memory);
	else
		swapper_uncharge(sw, kind, bytes_of(e));
	pthread_mutex_unlock(&sw->lock);
	if (kind != SWAPPER_PINNED)
		free(memory);
}

static void *ordinary(struct slice_edit *e, enum swapper_memory kind)
{
	struct swapper *sw = e->swapper;
	void *memory = aligned_alloc(SWAP_BLOCK, swapper_whole_blocks(bytes_of(e)));
	bool has_room;

	pthread_mutex_lock(&sw->lock);
	has_room = memory && swapper_charge(sw, kind, bytes_of(e));
	pthread_mutex_unlock(&sw->lock);
	if (has_room)
		return memory;
	free(memory);
	return NULL;
}

static int take_memory(struct slice_edit *e, void **memory, enum swapper_memory *kind)
{
	int rc = -ENOMEM;

	*kind = e->slice->state->small ? SWAPPER_SMALL : SWAPPER_PINNED;
	if (*kind == SWAPPER_PINNED) {
		rc = swapper_get_buffer(e->swapper, e->slice->state,
					swapper_time_left_ms(e->swapper), memory);
		if (!rc)
			return 0;
		*kind = SWAPPER_SPARE;
	}
	*memory = ordinary(e, *kind);
	return *memory ? 0 : rc;
}

static int make_whole(struct slice_edit *e)
{
	struct swapper_state *s = e->slice->state;
	uint64_t slice = (uint64_t)(e->slice - s->slices);
	enum swapper_memory kind;
	void *memory;
	int rc = take_memory(e, &memory, &kind);

	if (rc)
		return rc;
	if (e->size < bytes_of(e))
		rc = swapper_read_unlent(e->swapper, s, slice * s->slice_bytes, bytes_of(e),
					 memory);
	if (!rc) {
		memcpy((uint8_t *)memory + e->offset, e->data, e->size);
		rc = swapper_version_write(e->swapper, e->slice, memory, kind, &e->new);
	}
	if (rc)
		free_memory(e, memory, kind);
	return rc;
}

/* ---- all slices of an edit, or none ---- */

/* A lent slice is edited in its buffer too.  Where a silent disk has yet to fill the buffer,
 * the edit would be overwritten.
 */
static bool is_late(const struct slice_edit *e)
{
	struct swapper_lent *l = e->slice->lent;
	void *memory;

	return l && swapper_wait(e->swapper, l, &memory) == -ETIMEDOUT;
}

static int make(struct slice_edit *e)
{
	int rc = 1;

	if (is_late(e))
		return -ETIMEDOUT;
	e->old = swapper_newest(e->slice);
	if (e->size < bytes_of(e))
		rc = try_patch(e);
	return rc == 1 ? make_whole(e) : rc;
}

/* Changes the buffer that is lent to the trainer, too. */
static void edit_lent(struct slice_edit *e)
{
	struct swapper_lent *l = e->slice->lent;
	void *memory;

	if (l && !swapper_wait(e->swapper, l, &memory))
		memcpy((uint8_t *)memory + e->offset, e->data, e->size);
}

static void install(struct slice_edit *e)
{
	pthread_mutex_lock(&e->swapper->lock);
	swapper_set_next(e->swapper, e->slice, e->new);
	pthread_mutex_unlock(&e->swapper->lock);
	edit_lent(e);
}

static void cut(struct slice_edit *e, struct swapper *sw, struct swapper_state *s,
		uint64_t offset, const uint8_t *data, uint64_t size)
{
	uint64_t at = offset % s->slice_bytes;

	*e = (struct slice_edit){ .swapper = sw,
				  .slice = &s->slices[offset / s->slice_bytes],
				  .offset = at,
				  .size = u64_min(size, s->slice_bytes - at),
				  .data = data };
}

static int make_all(struct slice_edit *edits, uint64_t n)
{
	int rc = 0;

	for (uint64_t i = 0; i < n && !rc; i++)
		rc = make(&edits[i]);
	return rc;
}

static void drop_all(struct slice_edit *edits, uint64_t n)
{
	pthread_mutex_lock(&edits->swapper->lock);
	for (uint64_t i = 0; i < n; i++)
		swapper_version_unref(edits->swapper, edits[i].new);
	pthread_mutex_unlock(&edits->swapper->lock);
}

static int write_range(struct swapper *sw, struct swapper_state *s, uint64_t offset,
		       const uint8_t *data, uint64_t size)
{
	uint64_t n = (offset + size - 1) / s->slice_bytes - offset / s->slice_bytes + 1;
	CLEANUP(free) struct slice_edit *edits = calloc(n, sizeof(*edits));
	uint64_t gone = 0;
	int rc;

	if (!edits)
		return -ENOMEM;
	for (uint64_t i = 0; i < n; i++, gone += edits[i - 1].size)
		cut(&edits[i], sw, s, offset + gone, data + gone, size - gone);
	rc = make_all(edits, n);
	for (uint64_t i = 0; i < n && !rc; i++)
		install(&edits[i]);
	if (rc)
		drop_all(edits, n);
	return rc;
}

int swapper_write(struct swapper *sw, struct swapper_state *s, uint64_t offset,
		  const void *data, uint64_t size)
{
	uint64_t end;
	int rc;

	assert(thread_may_be_trainer());
	if (!u64_add(offset, size, &end) || end > s->bytes)
		return -EINVAL;
	rc = size ? swapper_swap_out_puts(sw, s) : 0;
	if (!rc && size)
		rc = write_range(sw, s, offset, data, size);
	if (rc)
		return rc;
	pthread_mutex_lock(&sw->lock);
	sw->figures.edits++;
	pthread_mutex_unlock(&sw->lock);
	swapper_log_debug(sw, s, "edit", offset, size);
	return 0;
}
