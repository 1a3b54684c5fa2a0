/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_GATHER_H
#define ENGINE_GATHER_H

/* Reads elements of a slice of an open state.  Elements that lie close to each other in the
 * state are read as one range, several ranges at a time.
 */

#include "engine/base/slice.h"
#include "engine/engine.h"

enum {
	GATHER_GAP = 4096, /* the most bytes that are read in vain to save a second read */
	GATHER_READS = 16, /* at a time */
};

struct gather_run;

/* A request.  The module owns the struct until it calls `done`: once, before gather_start
 * returns or later from another thread, with 0 and out filled, or with the error of a read
 * (engine_read).
 */
struct gather {
	struct engine *engine;
	struct engine_file *file;
	const struct slice *slice; /* of the state's elements */
	size_t element;            /* bytes of one: 1, 2, 4, 8 or 16 */
	uint64_t first, count;     /* elements of the slice to read */
	void *out;                 /* count elements */
	bool nowait;               /* these two as in struct engine_read */
	pid_t thread;
	void (*done)(struct gather *g, int result);
	void *owner;
	struct gather_run *run; /* private */
};

/* -ENOMEM: done is not called. */
int gather_start(struct gather *g);
/* Makes the reads end soon, with -ECANCELED.  Idempotent; not to be called after `done`, but
 * `done` may be called in it.
 */
void gather_cancel(struct gather *g);

#endif
