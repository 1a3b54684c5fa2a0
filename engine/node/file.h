/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_NODE_FILE_H
#define ENGINE_NODE_FILE_H

/* An open file of a job: its address, its view as its reader knows it, and what was copied
 * ahead for it.  engine/live opens and closes files; engine/read reads them.
 */

#include "engine/base/phase.h"
#include "engine/base/vec.h"
#include "engine/node/node.h"
#include "engine/node/sequence.h"

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

struct pace {           /* of requests to ranks that a read waits for: engine/read/waiting.h */
	uint64_t moves; /* the sum of the ranks' peer.moves when they were last asked */
	uint64_t next_ms;
	unsigned interval_ms;
};

struct waiting {           /* of a read, for trainers: engine/read/waiting.h */
	uint64_t since_ms; /* 0: it does not wait */
	uint64_t moved_ms; /* when one of the ranks last moved: peer.moved_ms */
	uint64_t limit_ms; /* the wait ends limit_ms after moved_ms */
	uint64_t
		content; /* control_page_content that the ranks must come to; 0: the next one */
	uint32_t ranks;  /* how many it waits for */
	uint32_t rank;   /* the one furthest behind */
	bool is_grad;
	bool unseen; /* the page of one of the ranks was not seen since the wait began */
	int lost;  /* -errno of a lost owner, which the others may wait for in vain; 0: none */
	bool told; /* the log has told of the wait */
};

enum view_reader_state {
	VIEW_READER_NONE,
	VIEW_READER_OPENING,
	VIEW_READER_READY,
	VIEW_READER_FAILED
};

/* One rank's part of a view, in rows of one tier: a view to that rank (view-owner.h). */
struct view_reader_piece {
	uint32_t rank;
	uint32_t number; /* added to id[1] of the view, it makes the piece's id at its rank */
	uint64_t epoch;
	uint64_t cookie; /* of the rank's process: another process does not know this view */
	uint64_t size;
	struct vec runs; /* of struct wire_view_run */
	uint64_t generation;
	uint64_t buffer; /* address in the rank of the bytes once they are preserved */
	bool preserved;  /* a reader has seen that all bytes are in buffer */
	int status;
	/* since when its rank has had no room, or requests to it got lost; 0: neither */
	uint64_t refused_ms;
	bool no_room;
	uint8_t state; /* enum view_state */
	bool opened;   /* VIEW_OPEN was sent: the rank is told when the view ends */
	struct pace pace;
	int lost; /* as piece.lost: -errno if its rank is lost */
};

/* Bytes of the file that are neighbours in a row too. */
struct view_reader_run {
	uint64_t at; /* in the file */
	uint64_t size;
	uint32_t piece, row;
	uint64_t offset; /* in the row */
	uint64_t inside; /* in the piece */
};

struct closed_view;

struct view_reader { /* what generation an open file shows; under the engine's lock */
	enum view_reader_state state;
	uint64_t id[2];
	uint64_t generation;
	uint64_t retry_ms;
	struct phase_span span; /* OPENING */
	unsigned outstanding;
	unsigned restarts;
	struct waiting waiting;      /* OPENING: for trainers that are changing its rows */
	int status;                  /* FAILED: why; where that passes, until retry_ms */
	const struct peer *table_of; /* NONE: the rank whose table of states is missing */
	struct view_reader_piece *pieces;
	uint32_t n;
	struct vec runs;            /* of struct view_reader_run, as the file has them */
	bool told_room;             /* the log has said that a rank has no room for it */
	struct closed_view *closed; /* made at the opening: its end needs no memory then */
};

enum { PREFETCH_WINDOWS = 4 };

enum prefetch_window_state {
	PREFETCH_WINDOW_NONE,
	PREFETCH_WINDOW_ASKED,
	PREFETCH_WINDOW_THERE
};

/* Bytes of the file's view, in a rank of this host: engine/read/prefetch.h. */
struct prefetch_window {
	enum prefetch_window_state state;
	uint64_t id[2];
	uint64_t view[2];
	uint64_t offset, size; /* in the file */
	uint64_t taken;        /* bytes copied */
	uint32_t rank, attached;
	uint64_t address;  /* THERE: in the rank */
	uint64_t until_ms; /* ASKED: reads wait for the window until then */
};

struct file_prefetch { /* under the engine's lock */
	struct prefetch_window windows[PREFETCH_WINDOWS];
	_Atomic bool any; /* not all are NONE */
	enum wire_fallback
		fallback; /* why no window of fallback_view is asked for; 0: windows are */
	uint64_t fallback_view; /* id[1] of the view */
	uint64_t next;          /* where its reader goes on */
	bool wanting;           /* in the list prefetch.wanting of the engine */
	struct engine_file *next_wanting;
};

enum { REMOTE_AHEAD = 3 };

struct remote_read;

struct remote_ahead { /* a sequential reader's next requests, asked for by message */
	struct sequence sequence;
	struct remote_read *reads[REMOTE_AHEAD];
};

struct file_part { /* one state of an open file */
	struct engine_address address;
	enum frag_dtype dtype;
	uint64_t at, bytes; /* in the file */
	/* The cuts of a parameter whose stored order is not file order; else NULL.  Users'
	 * requests are in file order.  The view, and what cut-reads.c and stored-write.c call,
	 * have stored order.
	 */
	const struct cuts *cuts;
};

struct engine_file {
	struct engine *engine; /* first, as engine-ops.h wants it */
	struct file_part *parts;
	uint32_t nparts; /* at least one */
	uint64_t bytes;
	uint64_t opened_ns;
	uint64_t incarnation; /* of the job that it was opened of */
	bool is_grad;         /* gradients, for which reads wait; false if address.now is set */
	bool live;            /* no view: reads get the present bytes */
	_Atomic bool fast;    /* the last read was a onesided_read */
	_Atomic bool view_is_ready;
	struct view_reader view;
	struct file_prefetch prefetch;
	struct remote_ahead remote; /* under the engine's lock */
	_Atomic(uint8_t *) whole;   /* all of a small file, read at once: it needs no view */
	/* under readahead_pool.lock */
	struct sequence sequence; /* streak below 0: the reader was too slow */
	struct ahead ahead[AHEAD_MAX];
};

/* Returns the number of the part that has the byte at offset, which is less than f->bytes. */
static inline uint32_t file_part_at(const struct engine_file *f, uint64_t offset)
{
	return (uint32_t)LOWER_BOUND(f->nparts, i,
				     f->parts[i].at + f->parts[i].bytes <= offset);
}

/* Returns true if the job has been started again since the file was opened. */
static inline bool file_is_stale(const struct engine_file *f)
{
	return !f->live && f->incarnation != f->engine->job.incarnation;
}

/* Writes the folder of a state's file for people: "w" of a parameter, "groups/0" of a
 * hyper-parameter, "ranks/1/params/w", "ranks/1/partitions/0.0".
 */
void file_put_folder(const struct engine *e, const struct engine_address *a, FILE *out);

/* Writes the states of an open file, with `between` before the key: "w/fp32", or "w/fp32 and 7
 * more states".
 */
void file_put_states(const struct engine_file *f, char between, FILE *out);

#endif
