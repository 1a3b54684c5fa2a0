/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_TEXT_H
#define FS_TEXT_H

/* The content of the small text files, made when one is opened or its size is asked for. */

#include "fs/tree.h"

/* Makes the content of a NODE_TEXT; *text is the caller's to free.  Returns its length.
 * -ENOMEM.
 * Errors of tree_state, for `fragments`.
 * Errors of engine_rank_text, for texts of a rank.
 */
int64_t text_build(struct tree *t, struct node n, char **text);

enum { TEXT_JOB_MAX = 32 };
/* Makes the content of TEXT_STEP, TEXT_PHASE or TEXT_GENERATION.  Returns its length. */
size_t text_of_job(const struct engine_job *job, uint32_t id, char out[TEXT_JOB_MAX]);

/* Returns true if making the text costs more than a look into the catalog: listings then leave
 * out its size.
 */
bool text_is_costly(struct node n);

#endif
