/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/tree-internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- directories ---- */

void tree_dir_init(struct tree_dir *d, struct tree *t, struct node node)
{
	*d = (struct tree_dir){ .tree = t, .node = node };
}

void tree_dir_fini(struct tree_dir *d)
{
	state_list_fini(&d->states);
}

/* Finds the next parameter, from number *i on, of which the rank holds a state, and sets *i to
 * it.
 */
static bool next_held(struct tree_dir *d, uint64_t *i)
{
	const struct engine_part *p =
		&d->tree->parts[tree_part_of_rank(d->tree, d->node.rank)].is;
	int states = 0;

	*i = u64_max(*i, p->params);
	for (; *i < p->params + p->nparams && !states; ++*i)
		states = tree_rank_holds(d->tree, d->node.rank, (uint32_t)*i);
	d->error = states < 0 ? states : 0;
	*i -= states > 0;
	return states > 0;
}

static bool next_partition(struct tree *t, uint32_t rank, uint64_t *i)
{
	for (; *i >> 16 < t->ngroups; *i = ((*i >> 16) + 1) << 16) {
		struct engine_group g;

		if (tree_group_has_rank(t, (uint32_t)(*i >> 16), rank, &g) &&
		    (*i & 0xffff) < g.sub_groups)
			return true;
	}
	return false;
}

static bool next_member(struct tree *t, uint32_t group, uint64_t i, uint32_t *param)
{
	struct engine_group g;

	if (!engine_group(t->engine, group, &g) || i >= g.nparams)
		return false;
	*param = g.params[i];
	return true;
}

/* Returns the first of the listed states' entries behind the entry `last`, which is the slot of
 * a key and a form: of that state, or, if it was dropped, of the states behind it.
 */
static unsigned entry_behind(const struct tree_dir *d, uint64_t last, unsigned forms)
{
	const char *key = tree_slot_key(d->tree, last / forms);
	const struct engine_state *states = d->states.states;
	unsigned i = 0, n = (unsigned)d->states.count;

	while (key && i < n && strcmp(states[i].key, key) != 0)
		i++;
	if (key && i < n)
		return i * forms + (unsigned)(last % forms) + 1;
	for (i = 0; i < n && (!key || strcmp(states[i].key, key) < 0);)
		i++;
	return i * forms;
}

/* States may come and go between two requests for entries of a directory, so that *i is not an
 * index: 0, or the entry behind which the directory is read on, as entry_behind has it, + 1.
 */
static bool next_state(struct tree_dir *d, uint64_t *i, struct tree_entry *entry)
{
	unsigned forms = d->node.kind == NODE_PARAM ? 2 : 1, at;

	if (!d->has_states) {
		int rc = tree_states(d->tree, d->node, &d->states);

		d->has_states = true;
		d->error = rc == -ENOENT ? 0 : rc;
	}
	for (at = *i ? entry_behind(d, *i - 1, forms) : 0;
	     at < (unsigned)d->states.count * forms; at++) {
		if (!tree_state_entry(d->tree, d->node, &d->states.states[at / forms],
				      at % forms, entry)) {
			*i = (uint64_t)entry->node.slot * forms + at % forms;
			return true;
		}
	}
	return false;
}

static bool next_shard(struct tree_dir *d, uint64_t i, struct tree_entry *entry)
{
	struct export_set *set;
	uint32_t n;

	d->error = tree_export(d->tree, (struct node){ .item = d->node.item }, &set);
	if (d->error)
		return false;
	n = set->nfiles - EXPORT_SHARDS;
	export_put(set);
	entry->node.slot = EXPORT_SHARDS + (uint32_t)i;
	export_shard_name((uint32_t)i, n, entry->name);
	return i < n;
}

static void name_param(struct tree *t, struct tree_entry *entry, uint32_t param)
{
	entry->node.item = param;
	strcpy(entry->name, tree_name(t, param));
}

static const struct engine_part *part_of(const struct tree_dir *d)
{
	return &d->tree->parts[d->node.item].is;
}

/* Gives the entry with number *i, counted behind the fixed entries, or the next one that
 * exists, and sets *i to its number.
 */
