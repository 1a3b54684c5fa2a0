/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/frag.h"

#include <stdio.h>
#include <unistd.h>

/* driven-job: one rank (torchrun's environment) of a job that does what its standard input
 * says, a letter each, until that ends: b begins a step, which writes its number into every
 * element, e ends it, s is both.  Rank 0 prints the address to mount.
 */

enum { WAIT_MS = 60000 };

static const uint64_t shape[] = { 1400, 1001 }; /* more than is read whole */

static void begin(struct frag *f, float *state, uint64_t numel, unsigned step)
{
	frag_step_begin(f);
	for (uint64_t i = 0; i < numel; i++)
		state[i] = (float)step;
}

static void drive(struct frag *f, float *state, uint64_t numel)
{
	unsigned step = 0;
	char letter;

	while (read(STDIN_FILENO, &letter, 1) == 1) {
		if (letter == 'b' || letter == 's')
			begin(f, state, numel, ++step);
		if (letter == 'e' || letter == 's')
			frag_step_end(f);
	}
}

int main(void)
{
	struct frag_tensor t = { sizeof(t), .name = "w", .dtype = FRAG_BF16, .ndim = 2,
				 .shape = shape };
	void *memory = NULL;
	double lr = 0.5;
	struct frag *f;
	int param, group;

	if (frag_open(&f, NULL))
		return 2;
	param = frag_param(f, &t);
	group = frag_group(f, &param, 1,
			   &(struct frag_zero){ sizeof(struct frag_zero), .stage = 1 });
	if (frag_state_alloc(f, group, 0, "fp32", FRAG_F32, &memory) ||
	    frag_hyper(f, group, "lr", &lr) || frag_ready(f) || frag_barrier(f, WAIT_MS))
		return 2;
	if (!frag_rank(f))
		printf("%s\n", frag_address(f));
	fflush(stdout);
	drive(f, memory, frag_partition_numel(f, group, 0));
	frag_close(f);
	return 0;
}
