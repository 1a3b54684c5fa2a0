/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/api/api.h"
#include "engine/base/dtype.h"
#include "engine/rank/registry-place.h"
#include "engine/rank/swapped-params.h"
#include "engine/swap/swapper.h"

#include <errno.h>
#include <string.h>

/* A rank's own fragment of a parameter: reading and writing it, its keys, and copying between
 * it and the low-precision parameter.  docs/deepspeed.md compares.
 */

enum { CHUNK = 1 << 16 }; /* elements */

/* The fragment in one row of the registry. */
struct row_fragment {
	uint32_t row;
	enum state_kind kind;
	uint32_t index, sub;
	const char *key;
	enum frag_dtype dtype;
	uint64_t at, numel; /* elements */
};

static int find_row(struct engine *e, struct row_fragment *h)
{
	int row = registry_find(&e->registry, h->kind, h->index, h->sub, h->key, &h->dtype);

	if (row < 0)
		return row;
	h->row = (uint32_t)row;
	return 0;
}

static int hold_lp(struct engine *e, int param, const struct layout_fragment *at,
		   uint32_t group, struct row_fragment *h)
{
	*h = (struct row_fragment){
		.kind = STATE_LP_SHARD, .index = (uint32_t)param, .key = "", .numel = at->numel
	};
	if (catalog_lp_is_sharded(&e->own->groups[group]) && !find_row(e, h))
		return 0;
	h->kind = STATE_LP;
	h->at = at->param_offset;
	return find_row(e, h);
}

static int hold_state(struct engine *e, int param, const char *key,
		      const struct layout_fragment *at, uint32_t group, struct row_fragment *h)
{
	const struct layout *layout = &e->own->groups[group].layout;

	*h = (struct row_fragment){ .kind = STATE_PARTITION,
				    .index = group,
				    .sub = at->sub,
				    .key = key,
				    .at = at->partition_offset,
				    .numel = at->numel };
	if (!find_row(e, h))
		return 0;
	if (layout->kind != LAYOUT_FLAT)
		return -ENOENT;
	h->kind = STATE_WHOLE;
	h->sub = 0;
	h->at = layout->offset[e->own->params[param].position] + at->param_offset;
	return find_row(e, h);
}

static int hold(struct engine *e, int param, const char *key, struct row_fragment *h)
{
	struct layout_fragment at;
	uint32_t group;
	int rc;

	if (!e || !key)
		return -EINVAL;
	rc = api_locate(e, param, &at, &group);
	if (rc)
		return rc;
	return dtype_is_lp_key(e->own->params[param].dtype, key)
		       ? hold_lp(e, param, &at, group, h)
		       : hold_state(e, param, key, &at, group, h);
}

/* ---- the fragment's bytes ---- */

/* Finds the fragment for a get or a set of `bytes` bytes.
 * -EINVAL: the fragment has another size.
 * -ENODATA: gradients are not valid.
 * Errors of hold.
 */
static int hold_for(struct engine *e, int param, const char *key, uint64_t bytes,
		    struct row_fragment *h)
{
	int rc = hold(e, param, key, h);

	if (!rc && bytes != h->numel * frag_dtype_size(h->dtype))
		rc = -EINVAL;
	if (!rc && !strcmp(key, "grad") && !api_grads_are_valid(e))
		rc = -ENODATA;
	return rc;
}

int frag_local_get(struct frag *f, int param, const char *key, void *out, uint64_t bytes)
{
	struct engine *e = api_engine(f);
	struct row_fragment h;
	int rc = hold_for(e, param, key, bytes, &h);

	return rc ? rc
		  : registry_read(&e->registry, 0, h.row, h.at * frag_dtype_size(h.dtype), out,
				  bytes);
}

int frag_local_set(struct frag *f, int param, const char *key, const void *value,
		   uint64_t bytes)
{
	struct engine *e = api_engine(f);
	struct row_fragment h;
	int rc = hold_for(e, param, key, bytes, &h);

	if (!rc && api_sweep_changes(f, (int)h.row))
		rc = -EBUSY;
	return rc ? rc
		  : registry_write(&e->registry, 0, h.row, h.at * frag_dtype_size(h.dtype),
				   value, bytes);
}

