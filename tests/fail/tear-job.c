/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/frag.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* tear-job STAGE PAUSE_US [STEP_US [GRADS|IN|SKEW|NAN STEP]]: one rank (torchrun's
 * environment) of a job that writes the number of the step into every element of every state,
 * until SIGTERM; a step lasts STEP_US. Rank 0 prints the address to mount. With FRAG_SWAP_DIR
 * the states are on NVMe; with TEAR_GRAD the gradients' state has that key. GRADS, IN: the
 * rank waits for no other, and stands from then on, before the gradients of that step are
 * valid, or inside it. SKEW: ranks meet after each so many steps alone, pause for as long as
 * chance has it, and one after the other stands for STAND_US before every STAND_STEPS-th step,
 * then goes on. NAN: element NAN_AT of rank 1's gradients is a NaN in each step whose number
 * STEP divides.
 */

enum {
	STATES = 3,
	PARAMS = 5,
	WAIT_MS = 60000,
	STAND_STEPS = 50,
	STAND_US = 2500000,
	NAN_AT = 7
};

static const char *const keys[STATES] = { "fp32", "exp_avg", "grad" };
static const uint64_t shapes[PARAMS][2] = {
	{ 53, 19 }, { 7, 1 }, { 1100, 1003 }, { 1, 1 }, { 700, 1001 },
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
	char name[16];

	for (int i = 0; i < PARAMS; i++) {
		struct frag_tensor t = { sizeof(t), .name = name, .dtype = FRAG_BF16, .ndim = 2,
					 .shape = shapes[i] };

		snprintf(name, sizeof(name), "p%d", i);
		params[i] = frag_param(f, &t);
	}
	return frag_group(f, params, PARAMS,
			  &(struct frag_zero){ sizeof(struct frag_zero), .stage = stage });
}

struct job {
	struct frag *f;
	int group;
	uint64_t numel;
	bool swapped;
	float *states[STATES]; /* in memory */
};

static void sweep(const struct job *j, const struct frag_swept *swept, size_t n, float value)
{
	struct frag_sweep *sweep;
	uint64_t first, numel;
	void *memory[STATES];
	int rc = frag_sweep_begin(j->f, j->group, 0, swept, n, &sweep);

	if (rc)
		exit(3);
	while ((rc = frag_sweep_next(sweep, &first, &numel, memory)) == 1)
		for (size_t i = 0; i < n; i++)
			fill(memory[i], numel, value);
	frag_sweep_end(sweep);
	if (rc)
		exit(3);
}

static void fill_gradients(const struct job *j, float value)
{
	static const struct frag_swept grad = { "grad", FRAG_WRITE_ONLY };

	if (j->swapped)
		sweep(j, &grad, 1, value);
	else
		fill(j->states[2], j->numel, value);
}

static void fill_others(const struct job *j, float value)
{
	static const struct frag_swept others[] = { { "fp32", FRAG_WRITE_ONLY },
						    { "exp_avg", 0 } };

	if (j->swapped) {
		sweep(j, others, 2, value);
		return;
	}
	fill(j->states[0], j->numel, value);
	fill(j->states[1], j->numel, value);
}

static void stand(void)
{
	printf("stands\n");
	fflush(stdout);
	while (!stop)
		nap(100000000);
}

static void nap_by_chance(const struct frag *f, long pause_us, unsigned step)
{
	unsigned turn = step / STAND_STEPS % (unsigned)frag_world(f);

	nap(pause_us ? rand() % (2 * pause_us) : 0);
	if (step % STAND_STEPS == STAND_STEPS - 1 && turn == (unsigned)frag_rank(f))
		nap(STAND_US);
}

static void train(const struct job *j, long pause_us, long step_us, const char *where,
		  unsigned last)
{
	bool in = where && !strcmp(where, "IN"), skew = where && !strcmp(where, "SKEW");
	bool nan_in = where && !strcmp(where, "NAN");
	struct frag *f = j->f;

	for (unsigned step = 1; !stop; step++) {
		frag_grads_gone(f);
		fill_gradients(j, (float)step);
		if (nan_in && step % last == 0 && frag_rank(f) == 1)
			j->states[2][NAN_AT] = NAN;
		if (where && !in && !skew && !nan_in && step == last)
			stand();
		frag_grads_valid(f, 65536);
		nap(pause_us / 2);
		frag_step_begin(f);
		fill_others(j, (float)step);
		if (in && step == last)
			stand();
		nap(step_us);
		frag_step_end(f);
		nap(pause_us / 2);
		if (skew)
			nap_by_chance(f, pause_us, step);
		if ((!where || nan_in || (skew && step % last == 0)) &&
		    frag_barrier(f, WAIT_MS))
			return; /* another rank has left */
	}
}

static int add_state(struct job *j, int i)
{
	const char *key = i == 2 && getenv("TEAR_GRAD") ? getenv("TEAR_GRAD") : keys[i];
	void *memory = NULL;
	int rc = j->swapped ? frag_state_swap(j->f, j->group, 0, key, FRAG_F32)
			    : frag_state_alloc(j->f, j->group, 0, key, FRAG_F32, &memory);

	j->states[i] = memory;
	return rc;
}

int main(int argc, char **argv)
{
	struct job j = { .swapped = getenv("FRAG_SWAP_DIR") != NULL };

	if (argc < 3 || argc > 6 || frag_open(&j.f, NULL))
		return 2;
	signal(SIGTERM, on_term);
	j.group = describe(j.f, atoi(argv[1]));
	j.numel = frag_partition_numel(j.f, j.group, 0);
	for (int i = 0; i < STATES; i++)
		if (add_state(&j, i))
			return 2;
	if (frag_ready(j.f) || frag_barrier(j.f, WAIT_MS))
		return 2;
	if (!frag_rank(j.f))
		printf("%s\n", frag_address(j.f));
	fflush(stdout);
	srand((unsigned)frag_rank(j.f));
	train(&j, atol(argv[2]), argc > 3 ? atol(argv[3]) : 0, argc > 5 ? argv[4] : NULL,
	      argc > 5 ? (unsigned)atol(argv[5]) : 0);
	frag_close(j.f);
	return 0;
}
