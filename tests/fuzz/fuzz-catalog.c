/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* A catalog from a rank that lies: decoded, merged into another, asked about, encoded again. */

#include "engine/catalog/catalog.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

enum { WORLD = 4 };

static void ask(const struct catalog *c)
{
	struct layout_fragment f;

	for (uint32_t i = 0; i < c->ngroups && i < 64; i++) {
		const struct catalog_group *g = &c->groups[i];

		assert(g->nranks && g->nranks <= WORLD && g->layout.nparams == g->nparams);
		for (uint32_t k = 0; k < g->nparams && k < 64; k++) {
			const struct catalog_param *p = &c->params[g->params[k]];

			for (uint32_t shard = 0; shard < g->layout.shards; shard++)
				if (layout_on_shard(&g->layout, k, shard, &f))
					assert(f.param_offset + f.numel <= p->numel &&
					       f.partition_offset + f.numel <=
						       g->layout.partition_numel[f.sub]);
			if (p->numel && layout_find(&g->layout, k, p->numel - 1, &f))
				assert(f.param_offset == p->numel - 1 && f.numel == 1);
			assert(!layout_find(&g->layout, k, p->numel, &f));
		}
	}
}

/* What can be decoded comes out as it went in. */
static void encode_again(const struct catalog *c)
{
	struct wire_writer w = { 0 };
	struct catalog *again;
	char why[200];

	assert(!catalog_encode(c, &w));
	assert(!catalog_decode(&again, w.data, w.size, WORLD, why, sizeof(why)));
	assert(again->hash == c->hash);
	catalog_free(again);
	free(w.data);
}

static void merge(const struct catalog *c)
{
	struct catalog *into = catalog_new();
	uint32_t *params = calloc(c->nparams + 1, sizeof(*params));
	uint32_t *groups = calloc(c->ngroups + 1, sizeof(*groups));
	char why[200];

	catalog_add_param(into, "a", "", FRAG_BF16, 1, (uint64_t[]){ 7 }, 0, 0);
	catalog_add_group(into,
			  &(struct catalog_group){ .stage = 2,
						   .replicas = 1,
						   .nranks = 2,
						   .ranks = (uint32_t[]){ 0, 1 },
						   .nparams = 1,
						   .params = (uint32_t[]){ 0 } },
			  why, sizeof(why));
	if (!catalog_merge(into, c, 1, params, groups, why, sizeof(why)) &&
	    !catalog_finish(into))
		ask(into);
	catalog_free(into);
	free(params);
	free(groups);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct catalog *c;
	char why[200] = "";

	if (catalog_decode(&c, data, size, WORLD, why, sizeof(why)))
		return 0;
	ask(c);
	encode_again(c);
	merge(c);
	catalog_free(c);
	return 0;
}
