/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "fs/tree-internal.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { ROOT_INODE = 1, GROUPS_SHOWN = 1 << 16 };

/* Entries that a directory always has. */
const struct tree_fixed tree_fixed[TREE_FIXED] = {
	{ NODE_ROOT, "params", NODE_PARAMS, 0, TREE_WHOLE },
	{ NODE_ROOT, "now", NODE_PARAMS, 0, TREE_NOW },
	{ NODE_ROOT, "ranks", NODE_RANKS, 0, 0 },
	{ NODE_ROOT, "buffers", NODE_BUFFERS, 0, TREE_BUFFERS },
	{ NODE_ROOT, "groups", NODE_GROUPS, 0, TREE_GROUPS },
	{ NODE_ROOT, "export", NODE_EXPORT, 0, TREE_WHOLE },
	{ NODE_ROOT, ".frag", NODE_CONTROL, 0, 0 },
	{ NODE_ROOT, "step", NODE_TEXT, TEXT_STEP, TREE_STEP },
	{ NODE_ROOT, "phase", NODE_TEXT, TEXT_PHASE, TREE_LIVE },
	{ NODE_ROOT, "generation", NODE_TEXT, TEXT_GENERATION, TREE_LIVE },
	{ NODE_ROOT, "events", NODE_EVENTS, 0, TREE_LIVE },
	{ NODE_PART, "params", NODE_PARAMS, 0, TREE_PARTS },
	{ NODE_PART, "buffers", NODE_BUFFERS, 0, TREE_PART_BUFFERS },
	{ NODE_PART, "groups", NODE_GROUPS, 0, TREE_PART_GROUPS },
	{ NODE_PART, "export", NODE_EXPORT, 0, TREE_PARTS },
	{ NODE_EXPORT, "model.safetensors", NODE_EXPORT_FILE, EXPORT_MODEL, 0 },
	{ NODE_EXPORT, "model.bf16.safetensors", NODE_EXPORT_FILE, EXPORT_BF16, 0 },
	{ NODE_EXPORT, "optimizer.safetensors", NODE_EXPORT_FILE, EXPORT_OPTIMIZER, 0 },
	{ NODE_EXPORT, "hf", NODE_EXPORT_HF, 0, 0 },
	{ NODE_EXPORT, "universal", NODE_UNIVERSAL, 0, TREE_UNIVERSAL },
	{ NODE_EXPORT, "latest_universal", NODE_TEXT, TEXT_UNIVERSAL + UNIVERSAL_LATEST,
	  TREE_UNIVERSAL },
	{ NODE_UNIVERSAL, "zero", NODE_UNIVERSAL_ZERO, 0, 0 },
	{ NODE_UNIVERSAL, "mp_rank_00_model_states.pt", NODE_TEXT,
	  TEXT_UNIVERSAL + UNIVERSAL_MODEL, 0 },
	{ NODE_UNIVERSAL, "zero_pp_rank_0_mp_rank_00_model_states.pt", NODE_TEXT,
	  TEXT_UNIVERSAL + UNIVERSAL_MODEL, 0 },
	{ NODE_UNIVERSAL_ZERO, "optimizer_state.pt", NODE_TEXT,
	  TEXT_UNIVERSAL + UNIVERSAL_OPTIMIZER, 0 },
	{ NODE_UNIVERSAL_PARAM, "step.pt", NODE_TEXT, TEXT_UNIVERSAL + UNIVERSAL_STEP, 0 },
	{ NODE_EXPORT_HF, "model.safetensors.index.json", NODE_EXPORT_FILE, EXPORT_INDEX, 0 },
	{ NODE_PARAM, "shape", NODE_TEXT, TEXT_SHAPE, 0 },
	{ NODE_PARAM, "dtype", NODE_TEXT, TEXT_DTYPE, 0 },
	{ NODE_PARAM, "numel", NODE_TEXT, TEXT_NUMEL, 0 },
	{ NODE_PARAM, "group", NODE_TEXT, TEXT_GROUP, 0 },
	{ NODE_PARAM, "group_index", NODE_TEXT, TEXT_GROUP_INDEX, 0 },
	{ NODE_PARAM, "fragments", NODE_TEXT, TEXT_FRAGMENTS, 0 },
	{ NODE_PARAM, "stats", NODE_STATS, 0, 0 },
	{ NODE_PARAM, "elem", NODE_ELEM, 0, 0 },
	{ NODE_STATS_STATE, "norm", NODE_STAT, STAT_NORM, 0 },
	{ NODE_STATS_STATE, "mean", NODE_STAT, STAT_MEAN, 0 },
	{ NODE_STATS_STATE, "std", NODE_STAT, STAT_STD, 0 },
	{ NODE_STATS_STATE, "min", NODE_STAT, STAT_MIN, 0 },
	{ NODE_STATS_STATE, "max", NODE_STAT, STAT_MAX, 0 },
	{ NODE_STATS_STATE, "absmax", NODE_STAT, STAT_ABSMAX, 0 },
	{ NODE_STATS_STATE, "nan", NODE_STAT, STAT_NAN, 0 },
	{ NODE_STATS_STATE, "inf", NODE_STAT, STAT_INF, 0 },
	{ NODE_STATS_STATE, "zero", NODE_STAT, STAT_ZERO, 0 },
	{ NODE_STATS_STATE, "first_nan", NODE_STAT, STAT_FIRST_NAN, 0 },
	{ NODE_STATS_STATE, "first_inf", NODE_STAT, STAT_FIRST_INF, 0 },
	{ NODE_STATS_STATE, "hist", NODE_STAT, STAT_HIST, 0 },
	{ NODE_STATS_STATE, "all", NODE_STAT, STAT_ALL, 0 },
	{ NODE_STATS_STATE, "xxh64", NODE_STAT, STAT_XXH64, 0 },
	{ NODE_RANK, "params", NODE_RANK_PARAMS, 0, 0 },
	{ NODE_RANK, "partitions", NODE_PARTITIONS, 0, TREE_PARTITIONS },
	{ NODE_RANK, "state", NODE_TEXT, TEXT_RANK_STATE, TREE_LIVE },
	{ NODE_RANK, "address", NODE_TEXT, TEXT_RANK_ADDRESS, TREE_LIVE },
	{ NODE_RANK, "pid", NODE_TEXT, TEXT_RANK_PID, TREE_LIVE },
	{ NODE_RANK, "host", NODE_TEXT, TEXT_RANK_HOST, TREE_LIVE },
	{ NODE_RANK, "swap", NODE_TEXT, TEXT_RANK_SWAP, TREE_LIVE },
	{ NODE_RANK, "pinned", NODE_TEXT, TEXT_RANK_PINNED, TREE_LIVE },
	{ NODE_RANK, "log", NODE_TEXT, TEXT_RANK_LOG, TREE_LIVE },
	{ NODE_RANK, "comms", NODE_TEXT, TEXT_RANK_COMMS, TREE_LIVE },
	{ NODE_RANK, "timers", NODE_TEXT, TEXT_RANK_TIMERS, TREE_LIVE },
	{ NODE_RANK, "arena", NODE_TEXT, TEXT_RANK_ARENA, TREE_LIVE },
	{ NODE_GROUP, "params", NODE_GROUP_PARAMS, 0, 0 },
	{ NODE_GROUP, "kind", NODE_TEXT, TEXT_GROUP_KIND, 0 },
	{ NODE_GROUP, "shards", NODE_TEXT, TEXT_GROUP_SHARDS, 0 },
	{ NODE_GROUP, "replicas", NODE_TEXT, TEXT_GROUP_REPLICAS, 0 },
	{ NODE_GROUP, "sub_groups", NODE_TEXT, TEXT_GROUP_SUB_GROUPS, 0 },
	{ NODE_GROUP, "ranks", NODE_TEXT, TEXT_GROUP_RANKS, 0 },
	{ NODE_GROUP, "loss_scale", NODE_TEXT, TEXT_GROUP_LOSS_SCALE, TREE_LIVE },
	{ NODE_CONTROL, "version", NODE_TEXT, TEXT_VERSION, 0 },
	{ NODE_CONTROL, "options", NODE_TEXT, TEXT_OPTIONS, 0 },
	{ NODE_CONTROL, "config", NODE_TEXT, TEXT_CONFIG, 0 },
	{ NODE_CONTROL, "health", NODE_TEXT, TEXT_HEALTH, TREE_LIVE },
	{ NODE_CONTROL, "metrics", NODE_TEXT, TEXT_METRICS, 0 },
	{ NODE_CONTROL, "inflight", NODE_TEXT, TEXT_INFLIGHT, 0 },
	{ NODE_CONTROL, "log", NODE_TEXT, TEXT_LOG, 0 },
	{ NODE_CONTROL, "freeze", NODE_TEXT, TEXT_FREEZE, TREE_LIVE },
	{ NODE_CONTROL, "control", NODE_TEXT, TEXT_CONTROL, TREE_LIVE },
	{ NODE_CONTROL, "nccl", NODE_TEXT, TEXT_NCCL, TREE_LIVE },
	{ NODE_CONTROL, "comms", NODE_TEXT, TEXT_COMMS, TREE_LIVE },
	{ NODE_CONTROL, "place", NODE_TEXT, TEXT_PLACE, TREE_LIVE },
	{ NODE_CONTROL, "leaves", NODE_TEXT, TEXT_LEAVES, TREE_LIVE },
	{ NODE_CONTROL, "readers", NODE_TEXT, TEXT_READERS, TREE_LIVE },
	{ NODE_CONTROL, "stats", NODE_STATS_TABLE, 0, 0 },
	{ NODE_CONTROL, "source", NODE_TEXT, TEXT_SOURCE, TREE_STILL },
};

