/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_RANK_VIEW_OWNER_H
#define ENGINE_RANK_VIEW_OWNER_H

/* The owner's side of views: copy on write, done before a step begins to write.  A view is a
 * list of runs of bytes of rows at one generation (control_page_content), which an observer has
 * open.  The rows are all in one tier, and
 * a byte of a view is counted through its runs, one after the other.  When the trainer is about
 * to change the rows, it preserves what live views show.
 *
 *   NEXT --new content--> LIVE(generation) --content about to change--> PRESERVED
 *                           ^
 *   FUTURE(generation) -----'  when this rank comes to that generation
 *
 *   tier      preserved                               where
 *   host      when it becomes PRESERVED, or before    copied into a buffer reserved at open
 *   swap      when it becomes LIVE                    a pinned version; nothing is copied
 *   device    when it becomes PRESERVED               a copy enqueued on the trainer's stream
 *
 * The buffers of all views are bounded.  The trainer never waits for a reader; it copies what
 * has not been copied ahead.  Any thread: one lock.
 */

#include "engine/base/queue.h"
#include "engine/memory/view-pool.h"
#include "engine/rank/registry.h"

enum { VIEW_OWNER_MAX = 16384, VIEW_OWNER_OF_PEER_MAX = VIEW_OWNER_MAX / 4 * 3 };

/* A larger list of runs is refused. */
enum { VIEW_OWNER_RUNS_MAX = 32768 };

/* A view is dropped whose observer is silent for so long. */
enum { VIEW_SILENT_MS = 30000 };

enum view_state { VIEW_NEXT, VIEW_FUTURE, VIEW_LIVE, VIEW_PRESERVED };

struct view_run {
	uint32_t row;
	uint64_t offset; /* in the row */
	uint64_t size;
	uint64_t at; /* in the view; view_owner_open sets it, and version */
	struct registry_version *version; /* the preserved bytes; NULL: none yet, or a buffer */
};

struct view {
	LIST_ENTRY(view) link;
	uint64_t id[2];
	uint32_t peer; /* message peer it was opened by */
	enum view_state state;
	uint64_t generation;
	uint64_t epoch;
	enum state_tier tier; /* of the rows when it last became LIVE; rows may be dropped */
	bool is_grad;
	uint64_t size; /* of all runs */
	uint64_t heard_ms;
	uint64_t opened_ms;
	uint64_t copied; /* LIVE: bytes that the buffer has already */
	int status;      /* PRESERVED: 0, or why the bytes could not be copied */
	struct view_buffer
		*buffer; /* of all bytes; NULL: the rows are not in the host's memory */
	uint32_t nruns;
	struct view_run runs[];
};

struct view_owner {
	pthread_mutex_t lock;
	LIST_HEAD(, view) list;
	struct view_pool pool;
	_Atomic unsigned count; /* of list: without views the trainer reads only this */
};

void view_owner_init(struct view_owner *v, uint64_t bytes_max);
void view_owner_fini(struct view_owner *v);

struct view_request {
	uint64_t id[2];
	uint32_t peer;
	uint64_t epoch;
	bool is_grad;
	uint64_t want; /* generation it must show; 0: the one there is, or the next */
	const struct view_run *runs; /* the caller's; of each: row, offset, and size > 0 */
	uint32_t nruns;
};

/* Opens view q->id, or, if it is open, moves it to generation want if that is newer.  *out is a
 * copy of the view without its runs.  After an error a view that was not open is not open.
 * -EINVAL: there are no runs, or too many, or not all rows are gradients as is_grad says.
 * -ESTALE: the rows are of several tiers.
 * -ENOMEM: larger than all buffers together.
 * -EAGAIN: no buffer now, or too many views.
 * -EEXIST: the generation wanted has passed.
 * Errors of registry_covers and registry_version_hold.
 */
int view_owner_open(struct view_owner *v, struct registry *r, const struct view_request *q,
		    uint64_t now, struct view *out);
void view_owner_close(struct view_owner *v, const uint64_t id[2]);
/* Drops the views whose observers have been silent since before.  Returns how many. */
unsigned view_owner_expire(struct view_owner *v, uint64_t before);
/* Unmaps the buffers that no view has used since before. */
void view_owner_trim(struct view_owner *v, uint64_t before);
/* Notes that the peer was heard at now: its views stay.  `life` of its messages' headers also
 * tells an observer by whose views' ids it has come again as another peer, when its connection
 * was made anew.
 */
void view_owner_touch(struct view_owner *v, uint32_t peer, uint32_t life, uint64_t now);

/* Calls see with each view, under the lock. */
void view_owner_each(struct view_owner *v, void (*see)(void *arg, const struct view *view),
		     void *arg);

/* Copies size bytes of one run from offset of the view, whose rows are in the host's memory.
 * -ESTALE: there is no such view.
 * -EAGAIN: it does not show its generation yet.
 * -EREMOTE: its rows are not in the host's memory: view_owner_look.
 * -EINVAL: past the end of the view, or of the run.
 */
int view_owner_read(struct view_owner *v, struct registry *r, const uint64_t id[2],
		    uint64_t offset, void *out, size_t size);

/* The place of a view's bytes, for rows that are not in the host's memory. */
struct view_look {
	uint64_t generation;
	uint64_t epoch, at; /* of the registry; bytes of the row */
	uint32_t row;
	struct registry_version *version; /* preserved, the caller's to put; NULL: live */
};
/* Fills *look.  A reader of live bytes looks again after it has copied them: they
 * are the view's if the view is LIVE still, and of the same generation.
 * -EAGAIN: the rows are in the host's memory.
 * Errors of view_owner_read.
 */
int view_owner_look(struct view_owner *v, const uint64_t id[2], uint64_t offset, size_t size,
		    struct view_look *look);
/* Sets *inside to the offset in the view of these bytes of a row.
 * -ESTALE: there is no such view, or it has not all of the bytes.
 */
int view_owner_covers(struct view_owner *v, const uint64_t id[2], uint32_t row, uint64_t offset,
		      uint64_t size, uint64_t *inside);
/* Returns the tier of the view's rows; STATE_HOST also if there is no such view. */
enum state_tier view_owner_tier(struct view_owner *v, const uint64_t id[2]);

/* Trainer's thread.  Preserves what live views show, of states and gradients or of gradients
 * alone, before the content changes; the control page says already that it changes.
 */
void view_owner_preserve(struct view_owner *v, struct registry *r, bool states);
/* Trainer's thread.  The content has changed, and the control page says so: views that wait for
 * the new generation become LIVE.
 */
void view_owner_arrive(struct view_owner *v, struct registry *r);
/* Trainer's thread.  Preserves what live views show of a row that is about to be dropped. */
void view_owner_preserve_row(struct view_owner *v, struct registry *r, uint32_t row);

struct registry_move;
/* Trainer's thread.  Returns true if a view that waits for its content has the row and other
 * rows: a view needs all of its rows in one tier when it becomes LIVE.
 */
bool view_owner_awaits(struct view_owner *v, uint32_t row);
/* Trainer's thread.  registry_place_switch, unless view_owner_awaits the row. */
void view_owner_move(struct view_owner *v, struct registry *r, struct registry_move *m);

/* Engine thread: copies some bytes ahead, for views that have been open for a while, at such a
 * pace that all are copied when the content is about to change.
 * False: none were due.
 */
bool view_owner_copy_ahead(struct view_owner *v, struct registry *r, uint64_t now);

static inline bool view_owner_any(struct view_owner *v)
{
	return atomic_load_explicit(&v->count, memory_order_seq_cst) != 0;
}

#endif
