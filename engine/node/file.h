/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_NODE_FILE_H
#define ENGINE_NODE_FILE_H

/* An open file of a job: its address, its view as its reader knows it, and what was copied
 * ahead for it.  engine/live opens and closes files; engine/read reads them.
 */

#include "engine/node/node.h"

#include <stdio.h>

enum { AHEAD_MAX = 4 };

enum ahead_state { AHEAD_EMPTY, AHEAD_QUEUED, AHEAD_FILLING, AHEAD_READY };

struct ahead { /* one request read ahead; under the read-ahead pool's lock */
	struct ahead *next_queued;
	struct engine_file *file;
	enum ahead_state state;
	uint64_t offset;
	size_t size;
	uint64_t filled_ms;
	uint64_t edits; /* write.edits when it was filled */
	void *buffer;
};

struct pace {           /* of questions to ranks that are waited for: engine/read/waiting.h */
	uint64_t moves; /* the ranks', when they were last asked */
	uint64_t next_ms;
	unsigned interval_ms;
};

struct waiting {           /* of a read, for trainers: engine/read/waiting.h */
	uint64_t since_ms; /* 0: it does not wait */
	uint64_t moved_ms; /* when one of the ranks last got on */
	uint64_t limit_ms; /* it ends so long after that */
	uint64_t content;  /* what they must come to: control_content; 0: whatever is next */
	uint32_t ranks;    /* how many it waits for */
	uint32_t rank;     /* the one furthest behind */
	bool is_grad;
	bool unseen; /* one of the ranks was not seen since it began */
	int lost;  /* -errno of a lost owner, which the others may wait for in vain; 0: none */
	bool told; /* in the log */
};

enum view_reader_state {
	VIEW_READER_NONE,
	VIEW_READER_OPENING,
	VIEW_READER_READY,
	VIEW_READER_FAILED
};

struct view_reader_piece { /* of a view, on one rank */
	uint32_t rank, row;
	uint64_t epoch;
	uint64_t cookie; /* of the rank's process: another one knows nothing of this view */
	uint64_t offset; /* in the row */
	uint64_t at;     /* in the file */
	uint64_t size;
	uint64_t generation;
	uint64_t buffer; /* address in the rank of the bytes once they are kept */
	bool kept;       /* they are: seen there */
	int status;
	/* since when its rank has had no room, or requests to it got lost; 0: neither */
	uint64_t refused_ms;
	bool no_room;
	uint8_t state; /* enum view_state */
	bool opened;
	struct pace pace;
	int lost; /* its rank is, and why: as piece.lost */
};

struct closed_view;

struct view_reader { /* what generation an open file shows; under the engine's lock */
	enum view_reader_state state;
	uint64_t id[2];
	uint64_t generation;
	uint64_t retry_ms;
	unsigned outstanding;
	unsigned restarts;
	struct waiting waiting; /* OPENING: for those that are changing what it needs */
	int status;             /* FAILED: why; -ENOMEM, -ETIMEDOUT, -ETIME: until retry_ms */
	const struct peer *table_of; /* NONE: the rank whose table of states it lacks; NULL */
	struct view_reader_piece *pieces;
	uint32_t n;
	struct closed_view *closed; /* made when it opens, so that its end can always be told */
};

enum { WINDOWS = 4 };

enum window_state { WINDOW_NONE, WINDOW_ASKED, WINDOW_THERE };

struct window { /* bytes of the file's view, in a rank of this host: engine/read/prefetch.h */
	enum window_state state;
	uint64_t id[2];
	uint64_t view[2];
	uint64_t offset, size; /* in the file */
	uint64_t taken;        /* bytes copied */
	uint32_t rank, attached;
	uint64_t address;  /* THERE: in the rank */
	uint64_t until_ms; /* ASKED: it is not waited for any longer */
};

struct file_prefetch { /* under the engine's lock */
	struct window windows[WINDOWS];
	_Atomic bool any; /* not all are NONE */
	enum wire_fallback
		unfit;       /* why none is asked for of unfit_view any more; 0: they are */
	uint64_t unfit_view; /* its number */
	uint64_t next;       /* where its reader goes on */
	bool wanting;        /* in the list prefetch.wanting of the engine */
	struct engine_file *next_wanting;
};

struct engine_file {
	struct engine *engine; /* first, as engine-ops.h wants it */
	struct engine_address address;
	uint64_t bytes;
	uint64_t opened_ns;
	uint64_t incarnation; /* of the job that it was opened of */
	enum frag_dtype dtype;
	/* Of a parameter whose stored order is not file order; else NULL.  Users' requests are
	 * in file order.  The view, and what cut-reads.c and stored-write.c call, have stored
	 * order.
	 */
	const struct cuts *cuts;
	bool is_grad;      /* gradients, for which reads wait; false if address.now is set */
	bool live;         /* no view: what there is when it is read */
	_Atomic bool fast; /* the last read was served at once */
	_Atomic bool view_is_ready;
	struct view_reader view;
	struct file_prefetch prefetch;
	_Atomic(uint8_t *) whole; /* all of a small file, read at once: it needs no view */
	/* under the pool's lock */
	uint64_t next_offset;
	int streak; /* requests in sequence; below 0: of one too slow to read ahead for */
	struct ahead ahead[AHEAD_MAX];
};

/* The job has ended meanwhile, and is another one. */
static inline bool file_is_stale(const struct engine_file *f)
{
	return !f->live && f->incarnation != f->engine->job.incarnation;
}

/* Writes the folder of a state's file for people: "w" of a parameter, "groups/0" of a
 * hyper-parameter, "ranks/1/params/w", "ranks/1/partitions/0.0".
 */
void file_put_folder(const struct engine *e, const struct engine_address *a, FILE *out);

#endif