/* The kind of a directory's entries that are not fixed. */
const enum node_kind tree_content[NODE_KINDS] = {
	[NODE_ROOT] = NODE_PART,
	[NODE_PARAMS] = NODE_PARAM,
	[NODE_BUFFERS] = NODE_PARAM,
	[NODE_PARAM] = NODE_STATE,
	[NODE_STATS] = NODE_STATS_STATE,
	[NODE_ELEM] = NODE_ELEM_STATE,
	[NODE_RANKS] = NODE_RANK,
	[NODE_RANK_PARAMS] = NODE_RANK_PARAM,
	[NODE_RANK_PARAM] = NODE_RANK_STATE,
	[NODE_PARTITIONS] = NODE_PARTITION,
	[NODE_PARTITION] = NODE_PARTITION_STATE,
	[NODE_GROUPS] = NODE_GROUP,
	[NODE_GROUP] = NODE_HYPER,
	[NODE_GROUP_PARAMS] = NODE_GROUP_LINK,
	[NODE_EXPORT_HF] = NODE_EXPORT_FILE,
	[NODE_UNIVERSAL_ZERO] = NODE_UNIVERSAL_PARAM,
	[NODE_UNIVERSAL_PARAM] = NODE_UNIVERSAL_STATE,
};

static bool has_partitions(struct engine *engine)
{
	struct engine_group g;
	struct engine_state state;

	return engine_is_live(engine) ||
	       (engine_group(engine, 0, &g) && g.nranks &&
		engine_partition_states(engine, g.ranks[0], 0, 0, &state, 1) > 0);
}

