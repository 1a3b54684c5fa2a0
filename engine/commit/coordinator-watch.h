/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_COMMIT_COORDINATOR_WATCH_H
#define ENGINE_COMMIT_COORDINATOR_WATCH_H

/* The coordinator's side of a watch (`break`): it joins, for each parameter, what the ranks
 * found at the present boundary.  Counts of NaNs and infinities are added, norms are joined by
 * hypot(3), and the largest magnitude is kept, with the first element that a rank named.
 */

#include "engine/node/event-log.h"

struct coordinator_watch {
	struct wire_condition condition;
	bool accepted;     /* the mount was told that all ranks watch */
	uint64_t first_ms; /* when the first rank had come; 0: none yet */
	uint64_t asked_ms; /* when all were asked for the promise last */
	uint64_t step;     /* the greatest that a rank said */
	int status;        /* 0, or the first -errno that a rank said */
	uint32_t said;     /* the rank that said status */
	bool *checked;     /* [world] the rank has said what it found */
	bool any;          /* a rank has found something */
	struct coordinator_found {
		double value;
		uint64_t element;
		uint32_t rank;
	} * found; /* [params of the catalog] */
	uint32_t nfound;
};

struct coordinator_watch *coordinator_watch_new(const struct engine *e,
						const struct wire_condition *condition);
void coordinator_watch_free(struct coordinator_watch *w);
/* Forgets what was found: all ranks go on. */
void coordinator_watch_begin(struct coordinator_watch *w, uint32_t world);
/* Adds what a rank says; a repetition, and an element that no parameter has, is passed over. */
void coordinator_watch_add(const struct engine *e, struct coordinator_watch *w, uint32_t rank,
			   const struct wire_checked *checked, const struct wire_found *found);
bool coordinator_watch_holds(const struct coordinator_watch *w);
/* Add the event of a watch that holds, or that is over. */
void coordinator_watch_tell(struct engine *e, const struct coordinator_watch *w,
			    uint64_t boundary, const uint64_t transaction[2]);
void coordinator_watch_tell_over(struct engine *e, const struct coordinator_watch *w,
				 const uint64_t transaction[2], const char *why);

#endif
