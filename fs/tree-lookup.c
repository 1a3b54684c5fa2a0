/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/tree-internal.h"

#include <errno.h>
#include <string.h>

/* Finds names in directories. */

static int lookup_state(struct tree *t, struct node dir, const char *name,
			struct tree_entry *entry)
{
	STATE_LIST(list);
	int rc = tree_states(t, dir, &list), forms = dir.kind == NODE_PARAM ? 2 : 1;

	for (int i = 0; i < list.count * forms; i++) {
		const struct engine_state *state = &list.states[i / forms];
		char file[NAMES_FILE_MAX + 1];

		tree_state_file(dir.kind, state->key, i % forms, file);
		if (!strcmp(file, name))
			return tree_state_entry(t, dir, state, i % forms, entry);
	}
	return rc ? rc : -ENOENT;
}

/* Fills the entry of a name that LOOKUP finds and no listing shows. */
static int cells_entry(struct tree *t, struct node dir, const char *name,
		       const struct engine_state *state, struct tree_entry *entry)
{
	int64_t slot = tree_key_slot(t, state->key);
	uint32_t number;
	int rc;

	if (slot < 0)
		return (int)slot;
	rc = found_add(t->found, tree_inode(dir), name, (uint32_t)slot, &number);
	if (rc)
		return rc;
	entry->node = (struct node){ .kind = NODE_CELLS,
				     .rank = dir.rank,
				     .item = dir.item,
				     .slot = (uint32_t)slot,
				     .name = number };
	entry->has_state = true;
	entry->state = *state;
	strcpy(entry->name, name);
	return 0;
}

/* Finds a file of cells, whose name begins with that of a state's file. */
static int lookup_cells(struct tree *t, struct node dir, const char *name,
			struct tree_entry *entry)
{
	STATE_LIST(list);
	struct engine_param p;
	struct cells cells;
	int rc;

	if (!strpbrk(name, "[.") || !engine_param(t->engine, dir.item, &p))
		return -ENOENT;
	rc = tree_states(t, dir, &list);
	for (int i = 0; i < list.count; i++) {
		const struct engine_state *state = &list.states[i];
		char file[NAMES_FILE_MAX + 1];

		tree_state_file(dir.kind, state->key, false, file);
		if (!strncmp(file, name, strlen(file)) &&
		    !cells_init(&cells, name + strlen(file), state, &p))
			return cells_entry(t, dir, name, state, entry);
	}
	return rc ? rc : -ENOENT;
}

/* Returns the state whose elements elem/ shows: the master, else the low-precision parameter,
 * else a state of the parameter's own dtype.  NULL: there is none.
 */
static const struct engine_state *main_state(const struct state_list *list,
					     const struct engine_param *p)
{
	const struct engine_state *best = NULL;
	int least = 3;

	for (const struct engine_state *s = list->states; s < list->states + list->count; s++) {
		int order = !strcmp(s->key, "fp32")      ? 0
			    : s->flags & ENGINE_STATE_LP ? 1
			    : s->dtype == p->dtype       ? 2
							 : 3;

		if (order < least)
			best = s;
		least = best == s ? order : least;
	}
	return best;
}

/* Finds an element by its indices. */
static int lookup_element(struct tree *t, struct node dir, const char *name,
			  struct tree_entry *entry)
{
	STATE_LIST(list);
	const struct engine_state *state;
	struct engine_param p;
	struct cells cells;
	int rc;

	if (!engine_param(t->engine, dir.item, &p))
		return -ENOENT;
	rc = tree_states(t, dir, &list);
	state = dir.kind == NODE_ELEM ? main_state(&list, &p)
				      : state_list_find(&list, tree_key(t, dir));
	if (!state || cells_init_element(&cells, name, state, &p))
		return rc ? rc : -ENOENT;
	return cells_entry(t, dir, name, state, entry);
}

/* Finds the name of a state, or of a file that is made of a state. */
static int lookup_of_state(struct tree *t, struct node dir, const char *name,
			   struct tree_entry *entry)
{
	int rc = dir.kind == NODE_ELEM_STATE ? -ENOENT : lookup_state(t, dir, name, entry);

	if (rc == -ENOENT && dir.kind == NODE_PARAM)
		rc = lookup_cells(t, dir, name, entry);
	if (rc == -ENOENT && (dir.kind == NODE_ELEM || dir.kind == NODE_ELEM_STATE))
		rc = lookup_element(t, dir, name, entry);
	return rc;
}

/* Reads a plain decimal, without a sign or leading zeros; *end is behind it. */
static bool decimal(const char *text, uint32_t *value, const char **end)
{
	uint64_t n = 0;
	const char *c = text;

	for (; *c >= '0' && *c <= '9' && n <= UINT32_MAX; c++)
		n = n * 10 + (uint64_t)(*c - '0');
	if (c == text || n > UINT32_MAX || (*text == '0' && c - text > 1))
		return false;
	*value = (uint32_t)n;
	*end = c;
	return true;
}

