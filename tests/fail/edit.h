/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_FAIL_EDIT_H
#define TESTS_FAIL_EDIT_H

/* What the job, its writers and readers, and the checker of their history agree on: each edit
 * sets a whole parameter to EDIT_STEPS times a number that no other edit has, and each step
 * adds 1, so that a value tells which edit was the last, and how many steps ago.
 */

#include <stdint.h>
#include <time.h>

enum {
	EDIT_PARAMS = 4,
	EDIT_STEPS = 4096,   /* floats hold the square of it exactly */
	EDIT_BOUNDARIES = 2, /* a step */
};

struct edit_param {
	uint64_t shape[2];
	const char *lp; /* float32 or bfloat16: the name of its file */
};

static const struct edit_param edit_params[EDIT_PARAMS] = {
	{ { 61, 37 }, "lp" },
	{ { 1, 1 }, "bf16" },
	{ { 300, 1001 }, "bf16" }, /* more than one message of it */
	{ { 3, 101 }, "lp" },
};

static inline long long edit_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

#endif
