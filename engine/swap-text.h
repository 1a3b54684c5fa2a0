/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SWAP_TEXT_H
#define ENGINE_SWAP_TEXT_H

/* A rank's states on NVMe, and the memory that they visit, in words and figures: a line "name value" each, then tables.
 * Any thread.  The caller's to free; NULL: no memory.
 */

#include "engine/catalog.h"
#include "engine/registry.h"

char *swap_text_states(struct registry *r, const struct catalog *own);
char *swap_text_pinned(struct registry *r);

#endif
