/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/api/api.h"
#include "engine/base/log.h"
#include "engine/job/join.h"
#include "engine/rank/devices.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const uint64_t SUB_GROUP_SIZE = 1000000000; /* DeepSpeed's default */

static bool key_ok(const char *key)
{
	return key && *key && strlen(key) <= FRAG_KEY_MAX && !strchr(key, '/') && *key != '.';
}

int api_copy_versioned(void *to, const void *from, size_t known)
{
	size_t size;

	memset(to, 0, known);
	if (!from)
		return -EINVAL;
	memcpy(&size, from, sizeof(size));
	if (size < sizeof(size) || size > 4096)
		return -EINVAL;
	memcpy(to, from, size < known ? size : known);
	return 0;
}

/* ---- parameters ---- */

int frag_param(struct frag *f, const struct frag_tensor *tensor)
{
	struct engine *e = api_engine(f);
	struct frag_tensor t;
	int param, rc = 0;

	if (!e || f->ready || api_copy_versioned(&t, tensor, sizeof(t)) ||
	    (t.ncuts && (!t.cuts || t.lp)))
		return -EINVAL;
	param = catalog_add_param(e->own, t.name, t.coordinate ? t.coordinate : "", t.dtype,
				  t.ndim, t.shape, t.flags & FRAG_FROZEN, 0);
	if (param < 0)
		return param;
	if (t.ncuts)
		rc = catalog_cut_param(e->own, (uint32_t)param, t.cuts, t.ncuts);
	if (!rc && t.lp)
		rc = registry_keep(&e->registry, STATE_LP, (uint32_t)param, 0, "", t.dtype,
				   e->own->params[param].numel, t.lp);
	if (!rc && t.lp_shard) /* frag_group sets the length */
		rc = registry_keep(&e->registry, STATE_LP_SHARD, (uint32_t)param, 0, "",
				   t.dtype, 0, t.lp_shard);
	return rc ? rc : param;
}

/* ---- groups ---- */

static uint32_t *all_ranks(uint32_t world)
{
	uint32_t *ranks = malloc(world * sizeof(*ranks));

	for (uint32_t i = 0; ranks && i < world; i++)
		ranks[i] = i;
	return ranks;
}

static int add_group(struct engine *e, const struct frag_zero *z, const uint32_t *ranks,
		     uint32_t nranks, uint32_t *params, uint32_t nparams)
{
	struct catalog_group g = {
		.stage = (uint8_t)(z->stage < 0 || z->stage > 3 ? 255 : z->stage),
		.sharding = (uint8_t)z->sharding,
		.flags = (uint8_t)z->flags,
		.replicas = z->replicas ? z->replicas : 1,
		.nranks = nranks,
		.ranks = (uint32_t *)(uintptr_t)ranks,
		.nparams = nparams,
		.params = params,
		.sub_group_size = z->sub_group_size ? z->sub_group_size : SUB_GROUP_SIZE,
		.alignment = z->alignment,
	};
	char why[200] = "";
	int group;

	if (catalog_member(&g, e->rank) == CATALOG_NONE) {
		log_warn("group %u: this rank is not among its ranks", e->own->ngroups);
		return -EINVAL;
	}
	group = catalog_add_group(e->own, &g, why, sizeof(why));
	if (group < 0 && why[0])
		log_warn("%s", why);
	return group;
}

/* Sets the length of this rank's pieces, which follows from the group's layout. */
static void size_lp_shards(struct engine *e, uint32_t group)
{
	const struct catalog_group *g = &e->own->groups[group];

	for (uint32_t i = 0; i < g->nparams; i++)
		registry_resize(&e->registry, STATE_LP_SHARD, g->params[i], 0, "",
				catalog_lp_held(e->own, g->params[i], e->rank));
}

