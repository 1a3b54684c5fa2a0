/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Time and memory of the catalog of a large job, as rank 0 and an observer make it: described
 * by one rank with its layout, sent, received, merged into the job's.
 */

#include "engine/catalog/catalog.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>

enum { PARAMS = 100000, RANKS = 1024, ROUNDS = 3 };

static void need(int rc, const char *what)
{
	if (rc < 0) {
		fprintf(stderr, "bench-catalog: %s: %s\n", what, strerror(-rc));
		exit(1);
	}
}

static size_t heap_bytes(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

/* Adds parameters with shapes and names of transformer blocks. */
static void add_params(struct catalog *c)
{
	static const uint64_t shapes[][2] = { { 12288, 8192 }, { 8192, 1 }, { 8192, 28672 } };
	static const char *const names[] = { "attention.qkv.weight", "norm.weight",
					     "mlp.up.weight" };
	char name[80];

	for (int i = 0; i < PARAMS; i++) {
		snprintf(name, sizeof(name), "model.layers.%d.%s", i / 3, names[i % 3]);
		need(catalog_add_param(c, name, "", FRAG_BF16, i % 3 == 1 ? 1 : 2,
				       shapes[i % 3], 0, 0),
		     name);
	}
}

static void add_group(struct catalog *c, int stage)
{
	static uint32_t params[PARAMS], ranks[RANKS];
	struct catalog_group g = { .stage = (uint8_t)stage,
				   .replicas = 1,
				   .nranks = RANKS,
				   .ranks = ranks,
				   .nparams = PARAMS,
				   .params = params,
				   .sub_group_size = 1000000000 };
	char why[200] = "";

	for (uint32_t i = 0; i < PARAMS; i++)
		params[i] = i;
	for (uint32_t i = 0; i < RANKS; i++)
		ranks[i] = i;
	need(catalog_add_group(c, &g, why, sizeof(why)), why);
}

static struct catalog *described(int stage)
{
	struct catalog *c = catalog_new();

	if (!c)
		need(-12, "catalog_new");
	add_params(c);
	add_group(c, stage);
	need(catalog_finish(c), "catalog_finish");
	return c;
}

static struct catalog *received(const struct catalog *c, size_t *bytes)
{
	struct wire_writer w = { 0 };
	struct catalog *copy;
	char why[200] = "";

	need(catalog_encode(c, &w), "catalog_encode");
	need(catalog_decode(&copy, w.data, w.size, RANKS, why, sizeof(why)), why);
	*bytes = w.size;
	free(w.data);
	return copy;
}

static struct catalog *merged(const struct catalog *first, const struct catalog *second)
{
	CLEANUP(free) uint32_t *params = calloc(PARAMS, sizeof(*params));
	uint32_t group[1];
	struct catalog *into = catalog_new();
	char why[200] = "";

	need(catalog_merge(into, first, 0, params, group, why, sizeof(why)), why);
	need(catalog_merge(into, second, 1, params, group, why, sizeof(why)), why);
	need(catalog_finish(into), "catalog_finish");
	return into;
}

struct cost {
	double ms;
	size_t memory; /* of three catalogs and the encoding */
	size_t bytes;
};

static struct cost measure(int stage)
{
	size_t before = heap_bytes();
	uint64_t begin = monotonic_ns();
	struct cost cost;
	struct catalog *own = described(stage), *copy = received(own, &cost.bytes);
	struct catalog *job = merged(own, copy);

	cost.ms = (double)(monotonic_ns() - begin) / 1e6;
	cost.memory = heap_bytes() - before + cost.bytes;
	if (job->nparams != PARAMS || job->hash != own->hash)
		need(-71, "merging equal catalogs");
	catalog_free(job);
	catalog_free(copy);
	catalog_free(own);
	return cost;
}

static void print(int stage, const char *what, double value, const char *unit, const char *goal)
{
	printf("{\"name\": \"catalog %dk x %d ranks, zero-%d: %s\", \"value\": %.6g, "
	       "\"unit\": \"%s\", \"reference\": null, \"reference_value\": null, "
	       "\"ratio\": null, \"goal\": %s, \"better\": \"lower\"}\n",
	       PARAMS / 1000, RANKS, stage, what, value, unit, goal);
}

static void bench(int stage)
{
	struct cost best = measure(stage);

	for (int round = 1; round < ROUNDS; round++) {
		struct cost again = measure(stage);

		best = again.ms < best.ms ? again : best;
	}
	print(stage, "build, encode, decode, merge", best.ms, "ms", "1000");
	print(stage, "memory of all of these", (double)best.memory / (1 << 20), "MiB", "256");
	print(stage, "encoded", (double)best.bytes / (1 << 20), "MiB", "null");
}

int main(void)
{
	bench(1);
	bench(3);
	return 0;
}
