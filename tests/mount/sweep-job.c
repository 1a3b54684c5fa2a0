/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/frag.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* sweep-job: a job of one rank, on device 0, which sweeps its states at each step, and ends
 * with a line if an element has other bits than the sweep before has left; the bits grow by 1
 * at each step.  Its parameter has five elements more than a sweep copies from a device at a
 * time.  Prints its address, and the number of slices of a sweep whenever that is another.
 */

enum { NUMEL = (1 << 20) + 5, STATES = 3, PAUSE_US = 2000 };

static const struct frag_swept states[STATES] = { { "fp32", 0 },
						  { "exp_avg", 0 },
						  { "exp_avg_sq", FRAG_READ_ONLY } };

static volatile sig_atomic_t stop;

static void on_signal(int signal)
{
	stop = 1;
}

static void check(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "sweep-job: %s\n", what);
	exit(1);
}

/* Any bits: among them NaNs with payloads, subnormals and negative zeros. */
static uint32_t bits_of(uint64_t element, size_t state, uint32_t step)
{
	uint32_t first = (uint32_t)element * 2654435761u + (uint32_t)state;

	return states[state].flags ? 0 : step ? first + step : 0;
}

static void describe(struct frag *f)
{
	struct frag_tensor t = { sizeof(t), .name = "w", .dtype = FRAG_BF16, .ndim = 1,
				 .shape = (uint64_t[]){ NUMEL } };
	struct frag_zero zero = { .size = sizeof(zero), .stage = 2 };
	struct frag_devices device = { .size = sizeof(device) };
	int param = frag_param(f, &t), group = frag_group(f, &param, 1, &zero);

	check(param >= 0 && group >= 0, "no group");
	check(!frag_devices(f, &device), "no device");
	for (size_t i = 0; i < STATES; i++)
		check(!frag_state_swap(f, group, 0, states[i].key, FRAG_F32), "no state");
}

static void visit(uint32_t *memory, size_t state, uint64_t first, uint64_t numel, uint32_t step)
{
	for (uint64_t i = 0; i < numel; i++) {
		check(memory[i] == bits_of(first + i, state, step), "other bits");
		memory[i] = bits_of(first + i, state, step + 1);
	}
}

static void sweep(struct frag *f, uint32_t step)
{
	static unsigned told;
	struct frag_sweep *s;
	uint64_t first, numel, done = 0;
	void *memory[STATES];
	unsigned slices = 0;
	int rc;

	check(!frag_sweep_begin(f, 0, 0, states, STATES, &s), "no sweep");
	for (; (rc = frag_sweep_next(s, &first, &numel, memory)) == 1;
	     slices++, done += numel) {
		check(first == done, "not the next slice");
		for (size_t i = 0; i < STATES; i++)
			visit(memory[i], i, first, numel, step);
	}
	frag_sweep_end(s);
	check(!rc, strerror(-rc));
	check(done == frag_partition_numel(f, 0, 0), "not all elements");
	if (slices != told)
		printf("slices %u\n", slices);
	fflush(stdout);
	told = slices;
}

int main(void)
{
	struct frag *f;

	signal(SIGTERM, on_signal);
	check(!frag_open(&f, NULL), "not opened");
	describe(f);
	check(!frag_ready(f) && !frag_barrier(f, 20000), "not ready");
	printf("address %s\n", frag_address(f));
	fflush(stdout);
	for (uint32_t step = 0; !stop; step++) {
		check(!frag_step_begin(f), "no step");
		sweep(f, step);
		check(!frag_step_end(f), "no end of a step");
		nanosleep(&(struct timespec){ 0, PAUSE_US * 1000 }, NULL);
	}
	frag_close(f);
	/* its threads may still run */
	check(dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD) != NULL, "no runtime any more");
	return 0;
}
