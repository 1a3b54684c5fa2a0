/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/frag.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* mesh-job: one rank of a job of four with two expert-parallel ranks: a parameter that all
 * share, and one expert, which it shares with the rank two away.  Prints the job's address and
 * sleeps until it is killed.  An argument: the expert is shared with the next rank, as
 * use_data_before_expert_parallelism has it.
 */

static void check(int rc, const char *what)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "mesh-job: %s: %s\n", what, strerror(-rc));
	exit(1);
}

static void describe(struct frag *f, const char *name, const char *coordinate,
		     const uint32_t *ranks, uint32_t nranks)
{
	struct frag_zero zero = {
		.size = sizeof(zero), .stage = 2, .ranks = ranks, .nranks = nranks
	};
	const uint64_t shape[] = { 6, 8 };
	struct frag_tensor t = { sizeof(t),          .name = name, .coordinate = coordinate,
				 .dtype = FRAG_BF16, .ndim = 2,    .shape = shape };
	int param = frag_param(f, &t), group;
	void *memory;

	check(param, name);
	group = frag_group(f, &param, 1, &zero);
	check(group, "group");
	check(frag_state_alloc(f, group, 0, "fp32", FRAG_F32, &memory), "fp32");
	check(frag_state_alloc(f, group, 0, "a\tkey", FRAG_F32, &memory), "a key with a tab");
}

int main(int argc, char **argv)
{
	uint32_t ranks[2], expert, data_first = argc > 1;
	char coordinate[16];
	struct frag *f;

	check(frag_open(&f, NULL), "frag_open");
	expert = (uint32_t)frag_rank(f) >> data_first & 1;
	ranks[0] = data_first ? 2 * expert : expert;
	ranks[1] = ranks[0] + (data_first ? 1 : 2);
	snprintf(coordinate, sizeof(coordinate), "ep=%u", expert);
	describe(f, "dense", NULL, NULL, 0);
	describe(f, "expert", coordinate, ranks, 2);
	check(frag_ready(f), "frag_ready");
	check(frag_wait_ready(f, 60000), "frag_wait_ready");
	puts(frag_address(f));
	fflush(stdout);
	pause();
	return 0;
}