static bool numbered(struct tree_dir *d, uint64_t *i, struct tree_entry *entry)
{
	struct tree *t = d->tree;
	uint32_t param;

	switch (d->node.kind) {
	case NODE_ROOT:
		entry->node.item = (uint32_t)*i;
		if (*i >= t->nparts || !t->parts[*i].is.name)
			return false;
		strcpy(entry->name, t->parts[*i].is.name);
		return true;
	case NODE_PARAMS:
	case NODE_UNIVERSAL_ZERO:
		if (*i >= part_of(d)->nparams)
			return false;
		name_param(t, entry, part_of(d)->params + (uint32_t)*i);
		return true;
	case NODE_BUFFERS:
		if (*i >= part_of(d)->nbuffers)
			return false;
		name_param(t, entry, part_of(d)->buffers + (uint32_t)*i);
		return true;
	case NODE_RANK_PARAMS:
		if (!next_held(d, i))
			return false;
		name_param(t, entry, (uint32_t)*i);
		return true;
	case NODE_GROUP_PARAMS:
		if (!next_member(t, tree_node_group(d->node), *i, &param))
			return false;
		entry->node.rank = tree_node_group(d->node);
		name_param(t, entry, param);
		return true;
	case NODE_RANKS:
		entry->node.rank = (uint32_t)*i;
		sprintf(entry->name, "%u", (unsigned)*i);
		return *i < t->nranks;
	case NODE_GROUPS:
		entry->node.item = (part_of(d)->groups + (uint32_t)*i) << 16;
		sprintf(entry->name, "%u", (unsigned)*i);
		return *i < tree_part_groups(t, d->node.item);
	case NODE_EXPORT_HF:
		return next_shard(d, *i, entry);
	case NODE_PARTITIONS:
		if (!next_partition(t, d->node.rank, i))
			return false;
		entry->node.item = (uint32_t)*i;
		sprintf(entry->name, "%u.%u", tree_group_shown(t, tree_node_group(entry->node)),
			tree_node_sub(entry->node));
		return true;
	case NODE_ELEM_STATE:
		return false;
	default:
		return next_state(d, i, entry);
	}
}

bool tree_dir_get(struct tree_dir *d, uint64_t offset, struct tree_entry *entry, uint64_t *next)
{
	uint64_t behind = 2;

	entry->node = (struct node){ .kind = tree_content[d->node.kind],
				     .rank = d->node.rank,
				     .item = d->node.item };
	entry->has_state = false;
	*next = offset + 1;
	if (offset < 2) {
		entry->node = offset ? tree_parent(d->tree, d->node) : d->node;
		strcpy(entry->name, offset ? ".." : ".");
		return true;
	}
	for (size_t i = 0; i < TREE_FIXED; i++) {
		int shown;

		if (tree_fixed[i].dir != d->node.kind ||
		    tree_kind_is_hidden(tree_fixed[i].kind) ||
		    !tree_has_fixed(d->tree, &tree_fixed[i]) || behind++ != offset)
			continue;
		shown = tree_shows_fixed(d->tree, &tree_fixed[i], d->node);
		d->error = shown == -EAGAIN ? shown : 0;
		if (shown > 0) {
			entry->node = tree_fixed_node(&tree_fixed[i], d->node);
			strcpy(entry->name, tree_fixed[i].name);
		}
		if (shown > 0 || d->error)
			return shown > 0;
		offset++;
		++*next;
	}
	offset -= behind;
	if (!numbered(d, &offset, entry))
		return false;
	*next = offset + behind + 1;
	return true;
}

/* ---- attributes ---- */

static uint64_t count_partitions(struct tree *t, uint32_t rank)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < t->ngroups; i++) {
		struct engine_group g;

		if (tree_group_has_rank(t, i, rank, &g))
			n += u64_min(g.sub_groups, TREE_SUBS_MAX);
	}
	return n;
}

/* Returns a directory's links: 2 and one for each directory in it.  If counting them would ask
 * the engine about every parameter: 1, which find(1) and others take for "not counted".
 */