static unsigned what_has(struct engine *engine)
{
	bool parts = engine_nparts(engine);
	unsigned has = (parts ? TREE_PARTS : TREE_WHOLE) |
		       (!parts && engine_ngroups(engine) ? TREE_UNIVERSAL : 0u) |
		       (has_partitions(engine) ? TREE_PARTITIONS : 0u);
	struct engine_job job;

	if (engine_is_live(engine))
		return TREE_LIVE | TREE_STEP | TREE_GROUPS | TREE_NOW | has;
	engine_job(engine, &job);
	if (engine_nbuffers(engine))
		has |= parts ? TREE_PART_BUFFERS : TREE_BUFFERS;
	if (engine_ngroups(engine))
		has |= parts ? TREE_PART_GROUPS : TREE_GROUPS;
	return has | TREE_STILL | (job.has_step ? TREE_STEP : 0u);
}

/* Sets the device mesh by the coordinates of parameters, if any parameter has one. */
static void init_mesh(struct tree *t)
{
	struct mesh mesh = { .world = t->nranks }, none = mesh;
	struct engine_param p;
	char why[256];

	for (uint32_t i = 0; engine_param(t->engine, i, &p); i++)
		mesh_see(&mesh, p.coordinate);
	if (memcmp(&mesh, &none, sizeof(none)) != 0 && !mesh_init(&mesh, why, sizeof(why)))
		t->mesh = mesh;
}

