/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/api/api.h"
#include "engine/rank/arena-memory.h"

#include <errno.h>
#include <string.h>

/* Returns the rank's arena.  NULL: *rc says why there is none. */
static struct arena_memory *arena_of(const struct frag *f, int *rc)
{
	const struct engine *e = api_engine(f);

	*rc = !e ? -EINVAL : e->arena ? 0 : -ENOENT;
	return *rc ? NULL : e->arena;
}

/* ---- opening ---- */

static void tell_moved(void *arg, struct arena_lp lp, void *memory)
{
	const struct frag_arena *config = arg;

	if (config->moved)
		config->moved(config->arg, (int)lp.param, lp.is_shard ? FRAG_SHARD : 0, memory);
}

static void set_arena(struct engine *e, struct arena_memory *arena)
{
	pthread_mutex_lock(&e->lock);
	e->arena = arena;
	pthread_mutex_unlock(&e->lock);
}

int frag_arena_open(struct frag *f, const struct frag_arena *arena)
{
	struct engine *e = api_engine(f);
	struct arena_memory *m;
	struct frag_arena config;
	int rc = e ? api_copy_versioned(&config, arena, sizeof(config)) : -EINVAL;

	if (!rc && (!config.bytes || config.bytes > INT64_MAX))
		rc = -EINVAL;
	if (!rc && e->arena)
		rc = -EEXIST;
	if (rc)
		return rc;
	f->arena = config;
	rc = arena_memory_open(&m, &e->registry, config.bytes, config.memory, tell_moved,
			       &f->arena);
	if (!rc)
		set_arena(e, m);
	return rc;
}

static void preserve_for_views(struct engine *e, struct arena_lp lp)
{
	api_preserve_for_views(e, arena_memory_kind(lp), lp.param, 0, "");
}

static int forget(struct engine *e, struct arena_lp lp)
{
	preserve_for_views(e, lp);
	return arena_memory_unassign(e->arena, lp);
}

int frag_arena_close(struct frag *f)
{
	struct arena_memory *m;
	struct arena_lp lp;
	uint32_t cursor = 0;
	int rc;

	m = arena_of(f, &rc);
	if (!m)
		return rc;
	while (arena_memory_any(m, &cursor, &lp))
		forget(f->engine, lp);
	set_arena(f->engine, NULL);
	arena_memory_close(m);
	return 0;
}

/* ---- blocks ---- */

int frag_arena_alloc(struct frag *f, uint64_t bytes, uint64_t *block)
{
	int rc;
	struct arena_memory *m = arena_of(f, &rc);

	return m ? arena_memory_alloc(m, bytes, block) : rc;
}

int frag_arena_release(struct frag *f, uint64_t block)
{
	struct arena_memory *m;
	struct arena_lp lp;
	int rc;

	m = arena_of(f, &rc);
	if (m)
		rc = arena_memory_can_go(m, block);
	if (rc)
		return rc;
	/* forget() takes lp from the block: each search begins anew */
	for (uint32_t first = 0; arena_memory_next(m, block, &first, &lp); first = 0)
		forget(f->engine, lp);
	return arena_memory_release(m, block);
}

int frag_arena_memory(struct frag *f, uint64_t block, void **memory, uint64_t *bytes)
{
	int rc;
	struct arena_memory *m = arena_of(f, &rc);

	return m ? arena_memory_at(m, block, 0, memory, bytes) : rc;
}

int frag_arena_pin(struct frag *f, uint64_t block)
{
	int rc;
	struct arena_memory *m = arena_of(f, &rc);

	return m ? arena_memory_pin(m, block) : rc;
}

int frag_arena_unpin(struct frag *f, uint64_t block)
{
	int rc;
	struct arena_memory *m = arena_of(f, &rc);

	return m ? arena_memory_unpin(m, block) : rc;
}

/* ---- parameters ---- */

static int name_lp(const struct frag *f, int param, unsigned flags, struct arena_lp *lp)
{
	if (param < 0 || (uint32_t)param >= f->engine->own->nparams || flags & ~FRAG_SHARD)
		return -EINVAL;
	*lp = (struct arena_lp){ (uint32_t)param, flags & FRAG_SHARD };
	return 0;
}