static nlink_t dir_links(struct tree *t, struct node n)
{
	nlink_t links = 2 + (n.kind == NODE_ROOT && (t->has & TREE_PARTS) ? t->nparts : 0);

	switch (n.kind) {
	case NODE_PARAMS:
	case NODE_UNIVERSAL_ZERO:
		return 2 + t->parts[n.item].is.nparams;
	case NODE_BUFFERS:
		return 2 + t->parts[n.item].is.nbuffers;
	case NODE_RANKS:
		return 2 + t->nranks;
	case NODE_GROUPS:
		return 2 + tree_part_groups(t, n.item);
	case NODE_RANK_PARAMS:
	case NODE_STATS:
	case NODE_ELEM:
		return 1;
	case NODE_PARTITIONS:
		return 2 + count_partitions(t, n.rank);
	default:
		for (size_t i = 0; i < TREE_FIXED; i++)
			links += tree_fixed[i].dir == n.kind &&
				 tree_fixed[i].kind <= NODE_CONTROL &&
				 !tree_kind_is_hidden(tree_fixed[i].kind) &&
				 tree_has_fixed(t, &tree_fixed[i]);
		return links;
	}
}

void tree_set_time(struct timespec *t, uint64_t ns)
{
	if (ns)
		*t = (struct timespec){ .tv_sec = (time_t)(ns / 1000000000),
					.tv_nsec = (long)(ns % 1000000000) };
}

/* Sets the mtime of a state.  Its other times stay those of the mount: tar(1) takes a file
 * whose ctime moves for a file that is written to while tar reads it.
 */
static void set_change_time(struct tree *t, struct node n, struct stat *st)
{
	struct engine_address address = tree_address(t, n);

	tree_set_time(&st->st_mtim, engine_changed_ns(t->engine, &address));
}

static int state_attr(struct tree *t, struct node n, const struct engine_state *known,
		      struct stat *st)
{
	struct engine_state state;
	struct cells cells;
	int rc = 0;

	if (!known)
		rc = tree_state(t, n, &state);
	if (rc)
		return rc;
	if (known)
		state = *known;
	rc = tree_cells(t, n, &state, &cells, NULL);
	if (rc)
		return rc;
	st->st_mode = S_IFREG | 0444;
	if (t->writable && (state.flags & ENGINE_STATE_WRITABLE) && cells_is_writable(&cells))
		st->st_mode |= 0200;
	st->st_size = n.kind == NODE_HYPER ? 0 : (off_t)cells.bytes;
	st->st_blksize = n.kind == NODE_HYPER ? 4096 : TREE_BLOCK;
	set_change_time(t, n, st);
	return 0;
}

static int export_attr(struct tree *t, struct node n, struct stat *st)
{
	const struct export_file *f;
	struct export_set *set;
	bool live = engine_is_live(t->engine);
	int rc = tree_export(t, n, &set);

	if (rc)
		return rc;
	f = &set->files[n.slot];
	st->st_size = (off_t)(f->head_bytes + f->bytes);
	st->st_blksize = TREE_BLOCK;
	if (f->n)
		tree_set_time(&st->st_mtim,
			      engine_changed_ns(t->engine, live ? f->addresses : NULL));
	export_put(set);
	return 0;
}

int tree_attr(struct tree *t, struct node n, const struct engine_state *state, struct stat *st)
{
	int rc = 0;

	n.alias = 0; /* one st_ino for all aliases: programs know a file by it */
	*st = (struct stat){ .st_ino = tree_inode(n),
			     .st_nlink = 1,
			     .st_mode = S_IFREG | 0444,
			     .st_uid = t->uid,
			     .st_gid = t->gid,
			     .st_blksize = 4096,
			     .st_atim = t->time,
			     .st_mtim = tree_is_still(t, n) ? t->data : t->time,
			     .st_ctim = t->time };
	if (tree_node_is_dir(n)) {
		st->st_mode = S_IFDIR | 0555;
		st->st_nlink = dir_links(t, n);
	} else if (n.kind == NODE_GROUP_LINK) {
		st->st_mode = S_IFLNK | 0777;
		st->st_size = tree_link(t, n, NULL, 0);
	} else if (tree_node_is_state(n)) {
		rc = state_attr(t, n, state, st);
	} else if (n.kind == NODE_STAT) {
		set_change_time(t, n, st);
	} else if (n.kind == NODE_EXPORT_FILE) {
		rc = export_attr(t, n, st);
	} else if (tree_node_is_universal_text(n) && engine_is_live(t->engine)) {
		const struct engine_address any = { .kind = ENGINE_PARAM };

		tree_set_time(&st->st_mtim, engine_changed_ns(t->engine, &any));
	}
	if (tree_node_is_command(n) && t->writable)
		st->st_mode |= 0200;
	st->st_blocks = (blkcnt_t)u64_div_ceil((uint64_t)st->st_size, 512);
	return rc;
}

