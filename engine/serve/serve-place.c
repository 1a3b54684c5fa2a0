/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/serve/serve-place.h"

#include "engine/base/dtype.h"
#include "engine/rank/registry-place.h"

#include <errno.h>
#include <fnmatch.h>

/* The states that an order names.  A partition is named if it has any part of a parameter that
 * the order names, since a partition moves as a whole.
 */
struct named {
	const struct catalog *own;
	struct wire_place order;
	bool *params;    /* [own->nparams] */
	bool *groups;    /* [own->ngroups] */
	bool *subs;      /* of all groups */
	uint32_t *first; /* [own->ngroups]: the number of a group's sub-group 0 in subs */
};

static void named_free(struct named *n)
{
	free(n->params);
	free(n->groups);
	free(n->subs);
	free(n->first);
}

static void name_param(struct named *n, uint32_t param, uint32_t rank)
{
	const struct catalog_param *p = &n->own->params[param];
	const struct catalog_group *g;
	struct layout_fragment f;
	uint32_t place;

	if (fnmatch(n->order.pattern, catalog_name(n->own, param), 0))
		return;
	n->params[param] = true;
	if (p->group == CATALOG_NONE || p->flags & FRAG_FROZEN)
		return;
	g = &n->own->groups[p->group];
	place = catalog_member(g, rank);
	if (place == CATALOG_NONE)
		return;
	n->groups[p->group] = true;
	if (layout_on_shard(&g->layout, p->position, place % g->layout.shards, &f))
		n->subs[n->first[p->group] + f.sub] = true;
}

/* -ENOMEM */
static int find_named(struct named *n, uint32_t rank)
{
	uint32_t subs = 0;

	n->params = calloc(n->own->nparams + 1, sizeof(*n->params));
	n->groups = calloc(n->own->ngroups + 1, sizeof(*n->groups));
	n->first = calloc(n->own->ngroups + 1, sizeof(*n->first));
	if (!n->params || !n->groups || !n->first)
		return -ENOMEM;
	for (uint32_t i = 0; i < n->own->ngroups; i++) {
		n->first[i] = subs;
		subs += n->own->groups[i].layout.nsubs;
	}
	n->subs = calloc(subs + 1, sizeof(*n->subs));
	if (!n->subs)
		return -ENOMEM;
	for (uint32_t i = 0; i < n->own->nparams; i++)
		name_param(n, i, rank);
	return 0;
}

static bool is_named(void *arg, enum state_kind kind, uint32_t index, uint32_t sub,
		     const char *key)
{
	const struct named *n = arg;

	switch (kind) {
	case STATE_PARTITION:
		return n->subs[n->first[index] + sub] && !fnmatch(n->order.key, key, 0);
	case STATE_WHOLE:
		return n->groups[index] && !fnmatch(n->order.key, key, 0);
	case STATE_LP:
	case STATE_LP_SHARD: /* named by their own keys, as "lp", and by no pattern */
		return n->params[index] &&
		       dtype_is_lp_key((enum frag_dtype)n->own->params[index].dtype,
				       n->order.key);
	default:
		return false;
	}
}

void serve_place(struct engine *e, uint32_t peer, uint64_t request, const void *body)
{
	struct named named = { .own = e->own };
	struct wire_place *order = &named.order;
	char why[100] = "";
	int rc = -EINVAL;

	assert(node_is_engine_thread(e));
	memcpy(order, body, sizeof(*order));
	if (e->job.ready && order->tier < STATE_TIERS &&
	    wire_text_ok(order->key, sizeof(order->key)) &&
	    wire_text_ok(order->pattern, sizeof(order->pattern)))
		rc = find_named(&named, e->rank);
	if (!rc && order->asked)
		rc = registry_place_check(&e->registry, is_named, &named,
					  (enum state_tier)order->tier);
	else if (!rc)
		rc = registry_place_want(&e->registry, is_named, &named,
					 (enum state_tier)order->tier, why, sizeof(why));
	named_free(&named);
	if (*why)
		node_refuse(e, peer, request, rc, "%s", why);
	else
		node_ack(e, peer, request, rc);
}
