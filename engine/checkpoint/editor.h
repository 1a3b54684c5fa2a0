/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_EDITOR_H
#define ENGINE_CHECKPOINT_EDITOR_H

/* Edits of a checkpoint, one after the other in a thread of their own:
 *
 *	translate	the write to patches (edit.h)
 *	journal		what they replace is on disk
 *	gate shut	reads under way have ended, others wait
 *	apply		the disks have the new bytes; or the old ones again
 *	journal gone	the edit is whole: done
 *	gate open	files that were open before, of states that have changed, are stale
 */

#include "engine/checkpoint/checkpoint.h"

/* Takes dir, where the table's files are; those are claimed for writing. */
int editor_new(struct editor **out, struct checkpoint *c, int dir, bool coherent);
/* The edit under way is ended, whole; those that wait are cancelled. */
void editor_free(struct editor *editor);

/* As engine_write and engine_write_cancel: an edit whose journal is written goes on. */
void editor_write(struct engine *e, struct engine_write *write);
void editor_cancel(struct engine *e, struct engine_write *write);

/* Whether a state may be written; false without an editor. */
bool editor_lets(const struct checkpoint *c, const struct table_state *s);
/* "on" or "off"; there is an editor. */
const char *editor_coherence(const struct checkpoint *c);

#endif
