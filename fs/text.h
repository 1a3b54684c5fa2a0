/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_TEXT_H
#define FS_TEXT_H

/* The content of the small files: made whenever one is opened or its size asked for. */

#include "fs/tree.h"

/* NODE_TEXT.  *text is the caller's to free; returns its length; -ENOMEM; of fragments: as
 * tree_state.
 */
int64_t text_build(struct tree *t, struct node n, char **text);

/* Of TEXT_STEP, TEXT_PHASE, TEXT_GENERATION; its length. */
enum { TEXT_JOB_MAX = 32 };
size_t text_of_job(const struct engine_job *job, uint32_t id, char out[TEXT_JOB_MAX]);

/* True: making the text costs more than a look at the catalog, listings leave its size out. */
bool text_is_costly(struct node n);

#endif
