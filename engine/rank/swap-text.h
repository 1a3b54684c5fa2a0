/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_RANK_SWAP_TEXT_H
#define ENGINE_RANK_SWAP_TEXT_H

/* Texts about a rank's states on NVMe, and the buffers that they come into: lines "name value",
 * then tables.  Any thread.  The caller frees the texts; NULL: no memory.
 */

#include "engine/catalog/catalog.h"
#include "engine/rank/registry.h"

char *swap_text_states(struct registry *r, const struct catalog *own);
char *swap_text_pinned(struct registry *r);

/* Returns the size of the whole lines that fit in `most` bytes. */
size_t swap_text_lines(const char *text, size_t most);

/* Names bytes [from, to) of a state: "exp_avg of layers.0.weight and 2 more (group 0, sub-group
 * 1)".  own: the rank's catalog, which does not grow meanwhile.
 */
void swap_text_range(struct registry *r, const struct catalog *own, uint32_t rank,
		     const struct swapper_state *s, uint64_t from, uint64_t to, char *text,
		     size_t size);

#endif
