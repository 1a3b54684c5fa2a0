/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/needs.h"

#include "engine/catalog/catalog.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* In place of the number of the expert that has a parameter. */
enum {
	DENSE = -1, /* no expert has it */
	FUSED = -2, /* all have it: dimension 0 counts them */
};

struct maker {
	const struct needs_spec *spec;
	const struct needs_param *params;
	uint32_t nparams;
	int64_t *expert;  /* [nparams] a number, DENSE or FUSED */
	int64_t nexperts; /* those with numbers */
	struct catalog *c;
	uint32_t *ids;   /* [nparams] the group's parameters */
	uint32_t *ranks; /* [world] the group's ranks */
	char *why;
	size_t whysize;
};

/* Returns the number of the expert that has the parameter, FUSED or DENSE. */
static int64_t expert_of(const struct needs_param *p)
{
	static const char *const names[] = { "experts.", "deepspeed_experts." };

	for (const char *at = p->name; at; at = strchr(at, '.') ? strchr(at, '.') + 1 : NULL)
		for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
			const char *number = at + strlen(names[i]);
			size_t digits;

			if (strncmp(at, names[i], strlen(names[i])) != 0)
				continue;
			digits = strspn(number, "0123456789");
			if (digits && digits < 10 && number[digits] == '.')
				return atoll(number);
			if (p->ndim >= 3)
				return FUSED;
		}
	return DENSE;
}

static int find_experts(struct maker *m)
{
	uint32_t ep = m->spec->mesh.ep;
	bool any = false;

	for (uint32_t i = 0; i < m->nparams; i++) {
		const struct needs_param *p = &m->params[i];
		int64_t expert = ep > 1 ? expert_of(p) : DENSE;

		m->expert[i] = expert;
		any |= expert != DENSE;
		m->nexperts = expert >= m->nexperts ? expert + 1 : m->nexperts;
		if (expert != FUSED || !(p->shape[0] % ep))
			continue;
		snprintf(m->why, m->whysize, "%.200s: %llu experts are not a multiple of ep %u",
			 p->name, (unsigned long long)p->shape[0], ep);
		return -EINVAL;
	}
	if (ep > 1 && !any)
		snprintf(m->why, m->whysize,
			 "ep %u: no parameter has a component experts in its name", ep);
	else if (m->nexperts % ep)
		snprintf(m->why, m->whysize, "%lld experts are not a multiple of ep %u",
			 (long long)m->nexperts, ep);
	return (ep > 1 && !any) || m->nexperts % ep ? -EINVAL : 0;
}

/* Adds the part of a parameter that a rank of tensor part t and expert part e has; DENSE: of a
 * parameter of no expert.  Sets *id to the number of the part; CATALOG_NONE: the rank has none.
 */
static int add_param(struct maker *m, uint32_t i, uint32_t t, int64_t e, uint32_t *id)
{
	const struct needs_param *p = &m->params[i];
	const struct mesh *mesh = &m->spec->mesh;
	struct frag_cut cut = { .parts = mesh->tp };
	uint64_t shape[FRAG_DIMS_MAX] = { 0 };
	char coordinate[FRAG_KEY_MAX + 1] = "";
	uint32_t first = m->expert[i] == FUSED;
	size_t n = 0;
	int rc = 0;

	*id = CATALOG_NONE;
	if ((m->expert[i] == DENSE) != (e == DENSE) ||
	    (m->expert[i] >= 0 && m->expert[i] / (m->nexperts / mesh->ep) != e))
		return 0;
	for (uint32_t dim = 0; dim < p->ndim; dim++) {
		shape[dim] = p->shape[dim];
		if (dim > first && shape[dim] > shape[cut.dim])
			cut.dim = dim;
		else if (dim == first)
			cut.dim = dim;
	}
	if (first)
		shape[0] /= mesh->ep;
	if (mesh->tp > 1 && p->ndim - first >= 2) {
		CLEANUP(free) struct cuts *cuts = NULL;
		struct cuts_box box;
		uint64_t numel = 1;

		for (uint32_t dim = 0; dim < p->ndim; dim++)
			if (!u64_mul(numel, shape[dim], &numel))
				return -EOVERFLOW;
		cuts = cuts_new(&cut, 1, p->ndim, shape, numel, &rc);
		if (!cuts)
			return rc;
		cuts_box(cuts, t, &box);
		shape[cut.dim] = box.size[cut.dim];
	}
	if (e != DENSE)
		n = (size_t)snprintf(coordinate, sizeof(coordinate), "ep=%lld", (long long)e);
	if (mesh->tp > 1)
		snprintf(coordinate + n, sizeof(coordinate) - n, "%stp=%u", n ? "," : "", t);
	rc = catalog_add_param(m->c, p->name, coordinate, p->dtype, p->ndim, shape,
			       p->frozen ? FRAG_FROZEN : 0, 0);
	if (rc == -EEXIST)
		snprintf(m->why, m->whysize, "%.200s is given twice", p->name);
	if (rc < 0)
		return rc;
	*id = (uint32_t)rc;
	return 0;
}

