/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/tree-internal.h"

#include <errno.h>

/* The parts of a tree, of which there is mostly one.  A parameter's name is looked up in the
 * parameter's part.
 */

struct naming {
	struct engine *engine;
	const struct tree_part *part;
};

static uint32_t number_of(const struct engine_part *p, uint32_t local)
{
	return local < p->nparams ? p->params + local : p->buffers + (local - p->nparams);
}

static void source(void *arg, uint32_t local, const char **name, const char **coordinate)
{
	const struct naming *n = arg;
	struct engine_param p;

	if (!engine_param(n->engine, number_of(&n->part->is, local), &p))
		p = (struct engine_param){ .name = "", .coordinate = "" };
	*name = p.name;
	*coordinate = n->part->is.name ? "" : p.coordinate;
}

static int init_part(struct tree *t, uint32_t i)
{
	struct tree_part *p = &t->parts[i];
	struct naming naming = { t->engine, p };

	p->is = (struct engine_part){ .nparams = t->nparams,
				      .buffers = t->nparams,
				      .nbuffers = t->ntensors - t->nparams,
				      .ngroups = t->ngroups,
				      .nranks = t->nranks };
	engine_part(t->engine, i, &p->is);
	return names_init(&p->names, p->is.nparams + p->is.nbuffers, source, &naming);
}

int tree_init_parts(struct tree *t)
{
	int rc = 0;

	t->nparts = engine_nparts(t->engine);
	t->nparts = t->nparts ? t->nparts : 1;
	t->parts = calloc(t->nparts, sizeof(*t->parts));
	if (!t->parts)
		return -ENOMEM;
	for (uint32_t i = 0; i < t->nparts && !rc; i++)
		rc = init_part(t, i);
	return rc;
}

void tree_fini_parts(struct tree *t)
{
	for (uint32_t i = 0; t->parts && i < t->nparts; i++)
		names_fini(&t->parts[i].names);
	free(t->parts);
}

/* Returns the last part whose first parameter, group or rank, by first(), is not behind
 * `number`.
 */
static uint32_t find(const struct tree *t, uint32_t number,
		     uint32_t (*first)(const struct engine_part *p))
{
	return (uint32_t)LOWER_BOUND(t->nparts - 1, i, first(&t->parts[i + 1].is) <= number);
}

static uint32_t first_param(const struct engine_part *p)
{
	return p->params;
}

static uint32_t first_buffer(const struct engine_part *p)
{
	return p->buffers;
}

static uint32_t first_group(const struct engine_part *p)
{
	return p->groups;
}

static uint32_t first_rank(const struct engine_part *p)
{
	return p->ranks;
}

uint32_t tree_part_of_param(const struct tree *t, uint32_t param)
{
	return find(t, param, param < t->nparams ? first_param : first_buffer);
}

uint32_t tree_part_of_group(const struct tree *t, uint32_t group)
{
	return find(t, group, first_group);
}

uint32_t tree_part_of_rank(const struct tree *t, uint32_t rank)
{
	return find(t, rank, first_rank);
}

const char *tree_name(const struct tree *t, uint32_t param)
{
	const struct tree_part *p = &t->parts[tree_part_of_param(t, param)];
	uint32_t local = param < t->nparams ? param - p->is.params
					    : param - p->is.buffers + p->is.nparams;

	return names_get(&p->names, local);
}

int64_t tree_find(const struct tree *t, uint32_t part, const char *file)
{
	const struct tree_part *p = &t->parts[part];
	int64_t local = names_find(&p->names, file);

	return local < 0 ? local : number_of(&p->is, (uint32_t)local);
}

uint32_t tree_group_shown(const struct tree *t, uint32_t group)
{
	return group - t->parts[tree_part_of_group(t, group)].is.groups;
}

uint32_t tree_part_groups(const struct tree *t, uint32_t part)
{
	const struct engine_part *p = &t->parts[part].is;

	return p->groups < t->ngroups ? (uint32_t)u64_min(p->ngroups, t->ngroups - p->groups)
				      : 0;
}
