/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_UNIT_CHECKPOINT_FORMATS_MOUNTED_H
#define TESTS_UNIT_CHECKPOINT_FORMATS_MOUNTED_H

/* A checkpoint as a mount sees it, through the door: opened, and whole states of it read. */

#include "engine/engine.h"

struct mounted {
	struct engine *engine; /* NULL: refused */
	char why[512];
};

/* -errno and why, or 0. */
int mounted_open(struct mounted *m, const char *path, const char *source);
void mounted_close(struct mounted *m);

/* Its bytes, to be freed; NULL: there is none.  rank -1: all of it. */
uint8_t *mounted_read(struct mounted *m, const char *name, const char *key, int rank,
		      uint64_t *size);

uint8_t *mounted_read_at(struct mounted *m, const struct engine_address *a, uint64_t *size);
/* A hyper-parameter of a group; NAN: there is none. */
double mounted_hyper(struct mounted *m, uint32_t group, const char *key);

/* All of it against a file of lines, words with a blank between:
 *     # ...
 *     param NAME SHAPE NSTATES, buffer NAME SHAPE NSTATES	SHAPE a,b or -
 *     state NAME KEY HEX		HEX of all bytes, or -
 *     rank RANK NAME KEY HEX		of one rank's
 *     skipped NAME			.frag/source says so
 *     step STEP
 *     source TEXT			a line of it
 * Nothing else may be there.  The number of lines.
 */
int mounted_check(struct mounted *m, const char *expect);

#endif
