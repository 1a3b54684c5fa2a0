/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/model/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STATES_MAX = 30000000 };

/* Returns true if the case is as it must be: sound, or wrong with a mutation. */
static bool explore_one(const struct run *run, const struct run_case *c, unsigned mutation,
			bool quiet)
{
	struct explore_result result;
	int rc;

	run->choose(c->bounds, mutation);
	printf("%s%s%s: ", c->name, mutation ? ", " : "",
	       mutation ? run->mutations[mutation].name : "");
	if (!mutation)
		run->print_bounds();
	fflush(stdout);
	rc = explore(run->model, STATES_MAX, quiet, &result);
	if (rc)
		printf("error %d, ", rc);
	printf("%u states, %llu steps%s%s\n", result.states, (unsigned long long)result.steps,
	       result.wrong ? ", wrong: " : "", result.wrong ? result.wrong : "");
	return !rc && !result.wrong == !mutation;
}

static const struct run_case *find_case(const struct run *run, const char *name)
{
	for (unsigned i = 0; i < run->ncases; i++)
		if (!strcmp(run->cases[i].name, name))
			return &run->cases[i];
	return NULL;
}

static int explore_named(const struct run *run, const char *name, const char *mutation)
{
	const struct run_case *c = find_case(run, name);
	unsigned i = 0;

	while (mutation && i < run->nmutations && strcmp(run->mutations[i].name, mutation))
		i++;
	if (!c || i == run->nmutations) {
		fprintf(stderr, "no such case or mutation\n");
		return 2;
	}
	return !explore_one(run, c, i, false);
}

int run_main(const struct run *run, int argc, char **argv)
{
	bool sound = true, is_long = getenv("TEST_LONG") != NULL;

	if (argc > 1)
		return explore_named(run, argv[1], argc > 2 ? argv[2] : NULL);
	for (unsigned i = 0; i < run->ncases; i++)
		if (is_long || !run->cases[i].is_long)
			sound &= explore_one(run, &run->cases[i], 0, false);
	for (unsigned i = 1; i < run->nmutations; i++)
		sound &= explore_one(run, find_case(run, run->mutations[i].of_case), i, true);
	return !sound;
}