/* Adds the group of the ranks with tensor part t and expert part e for the parameters of one
 * group of the optimizer that they have, if there are any.
 */
static int add_group(struct maker *m, uint32_t group, uint32_t t, int64_t e)
{
	const struct mesh *mesh = &m->spec->mesh;
	enum mesh_kind kind = e == DENSE ? MESH_SEQUENCE_DATA : MESH_EXPERT_DATA;
	struct catalog_group g = { .stage = (uint8_t)m->spec->stage,
				   .sharding = FRAG_ZERO,
				   .replicas = 1,
				   .nranks = mesh_size(mesh, kind),
				   .ranks = m->ranks,
				   .params = m->ids,
				   .sub_group_size = m->spec->sub_group_size };
	uint32_t number = e == DENSE ? t : t * mesh->ep + (uint32_t)e, id;

	for (uint32_t i = 0; i < m->nparams; i++) {
		int rc = m->params[i].group == group ? add_param(m, i, t, e, &id) : 0;

		if (rc)
			return rc;
		if (m->params[i].group == group && id != CATALOG_NONE)
			g.params[g.nparams++] = id;
	}
	for (uint32_t i = 0; i < g.nranks; i++)
		g.ranks[i] = mesh_rank(mesh, kind, number, i);
	return g.nparams ? catalog_add_group(m->c, &g, m->why, m->whysize) : 0;
}

static int describe(struct maker *m)
{
	const struct mesh *mesh = &m->spec->mesh;
	uint32_t ngroups = 0;
	int rc = find_experts(m);

	for (uint32_t i = 0; i < m->nparams; i++)
		ngroups = m->params[i].group >= ngroups ? m->params[i].group + 1 : ngroups;
	for (uint32_t group = 0; group < ngroups; group++)
		for (uint32_t t = 0; t < mesh->tp; t++)
			for (int64_t e = DENSE; e < (mesh->ep > 1 ? mesh->ep : 0) && rc >= 0;
			     e++)
				rc = add_group(m, group, t, e);
	return rc < 0 ? rc : catalog_finish(m->c);
}

/* ---- sums ---- */

static int add(uint64_t *sum, uint64_t n, uint64_t bytes)
{
	uint64_t product;

	return u64_mul(n, bytes, &product) && u64_add(*sum, product, sum) && *sum <= INT64_MAX
		       ? 0
		       : -EOVERFLOW;
}

/* Adds the low-precision values of a group, which one of its ranks has. */
static int add_lp(struct needs *n, const struct maker *m, const struct catalog_group *g)
{
	int rc = 0;

	for (uint32_t i = 0; i < g->nparams && !rc; i++) {
		const struct catalog_param *p = &m->c->params[g->params[i]];
		uint64_t size = frag_dtype_size(p->dtype);
		uint64_t held = catalog_lp_is_sharded(g) ? catalog_lp_piece(m->c, g->params[i])
							 : p->numel;

		rc = add(&n->lp, held, size);
		if (!rc && m->spec->stage <= 1 && !(p->flags & FRAG_FROZEN))
			rc = add(&n->lp_grad, p->numel, size);
	}
	return rc;
}

/* Adds hpZ's copy, whose pieces are cut as those of stage 3, by fewer ranks. */
static int add_secondary(struct needs *n, const struct maker *m, const struct catalog_group *g)
{
	struct layout_spec spec = { .kind = LAYOUT_PER_PARAM,
				    .shards = m->spec->mesh.hpz,
				    .alignment = 1 };
	int rc = 0;

	for (uint32_t i = 0; i < g->nparams && !rc; i++) {
		const struct catalog_param *p = &m->c->params[g->params[i]];
		struct layout_param one = { .numel = p->numel };
		struct layout l;

		rc = layout_init(&l, &spec, &one, 1);
		if (rc)
			return rc;
		if (l.nsubs)
			rc = add(&n->secondary, l.partition_numel[0],
				 frag_dtype_size(p->dtype));
		layout_fini(&l);
	}
	return rc;
}

