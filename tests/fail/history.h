/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_FAIL_HISTORY_H
#define TESTS_FAIL_HISTORY_H

/* What readers, writers and ranks did and saw, a file each, a line each; times are nanoseconds
 * of one clock.  A value is EDIT_STEPS times the number of the edit, and the steps since.
 *
 *	W PARAM N TIME			edit N of a parameter is begun,
 *	D PARAM N TIME ERRNO		and close(2) has returned
 *	R PARAM KEY VALUE BEGIN END	an open file shows VALUE: from before open(2) to after the first read
 *	U ...				the same, a value that does not tell the edit: not looked at
 *	T PARAM KEY VALUE OTHER		and then another: torn
 *	F PARAM KEY ERRNO TIME		not read
 *	G GENERATION BEGIN END		the mount's generation
 *	E BOUNDARIES			each step has so many, when not EDIT_BOUNDARIES
 *	B STEP TIME			a rank begins to end a step,
 *	S STEP TIME VALUE...		and holds these values behind it; -1: it cannot tell
 *	K TIME WHAT			a rank, mount or writer is killed
 *
 * Each state of a parameter (PARAM, KEY; fp32 is 0, its low-precision copy 1) is a register to
 * which all edits of the parameter write, to which each step adds 1, and which reads read.  It
 * is linearizable when there is one order of them all that explains each read and has each one
 * between its begin and its end; history_check searches for it.  Edits that were refused must
 * not be in it; those that never returned may be.
 */

#include <stdio.h>

struct history;

struct history_counts {
	unsigned edits, refused, reads, steps;
	unsigned committed, aborted; /* of those under way when something was killed */
};

/* NULL: no memory. */
struct history *history_new(void);
void history_free(struct history *h);

/* One file: one client's, or one rank's.  0, or -EINVAL with a line in out. */
int history_load(struct history *h, FILE *in, FILE *out);

/* Says in out what is wrong; returns how much.  stage: which states have copies, of which
 * another one is read once a rank is dead.
 */
unsigned history_check(struct history *h, int stage, FILE *out, struct history_counts *counts);

#endif
