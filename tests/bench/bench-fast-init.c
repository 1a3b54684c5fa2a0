/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Masters made of low-precision parameters, both on NVMe, in the folder BENCH_DIR or the
 * present one: frag_update_hp of each parameter, until the masters are on the disk, with
 * offload_optimizer.fast_init and without.
 */

#include "engine/frag.h"
#include "tests/bench/rows.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { LARGE = 12, SMALL = 400, N = LARGE + SMALL, ROUNDS = 5 };
#define LARGE_NUMEL ((uint64_t)8 << 20)
#define SMALL_NUMEL ((uint64_t)64 << 10)

static uint16_t *values;

static int must(const char *what, int rc)
{
	if (rc >= 0)
		return rc;
	fprintf(stderr, "bench-fast-init: %s: %s\n", what, strerror(-rc));
	exit(1);
}

/* Returns true if parameter i is large.  Small ones stand between, as biases and norms between
 * matrices.
 */
static bool is_large(int i)
{
	return i % (N / LARGE) == 0 && i / (N / LARGE) < LARGE;
}

static void describe(struct frag *f, int *params)
{
	struct frag_zero zero = { sizeof(zero), .stage = 3 };
	const void *all[N];

	for (int i = 0; i < N; i++) {
		uint64_t shape = is_large(i) ? LARGE_NUMEL : SMALL_NUMEL;
		char name[20];

		snprintf(name, sizeof(name), "p%d", i);
		params[i] = must(
			"frag_param",
			frag_param(f, &(struct frag_tensor){ sizeof(struct frag_tensor),
							     .name = name, .dtype = FRAG_BF16,
							     .ndim = 1, .shape = &shape }));
		all[i] = values;
	}
	must("frag_group", frag_group(f, params, N, &zero));
	must("frag_state_swap", frag_state_swap(f, 0, 0, "fp32", FRAG_F32));
	must("frag_params_swap", frag_params_swap(f, params, N, all));
	must("frag_swap_flush", frag_swap_flush(f, 60000));
}

static double run(const void *fast_init)
{
	const struct frag_config config = { .size = sizeof(config),
					    .rank = "0",
					    .world = 1,
					    .swap_dir = getenv("BENCH_DIR")
								? getenv("BENCH_DIR")
								: ".",
					    .swap_config = fast_init };
	struct frag *f;
	int params[N];
	uint64_t began;
	double seconds;

	must("frag_open", frag_open(&f, &config));
	describe(f, params);
	began = monotonic_ns();
	for (int i = 0; i < N; i++)
		must("frag_update_hp", frag_update_hp(f, params[i]));
	must("frag_swap_flush", frag_swap_flush(f, 60000));
	seconds = (double)(monotonic_ns() - began) / 1e9;
	frag_close(f);
	return seconds;
}

static void write_config(const char *path)
{
	FILE *out = fopen(path, "w");

	must(path, out ? 0 : -errno);
	fputs("{\"offload_optimizer\": {\"fast_init\": true}}\n", out);
	fclose(out);
}

int main(void)
{
	static const struct row row = { .name = "swap, masters of parameters, fast_init",
					.unit = "s",
					.reference = "one after the other",
					.less = true,
					.goal = 1 };
	static struct rows_way ways[2];
	char path[] = "bench-fast-init.json";
	unsigned rounds = rows_rounds(ROUNDS);

	setenv("FRAG_LOG", "error", 1);
	values = calloc(LARGE_NUMEL, sizeof(*values));
	must("calloc", values ? 0 : -ENOMEM);
	for (uint64_t i = 0; i < LARGE_NUMEL; i++)
		values[i] = (uint16_t)(i * 7919);
	write_config(path);
	ways[0] = (struct rows_way){ .run = run, .arg = path };
	ways[1] = (struct rows_way){ .run = run };
	rows_run(ways, 2, rounds);
	rows_compare(&row, ways[0].measured, ways[1].measured, rounds);
	unlink(path);
	free(values);
	return 0;
}
