/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TELL_H
#define ENGINE_TELL_H

/* What an engine adds to its events.  A rank: what it decided as a coordinator; observers fetch it (waiters.c).
 * An observer: what it sees itself, and what it fetched.  With the lock.
 */

#include "engine/file.h"

/* An observer's: the job as e->watch has it; what it was before. */
void tell_job(struct engine *e, uint64_t step, const char *phase);
/* An observer's: a rank is lost, or back. */
void tell_rank(struct engine *e, uint32_t rank);
/* status: 0, committed at the boundary; why not; of an origin not known: NULL. */
void tell_edit(struct engine *e, const struct wire_origin *origin, uint64_t boundary,
	       int status, const char *why);
/* status: 0, the ranks stood at the boundary; why not. */
void tell_freeze(struct engine *e, const struct wire_origin *origin, uint64_t boundary,
		 int status);
/* An observer's: the view of one of its open files was dropped by an owner. */
void tell_evicted(struct engine *e, const struct engine_file *f);
/* An observer's: lines of a rank; what is no JSON is left out. */
void tell_lines(struct engine *e, const char *text, size_t size);

#endif
