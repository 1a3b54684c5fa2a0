/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_COMMIT_OWN_H
#define ENGINE_COMMIT_OWN_H

#include "engine/commit.h"

/* Keeps aside, under that transaction, what this rank holds of a write's bytes, also of low precision, as STAGE messages from the
 * writer, a rank, would.  Without the lock, trainer's thread.  Errors of commit_plan and edits_stage.
 */
int commit_stage_own(struct engine *e, const struct engine_write *write,
		     const uint64_t transaction[2], uint32_t writer);

#endif
