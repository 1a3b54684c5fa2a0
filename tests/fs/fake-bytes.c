/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* fake-bytes NAME COORDINATE KEY: what the fake job's state is at first, on stdout. */

#include "engine/engine.h"
#include "tests/fs/fake-engine.h"
#include "tests/find-param.h"

#include <stdio.h>
#include <string.h>

static int print(struct engine *e, char **argv)
{
	struct engine_state states[32];
	uint32_t param;
	int n;

	if (find_param(e, argv[1], argv[2], &param))
		return 1;
	n = engine_states(e, param, states, ARRAY_SIZE(states));
	for (int i = 0; i < n; i++) {
		if (strcmp(states[i].key, argv[3]) != 0)
			continue;
		for (uint64_t o = 0; o < states[i].bytes; o++)
			putchar(fake_byte(param, argv[3], o));
		return 0;
	}
	return 1;
}

int main(int argc, char **argv)
{
	struct engine_options options = { .source = "fake" };
	struct engine *e;
	char why[128];
	int rc;

	if (argc != 4 || engine_open(&e, &options, why, sizeof(why)))
		return 2;
	rc = print(e, argv);
	engine_close(e);
	return rc;
}