int frag_group(struct frag *f, const int *params, size_t n, const struct frag_zero *zero)
{
	struct engine *e = api_engine(f);
	CLEANUP(free) uint32_t *all = NULL;
	CLEANUP(free) uint32_t *members = NULL;
	struct frag_zero z;
	int group, rc;

	if (!e || f->ready || n > FRAG_PARAMS_MAX || (n && !params) ||
	    api_copy_versioned(&z, zero, sizeof(z)))
		return -EINVAL;
	members = malloc((n + 1) * sizeof(*members));
	all = z.ranks ? NULL : all_ranks(e->world);
	if (!members || (!z.ranks && !all))
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		members[i] = (uint32_t)params[i];
	for (uint32_t i = 0; z.ranks && i < z.nranks; i++)
		if (z.ranks[i] >= e->world)
			return -EINVAL;
	group = add_group(e, &z, z.ranks ? z.ranks : all, z.ranks ? z.nranks : e->world,
			  members, (uint32_t)n);
	if (group < 0)
		return group;
	rc = catalog_finish_group(e->own, (uint32_t)group);
	if (rc) {
		log_warn("the layout of group %d cannot be computed: %s", group, strerror(-rc));
		catalog_drop_group(e->own);
		return rc;
	}
	size_lp_shards(e, (uint32_t)group);
	return group;
}

static const struct catalog_group *group_of(const struct frag *f, int group)
{
	const struct engine *e = api_engine(f);

	if (!e || group < 0 || (uint32_t)group >= e->own->ngroups)
		return NULL;
	return &e->own->groups[group];
}

uint32_t frag_sub_groups(const struct frag *f, int group)
{
	const struct catalog_group *g = group_of(f, group);

	return g ? g->layout.nsubs : 0;
}

uint64_t frag_partition_numel(const struct frag *f, int group, uint32_t sub)
{
	const struct catalog_group *g = group_of(f, group);

	return g && sub < g->layout.nsubs ? g->layout.partition_numel[sub] : 0;
}

uint64_t frag_flat_numel(const struct frag *f, int group)
{
	const struct catalog_group *g = group_of(f, group);

	if (!g || catalog_lp_is_sharded(g) || !g->layout.nsubs)
		return 0;
	return g->layout.partition_numel[0] * g->layout.shards;
}

int api_locate(const struct engine *e, int param, struct layout_fragment *fragment,
	       uint32_t *group)
{
	const struct catalog_param *p;
	const struct catalog_group *g;
	uint32_t member;

	if (param < 0 || (uint32_t)param >= e->own->nparams)
		return -EINVAL;
	p = &e->own->params[param];
	if (p->group == CATALOG_NONE)
		return -ENOENT;
	g = &e->own->groups[p->group];
	member = catalog_member(g, e->rank);
	*group = p->group;
	member = g->layout.shards == 1 ? 0 : member % g->layout.shards;
	return layout_on_shard(&g->layout, p->position, member, fragment) ? 0 : -ENOENT;
}

int frag_fragment(const struct frag *f, int param, struct frag_fragment *fragment)
{
	struct engine *e = api_engine(f);
	struct layout_fragment found;
	uint32_t group;
	int rc = e ? api_locate(e, param, &found, &group) : -EINVAL;

	if (!rc)
		*fragment = (struct frag_fragment){ group, found.sub, found.partition_offset,
						    found.param_offset, found.numel };
	return rc;
}

/* ---- states ---- */

/* Returns true if the tree has a file of that name beside a parameter's states. */
static bool is_taken(const char *key)
{
	static const char *const taken[] = { "lp",    "bf16",        "fp16",
					     "shape", "dtype",       "numel",
					     "group", "group_index", "fragments" };

	for (size_t i = 0; i < ARRAY_SIZE(taken); i++) {
		if (!strcmp(key, taken[i]))
			return true;
	}
	return false;
}

static bool state_key_ok(const char *key)
{
	if (!key_ok(key))
		return false;
	if (is_taken(key))
		log_warn("a state cannot have the key %s: each parameter has a file of that "
			 "name",
			 key);
	return !is_taken(key);
}

int api_check_state(const struct frag *f, int group, uint32_t sub, const char *key,
		    enum frag_dtype dtype)
{
	const struct catalog_group *g = group_of(f, group);

	if (!api_engine(f) || !state_key_ok(key) || !frag_dtype_size(dtype))
		return -EINVAL;
	return g && sub < g->layout.nsubs ? 0 : -ENOENT;
}

int frag_state_alloc(struct frag *f, int group, uint32_t sub, const char *key,
		     enum frag_dtype dtype, void **memory)
{
	int rc = api_check_state(f, group, sub, key, dtype);

