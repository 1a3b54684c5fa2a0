/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SERVE_SERVE_ARENA_H
#define ENGINE_SERVE_SERVE_ARENA_H

#include "engine/node/node.h"

/* What a rank says of its arena: arena_memory_tell's lines, parameters as their folders in a
 * mount are called, with "/shard" behind the name of a piece.  Engine thread, with the lock.
 * The caller's to free; NULL: no memory.
 */
char *serve_arena_text(struct engine *e);

#endif