/* Adds the float32 states of a group's partition, a sub-group after the other, as that is what
 * goes to NVMe or is too small for it.
 */
static int add_states(struct needs *n, const struct maker *m, uint32_t group)
{
	const struct needs_spec *s = m->spec;
	const struct layout *l = &m->c->groups[group].layout;
	int rc = 0;

	for (uint32_t sub = 0; sub < l->nsubs && !rc; sub++) {
		uint64_t bytes = l->partition_numel[sub] * sizeof(float);
		bool stays = bytes < s->least ||
			     catalog_is_among_first(m->c, m->c->groups[group].ranks[0], group,
						    sub, s->in_memory);
		enum needs_tier tier = s->tier == NEEDS_NVME && stays ? NEEDS_HOST : s->tier;

		if ((rc = add(&n->grad, bytes, 1)) || (rc = add(&n->fp32, bytes, 1)) ||
		    (rc = add(&n->optimizer, bytes, s->nstates)))
			break;
		rc = add(&n->tier[tier], bytes, 2 + (uint64_t)s->nstates);
	}
	return rc;
}

static int add_needs(struct needs *to, const struct needs *from)
{
	/* struct needs has uint64_t alone */
	uint64_t *sum = (uint64_t *)to;
	const uint64_t *more = (const uint64_t *)from;
	int rc = 0;

	for (size_t i = 0; i < sizeof(*to) / sizeof(*sum) && !rc; i++)
		rc = add(&sum[i], more[i], 1);
	return rc;
}

static int add_up(struct needs *ranks, const struct maker *m)
{
	const struct needs_spec *s = m->spec;
	const struct needs buffers = { .pinned = s->pinned, .tier[NEEDS_HOST] = s->pinned };
	int rc = 0;

	memset(ranks, 0, s->mesh.world * sizeof(*ranks));
	for (uint32_t i = 0; i < m->c->ngroups; i++) {
		const struct catalog_group *g = &m->c->groups[i];
		struct needs n = { 0 };

		if ((rc = add_lp(&n, m, g)) ||
		    (s->mesh.hpz > 1 && (rc = add_secondary(&n, m, g))) ||
		    (rc = add_states(&n, m, i)) || (rc = add(&n.tier[NEEDS_DEVICE], n.lp, 1)) ||
		    (rc = add(&n.tier[NEEDS_DEVICE], n.secondary, 1)) ||
		    (rc = add(&n.tier[NEEDS_DEVICE], n.lp_grad, 1)))
			return rc;
		for (uint32_t r = 0; r < g->nranks && !rc; r++)
			rc = add_needs(&ranks[g->ranks[r]], &n);
	}
	for (uint32_t r = 0; r < s->mesh.world && !rc && s->tier == NEEDS_NVME; r++)
		rc = add_needs(&ranks[r], &buffers);
	return rc;
}

static int check(const struct maker *m)
{
	const struct mesh *mesh = &m->spec->mesh;

	if (mesh->hpz > 1 && m->spec->stage != 3)
		snprintf(m->why, m->whysize, "hpz is for stage 3");
	else if (mesh->hpz > 1 && mesh->ep > 1)
		snprintf(m->why, m->whysize, "hpz and ep are not for the same job");
	else
		return 0;
	return -EINVAL;
}

int needs_compute(struct needs *ranks, const struct needs_spec *spec,
		  const struct needs_param *params, uint32_t nparams, char *why, size_t whysize)
{
	struct maker m = { .spec = spec,
			   .params = params,
			   .nparams = nparams,
			   .why = why,
			   .whysize = whysize };
	int rc = check(&m);

	if (rc)
		return rc;
	snprintf(why, whysize, "%s", "its bytes cannot be counted");
	m.c = catalog_new();
	m.ids = calloc(nparams + 1, sizeof(*m.ids));
	m.expert = calloc(nparams + 1, sizeof(*m.expert));
	m.ranks = calloc(spec->mesh.world, sizeof(*m.ranks));
	rc = m.c && m.ids && m.expert && m.ranks ? describe(&m) : -ENOMEM;
	if (!rc)
		rc = add_up(ranks, &m);
	if (m.c)
		catalog_free(m.c);
	free(m.ids);
	free(m.expert);
	free(m.ranks);
	return rc;
}
