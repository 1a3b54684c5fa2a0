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
 *
 * With an overlay (overlay-log.h) the files stay as they are:
 *
 *	translate
 *	begin		the new bytes are on disk, behind the log's end
 *	gate shut
 *	end		they are a commit: done
 *	gate open
 */

#include "engine/checkpoint/opened.h"

struct overlay_log;

/* Takes dir, where the table's files are; those are claimed for writing. */
int editor_new(struct editor **out, struct checkpoint *c, int dir, bool coherent);
/* Takes log, a log of the table's files, which are claimed for reading. */
int editor_new_overlay(struct editor **out, struct checkpoint *c, struct overlay_log *log,
		       bool coherent);
/* The edit under way is ended, whole; those that wait are cancelled. */
void editor_stop(struct editor *editor);
/* A stopped one; no read is under way. */
void editor_free(struct editor *editor);

/* As engine_write and engine_write_cancel: an edit whose journal is written goes on. */
void editor_write(struct engine *e, struct engine_write *write);
void editor_cancel(struct engine *e, struct engine_write *write);

/* Whether a state may be written; false without an editor. */
bool editor_lets(const struct checkpoint *c, const struct table_state *s);
/* Those that are shown: made by this mount, or in its overlay.  There is an editor. */
uint64_t editor_edits(const struct checkpoint *c);
/* Lines of how it edits; there is an editor. */
void editor_describe(const struct checkpoint *c, FILE *out);

#endif
