/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* A statistics pass beside a plain read of the same memory, by vectors and with the same
 * prefetch distance, in as many processes as there are cores, each on memory of its own.
 */

#include "engine/stats/stats.h"
#include "tests/bench/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	BYTES = 512 << 20, /* bytes of each process; more than caches hold */
	ROUNDS = 9,
	HUGE_PAGE = 2 << 20,
	AHEAD = 8192, /* the prefetch distance of engine/stats/block-x86.c */
};

static uint8_t *memory;
static unsigned processes;
static volatile uint64_t sink;

typedef uint64_t words __attribute__((vector_size(32), may_alias));

#ifdef __x86_64__
__attribute__((target_clones("avx2", "default")))
#endif
static uint64_t
xor_of(const void *aligned, size_t size)
{
	const words *w = aligned, *end = w + size / sizeof(*w);
	words sums[2] = { { 0 } };

	for (; w < end; w += 2) {
		sums[0] ^= w[0];
		sums[1] ^= w[1];
		__builtin_prefetch((const uint8_t *)w + AHEAD);
	}
	sums[0] ^= sums[1];
	return sums[0][0] ^ sums[0][1] ^ sums[0][2] ^ sums[0][3];
}

static void read_plainly(enum frag_dtype dtype)
{
	(void)dtype;
	sink = xor_of(memory, BYTES);
}

static void add_up(enum frag_dtype dtype)
{
	struct stats s;

	stats_init(&s, false);
	stats_add(&s, dtype, memory, BYTES / frag_dtype_size(dtype), 0);
	sink = s.zero;
}

struct task {
	void (*run)(enum frag_dtype dtype);
	enum frag_dtype dtype;
};

/* Returns the bytes per second of all processes. */
static double measure(const void *arg)
{
	const struct task *task = arg;
	uint64_t begin = monotonic_ns();
	int status;

	for (unsigned i = 0; i < processes; i++)
		if (!fork()) {
			task->run(task->dtype);
			_exit(0);
		}
	for (unsigned i = 0; i < processes; i++)
		if (wait(&status) < 0 || status)
			exit(1);
	return (double)BYTES * processes / 1e9 / ((double)(monotonic_ns() - begin) / 1e9);
}

int main(void)
{
	static const struct task tasks[] = { { read_plainly, FRAG_F32 },
					     { add_up, FRAG_F32 },
					     { add_up, FRAG_BF16 } };
	static struct rows_way ways[] = { WAY(measure, &tasks[0]), WAY(measure, &tasks[1]),
					  WAY(measure, &tasks[2]) };
	static const struct row rows[] = {
		{ "statistics of fp32", "GB/s", "plain read", false, 0.7 },
		{ "statistics of bf16", "GB/s", "plain read", false, 0.7 },
	};
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned rounds = rows_rounds(ROUNDS);

	processes = cores < 1 ? 1 : (unsigned)cores;
	memory = aligned_alloc(HUGE_PAGE, BYTES);
	if (!memory)
		return 77;
	/* huge pages: the fork of each process copies fewer entries of page tables */
	madvise(memory, BYTES, MADV_HUGEPAGE);
	for (size_t i = 0; i < BYTES / 4; i++) { /* normal numbers, as fp32 and as bf16 */
		float value = (float)(i % 1021) / 1021 - 0.4f;

		memcpy(memory + 4 * i, &value, sizeof(value));
		memset(memory + 4 * i, 0, 2);
	}
	rows_run(ways, ARRAY_SIZE(ways), rounds);
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++)
		rows_compare(&rows[i], ways[i + 1].measured, ways[0].measured, rounds);
	free(memory);
	return 0;
}