/* Returns the arena, and fills *lp.  NULL: *rc says why. */
static struct arena_memory *arena_lp_of(struct frag *f, int param, unsigned flags,
					struct arena_lp *lp, int *rc)
{
	struct arena_memory *m = arena_of(f, rc);

	if (m)
		*rc = name_lp(f, param, flags, lp);
	return *rc ? NULL : m;
}

struct assigned {
	struct arena_memory *arena;
	struct arena_lp lp;
	uint64_t block, offset;
};

static int find_assigned(struct frag *f, int param, unsigned flags, struct assigned *a)
{
	int rc;

	a->arena = arena_lp_of(f, param, flags, &a->lp, &rc);
	return a->arena ? arena_memory_find(a->arena, a->lp, &a->block, &a->offset) : rc;
}

/* Preserves, for open views, a parameter that comes from another tier: a view reads its bytes
 * in the tier in which it was opened.
 */
static void keep_if_tier_changes(struct engine *e, struct arena_lp lp)
{
	enum frag_dtype dtype;
	int row = registry_find(&e->registry, arena_memory_kind(lp), lp.param, 0, "", &dtype);
	int arena = registry_find(&e->registry, STATE_ARENA, 0, 0, "", &dtype);

	if (row >= 0 && registry_tier(&e->registry, (uint32_t)row) !=
				registry_tier(&e->registry, (uint32_t)arena))
		preserve_for_views(e, lp);
}

int frag_arena_assign(struct frag *f, int param, unsigned flags, uint64_t block,
		      uint64_t offset)
{
	const struct catalog_param *p;
	struct arena_lp lp;
	uint64_t numel;
	int rc;
	struct arena_memory *m = arena_lp_of(f, param, flags, &lp, &rc);

	if (!m)
		return rc;
	p = &f->engine->own->params[param];
	if (lp.is_shard && p->group == CATALOG_NONE)
		return -ENOENT;
	if (!lp.is_shard && p->cuts)
		return -EINVAL;
	numel = lp.is_shard ? catalog_lp_held(f->engine->own, lp.param, f->engine->rank)
			    : p->numel;
	keep_if_tier_changes(f->engine, lp);
	return arena_memory_assign(m, lp, p->dtype, numel, block, offset);
}

int frag_arena_unassign(struct frag *f, int param, unsigned flags)
{
	struct assigned a;
	int rc = find_assigned(f, param, flags, &a);

	return rc ? rc : forget(f->engine, a.lp);
}

int frag_arena_release_param(struct frag *f, int param, unsigned flags)
{
	struct assigned a;
	int rc = find_assigned(f, param, flags, &a);

	return rc ? rc : frag_arena_release(f, a.block);
}

int frag_arena_find(struct frag *f, int param, unsigned flags, uint64_t *block, void **memory)
{
	struct assigned a;
	uint64_t run;
	int rc = find_assigned(f, param, flags, &a);

	if (!rc && memory)
		rc = arena_memory_at(a.arena, a.block, a.offset, memory, &run);
	if (!rc && block)
		*block = a.block;
	return rc;
}

/* ---- all of it ---- */

int64_t frag_arena_compact(struct frag *f, uint64_t want, uint64_t most)
{
	int rc;
	struct arena_memory *m = arena_of(f, &rc);

	if (m && most < ARENA_MEMORY_ALIGN)
		rc = -EINVAL;
	return rc ? rc : arena_memory_compact(m, want, most);
}

int frag_arena_figures(struct frag *f, struct frag_arena_figures *out)
{
	struct arena_figures now;
	struct frag_arena_figures figures;
	int rc;
	struct arena_memory *m = arena_of(f, &rc);

	if (m && (!out || out->size < sizeof(out->size)))
		rc = -EINVAL;
	if (rc)
		return rc;
	arena_memory_figures(m, &now);
	figures = (struct frag_arena_figures){ out->size,    now.size,  now.used,
					       now.used_max, now.free,  now.largest,
					       now.blocks,   now.holes, now.moved };
	memcpy(out, &figures, u64_min(out->size, sizeof(figures)));
	return 0;
}
