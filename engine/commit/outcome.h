/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_COMMIT_OUTCOME_H
#define ENGINE_COMMIT_OUTCOME_H

/* What became of an edit whose coordinator was lost after it had been asked to commit: its
 * writer asks the ranks, as they ask each other, until one knows the decision, or all that live
 * have promised to take none from the lost one any more.  When it was committed, the writer
 * waits until each holder has applied it.
 *
 * Engine thread, with the lock.
 */

#include "engine/node/node.h"

struct outcome {
	uint64_t transaction[2];
	uint32_t *holders; /* [world], its writer's: not 0, until that rank has applied it */
	unsigned outstanding;
	uint64_t retry_ms; /* 0: nobody was asked yet */
	bool again;        /* somebody is to be asked once more */
	bool committed;
	bool telling; /* the holders, not asking all */
};

/* -EAGAIN: not known yet; 0: committed, and applied; -EIO: aborted. */
int outcome_turn(struct engine *e, struct outcome *o, uint64_t now);

#endif