	if (rc)
		return rc;
	return registry_alloc(&f->engine->registry, STATE_PARTITION, (uint32_t)group, sub, key,
			      dtype, frag_partition_numel(f, group, sub), memory);
}

int frag_state_keep(struct frag *f, int group, uint32_t sub, const char *key,
		    enum frag_dtype dtype, void *memory)
{
	int rc = api_check_state(f, group, sub, key, dtype);

	if (rc)
		return rc;
	return registry_keep(&f->engine->registry, STATE_PARTITION, (uint32_t)group, sub, key,
			     dtype, frag_partition_numel(f, group, sub), memory);
}

int frag_state_keep_whole(struct frag *f, int group, const char *key, enum frag_dtype dtype,
			  void *memory)
{
	uint64_t numel = frag_flat_numel(f, group);

	if (!api_engine(f) || !state_key_ok(key) || !frag_dtype_size(dtype))
		return -EINVAL;
	if (!numel)
		return -ENOENT;
	return registry_keep(&f->engine->registry, STATE_WHOLE, (uint32_t)group, 0, key, dtype,
			     numel, memory);
}

int frag_fragments_keep(struct frag *f, const int *params, size_t n, const char *key,
			enum frag_dtype dtype, void *const *memory)
{
	struct engine *e = api_engine(f);
	int rc = 0;

	if (!e || !state_key_ok(key) || !frag_dtype_size(dtype) || (n && !params))
		return -EINVAL;
	for (size_t i = 0; i < n && !rc; i++) {
		struct layout_fragment at;
		uint32_t group;

		rc = api_locate(e, params[i], &at, &group);
		if (!rc)
			rc = registry_keep_segment(
				&e->registry, group, at.sub, key, dtype,
				e->own->groups[group].layout.partition_numel[at.sub],
				(struct state_segment){ at.partition_offset, at.numel,
							memory ? (uintptr_t)memory[i] : 0 });
	}
	return rc;
}

int frag_fragment_keep(struct frag *f, int param, const char *key, enum frag_dtype dtype,
		       void *memory)
{
	return frag_fragments_keep(f, &param, 1, key, dtype, &memory);
}

int api_preserve_for_views(struct engine *e, enum state_kind kind, uint32_t index, uint32_t sub,
			   const char *key)
{
	enum frag_dtype dtype;
	int row = registry_find(&e->registry, kind, index, sub, key, &dtype);

	if (row >= 0 && view_owner_any(&e->view_owner))
		view_owner_preserve_row(&e->view_owner, &e->registry, (uint32_t)row);
	return row;
}

static int move_segments(struct engine *e, enum state_kind kind, uint32_t group, uint32_t sub,
			 const char *key, const struct state_segment *segments, size_t n)
{
	int row = api_preserve_for_views(e, kind, group, sub, key);

	return row < 0 ? row
		       : registry_replace(&e->registry, kind, group, sub, key, segments, n);
}

static int drop_state(struct engine *e, enum state_kind kind, uint32_t group, uint32_t sub,
		      const char *key)
{
	int row = api_preserve_for_views(e, kind, group, sub, key);

	return row < 0 ? row : registry_drop(&e->registry, kind, group, sub, key);
}

/* Begins a call that changes where a state of a group is.
 * -EBUSY: a sweep is open.
 */
static int begin_change(struct frag *f, int group, const char *key)
{
	if (!api_engine(f) || !key_ok(key) || group < 0)
		return -EINVAL;
	if (f->sweep)
		return -EBUSY;
	api_sweep_forget(f);
	return 0;
}

int frag_state_move(struct frag *f, int group, uint32_t sub, const char *key, void *memory)
{
	struct state_segment all = { .address = (uintptr_t)memory };
	struct engine *e = api_engine(f);
	int rc = begin_change(f, group, key);

	if (rc)
		return rc;
	rc = move_segments(e, STATE_PARTITION, (uint32_t)group, sub, key, &all, 1);
	return rc == -ENOENT ? move_segments(e, STATE_WHOLE, (uint32_t)group, sub, key, &all, 1)
			     : rc;
}