/* Returns true if a node never changes: none in a job, and in a checkpoint all but the texts
 * that fragfs writes about itself.
 */
bool tree_is_still(const struct tree *t, struct node n)
{
	return (t->has & TREE_STILL) && (n.kind != NODE_TEXT || n.slot < TEXT_CONFIG);
}

double tree_timeout(const struct tree *t, struct node n)
{
	if (tree_is_still(t, n)) /* only the time of the last edit may change */
		return t->writable && (tree_node_is_state(n) || n.kind == NODE_EXPORT_FILE)
			       ? 1
			       : 1e9;
	if (n.kind == NODE_TEXT || n.kind == NODE_HYPER)
		return 0;
	/* A state may be dropped: opening it then fails at once, but its name is seen for one
	 * more second.  Telling the kernel instead would cost a list of the names that the
	 * kernel holds, and 1 to 9 us for each.
	 */
	return tree_node_is_state(n) || n.kind == NODE_RANK_PARAM ||
			       n.kind == NODE_STATS_STATE || n.kind == NODE_STAT ||
			       n.kind == NODE_ELEM_STATE || n.kind == NODE_EXPORT_FILE
		       ? 1
		       : 1e9;
}

int tree_link(const struct tree *t, struct node n, char *out, size_t size)
{
	return snprintf(out, size, "../../../params/%s", tree_name(t, n.item));
}

static void node_name(const struct tree *t, struct node n, char out[NAMES_FILE_MAX + 1])
{
	struct node up = tree_parent(t, n);
	struct found_name found;

	*out = '\0';
	if (n.kind == NODE_CELLS && found_get(t->found, n.name, &found))
		strcpy(out, found.text);
	else if (n.kind == NODE_RANK)
		sprintf(out, "%u", n.rank);
	else if (n.kind == NODE_GROUP)
		sprintf(out, "%u", tree_group_shown(t, tree_node_group(n)));
	else if (n.kind == NODE_PARTITION)
		sprintf(out, "%u.%u", tree_group_shown(t, tree_node_group(n)),
			tree_node_sub(n));
	else if (n.kind == NODE_PART)
		strcpy(out, t->parts[n.item].is.name);
	else if (n.kind == NODE_STATS_STATE || n.kind == NODE_ELEM_STATE)
		tree_state_file(up.kind, tree_key(t, n), false, out);
	else if (tree_node_is_state(n))
		tree_state_file(up.kind, tree_key(t, n), n.kind == NODE_NPY, out);
	else if (tree_node_has_param(n.kind) && !tree_kind_is_hidden(n.kind) &&
		 n.kind != NODE_STAT)
		strcpy(out, tree_name(t, n.item));
	for (size_t i = 0; !*out && i < TREE_FIXED; i++) {
		if (tree_fixed[i].dir == up.kind &&
		    tree_inode(tree_fixed_node(&tree_fixed[i], up)) == tree_inode(n))
			strcpy(out, tree_fixed[i].name);
	}
}

int tree_path(const struct tree *t, struct node n, char *out, size_t size)
{
	char name[NAMES_FILE_MAX + 1];
	int length = 0;

	node_name(t, n, name);
	if (n.kind != NODE_ROOT && tree_parent(t, n).kind != NODE_ROOT) {
		length = tree_path(t, tree_parent(t, n), out, size);
		length += snprintf(out + u64_min((size_t)length, size),
				   size - u64_min((size_t)length, size), "/");
	}
	return length + snprintf(out + u64_min((size_t)length, size),
				 size - u64_min((size_t)length, size), "%s", name);
}
