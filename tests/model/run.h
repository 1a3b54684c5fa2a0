/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_MODEL_RUN_H
#define TESTS_MODEL_RUN_H

/* The program of a model.  Without arguments it explores each case, which must be sound, and
 * each mutation in its case, where a fault must be found.  With the name of a case, and perhaps
 * that of a mutation, it explores that one and shows the way to the fault.  Cases that take
 * minutes are left out without TEST_LONG=1.
 */

#include "tests/model/explore.h"

struct run_case {
	const char *name;
	const void *bounds;
	bool is_long;
};

struct run_mutation {
	const char *name;
	const char *of_case;
};

struct run {
	const struct explore_model *model;
	const struct run_case *cases;
	const struct run_mutation *mutations; /* [0] is no mutation */
	unsigned ncases, nmutations;
	void (*choose)(const void *bounds, unsigned mutation);
	void (*print_bounds)(void); /* prints the bounds of the chosen case */
};

int run_main(const struct run *run, int argc, char **argv);

#endif