int frag_fragments_move(struct frag *f, const int *params, size_t n, const char *key,
			void *const *memory)
{
	struct state_segment segments[64]; /* fragments of one row, moved together */
	uint32_t group = 0, sub = 0, count = 0;
	struct engine *e = api_engine(f);
	int rc = 0;

	if (!e || !key_ok(key) || (n && !params))
		return -EINVAL;
	if (f->sweep)
		return -EBUSY;
	api_sweep_forget(f);
	for (size_t i = 0; i < n && !rc; i++) {
		struct layout_fragment at;
		uint32_t of;

		rc = api_locate(e, params[i], &at, &of);
		if (rc)
			break;
		if (count == ARRAY_SIZE(segments) ||
		    (count && (of != group || at.sub != sub))) {
			rc = move_segments(e, STATE_PARTITION, group, sub, key, segments,
					   count);
			count = 0;
		}
		group = of;
		sub = at.sub;
		segments[count++] = (struct state_segment){ at.partition_offset, at.numel,
							    memory ? (uintptr_t)memory[i] : 0 };
	}
	if (!rc && count)
		rc = move_segments(e, STATE_PARTITION, group, sub, key, segments, count);
	return rc;
}

/* Returns the number of elements of this rank's piece of a parameter; 0: there is none. */
static uint64_t piece_numel(const struct engine *e, uint32_t param)
{
	uint32_t group = e->own->params[param].group;

	return group != CATALOG_NONE && catalog_lp_is_sharded(&e->own->groups[group])
		       ? catalog_lp_held(e->own, param, e->rank)
		       : 0;
}

int frag_lp_move(struct frag *f, int param, unsigned flags, void *memory)
{
	struct engine *e = api_engine(f);
	enum state_kind kind = flags ? STATE_LP_SHARD : STATE_LP;
	uint32_t number = (uint32_t)param;
	uint64_t numel;
	int rc;

	if (!e || param < 0 || number >= e->own->nparams || flags & ~FRAG_SHARD ||
	    (!flags && e->own->params[number].cuts))
		return -EINVAL;
	rc = move_segments(e, kind, number, 0, "",
			   &(struct state_segment){ .address = (uintptr_t)memory }, 1);
	numel = flags ? piece_numel(e, number) : e->own->params[number].numel;
	return rc == -ENOENT && memory && numel
		       ? registry_keep(&e->registry, kind, number, 0, "",
				       e->own->params[number].dtype, numel, memory)
		       : rc;
}

int frag_state_drop(struct frag *f, int group, uint32_t sub, const char *key)
{
	struct engine *e = api_engine(f);
	int rc = begin_change(f, group, key);

	if (rc)
		return rc;
	rc = drop_state(e, STATE_PARTITION, (uint32_t)group, sub, key);
	return rc == -ENOENT ? drop_state(e, STATE_WHOLE, (uint32_t)group, sub, key) : rc;
}

int frag_hyper(struct frag *f, int group, const char *name, double *value)
{
	if (!group_of(f, group) || !key_ok(name) || !value)
		return -EINVAL;
	return registry_keep(&f->engine->registry, STATE_HYPER, (uint32_t)group, 0, name,
			     FRAG_F64, 1, value);
}

int frag_publish(struct frag *f, const char *name, void *memory, uint64_t bytes)
{
	struct engine *e = api_engine(f);

	if (!e || !key_ok(name) || !memory || bytes > INT64_MAX / 8)
		return -EINVAL;
	return registry_keep(&e->registry, STATE_PUBLISHED, 0, 0, name, FRAG_U8, bytes, memory);
}

int frag_ready(struct frag *f)
{
	struct engine *e = api_engine(f);
	int rc;

	if (!e || f->ready)
		return -EINVAL;
	rc = catalog_finish(e->own);
	if (rc) {
		log_warn("the layouts of this rank's groups cannot be computed: %s",
			 strerror(-rc));
		return rc;
	}
	if (e->registry.devices)
		devices_mark(e->registry.devices);
	control_page_put(&e->registry.control->generation_ns, clock_ns(CLOCK_REALTIME));
	api_note_trainer(e, true);
	atomic_store(&e->registry.control->phase, CONTROL_STABLE);
	pthread_mutex_lock(&e->lock);
	rc = join_described(e);
	pthread_mutex_unlock(&e->lock);
	f->ready = !rc;
	node_wake(e);
	return rc;
}