int tree_init(struct tree *t, struct engine *engine, bool writable)
{
	*t = (struct tree){ .engine = engine,
			    .nparams = engine_nparams(engine),
			    .ntensors = engine_nparams(engine) + engine_nbuffers(engine),
			    .has = what_has(engine),
			    .nranks = engine_nranks(engine),
			    .ngroups = (uint32_t)u64_min(engine_ngroups(engine), GROUPS_SHOWN),
			    .writable = writable,
			    .uid = getuid(),
			    .gid = getgid() };
	clock_gettime(CLOCK_REALTIME, &t->time);
	t->data = t->time;
	if (t->has & TREE_LIVE)
		init_mesh(t);
	if (t->has & TREE_STILL)
		tree_set_time(&t->data, engine_changed_ns(engine, NULL));
	pthread_mutex_init(&t->lock, NULL);
	t->keys = calloc(TREE_KEYS_MAX, sizeof(*t->keys));
	t->found = malloc(sizeof(*t->found));
	if (t->found)
		found_init(t->found);
	if (!t->found || !t->keys || tree_init_parts(t) ||
	    exports_init(&t->exports, engine, t->nparts)) {
		tree_fini(t);
		return -ENOMEM;
	}
	tree_key_slot(t, "fp32"); /* it has a file, however many other keys there are */
	return 0;
}

void tree_fini(struct tree *t)
{
	exports_fini(&t->exports);
	tree_fini_parts(t);
	free(t->keys);
	if (t->found)
		found_fini(t->found);
	free(t->found);
	pthread_mutex_destroy(&t->lock);
}

static bool slot_is_taken(const struct tree *t, uint32_t slot)
{
	return atomic_load_explicit(&t->keys[slot].taken, memory_order_acquire);
}

/* Returns the slot that has the key, or that the key would get.
 * -ENOSPC: the table is full.
 */
static int64_t find_key(const struct tree *t, const char *key)
{
	uint32_t slot = 0;

	for (const char *c = key; *c; c++)
		slot = slot * 31 + (unsigned char)*c;
	slot %= TREE_KEYS_MAX;
	for (uint32_t i = 0; i < TREE_KEYS_MAX; i++, slot = (slot + 1) % TREE_KEYS_MAX) {
		if (!slot_is_taken(t, slot) || !strcmp(t->keys[slot].text, key))
			return slot;
	}
	return -ENOSPC;
}

int64_t tree_key_slot(struct tree *t, const char *key)
{
	int64_t slot = find_key(t, key);

	if (slot < 0)
		log_once(LOG_WARN, "states have more than %d keys: %s has no file",
			 TREE_KEYS_MAX, key);
	if (slot < 0 || slot_is_taken(t, (uint32_t)slot))
		return slot;
	pthread_mutex_lock(&t->lock);
	slot = find_key(t, key);
	if (slot >= 0 && !slot_is_taken(t, (uint32_t)slot)) {
		snprintf(t->keys[slot].text, sizeof(t->keys[slot].text), "%s", key);
		atomic_store_explicit(&t->keys[slot].taken, true, memory_order_release);
	}
	pthread_mutex_unlock(&t->lock);
	return slot;
}

uint64_t tree_inode(struct node n)
{
	if (n.kind == NODE_ROOT)
		return ROOT_INODE;
	if (n.kind == NODE_CELLS) {
		n.item = n.name;
		n.slot = 0;
	}
	/* A node has an alias or a stat, never both. */
	return (uint64_t)n.kind << 58 | (uint64_t)(n.alias | n.stat) << 43 |
	       (uint64_t)n.rank << 42 | (uint64_t)n.item << 10 | n.slot;
}

static bool has_rank(enum node_kind kind)
{
	return (kind >= NODE_RANK && kind <= NODE_PARTITION) || kind == NODE_RANK_STATE ||
	       kind == NODE_PARTITION_STATE;
}

bool tree_node_has_param(enum node_kind kind)
{
	return kind == NODE_PARAM || kind == NODE_RANK_PARAM || kind == NODE_STATE ||
	       kind == NODE_NPY || kind == NODE_RANK_STATE || kind == NODE_GROUP_LINK ||
	       kind == NODE_STATS || kind == NODE_STATS_STATE || kind == NODE_STAT ||
	       kind == NODE_CELLS || kind == NODE_ELEM || kind == NODE_ELEM_STATE ||
	       kind == NODE_UNIVERSAL_PARAM || kind == NODE_UNIVERSAL_STATE;
}

