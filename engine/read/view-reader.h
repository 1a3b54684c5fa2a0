/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_READ_VIEW_READER_H
#define ENGINE_READ_VIEW_READER_H

/* A file's view, the reader's side: one generation, the greatest that its owners have when it
 * is opened, on all of them to the file's end.  With the engine's lock.
 */

#include "engine/node/file.h"
#include "engine/node/plan.h"

/* Whether reads of the file show one generation: those of a parameter's state. */
bool view_reader_wanted(const struct engine_file *f);

/* Engine thread: one step towards READY.  0: it is; -EAGAIN: not yet, progress or a wait for
 * the trainer; -ETIME: that has lasted too long; else why it never will be.
 */
int view_reader_turn(struct engine *e, struct engine_file *f, uint64_t now);

/* Whether that waits for a trainer: to end a step, to have gradients. */
bool view_reader_waits(const struct engine_file *f);

/* plan_read, of a file whose view is READY. */
int view_reader_plan(const struct engine_file *f, uint64_t offset, uint64_t size,
		     struct plan *plan);

/* Any thread, without the lock: all bytes of a file, of one generation, stay with it, if it has
 * none yet; it needs no view then.  -EAGAIN: it has a view, or is to have one; -ENOMEM.
 */
int view_reader_keep_whole(struct engine_file *f, const void *bytes);

/* Any thread: what the rank has under that number is not looked at any more; it is told by the
 * engine thread.
 */
void view_reader_close_at(struct engine *e, const uint64_t id[2], uint32_t rank);
/* Any thread: the file is closed; its owners are told by the engine thread. */
void view_reader_close(struct engine *e, struct engine_file *f);
/* Engine thread. */
void view_reader_tell_closed(struct engine *e);
void view_reader_free(struct engine *e);

#endif
