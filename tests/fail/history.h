/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_FAIL_HISTORY_H
#define TESTS_FAIL_HISTORY_H

/* A history: what readers, writers and ranks did and saw.  Each of them writes a file, with one
 * line for each event; times are nanoseconds of one clock.  A value is EDIT_STEPS times the
 * number of the last edit, plus the steps since that edit.
 *
 *	W PARAM N TIME			a writer begins edit N of a parameter
 *	D PARAM N TIME ERRNO		its close(2) has returned
 *	R PARAM KEY VALUE BEGIN END	the first read of an open file showed VALUE
 *	U ...				as R, of a value too coarse to tell the edit: ignored
 *	T PARAM KEY VALUE OTHER		a torn read: VALUE, and then OTHER
 *	F PARAM KEY ERRNO TIME		a read that failed
 *	G GENERATION BEGIN END		the mount showed this generation
 *	E BOUNDARIES			boundaries of each step, if not EDIT_BOUNDARIES
 *	B STEP TIME			a rank begins to end a step
 *	S STEP TIME VALUE...		its values after the step; -1: it cannot tell
 *	K TIME WHAT			a rank, mount or writer is killed
 *
 * Each state of a parameter (PARAM, KEY; fp32 is 0, its low-precision copy 1) is a register.
 * Edits of the parameter write it, each step adds 1, reads read it.  It is linearizable if one
 * order of all operations explains each read and has each operation between its begin and its
 * end; history_check searches for that order.  An edit that was refused must not be in it; one
 * that never returned may be.
 */

#include <stdio.h>

struct history;

struct history_counts {
	unsigned edits, refused, reads, steps;
	unsigned committed, aborted; /* of edits under way when a process was killed */
};

/* NULL: no memory. */
struct history *history_new(void);
void history_free(struct history *h);

/* Adds the file of one client or rank.
 * -EINVAL: a line is bad; out has one line.
 */
int history_load(struct history *h, FILE *in, FILE *out);

/* Writes a line to out for each violation; returns their number.  stage, of ZeRO, says
 * which states have copies, of which another one is read once a rank is dead.
 */
unsigned history_check(struct history *h, int stage, FILE *out, struct history_counts *counts);

#endif
