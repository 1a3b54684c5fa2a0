/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_PHASE_H
#define ENGINE_BASE_PHASE_H

/* The times of this process's phases.  The same two calls count a phase, make it a range of
 * NVTX where a tool has loaded NVTX, and pass the USDT probes fragfs:phase_begin(name, id) and
 * fragfs:phase_end(name, id, ns, result).  Any thread; a phase may end in another thread than
 * it began in.
 */

#include "engine/base/histogram.h"

#include <stdio.h>

enum phase {
	PHASE_VIEW,      /* the view of a file, from its first read until it is open */
	PHASE_COMMIT,    /* an edit, from when it is asked for until it is decided */
	PHASE_ROUND,     /* a round of collectives, from when it is asked for to its end */
	PHASE_SWAP_IN,   /* a slice, from the request to the disk until it is there */
	PHASE_SWAP_OUT,  /* a slice, from swapping out until it is on the disk */
	PHASE_SWAP_WAIT, /* a wait of the trainer's thread for a slice or a buffer */
	PHASE_STALL,     /* the trainer's thread, at a boundary, for readers, edits, freezes */
	PHASES
};

struct phase_span { /* zeroed: not begun */
	uint64_t since_ns;
	uint64_t range; /* of NVTX */
};

void phase_begin(enum phase phase, struct phase_span *span);
/* Returns how long the phase took, in ns; 0: the span had not begun, and is left alone.
 * result: 0 or -errno.
 */
uint64_t phase_end(enum phase phase, struct phase_span *span, int result);

/* Ends a step: the times since the last call become those of the last step. */
void phase_step(void);

/* Copies the times, in nanoseconds: of all phases that have ended, and of the last step's. */
void phase_times(enum phase phase, struct histogram *ever, struct histogram *last_step);

/* Writes the times for Prometheus, in seconds: a histogram, PREFIX_seconds, or a gauge of the
 * last step's quantiles 0, 0.5, 0.99 and 1, PREFIX_last_step_seconds.  Each line has the labels
 * {phase="view"} and those given, such as "rank=\"3\",".  Phases that have never ended, or not
 * in the last step, have no lines.
 */
void phase_put_histograms(FILE *out, const char *prefix, const char *labels);
void phase_put_last_step(FILE *out, const char *prefix, const char *labels);

/* Writes a table, with a head: a line for each phase, of the last step and ever, in seconds. */
void phase_put_table(FILE *out);

#endif
