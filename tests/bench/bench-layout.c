/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Time and memory to build the layouts of a large job, and to look a fragment up in them. */

#include "engine/catalog/layout.h"

#include <malloc.h>
#include <stdio.h>

enum { PARAMS = 100000, RANKS = 1024, FINDS = 1000000, ROUNDS = 5 };

static const struct {
	const char *name;
	struct layout_spec spec;
} cases[] = {
	{ "zero-1", { LAYOUT_FLAT, .shards = RANKS, .alignment = 2 } },
	{ "zero-1 round robin",
	  { LAYOUT_FLAT, .shards = RANKS, .alignment = 2, .round_robin = true } },
	{ "zero-3", { LAYOUT_PER_PARAM, .shards = RANKS, .sub_group_size = 100000000 } },
	{ "fsdp2", { LAYOUT_ROWS, .shards = RANKS } },
};

static struct layout_param params[PARAMS];

/* Makes shapes of transformer blocks: matrices, and vectors between them. */
static void make_params(void)
{
	static const uint64_t rows[] = { 12288, 8192, 28672, 1 };
	static const uint64_t columns[] = { 8192, 1, 8192, 8192 };

	for (int i = 0; i < PARAMS; i++) {
		params[i].row = columns[i % 4];
		params[i].numel = rows[i % 4] * columns[i % 4];
		params[i].frozen = i % 100 == 99;
	}
}

static size_t heap_bytes(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

static void print(const char *what, const char *name, double value, const char *unit,
		  const char *goal)
{
	printf("{\"name\": \"layout %dk x %d ranks, %s: %s\", \"value\": %.6g, "
	       "\"unit\": \"%s\", \"reference\": null, \"reference_value\": null, "
	       "\"ratio\": null, \"goal\": %s, \"better\": \"lower\"}\n",
	       PARAMS / 1000, RANKS, name, what, value, unit, goal);
}

/* Returns the milliseconds of the best round; *l has the last round's layout. */
static double build_ms(const struct layout_spec *spec, struct layout *l)
{
	double best = 0;

	for (int round = 0; round < ROUNDS; round++) {
		uint64_t begin = monotonic_ns();
		double ms;

		if (layout_init(l, spec, params, PARAMS)) {
			fprintf(stderr, "bench-layout: layout_init failed\n");
			exit(1);
		}
		ms = (double)(monotonic_ns() - begin) / 1e6;
		best = round && best < ms ? best : ms;
		if (round < ROUNDS - 1)
			layout_fini(l);
	}
	return best;
}

static double find_ns(const struct layout *l)
{
	uint64_t begin = monotonic_ns(), place = 0, found = 0;
	struct layout_fragment f;

	for (int i = 0; i < FINDS; i++) {
		uint32_t param = (uint32_t)((uint64_t)i * 2654435761u % PARAMS);

		place += 0x9e3779b97f4a7c15u;
		found += layout_find(l, param, place % params[param].numel, &f) ? f.numel : 0;
	}
	if (!found)
		exit(1);
	return (double)(monotonic_ns() - begin) / FINDS;
}

int main(void)
{
	make_params();
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct layout l;
		size_t before = heap_bytes();
		double ms = build_ms(&cases[i].spec, &l);

		print("build", cases[i].name, ms, "ms", "1000");
		print("memory", cases[i].name, (double)(heap_bytes() - before) / (1 << 20),
		      "MiB", "256");
		print("find", cases[i].name, find_ns(&l), "ns", "null");
		layout_fini(&l);
	}
	return 0;
}
