/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_COMMIT_EDIT_REPORT_H
#define ENGINE_COMMIT_EDIT_REPORT_H

/* What became of edits and freezes, on each rank: who asked for it hears that it was applied
 * here, and each rank tells each of them that it settles, so that whichever is left has it in
 * its events.  Engine thread of a rank, with the lock.
 */

#include "engine/node/node.h"

void edit_report_turn(struct engine *e, uint64_t now);
/* A message peer has gone: what it had staged, and asks nobody to commit any more, is aborted.
 */
void edit_report_gone(struct engine *e, uint32_t peer);
/* Another rank has aborted such a one. */
void edit_report_dropped(struct engine *e, const struct wire_dropped *dropped);

#endif