static bool has_group(enum node_kind kind)
{
	return kind == NODE_PARTITION || kind == NODE_PARTITION_STATE || kind == NODE_GROUP ||
	       kind == NODE_GROUP_PARAMS || kind == NODE_HYPER || kind == NODE_GROUP_LINK;
}

bool tree_node_is_dir(struct node n)
{
	return n.kind <= NODE_CONTROL;
}

bool tree_node_is_state(struct node n)
{
	return n.kind >= NODE_STATE && n.kind <= NODE_HYPER;
}

/* Returns true if the slot of nodes of this kind is a key's number. */
static bool has_key(enum node_kind kind)
{
	return (kind >= NODE_STATE && kind <= NODE_HYPER) || kind == NODE_STATS_STATE ||
	       kind == NODE_STAT || kind == NODE_ELEM_STATE;
}

bool tree_kind_is_hidden(enum node_kind kind)
{
	return kind == NODE_STATS || kind == NODE_ELEM || kind == NODE_STATS_TABLE ||
	       kind == NODE_EXPORT;
}

bool tree_has_fixed(const struct tree *t, const struct tree_fixed *f)
{
	return !f->needs || (f->needs & t->has);
}

int tree_shows_fixed(const struct tree *t, const struct tree_fixed *f, struct node dir)
{
	if (!tree_has_fixed(t, f))
		return 0;
	if (f->kind == NODE_TEXT && f->text == TEXT_UNIVERSAL + UNIVERSAL_STEP)
		return universal_has_step(t->engine, dir.item);
	return f->kind == NODE_TEXT && f->text == TEXT_RANK_ARENA
		       ? engine_rank_arena(t->engine, dir.rank)
		       : 1;
}

/* Returns the kind of the directory that has a text; NODE_KINDS: no directory of this tree has
 * it.
 */
static enum node_kind text_dir(const struct tree *t, uint32_t text)
{
	for (size_t i = 0; i < TREE_FIXED; i++) {
		if (tree_fixed[i].kind == NODE_TEXT && tree_fixed[i].text == text)
			return tree_has_fixed(t, &tree_fixed[i]) ? tree_fixed[i].dir
								 : NODE_KINDS;
	}
	return NODE_KINDS;
}

/* Returns true if only trees of other sources have fixed entries of this kind. */
static bool is_missing(const struct tree *t, enum node_kind kind)
{
	bool missing = false;

	for (size_t i = 0; i < TREE_FIXED; i++) {
		if (tree_fixed[i].kind != kind || kind == NODE_TEXT)
			continue;
		if (tree_has_fixed(t, &tree_fixed[i]))
			return false;
		missing = true;
	}
	return missing;
}

/* Returns true if a node of this kind is a part, or a folder or file whose item is a part. */
static bool has_part(enum node_kind kind)
{
	return kind == NODE_PART || kind == NODE_PARAMS || kind == NODE_BUFFERS ||
	       kind == NODE_GROUPS || kind == NODE_EXPORT || kind == NODE_EXPORT_HF ||
	       kind == NODE_EXPORT_FILE || kind == NODE_UNIVERSAL ||
	       kind == NODE_UNIVERSAL_ZERO;
}

static bool node_exists(const struct tree *t, struct node n)
{
	enum node_kind kind = n.kind == NODE_TEXT ? text_dir(t, n.slot) : n.kind;
	bool may_be_buffer =
		tree_node_has_param(kind) && !has_rank(kind) && kind != NODE_GROUP_LINK;
	uint32_t tensors = may_be_buffer ? t->ntensors : t->nparams;

	if (kind >= NODE_KINDS || is_missing(t, kind) ||
	    (has_rank(kind) && n.rank >= t->nranks) ||
	    (tree_kind_is_of_params(kind) && n.rank > !!(t->has & TREE_NOW)) ||
	    (has_part(kind) && n.item >= t->nparts) || n.stat >= STATS ||
	    (kind == NODE_PART && !(t->has & TREE_PARTS)))
		return false;
	if ((tree_node_has_param(kind) && n.item >= tensors) ||
	    (has_group(kind) && tree_node_group(n) >= t->ngroups))
		return false;
	return !has_key(n.kind) || slot_is_taken(t, n.slot);
}

