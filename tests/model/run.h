/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_MODEL_RUN_H
#define TESTS_MODEL_RUN_H

/* A model's program: without arguments it explores each case, which must be sound, and each
 * mutation in its case, where something must be found wrong; with the name of a case, and that
 * of a mutation or nothing, it explores that one and shows the way to what is wrong.  Cases
 * that take minutes come with TEST_LONG=1.
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
	const struct run_mutation *mutations; /* [0] is none */
	unsigned ncases, nmutations;
	void (*choose)(const void *bounds, unsigned mutation);
	void (*print_bounds)(void); /* of the chosen case */
};

int run_main(const struct run *run, int argc, char **argv);

#endif
