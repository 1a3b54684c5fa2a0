/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_STAT_TEXT_H
#define FS_STAT_TEXT_H

/* The texts of the files in params/<name>/stats/<state>/. */

#include "engine/stats/stats.h"
#include "fs/tree.h"

#include <stdio.h>

/* Returns true if the text is made of bins. */
bool stat_text_needs_bins(enum stat_id id);

/* Makes the content of a NODE_STAT.  NULL: no memory. */
char *stat_text_build(struct tree *t, struct node n, const struct stats *s);

/* Makes the content of STAT_XXH64, as xxhsum prints it.  NULL: no memory. */
char *stat_text_hash(uint64_t hash);

/* Prints, each after a tab, an element's rank, its partition or file of a checkpoint, and its
 * number in the partition or byte in the file; "-" where the element has none.
 */
void stat_text_put_place(FILE *out, struct tree *t, struct node n, uint64_t element);

#endif