/* Sets the fields of a NODE_CELLS that its name determines. */
static bool set_found(const struct tree *t, struct node *n)
{
	struct found_name name;
	struct node dir;

	if (!found_get(t->found, n->item, &name) || tree_node(t, name.dir, &dir))
		return false;
	n->name = n->item;
	n->item = dir.item;
	n->slot = name.slot;
	return true;
}

int tree_node(const struct tree *t, uint64_t inode, struct node *n)
{
	struct node got = { .kind = (enum node_kind)(inode >> 58),
			    .rank = inode >> 42 & 0xffff,
			    .item = (uint32_t)(inode >> 10),
			    .slot = inode & (TREE_KEYS_MAX - 1) };

	if (got.kind == NODE_STAT)
		got.stat = got.rank >> 1;
	if (tree_node_has_aliases(got))
		got.alias = got.rank >> 1;
	if (got.kind == NODE_STAT || tree_node_has_aliases(got))
		got.rank &= 1;
	if (got.kind == NODE_CELLS && !set_found(t, &got))
		return -ESTALE;
	if (inode == ROOT_INODE)
		got = (struct node){ .kind = NODE_ROOT };
	else if (got.kind == NODE_ROOT || !node_exists(t, got))
		return -ESTALE;
	*n = got;
	return 0;
}

void tree_forget(struct tree *t, uint64_t inode, uint64_t n)
{
	if (inode >> 58 == NODE_CELLS)
		found_drop(t->found, (uint32_t)(inode >> 10), n);
}

/* Returns the part that a node is in. */
static uint32_t part_above(const struct tree *t, struct node n)
{
	if (n.kind == NODE_PARAM || n.kind == NODE_UNIVERSAL_PARAM)
		return tree_part_of_param(t, n.item);
	return n.kind == NODE_GROUP ? tree_part_of_group(t, tree_node_group(n)) : n.item;
}

struct node tree_parent(const struct tree *t, struct node n)
{
	static const enum node_kind parent[NODE_KINDS] = {
		[NODE_PARAM] = NODE_PARAMS,
		[NODE_RANK] = NODE_RANKS,
		[NODE_RANK_PARAMS] = NODE_RANK,
		[NODE_RANK_PARAM] = NODE_RANK_PARAMS,
		[NODE_PARTITIONS] = NODE_RANK,
		[NODE_PARTITION] = NODE_PARTITIONS,
		[NODE_GROUP] = NODE_GROUPS,
		[NODE_GROUP_PARAMS] = NODE_GROUP,
		[NODE_STATE] = NODE_PARAM,
		[NODE_NPY] = NODE_PARAM,
		[NODE_RANK_STATE] = NODE_RANK_PARAM,
		[NODE_PARTITION_STATE] = NODE_PARTITION,
		[NODE_HYPER] = NODE_GROUP,
		[NODE_GROUP_LINK] = NODE_GROUP_PARAMS,
		[NODE_STATS] = NODE_PARAM,
		[NODE_STATS_STATE] = NODE_STATS,
		[NODE_STAT] = NODE_STATS_STATE,
		[NODE_STATS_TABLE] = NODE_CONTROL,
		[NODE_CELLS] = NODE_PARAM,
		[NODE_ELEM] = NODE_PARAM,
		[NODE_ELEM_STATE] = NODE_ELEM,
		[NODE_EXPORT_FILE] = NODE_EXPORT,
		[NODE_EXPORT_HF] = NODE_EXPORT,
		[NODE_UNIVERSAL] = NODE_EXPORT,
		[NODE_UNIVERSAL_ZERO] = NODE_UNIVERSAL,
		[NODE_UNIVERSAL_PARAM] = NODE_UNIVERSAL_ZERO,
		[NODE_UNIVERSAL_STATE] = NODE_UNIVERSAL_PARAM,
	};
	struct found_name name;
	struct node up = { .kind = parent[n.kind],
			   .rank = n.rank,
			   .item = n.item,
			   .slot = n.kind == NODE_STAT ? n.slot : 0 };

