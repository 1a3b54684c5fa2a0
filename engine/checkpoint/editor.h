/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_EDITOR_H
#define ENGINE_CHECKPOINT_EDITOR_H

/* The editor carries out writes to a checkpoint, one after the other, in a thread of its own.
 * An edit in place is undone if it is interrupted:
 *
 *	translate	the write becomes patches (edit.h)
 *	journal		the bytes that they replace are on disk (journal.h)
 *	gate shut	reads under way have ended, new ones wait (rwgate.h)
 *	apply		the new bytes are on disk; after an error the old ones are again
 *	journal gone	the edit is committed
 *	gate open	open files of states that it changed are stale
 *
 * An edit in an overlay leaves the files as they are (overlay-log.h):
 *
 *	translate
 *	begin		the new bytes are on disk behind the log's end
 *	gate shut
 *	end		the edit is committed
 *	gate open
 */

#include "engine/checkpoint/opened.h"

struct overlay_log;

/* Starts an editor of the table's files, which are locked.  Takes dir and log, also on error.
 * log: of the overlay over these files; NULL: the editor writes in place, and dir is the files'
 * folder.
 */
int editor_new(struct editor **out, struct checkpoint *c, int dir, struct overlay_log *log,
	       bool coherent);
/* Waits for the edit under way, then cancels the queued ones. */
void editor_stop(struct editor *editor);
/* Frees a stopped editor; no read is under way. */
void editor_free(struct editor *editor);

/* Do engine_write() and engine_write_cancel().  Any thread.  An edit whose journal is written
 * goes on in spite of a cancel.
 */
void editor_write(struct engine *e, struct engine_write *write);
void editor_cancel(struct engine *e, struct engine_write *write);

/* Returns true if the checkpoint has an editor, and the state may be written. */
bool editor_lets(const struct checkpoint *c, const struct table_state *s);
/* Returns the number of edits that reads show: those of this mount and of its overlay.  The
 * checkpoint has an editor.
 */
uint64_t editor_edits(const struct checkpoint *c);
/* Prints lines about the editor for .frag/config.  The checkpoint has an editor. */
void editor_describe(const struct checkpoint *c, FILE *out);

#endif