static bool lookup_number(const char *name, uint32_t count, uint32_t *number)
{
	const char *end;

	return decimal(name, number, &end) && !*end && *number < count;
}

static bool lookup_group(struct tree *t, struct node dir, const char *name, struct node *n)
{
	const struct engine_part *p = &t->parts[dir.item].is;
	uint32_t group;

	if (!lookup_number(name, tree_part_groups(t, dir.item), &group))
		return false;
	n->item = (p->groups + group) << 16;
	return true;
}

static bool lookup_part(struct tree *t, const char *name, struct node *n)
{
	for (uint32_t i = 0; i < t->nparts; i++) {
		n->item = i;
		if (t->parts[i].is.name && !strcmp(t->parts[i].is.name, name))
			return true;
	}
	return false;
}

static bool lookup_partition(struct tree *t, struct node dir, const char *name, struct node *n)
{
	struct engine_group g;
	uint32_t group, sub;
	const char *end;

	if (!decimal(name, &group, &end) || *end != '.' || !decimal(end + 1, &sub, &end) ||
	    *end)
		return false;
	group += t->parts[tree_part_of_rank(t, dir.rank)].is.groups;
	if (group >= t->ngroups || !tree_group_has_rank(t, group, dir.rank, &g) ||
	    sub >= g.sub_groups || sub >= TREE_SUBS_MAX)
		return false;
	n->item = group << 16 | sub;
	return true;
}

/* Returns the part that has the parameters in a directory. */
static uint32_t part_below(const struct tree *t, struct node dir)
{
	if (dir.kind == NODE_RANK_PARAMS)
		return tree_part_of_rank(t, dir.rank);
	return dir.kind == NODE_GROUP_PARAMS ? tree_part_of_group(t, tree_node_group(dir))
					     : dir.item;
}

static bool lookup_param(struct tree *t, struct node dir, const char *name, struct node *n)
{
	int64_t param = tree_find(t, part_below(t, dir), name);
	struct engine_param p;

	if (param < 0 || (param >= t->nparams) != (dir.kind == NODE_BUFFERS))
		return false;
	n->item = (uint32_t)param;
	if (dir.kind != NODE_GROUP_PARAMS)
		return true;
	n->rank = tree_node_group(dir);
	return engine_param(t->engine, n->item, &p) && p.group == (int)n->rank;
}

static int lookup_shard(struct tree *t, struct node dir, const char *name, struct node *n)
{
	char shard[EXPORT_NAME_MAX];
	struct export_set *set;
	int rc = tree_export(t, (struct node){ .item = dir.item }, &set);
	bool found = false;

	if (rc)
		return rc;
	for (uint32_t i = EXPORT_SHARDS; i < set->nfiles && !found; i++) {
		export_shard_name(i - EXPORT_SHARDS, set->nfiles - EXPORT_SHARDS, shard);
		found = !strcmp(shard, name);
		n->slot = i;
	}
	export_put(set);
	return found ? 0 : -ENOENT;
}

static bool lookup_numbered(struct tree *t, struct node dir, const char *name, struct node *n)
{
	switch (dir.kind) {
	case NODE_ROOT:
		return lookup_part(t, name, n);
	case NODE_PARAMS:
	case NODE_UNIVERSAL_ZERO:
	case NODE_BUFFERS:
	case NODE_RANK_PARAMS:
	case NODE_GROUP_PARAMS:
		return lookup_param(t, dir, name, n);
	case NODE_RANKS:
		return lookup_number(name, t->nranks, &n->rank);
	case NODE_GROUPS:
		return lookup_group(t, dir, name, n);
	case NODE_PARTITIONS:
		return lookup_partition(t, dir, name, n);
	default:
		return false;
	}
}

int tree_lookup(struct tree *t, struct node dir, const char *name, struct tree_entry *entry)
{
	const struct tree_fixed *f = tree_find_fixed(dir.kind, name);
	int shown = f ? tree_shows_fixed(t, f, dir) : 0;

	if (shown < 0)
		return shown;
	if (!tree_node_is_dir(dir))
		return -ENOTDIR;
	if (strlen(name) > NAMES_FILE_MAX)
		return -ENAMETOOLONG;
	*entry = (struct tree_entry){
		.node = { .kind = tree_content[dir.kind], .rank = dir.rank, .item = dir.item }
	};
	strcpy(entry->name, name);
	if (shown) {
		entry->node = tree_fixed_node(f, dir);
		return 0;
	}
	if (dir.kind == NODE_EXPORT_HF)
		return lookup_shard(t, dir, name, &entry->node);
	if (!lookup_numbered(t, dir, name, &entry->node))
		return lookup_of_state(t, dir, name, entry);
	if (dir.kind != NODE_RANK_PARAMS)
		return 0;
	shown = tree_rank_holds(t, entry->node.rank, entry->node.item);
	return shown > 0 ? 0 : shown ? shown : -ENOENT;
}