	if (n.kind == NODE_CELLS && found_get(t->found, n.name, &name) &&
	    !tree_node(t, name.dir, &up))
		return up;
	if (n.kind == NODE_TEXT)
		up.kind = text_dir(t, n.slot);
	if (n.kind == NODE_PARAM && n.item >= t->nparams)
		up.kind = NODE_BUFFERS;
	if (n.kind == NODE_GROUP_LINK)
		up = (struct node){ .kind = NODE_GROUP_PARAMS, .item = n.rank << 16 };
	if (!has_rank(up.kind) && !tree_kind_is_of_params(up.kind))
		up.rank = 0;
	if (n.kind == NODE_EXPORT_FILE && n.slot >= EXPORT_INDEX)
		up.kind = NODE_EXPORT_HF;
	if (up.kind == NODE_ROOT && has_part(n.kind) && n.kind != NODE_PART &&
	    (t->has & TREE_PARTS))
		up.kind = NODE_PART;
	if (has_part(up.kind))
		up.item = part_above(t, n);
	else if (!tree_node_has_param(up.kind) && !has_group(up.kind))
		up.item = 0;
	return up;
}

const char *tree_slot_key(const struct tree *t, uint64_t slot)
{
	return slot < TREE_KEYS_MAX && slot_is_taken(t, (uint32_t)slot) ? t->keys[slot].text
									: NULL;
}

const char *tree_key(const struct tree *t, struct node n)
{
	assert(n.slot < TREE_KEYS_MAX && slot_is_taken(t, n.slot));
	return t->keys[n.slot].text;
}

struct engine_address tree_address(const struct tree *t, struct node n)
{
	static const enum engine_address_kind kinds[NODE_KINDS] = {
		[NODE_STATE] = ENGINE_PARAM,
		[NODE_NPY] = ENGINE_PARAM,
		[NODE_CELLS] = ENGINE_PARAM,
		[NODE_STAT] = ENGINE_PARAM,
		[NODE_UNIVERSAL_STATE] = ENGINE_PARAM,
		[NODE_RANK_STATE] = ENGINE_RANK_PARAM,
		[NODE_PARTITION_STATE] = ENGINE_RANK_PARTITION,
		[NODE_HYPER] = ENGINE_HYPER,
	};
	struct engine_address a = { .kind = kinds[n.kind],
				    .rank = n.rank,
				    .now = tree_node_is_now(n) };

	if (tree_node_has_param(n.kind))
		a.param = n.item;
	else
		a.group = tree_node_group(n);
	if (n.kind == NODE_PARTITION_STATE)
		a.sub = tree_node_sub(n);
	snprintf(a.key, sizeof(a.key), "%s", tree_key(t, n));
	return a;
}

/* ---- states ---- */

int tree_states(struct tree *t, struct node dir, struct state_list *out)
{
	struct engine_address at = { .rank = dir.rank };
	int rc;

	switch (dir.kind) {
	case NODE_PARAM:
	case NODE_STATS:
	case NODE_ELEM:
	case NODE_ELEM_STATE:
	case NODE_UNIVERSAL_PARAM:
		at.kind = ENGINE_PARAM;
		at.param = dir.item;
		break;
	case NODE_RANK_PARAM:
		at.kind = ENGINE_RANK_PARAM;
		at.param = dir.item;
		break;
	case NODE_PARTITION:
		at.kind = ENGINE_RANK_PARTITION;
		at.group = tree_node_group(dir);
		at.sub = tree_node_sub(dir);
		break;
	case NODE_GROUP:
		at.kind = ENGINE_HYPER;
		at.group = tree_node_group(dir);
		break;
	default:
		out->count = 0;
		return 0;
	}
	rc = dir.kind == NODE_UNIVERSAL_PARAM ? universal_states(t->engine, dir.item, out)
					      : state_list_fill(out, t->engine, &at);
	for (int i = 0; i < out->count && tree_node_is_now(dir); i++)
		out->states[i].flags &= ~(unsigned)ENGINE_STATE_WRITABLE;
	return rc;
}

int tree_state(struct tree *t, struct node n, struct engine_state *state)
{
	STATE_LIST(states);
	struct node dir = tree_parent(t, n);
	const struct engine_state *found;
	int rc;

	if (n.kind == NODE_STAT)
		dir = tree_parent(t, dir);
	rc = tree_states(t, dir, &states);
	found = state_list_find(&states, tree_key(t, n));
	if (!found)
		return rc ? rc : -ENOENT;
	*state = *found;
	return 0;
}

