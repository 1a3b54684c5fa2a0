/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_RANK_SWAP_TEXT_H
#define ENGINE_RANK_SWAP_TEXT_H

/* A rank's states on NVMe, and the memory that they visit, in words and figures: a line "name
 * value" each, then tables. Any thread.  The caller's to free; NULL: no memory.
 */

#include "engine/catalog/catalog.h"
#include "engine/rank/registry.h"

char *swap_text_states(struct registry *r, const struct catalog *own);
char *swap_text_pinned(struct registry *r);

/* Bytes of as many whole lines as there are in `most` bytes. */
size_t swap_text_lines(const char *text, size_t most);

/* What bytes [from, to) of such a state are: "exp_avg of layers.0.weight and 2 more (group 0,
 * sub-group 1)".  own: the rank's, that does not grow meanwhile.
 */
void swap_text_range(struct registry *r, const struct catalog *own, uint32_t rank,
		     const struct swapper_state *s, uint64_t from, uint64_t to, char *text,
		     size_t size);

#endif