/* Finds the fragment's memory.
 * -EOPNOTSUPP: it is on NVMe, and not all of it was brought in, or a mount has moved it to a
 * device.
 * -ENOENT: the fragment is in no one piece of memory.
 */
static int find_memory(struct registry *r, const struct row_fragment *h, void **memory)
{
	enum frag_dtype dtype;
	uint64_t at, element = frag_dtype_size(h->dtype);
	struct swapper_state *s =
		registry_swap_state(r, h->kind, h->index, h->sub, h->key, &at);

	if (registry_tier(r, h->row) == STATE_DEVICE && registry_place_can(r, h->row))
		return -EOPNOTSUPP;
	if (s && h->kind == STATE_LP_SHARD) /* the swapper counts a shard's state in bytes */
		*memory =
			swapper_memory(r->swapper, s, at + h->at * element, h->numel * element);
	else
		*memory = s ? swapper_memory(r->swapper, s, h->at, h->numel)
			    : registry_memory(r, h->kind, h->index, h->sub, h->key, h->at,
					      h->numel, &dtype);
	return *memory ? 0 : s ? -EOPNOTSUPP : -ENOENT;
}

int frag_local_view(struct frag *f, int param, const char *key, void **memory,
		    enum frag_dtype *dtype)
{
	struct engine *e = api_engine(f);
	struct row_fragment h;
	void *view;
	int rc = hold(e, param, key, &h);

	if (!rc)
		rc = find_memory(&e->registry, &h, &view);
	if (rc)
		return rc;
	*memory = view;
	if (dtype)
		*dtype = h.dtype;
	return 0;
}

/* ---- keys ---- */

static bool shows(const struct state_row *row, uint32_t group, const struct layout_fragment *at)
{
	size_t element = frag_dtype_size(row->dtype);
	struct iovec part;

	if (row->index != group)
		return false;
	if (row->kind == STATE_WHOLE)
		return true;
	return row->kind == STATE_PARTITION && row->sub == at->sub &&
	       (row->tier == STATE_SWAP ||
		states_parts(row, at->partition_offset * element, element, &part, 1) == 1);
}