int tree_cells(const struct tree *t, struct node n, const struct engine_state *state,
	       struct cells *c, char **text)
{
	struct found_name name = { .text = NULL };
	char file[NAMES_FILE_MAX + 1];
	struct engine_param p;

	if (n.kind != NODE_NPY && n.kind != NODE_CELLS && n.kind != NODE_UNIVERSAL_STATE) {
		cells_init_raw(c, state->bytes);
		return 0;
	}
	if (!engine_param(t->engine, n.item, &p) ||
	    (n.kind == NODE_CELLS && !found_get(t->found, n.name, &name)))
		return -ENOENT;
	if (n.kind == NODE_UNIVERSAL_STATE)
		return universal_cells(c, state, &p, text);
	if (n.kind == NODE_NPY)
		return cells_init(c, ".npy", state, &p);
	if (tree_parent(t, n).kind != NODE_PARAM)
		return cells_init_element(c, name.text, state, &p);
	tree_state_file(NODE_PARAM, state->key, false, file);
	return cells_init(c, name.text + strlen(file), state, &p);
}

int tree_export(struct tree *t, struct node n, struct export_set **set)
{
	int rc = exports_get(&t->exports, n.item, &t->parts[n.item].is, set);

	if (rc || n.slot < (*set)->nfiles)
		return rc;
	export_put(*set);
	*set = NULL;
	return -ENOENT;
}

const struct tree_fixed *tree_find_fixed(enum node_kind dir, const char *name)
{
	for (size_t i = 0; i < TREE_FIXED; i++) {
		if (tree_fixed[i].dir == dir && !strcmp(tree_fixed[i].name, name))
			return &tree_fixed[i];
	}
	return NULL;
}

/* Writes the file name of a key.  A key that looks like another file of its directory is
 * escaped, so that no two files have one name.
 */
void tree_state_file(enum node_kind dir, const char *key, bool npy, char *out)
{
	size_t length;

	if (dir == NODE_UNIVERSAL_PARAM)
		key = universal_key(key);
	if (tree_find_fixed(dir, key))
		length = names_escape_first(key, out, NAMES_FILE_MAX + 1);
	else
		length = names_escape(key, out, NAMES_FILE_MAX + 1);
	if (dir == NODE_PARAM && length >= 4 && !strcmp(out + length - 4, ".npy")) {
		strcpy(out + length - 4, "%2Enpy");
		length += 2;
	}
	if (dir == NODE_UNIVERSAL_PARAM)
		strcpy(out + length, ".pt");
	if (npy)
		strcpy(out + length, ".npy");
}

int tree_state_entry(struct tree *t, struct node dir, const struct engine_state *state,
		     bool npy, struct tree_entry *entry)
{
	int64_t slot = tree_key_slot(t, state->key);

	if (slot < 0)
		return (int)slot;
	*entry = (struct tree_entry){ .has_state = true, .state = *state };
	entry->node = (struct node){ .kind = npy ? NODE_NPY : tree_content[dir.kind],
				     .rank = dir.rank,
				     .item = dir.item,
				     .slot = (uint32_t)slot };
	tree_state_file(dir.kind, state->key, npy, entry->name);
	return 0;
}

int tree_rank_holds(struct tree *t, uint32_t rank, uint32_t param)
{
	struct engine_state state;

	return engine_rank_states(t->engine, rank, param, &state, 1);
}

bool tree_group_has_rank(struct tree *t, uint32_t group, uint32_t rank, struct engine_group *g)
{
	if (!engine_group(t->engine, group, g))
		return false;
	for (uint32_t i = 0; i < g->nranks; i++) {
		if (g->ranks[i] == rank)
			return true;
	}
	return false;
}

struct node tree_fixed_node(const struct tree_fixed *f, struct node dir)
{
	struct node n = { .kind = f->kind,
			  .rank = f->needs == TREE_NOW ? 1 : dir.rank,
			  .item = dir.item };

	if (f->kind == NODE_TEXT || f->kind == NODE_EXPORT_FILE)
		n.slot = f->text;
	if (f->kind == NODE_STAT) {
		n.slot = dir.slot;
		n.stat = f->text;
	}
	return n;
}
