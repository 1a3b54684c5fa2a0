/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_MODEL_EXPLORE_H
#define TESTS_MODEL_EXPLORE_H

/* Visits every state that a model can come to, breadth first.  No state may be broken, and from
 * each one the model must be able to come to a proper end, so that nothing waits for ever.
 * Prints the shortest way to a state that breaks a rule.
 */

#include "engine/base/base.h"

struct explore;

struct explore_model {
	size_t size; /* bytes of a state, which are compared, so padding must be zero */
	void (*start)(void *state);
	/* Calls explore_next with each state that may come after this one. */
	void (*step)(struct explore *x, const void *state);
	/* returns why the state is broken; NULL: it is not */
	const char *(*broken)(const void *state);
	bool (*is_end)(const void *state);
	void (*print)(const void *state);
};

/* what: a printf format of a and b, which describes the step. */
void explore_next(struct explore *x, const void *state, const char *what, int a, int b);

struct explore_result {
	uint32_t states;
	uint64_t steps;
	uint32_t ends;
	const char *wrong; /* why the model is wrong; NULL: it is not */
};

/* -ENOMEM; -E2BIG: more than states_max. */
int explore(const struct explore_model *model, uint32_t states_max, bool quiet,
	    struct explore_result *result);

#endif
