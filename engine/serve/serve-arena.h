/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SERVE_SERVE_ARENA_H
#define ENGINE_SERVE_SERVE_ARENA_H

/* The text of a rank's arena, for RANK_QUERY. */

#include "engine/node/node.h"

/* The lines of arena_memory_tell, in which a parameter has the name of its folder in a mount,
 * with "/shard" behind the name of a piece.  Engine thread, with the lock.  The caller's to
 * free; NULL: no memory.
 */
char *serve_arena_text(struct engine *e);

#endif
