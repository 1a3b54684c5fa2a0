/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_READ_VIEW_READER_H
#define ENGINE_READ_VIEW_READER_H

/* The reader's side of a file's view.  A view shows one generation to the end of the file: the
 * greatest that the file's owners have when it is opened.  With the engine's lock.
 */

#include "engine/node/file.h"
#include "engine/node/plan.h"

/* Returns true if reads of the file show one generation: those of a parameter's state. */
bool view_reader_wanted(const struct engine_file *f);

/* Goes one step towards READY.  Engine thread.
 * 0: the view is READY.
 * -EAGAIN: it is not yet; an owner or a trainer is waited for.
 * -ETIME: a trainer has been waited for too long.
 * Other errors: why the view never will be READY.
 */
int view_reader_turn(struct engine *e, struct engine_file *f, uint64_t now);

/* Returns true if the view waits for a trainer, which is to end a step or to have gradients. */
bool view_reader_waits(const struct engine_file *f);

/* Returns true if the view waits for content that needs that rank's trainer (waiting_needs). */
bool view_reader_waits_for(const struct engine_file *f, uint32_t trainer, bool is_grad);

/* Returns the -errno of a lost rank that holds a piece of the view; 0: none is lost. */
int view_reader_lost(const struct engine_file *f);

/* Fills the id by which its rank knows a piece of the file's view; view is piece.view. */
void view_reader_id(const struct engine_file *f, uint32_t view, uint64_t id[2]);

/* Does plan_file for a file whose view is READY. */
int view_reader_plan(const struct engine_file *f, uint64_t offset, uint64_t size,
		     struct plan *plan);

/* Gives all bytes of a file, of one generation, to the file, which then needs no view; they are
 * from readahead_buffer where they are more than ENGINE_READ_MAX, else from malloc.  Any
 * thread, without the lock.
 * -EAGAIN: the file has a view, or is to have one.
 * -EEXIST: the file has all its bytes already.
 */
int view_reader_take_whole(struct engine_file *f, void *bytes);

/* Gives a copy of at most ENGINE_READ_MAX bytes to the file, if it has not its bytes already.
 * -EAGAIN: the file has a view, or is to have one.
 * -ENOMEM
 */
int view_reader_keep_whole(struct engine_file *f, const void *bytes);

/* Ends the view with this id on the rank; the engine thread tells the rank.  Any thread. */
void view_reader_close_at(struct engine *e, const uint64_t id[2], uint32_t rank);
/* Ends the view of a file that is closed; the engine thread tells its owners.  Any thread. */
void view_reader_close(struct engine *e, struct engine_file *f);
/* Tells owners which views have ended.  Engine thread. */
void view_reader_tell_closed(struct engine *e);
void view_reader_free(struct engine *e);

#endif
