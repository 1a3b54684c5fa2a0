/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_WATCH_WATCH_H
#define ENGINE_WATCH_WATCH_H

/* Changes of the job's step, generation and phase, for an observer: engine_wait ends at one.
 * The lowest live rank speaks for the job.  While somebody waits, the engine thread reads that
 * rank's control page every few ms where its memory is in reach; else it sends the rank one
 * WAIT, which the rank answers when its numbers have changed.  All engine_waits share that look
 * or that WAIT.  Functions are called with the lock, except watch_finish and the door's calls.
 */

#include "engine/node/node.h"

struct watch {
	struct edit_history *edit_history; /* NULL: nobody has asked yet */
	SLIST_HEAD(, rank_query) rank_queries;
	LIST_HEAD(, place_order) place_orders;
	struct engine_wait *waits;       /* for a change of the job */
	struct engine_wait *epoch_waits; /* for a change of the epoch */
	unsigned streams;                /* of events that are open */
	uint64_t linger_ms;              /* until then events are fetched without a stream */
	bool beginning;    /* the first stream waits for the number to begin from */
	bool asked;        /* a WAIT is under way */
	bool ask_anew;     /* the WAIT under way does not ask for events: it is replaced */
	uint64_t retry_ms; /* after a WAIT that failed no other is sent before */
};

/* Any thread.  Brings the job's numbers in e->event_log up to date; counts a change if step,
 * generation or phase differ.
 */
void watch_look(struct engine *e);

/* A stream of events is opened: the engine thread fetches events that happen from now on.
 * A stream whose speaker's memory is out of reach is "beginning" until the speaker has answered
 * with the number of its newest event; then the epoch grows and e->changed is signalled.
 * Events are fetched for timeout_ms more if a stream is closed while it is beginning, so that
 * its opener may open another.
 */
void watch_begin_events(struct engine *e);
bool watch_is_beginning(const struct engine *e);
void watch_end_events(struct engine *e);

/* Returns true if the engine thread must turn every few ms. */
bool watch_ticks(const struct engine *e);

/* Engine thread.  Moves waits that have ended to the list *finished, for watch_finish. */
void watch_turn(struct engine *e, uint64_t now, struct engine_wait **finished);
/* Calls done() of each wait, without the lock. */
void watch_finish(struct engine_wait *finished);
/* Ends all waits with -ECANCELED, when the engine thread has ended. */
void watch_abandon(struct engine *e);

/* As engine_changes, engine_wait, engine_wait_epoch, engine_wait_cancel. */
uint64_t watch_changes(struct engine *e);
void watch_wait(struct engine *e, struct engine_wait *wait);
void watch_wait_epoch(struct engine *e, struct engine_wait *wait);
void watch_cancel(struct engine *e, struct engine_wait *wait);

#endif
