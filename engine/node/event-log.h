/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_NODE_EVENT_LOG_H
#define ENGINE_NODE_EVENT_LOG_H

/* The log of an engine's events.  A rank adds the edits that it settles, and, as coordinator,
 * their outcome on all ranks (edit-report.c); observers fetch these lines (watch-server.c).  An
 * observer adds the lines that it fetched, and what it sees itself.  All calls with the lock.
 */

#include "engine/catalog/event-ring.h"
#include "engine/node/file.h"

struct event_log {
	struct event_ring ring;
	uint64_t told[EVENT_RING_KEPT][2]; /* a ring: ids of the newest events in `ring` */
	uint64_t ntold;
	struct event_ring own;  /* edits that an observer made itself */
	_Atomic uint64_t epoch; /* as engine_epoch; any thread */
	uint64_t changes;       /* how often the events or an observer's job below changed */
	/* an observer's job, as watch_look saw it last */
	uint64_t step, generation;
	uint64_t incarnation;   /* of the job; within one, step and generation do not fall */
	uint64_t generation_ns; /* latest time of a generation; never decreases */
	const char *phase;
};

/* Adds the change of an observer's job to what e->event_log has, from step and phase. */
void event_log_job(struct engine *e, uint64_t step, const char *phase);
/* Adds to an observer's log that a rank is lost, or back. */
void event_log_rank(struct engine *e, uint32_t rank);

struct event_settled {             /* an edit, or a freeze, that is over */
	uint64_t id[2];            /* its transaction, which is logged once; 0: not known */
	struct wire_origin origin; /* files 0: not known */
	uint64_t boundary;         /* at which it was applied; 0: at none */
	int status;                /* 0: committed; -errno: not */
	const char *why;           /* status in words; NULL: strerror's */
};

void event_log_edit(struct engine *e, const struct event_settled *told);
/* Stores an edit that this observer made, for its history of edits. */
void event_log_store(struct engine *e, const struct event_settled *told);
void event_log_freeze(struct engine *e, const struct event_settled *told);
/* Adds the end of a freeze; told->why NULL: the origin's process has asked for it. */
void event_log_thaw(struct engine *e, const struct event_settled *told);
struct event_break {    /* a watch that holds, or is over */
	uint64_t id[2]; /* its transaction */
	const char *condition;
	uint32_t param;   /* number in the catalog: the first for which the condition holds */
	uint32_t nparams; /* for how many it holds; 0: the watch is over, as `why` says */
	const char *key;
	double value;
	bool has_element; /* element, in stored order, and rank are known */
	uint64_t element;
	uint32_t rank;
	uint64_t step, boundary;
	const char *why;
};

void event_log_break(struct engine *e, const struct event_break *told);
/* Returns true if one of the newest events tells how that watch ended. */
bool event_log_has_break(const struct engine *e, const uint64_t id[2]);
/* Adds to an observer's log that an owner has dropped the view of an open file. */
void event_log_evicted(struct engine *e, const struct engine_file *f);
/* Adds a rank's lines, except those that are no JSON or are in the log. */
void event_log_add_lines(struct engine *e, const char *text, size_t size);

#endif
