/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_NODE_EVENT_LOG_H
#define ENGINE_NODE_EVENT_LOG_H

/* What an engine adds to its events.  A rank: the edits it settles (edit-report.c), as a
 * coordinator what became of them on all ranks; observers fetch it (watch-server.c). An
 * observer: what it sees itself, and what it fetched.  With the lock.
 */

#include "engine/catalog/event-ring.h"
#include "engine/node/file.h"

struct event_log {
	struct event_ring ring;
	uint64_t told[EVENT_RING_KEPT][2]; /* the newest edits and freezes in it, a ring */
	uint64_t ntold;
	_Atomic uint64_t epoch; /* engine_epoch */
	uint64_t changes;       /* of what an observer sees: events, and the numbers below */
	/* an observer's: the job as it was last seen (watch.h) */
	uint64_t step, generation;
	uint64_t generation_ns; /* the latest time of a generation: it never goes back */
	const char *phase;
};

/* An observer's: the job is as e->event_log has it; before, it was at step, in phase. */
void event_log_job(struct engine *e, uint64_t step, const char *phase);
/* An observer's: a rank is lost, or back. */
void event_log_rank(struct engine *e, uint32_t rank);

struct event_settled {             /* an edit, or a freeze, that is over */
	uint64_t id[2];            /* of its transaction: it is told once; 0: not known */
	struct wire_origin origin; /* files 0: not known */
	uint64_t boundary;         /* where it was made; 0: nowhere */
	int status;                /* 0, committed, or the ranks stood there; why not */
	const char *why;           /* the same in words; NULL */
};

void event_log_edit(struct engine *e, const struct event_settled *told);
void event_log_freeze(struct engine *e, const struct event_settled *told);
/* An observer's: the view of one of its open files was dropped by an owner. */
void event_log_evicted(struct engine *e, const struct engine_file *f);
/* An observer's: lines of a rank; what is no JSON, or was told, is left out. */
void event_log_add_lines(struct engine *e, const char *text, size_t size);

#endif
