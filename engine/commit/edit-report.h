/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_COMMIT_EDIT_REPORT_H
#define ENGINE_COMMIT_EDIT_REPORT_H

/* Reports edits and freezes that are applied or aborted on this rank: APPLIED to the peer that
 * sent the decision, and an event on every rank, so that any rank that is left has it in its
 * history.  Engine thread of a rank, with the lock.
 */

#include "engine/node/node.h"

void edit_report_turn(struct engine *e, uint64_t now);
/* Aborts the edits that a message peer which is gone has staged and not proposed. */
void edit_report_gone(struct engine *e, uint32_t peer);
/* Takes DROPPED: another rank has aborted an edit that its writer had not proposed. */
void edit_report_dropped(struct engine *e, const struct wire_dropped *dropped);

#endif
