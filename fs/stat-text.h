/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_STAT_TEXT_H
#define FS_STAT_TEXT_H

/* The texts of the files in params/<name>/stats/<state>/. */

#include "engine/stats/stats.h"
#include "fs/tree.h"

/* Returns true if the text is made of bins. */
bool stat_text_needs_bins(enum stat_id id);

/* Makes the content of a NODE_STAT, whose state has elements of that many bytes.  NULL: no
 * memory.
 */
char *stat_text_build(struct tree *t, struct node n, size_t element_bytes,
		      const struct stats *s);

#endif
