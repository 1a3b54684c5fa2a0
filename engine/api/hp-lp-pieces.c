/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/api/api.h"

#include <errno.h>

/* Makes a partition state of per-parameter pieces, in place of DeepSpeed's
 * map_to_flat_opt_states: the pieces are copied, and stay as they are.
 */

/* Finds or makes the row, and fills it with zeros.  *made: the row is new. */
static int prepare(struct frag *f, uint32_t group, uint32_t sub, const char *key,
		   enum frag_dtype dtype, bool *made)
{
	struct registry *r = &f->engine->registry;
	enum frag_dtype known;
	void *memory;
	int rc, row = registry_find(r, STATE_PARTITION, group, sub, key, &known);

	*made = row == -ENOENT;
	if (row >= 0 && known != dtype)
		return -EINVAL;
	if (row >= 0)
		rc = registry_clear(r, (uint32_t)row);
	else if (registry_find(r, STATE_WHOLE, group, 0, key, &known) >= 0)
		rc = -EEXIST;
	else
		rc = frag_state_alloc(f, (int)group, sub, key, dtype, &memory);
	if (rc)
		return rc;
	return *made ? registry_find(r, STATE_PARTITION, group, sub, key, &known) : row;
}

static int write_piece(struct engine *e, uint32_t row, uint32_t param, uint32_t sub,
		       size_t element, const void *piece)
{
	struct layout_fragment at;
	uint32_t group;
	int rc = piece ? api_locate(e, (int)param, &at, &group) : -ENOENT;

	if (rc || at.sub != sub)
		return rc == -ENOENT ? 0 : rc;
	return registry_write(&e->registry, 0, row, at.partition_offset * element, piece,
			      at.numel * element);
}

int frag_state_from_fragments(struct frag *f, int group, uint32_t sub, const char *key,
			      enum frag_dtype dtype, const void *const *pieces, size_t n)
{
	struct engine *e = api_engine(f);
	const struct catalog_group *g;
	bool made;
	int row, rc = 0;

	if (!e || !key || group < 0 || !frag_dtype_size(dtype))
		return -EINVAL;
	if ((uint32_t)group >= e->own->ngroups)
		return -ENOENT;
	g = &e->own->groups[group];
	if (n != g->nparams || (n && !pieces))
		return -EINVAL;
	row = prepare(f, (uint32_t)group, sub, key, dtype, &made);
	if (row < 0)
		return row;
	for (uint32_t i = 0; i < n && !rc; i++)
		rc = write_piece(e, (uint32_t)row, g->params[i], sub, frag_dtype_size(dtype),
				 pieces[i]);
	if (rc && made)
		frag_state_drop(f, group, sub, key);
	return rc;
}
