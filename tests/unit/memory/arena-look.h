/* SPDX-License-Identifier: Apache-2.0 */
#ifndef UNIT_MEMORY_ARENA_LOOK_H
#define UNIT_MEMORY_ARENA_LOOK_H

/* The tests' look at an arena, which the engine has no use for.  Each is O(blocks). */

#include "engine/memory/arena.h"

#include <stdio.h>

/* The largest hole that moving blocks can make, none of them past a pinned one. */
uint64_t arena_attainable(const struct arena *a);

/* Ends the plan.  -EAGAIN: a block is half moved. */
int arena_plan_drop(struct arena *a);

/* Prints the range as a line of `resolution` characters: '.' free, '|' used, ':' both, '#'
 * pinned, at least in part.  -EIO.
 */
int arena_print(const struct arena *a, unsigned resolution, FILE *to);

/* Verifies the whole structure; false: it is damaged. */
bool arena_check(const struct arena *a);

#endif
