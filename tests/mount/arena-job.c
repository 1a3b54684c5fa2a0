/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/frag.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* arena-job: a job of one rank whose parameters lie in an arena, each value of parameter N
 * being N + 1, among blocks of other bytes that come and go, while it steps and compacts.
 * Prints its address.  SIGUSR1: it closes the arena. SIGTERM: it ends, and prints how many
 * bytes it has moved.
 */

enum { PARAMS = 24, BLOCKS = 40, ARENA = 32 << 20, STEP = 96 << 10, PAUSE_US = 300 };

static volatile sig_atomic_t stop, closing;
static unsigned long told; /* parameters that have come to lie elsewhere */

static void on_signal(int signal)
{
	*(signal == SIGTERM ? &stop : &closing) = 1;
}

static void check(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "arena-job: %s\n", what);
	exit(1);
}

static uint64_t numel_of(int param)
{
	return param % 3 ? 5000 + (uint64_t)param * 1237 : 400000 + (uint64_t)param;
}

static void moved(void *arg, int param, unsigned flags, void *memory)
{
	check(*(uint16_t *)memory == param + 1, "what has moved is another's");
	told++;
}

static void lay(struct frag *f, int param)
{
	uint64_t block;
	uint16_t *memory;

	check(!frag_arena_alloc(f, numel_of(param) * 2, &block), "no room");
	check(!frag_arena_assign(f, param, 0, block, 0), "not assigned");
	check(!frag_arena_find(f, param, 0, NULL, (void **)&memory), "not found");
	for (uint64_t i = 0; i < numel_of(param); i++)
		memory[i] = (uint16_t)(param + 1);
}

static void describe(struct frag *f)
{
	struct frag_arena arena = { sizeof(arena), ARENA, moved, NULL, NULL };
	struct frag_zero zero = { .size = sizeof(zero), .stage = 1 };
	int params[PARAMS];
	char name[16];

	for (int i = 0; i < PARAMS; i++) {
		uint64_t shape[] = { numel_of(i) };
		struct frag_tensor t = { sizeof(t), .name = name, .dtype = FRAG_BF16, .ndim = 1,
					 .shape = shape };

		snprintf(name, sizeof(name), "p%d", i);
		params[i] = frag_param(f, &t);
	}
	check(!frag_group(f, params, PARAMS, &zero), "no group");
	check(!frag_arena_open(f, &arena), "no arena");
}

/* One block goes, or comes, with bytes of its own. */
static void stir(struct frag *f, uint64_t *blocks)
{
	uint64_t *block = &blocks[random() % BLOCKS], bytes;
	void *memory;

	if (*block) {
		check(!frag_arena_release(f, *block), "not released");
		*block = 0;
	} else if (!frag_arena_alloc(f, (uint64_t)(random() % 300000) + 1, block)) {
		check(!frag_arena_memory(f, *block, &memory, &bytes), "no memory");
		memset(memory, 0xee, bytes);
	}
}

static void train(struct frag *f, uint64_t *blocks)
{
	while (!stop) {
		frag_step_begin(f);
		frag_step_end(f);
		stir(f, blocks);
		check(closing || frag_arena_compact(f, 0, STEP) >= 0, "not compacted");
		nanosleep(&(struct timespec){ 0, PAUSE_US * 1000 }, NULL);
		if (closing == 1) {
			check(!frag_arena_close(f), "not closed");
			closing = 2;
		}
		while (closing && !stop) {
			frag_safe_point(f);
			nanosleep(&(struct timespec){ 0, 5000000 }, NULL);
		}
	}
}

int main(void)
{
	struct frag_arena_figures figures = { .size = sizeof(figures) };
	uint64_t blocks[BLOCKS] = { 0 };
	struct frag *f;

	signal(SIGTERM, on_signal);
	signal(SIGUSR1, on_signal);
	check(!frag_open(&f, NULL), "not opened");
	describe(f);
	for (int i = 0; i < PARAMS; i++) {
		stir(f, blocks);
		lay(f, i);
	}
	check(!frag_ready(f) && !frag_barrier(f, 20000), "not ready");
	printf("%s\n", frag_address(f));
	fflush(stdout);
	train(f, blocks);
	frag_arena_figures(f, &figures);
	printf("moved %llu bytes, %lu parameters\n", (unsigned long long)figures.moved, told);
	frag_close(f);
	return 0;
}
