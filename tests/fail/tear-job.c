/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/frag.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* tear-job STAGE PAUSE_US [STEP_US]: one rank (torchrun's environment) of a job that writes the number of the step into
 * every element of every state, until SIGTERM; a step lasts STEP_US.  Rank 0 prints the address to mount.
 */

enum { STATES = 3, PARAMS = 5, WAIT_MS = 20000 };

static const char *const keys[STATES] = { "fp32", "exp_avg", "grad" };
static const uint64_t shapes[PARAMS][2] = {
	{ 53, 19 }, { 7, 1 }, { 1000, 1003 }, { 1, 1 }, { 700, 1001 },
};

static volatile sig_atomic_t stop;

static void on_term(int signal)
{
	stop = 1;
}

static void nap(long us)
{
	if (stop)
		return;
	nanosleep(&(struct timespec){ us / 1000000, us % 1000000 * 1000 }, NULL);
}

static void fill(float *state, uint64_t numel, float value)
{
	for (uint64_t i = 0; i < numel; i++)
		state[i] = value;
}

static int describe(struct frag *f, int stage)
{
	int params[PARAMS];
	char name[8];

	for (int i = 0; i < PARAMS; i++) {
		struct frag_tensor t = { sizeof(t), name, NULL, FRAG_BF16, 2,
					 shapes[i], NULL, NULL, 0 };

		snprintf(name, sizeof(name), "p%d", i);
		params[i] = frag_param(f, &t);
	}
	return frag_group(f, params, PARAMS,
			  &(struct frag_zero){ sizeof(struct frag_zero), .stage = stage });
}

static void train(struct frag *f, float *const *states, uint64_t numel, long pause_us,
		  long step_us)
{
	for (unsigned step = 1; !stop; step++) {
		frag_grads_gone(f);
		fill(states[2], numel, (float)step);
		frag_grads_valid(f, 1);
		nap(pause_us / 2);
		frag_step_begin(f);
		fill(states[0], numel, (float)step);
		fill(states[1], numel, (float)step);
		nap(step_us);
		frag_step_end(f);
		nap(pause_us / 2);
		if (frag_barrier(f, WAIT_MS))
			return; /* another rank has left */
	}
}

int main(int argc, char **argv)
{
	void *states[STATES] = { NULL };
	struct frag *f;
	int group;

	if (argc < 3 || argc > 4 || frag_open(&f, NULL))
		return 2;
	signal(SIGTERM, on_term);
	group = describe(f, atoi(argv[1]));
	for (int i = 0; i < STATES; i++)
		if (frag_state_alloc(f, group, 0, keys[i], FRAG_F32, &states[i]))
			return 2;
	if (frag_ready(f) || frag_barrier(f, WAIT_MS))
		return 2;
	if (!frag_rank(f))
		printf("%s\n", frag_address(f));
	fflush(stdout);
	train(f, (float *const *)states, frag_partition_numel(f, group, 0), atol(argv[2]),
	      argc > 3 ? atol(argv[3]) : 0);
	frag_close(f);
	return 0;
}