static int compare_keys(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* Sorts the keys and drops repetitions; returns how many are left. */
static int sort_keys(char (*keys)[FRAG_KEY_MAX + 1], int n)
{
	int kept = 0;

	qsort(keys, (size_t)n, sizeof(*keys), compare_keys);
	for (int i = 0; i < n; i++)
		if (!i || strcmp(keys[i], keys[kept - 1]))
			memmove(keys[kept++], keys[i], sizeof(*keys));
	return kept;
}

static int collect_keys(struct registry *r, uint32_t group, const struct layout_fragment *at,
			char (**keys)[FRAG_KEY_MAX + 1])
{
	int n = 0;

	pthread_mutex_lock(&r->lock);
	*keys = malloc((r->states.ngroup_rows + 1) * sizeof(**keys));
	for (uint32_t i = 0; *keys && i < r->states.ngroup_rows; i++) {
		const struct state_row *row = &r->states.rows[r->states.group_rows[i]];

		if (shows(row, group, at))
			memcpy((*keys)[n++], row->key, sizeof(row->key));
	}
	pthread_mutex_unlock(&r->lock);
	return *keys ? sort_keys(*keys, n) : -ENOMEM;
}

int frag_state_keys(struct frag *f, int param, char (*keys)[FRAG_KEY_MAX + 1], int max)
{
	struct engine *e = api_engine(f);
	char(*all)[FRAG_KEY_MAX + 1];
	struct layout_fragment at;
	uint32_t group;
	int n, rc = e && max >= 0 ? api_locate(e, param, &at, &group) : -EINVAL;

	if (rc)
		return rc;
	n = collect_keys(&e->registry, group, &at, &all);
	if (n > 0 && max > 0)
		memcpy(keys, all, (size_t)(n < max ? n : max) * sizeof(*keys));
	free(all);
	return n;
}

/* ---- between the master and the low-precision parameter ---- */

static uint64_t aligned(uint64_t bytes)
{
	return u64_div_ceil(bytes, 8) * 8;
}

/* memory: the bytes of `from`; NULL: they are read. */
static int copy_chunk(struct engine *e, const struct row_fragment *to,
		      const struct row_fragment *from, const uint8_t *memory, uint64_t done,
		      uint64_t n, void *buffers)
{
	size_t read = frag_dtype_size(from->dtype), written = frag_dtype_size(to->dtype);
	uint8_t *converted = (uint8_t *)buffers + aligned(n * read);
	int rc = memory ? 0
			: registry_read(&e->registry, 0, from->row, (from->at + done) * read,
					buffers, n * read);

	if (!rc)
		rc = dtype_convert(to->dtype, converted, from->dtype,
				   memory ? memory + done * read : buffers, n);
	if (!rc)
		rc = registry_put(&e->registry, to->row, (to->at + done) * written, converted,
				  n * written);
	return rc;
}

static int copy_here(struct engine *e, const struct row_fragment *to,
		     const struct row_fragment *from, const void *memory)
{
	uint64_t n = u64_min(CHUNK, from->numel);
	CLEANUP(free)
	void *buffers = malloc(aligned(n * frag_dtype_size(from->dtype)) +
			       n * frag_dtype_size(to->dtype));
	/* 0 elements: refuses dtypes that do not convert before anything is read */
	int rc = buffers ? dtype_convert(to->dtype, NULL, from->dtype, NULL, 0) : -ENOMEM;

	for (uint64_t done = 0; done < from->numel && !rc; done += CHUNK)
		rc = copy_chunk(e, to, from, memory, done, u64_min(CHUNK, from->numel - done),
				buffers);
	return rc;
}

static int copy(struct engine *e, const struct row_fragment *to,
		const struct row_fragment *from)
{
	int rc = registry_device_convert(
		&e->registry, &(struct registry_elements){ to->row, to->at },
		&(struct registry_elements){ from->row, from->at }, from->numel);

	return rc == -EOPNOTSUPP ? copy_here(e, to, from, NULL) : rc;
}

/* With offload_optimizer.fast_init: returns a piece that is read from NVMe as a whole, and the
 * next ones ahead (swapped_params_look).  NULL: the piece is to be read in chunks.
 */
static const void *look_at_piece(const struct engine *e, int param,
				 const struct row_fragment *lp)
{
	if (!e->launch.swap.fast_init || lp->kind != STATE_LP_SHARD ||
	    !e->trainer->swapped_params)
		return NULL;
	return swapped_params_look(e->trainer->swapped_params, param);
}

int frag_update_hp(struct frag *f, int param)
{
	struct engine *e = api_engine(f);
	struct row_fragment lp, hp;
	const void *piece;
	int rc = hold(e, param, "lp", &lp);

	if (!rc)
		rc = hold(e, param, "fp32", &hp);
	if (!rc && api_sweep_changes(f, (int)hp.row))
		rc = -EBUSY;
	if (rc)
		return rc;
	piece = look_at_piece(e, param, &lp);
	rc = piece ? copy_here(e, &hp, &lp, piece) : copy(e, &hp, &lp);
	/* parameters that were read ahead may hold the buffers that the master needs */
	if (rc == -ENOBUFS && e->trainer->swapped_params &&
	    swapped_params_make_room(e->trainer->swapped_params))
		rc = copy(e, &hp, &lp);
	return rc;
}

int frag_update_lp(struct frag *f, int param)
{
	struct engine *e = api_engine(f);
	struct row_fragment lp, whole, hp;
	struct layout_fragment at;
	uint32_t group;
	int rc = hold(e, param, "lp", &lp);

	if (!rc)
		rc = hold(e, param, "fp32", &hp);
	if (!rc)
		rc = copy(e, &lp, &hp);
	if (rc || lp.kind == STATE_LP || api_locate(e, param, &at, &group))
		return rc;
	/* a small parameter may be kept whole beside its piece */
	whole = (struct row_fragment){
		.kind = STATE_LP, .index = (uint32_t)param, .key = "", .at = at.param_offset
	};
	return find_row(e, &whole) ? 0 : copy(e, &whole, &hp);
}
