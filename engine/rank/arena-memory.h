/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_RANK_ARENA_MEMORY_H
#define ENGINE_RANK_ARENA_MEMORY_H

/* A rank's arena (engine/memory/arena.h) with memory behind it, in which its low-precision
 * parameters lie: what moves there moves in the registry too.  The trainer's thread changes it;
 * any thread may ask for figures and the map.  What open files need of a parameter that goes is
 * for the caller to keep (view_owner_keep_row).
 */

#include "engine/memory/arena.h"
#include "engine/rank/registry.h"

#include <stdio.h>

struct arena_memory;

enum { ARENA_MEMORY_ALIGN = 256 }; /* of blocks; no element lies across a border of it */

/* A parameter, whole or this rank's piece of it. */
struct arena_lp {
	uint32_t param;
	bool is_shard;
};

static inline enum state_kind arena_memory_kind(struct arena_lp lp)
{
	return lp.is_shard ? STATE_LP_SHARD : STATE_LP;
}

/* Called without a lock when a block has come to lie elsewhere, for each parameter in it. */
typedef void (*arena_moved)(void *arg, struct arena_lp lp, void *memory);

/* bytes is rounded up.  -ENOMEM; -EEXIST: the registry has one. */
int arena_memory_open(struct arena_memory **m, struct registry *r, uint64_t bytes,
		      arena_moved moved, void *arg);
/* Nothing is assigned to it any more.  NULL is allowed. */
void arena_memory_close(struct arena_memory *m);

/* As the functions of arena.h; not while a copy is under way, which is only inside
 * arena_memory_compact.
 */
int arena_memory_alloc(struct arena_memory *m, uint64_t bytes, uint64_t *block);
int arena_memory_release(struct arena_memory *m, uint64_t block);
/* arena_memory_release's errors. */
int arena_memory_can_go(const struct arena_memory *m, uint64_t block);
int arena_memory_pin(struct arena_memory *m, uint64_t block);
int arena_memory_unpin(struct arena_memory *m, uint64_t block);

/* Where offset of a block is.  -ENOENT, -EINVAL; -EAGAIN: it lies half here, half there. */
int arena_memory_at(const struct arena_memory *m, uint64_t block, uint64_t offset,
		    void **memory, uint64_t *bytes);

/* Puts numel elements of it, with the values they have, at offset of the block.  arena_assign's
 * errors and registry_assign's; -EAGAIN: the block is half moved; -EINVAL: offset is not a
 * multiple of an element.
 */
int arena_memory_assign(struct arena_memory *m, struct arena_lp lp, enum frag_dtype dtype,
			uint64_t numel, uint64_t block, uint64_t offset);
/* The registry forgets it.  -ENOENT. */
int arena_memory_unassign(struct arena_memory *m, struct arena_lp lp);
int arena_memory_find(const struct arena_memory *m, struct arena_lp lp, uint64_t *block,
		      uint64_t *offset);
/* As arena_param_of. */
bool arena_memory_next(const struct arena_memory *m, uint64_t block, uint32_t *cursor,
		       struct arena_lp *lp);
/* Some parameter that is assigned; false: none is.  *cursor is 0 at first; between, they are
 * but unassigned.
 */
bool arena_memory_any(const struct arena_memory *m, uint32_t *cursor, struct arena_lp *lp);

/* Goes on with the plan there is, or makes one for a hole of want bytes, or, 0, for all of them
 * together; copies at most most bytes (at least ARENA_MEMORY_ALIGN) and returns how many.  0:
 * there is nothing to do.  arena_plan's errors.
 */
int64_t arena_memory_compact(struct arena_memory *m, uint64_t want, uint64_t most);

struct arena_figures {
	uint64_t size, used, used_max, free, largest; /* bytes */
	uint64_t blocks, holes;                       /* how many */
	uint64_t moved;                               /* bytes, ever */
};

void arena_memory_figures(struct arena_memory *m, struct arena_figures *out);

/* A line of figures, then one for each block: start, bytes, "used", "pinned" or "moving", then
 * what is in it, put by name, tabs between.  out is a memstream; after so many bytes a last
 * line says how many blocks are left out.
 */
enum { ARENA_MEMORY_TEXT = 900 << 10 };
void arena_memory_tell(struct arena_memory *m,
		       void (*name)(void *arg, FILE *out, uint32_t param), void *arg,
		       FILE *out);

#endif
