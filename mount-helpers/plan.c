/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/commands.h"
#include "mount-helpers/mount-file.h"
#include "mount-helpers/target.h"

#include "engine/base/base.h"
#include "engine/catalog/mesh.h"
#include "engine/catalog/needs.h"
#include "engine/engine.h"
#include "engine/swap/swap-config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { STAGE = 3, STATES = 2, SUB_GROUP_SIZE = 1000000000 };

enum {
	COLUMN_RANK,
	COLUMN_TO,
	COLUMN_DEVICE,
	COLUMN_HOST,
	COLUMN_NVME,
	COLUMN_TOTAL,
	COLUMN_LP,
	COLUMN_HPZ,
	COLUMN_LP_GRAD,
	COLUMN_GRAD,
	COLUMN_FP32,
	COLUMN_OPTIMIZER,
	COLUMN_PINNED
};

const struct listing_column plan_columns[] = {
	[COLUMN_RANK] = { "rank", LISTING_NUMBER },
	[COLUMN_TO] = { "to", LISTING_NUMBER },
	[COLUMN_DEVICE] = { "device", LISTING_BYTES },
	[COLUMN_HOST] = { "host", LISTING_BYTES },
	[COLUMN_NVME] = { "nvme", LISTING_BYTES },
	[COLUMN_TOTAL] = { "total", LISTING_BYTES },
	[COLUMN_LP] = { "lp", LISTING_BYTES, true },
	[COLUMN_HPZ] = { "hpz", LISTING_BYTES, true },
	[COLUMN_LP_GRAD] = { "lp_grad", LISTING_BYTES, true },
	[COLUMN_GRAD] = { "grad", LISTING_BYTES, true },
	[COLUMN_FP32] = { "fp32", LISTING_BYTES, true },
	[COLUMN_OPTIMIZER] = { "optimizer", LISTING_BYTES, true },
	[COLUMN_PINNED] = { "pinned", LISTING_BYTES, true },
	{ NULL },
};

static uint64_t total_of(const struct needs *n)
{
	return n->tier[NEEDS_DEVICE] + n->tier[NEEDS_HOST] + n->tier[NEEDS_NVME];
}

/* ---- what was asked for ---- */

static int read_swap(struct needs_spec *s)
{
	const struct frag_config config = { .size = sizeof(config), .swap_dir = "." };
	struct swap_config swap;
	char why[256];

	if (swap_config_read(&swap, &config, why, sizeof(why)))
		return call_fail("%s", why);
	s->tier = NEEDS_NVME;
	s->least = swap.least;
	s->in_memory = swap.in_memory;
	/* the swap file pins whole buffers */
	s->pinned = swap.pinned / swap.slice * swap.slice;
	return 0;
}

static int read_spec(struct needs_spec *s, const struct call *call, uint32_t world)
{
	char why[256];

	*s = (struct needs_spec){
		.stage = call_has(call, 'S') ? (int)call->stage : STAGE,
		.mesh = { .world = call->world ? call->world : world,
			  .tp = call->tp,
			  .sp = call->sp,
			  .ep = call->ep,
			  .hpz = call->hpz,
			  .data_first = call_has(call, 'F') },
		.sub_group_size = SUB_GROUP_SIZE,
		.nstates = call_has(call, 'k') ? call->states : STATES,
		.tier = call->offload ? NEEDS_HOST : NEEDS_DEVICE,
	};
	if (mesh_init(&s->mesh, why, sizeof(why)))
		return call_usage("%s", why);
	if (!call_has(call, 'x'))
		return 0;
	if (call->offload)
		return call_usage("--swap and --offload are for the same states");
	return read_swap(s);
}

/* ---- the model ---- */

/* Writes what `named` is mounted from, or the source that target_resolve gives.  The name of a
 * mount's source in /proc/mounts may be any (fsname=).
 */
static int find_source(const char *named, char source[PATH_MAX])
{
	switch (target_resolve(named, source)) {
	case TARGET_NONE:
		return target_fail_none(named);
	case TARGET_MOUNT:
		break;
	default:
		return 0;
	}
	mount_file_setting(named, ".frag/config", "checkpoint", source, PATH_MAX);
	if (!*source)
		mount_file_setting(named, ".frag/config", "address", source, PATH_MAX);
	return *source ? 0 : call_fail("%s: its source is not known", named);
}

static int open_model(struct engine **e, const char *named)
{
	const char *plain = getenv("FRAG_PLAIN");
	char source[PATH_MAX], why[512];
	struct engine_options options = { .source = source,
					  .plain = plain && !strcmp(plain, "1") };

	if (find_source(named, source))
		return FRAGCTL_FAILURE;
	/* Opening the checkpoint would undo the edit, which writes. */
	if (engine_is_checkpoint(&options) && engine_is_unfinished(&options))
		return call_fail("%s: an edit of it was interrupted: mount it once", named);
	return engine_open(e, &options, why, sizeof(why)) ? call_fail("%s", why) : 0;
}

static bool is_trained(enum frag_dtype dtype)
{
	return dtype == FRAG_F32 || dtype == FRAG_F64 || dtype == FRAG_F16 ||
	       dtype == FRAG_BF16;
}

static int add_param(struct needs_param *param, struct engine *e, uint32_t number,
		     uint32_t group, const char *named)
{
	struct engine_param p;

	engine_param(e, number, &p);
	if (*p.coordinate)
		return call_fail("%s: %s is cut by model parallelism (%s): a plan needs whole "
				 "parameters",
				 named, p.name, p.coordinate);
	*param = (struct needs_param){
		.name = p.name,
		.dtype = p.dtype,
		.ndim = p.ndim,
		.shape = p.shape,
		.group = group,
		.frozen = p.frozen || !is_trained(p.dtype),
	};
	return 0;
}

/* Reads the shapes of the model: of its groups, in the optimizer's order, then of parameters in
 * no group, which are frozen if there are groups.  A parameter that names a group which does
 * not list it is another name of a listed one (tied weights).
 */
static int read_params(struct needs_param *params, uint32_t *n, struct engine *e,
		       const char *named)
{
	uint32_t ngroups = engine_ngroups(e);
	int rc = 0;

	*n = 0;
	for (uint32_t g = 0; g < ngroups; g++) {
		struct engine_group group;

		engine_group(e, g, &group);
		for (uint32_t i = 0; i < group.nparams && !rc; i++)
			rc = add_param(&params[(*n)++], e, group.params[i], g, named);
	}
	for (uint32_t i = 0; i < engine_nparams(e) && !rc; i++) {
		struct engine_param p;

		engine_param(e, i, &p);
		if (p.group >= 0)
			continue;
		rc = add_param(&params[*n], e, i, ngroups, named);
		params[(*n)++].frozen |= ngroups > 0;
	}
	return rc;
}

/* ---- the answer ---- */

static void add_row(struct listing *t, const struct needs *n, uint32_t from, uint32_t to)
{
	listing_row(t);
	listing_number(t, COLUMN_RANK, from);
	listing_number(t, COLUMN_TO, to);
	listing_number(t, COLUMN_DEVICE, n->tier[NEEDS_DEVICE]);
	listing_number(t, COLUMN_HOST, n->tier[NEEDS_HOST]);
	listing_number(t, COLUMN_NVME, n->tier[NEEDS_NVME]);
	listing_number(t, COLUMN_TOTAL, total_of(n));
	listing_number(t, COLUMN_LP, n->lp);
	listing_number(t, COLUMN_HPZ, n->secondary);
	listing_number(t, COLUMN_LP_GRAD, n->lp_grad);
	listing_number(t, COLUMN_GRAD, n->grad);
	listing_number(t, COLUMN_FP32, n->fp32);
	listing_number(t, COLUMN_OPTIMIZER, n->optimizer);
	listing_number(t, COLUMN_PINNED, n->pinned);
}

/* Returns the groups of the kind as lists of ranks. */
static json_t *groups_json(const struct mesh *m, enum mesh_kind kind)
{
	json_t *groups = json_array();

	for (uint32_t group = 0; group < mesh_count(m, kind); group++) {
		json_t *ranks = json_array();

		for (uint32_t i = 0; i < mesh_size(m, kind); i++)
			json_array_append_new(ranks,
					      json_integer(mesh_rank(m, kind, group, i)));
		json_array_append_new(groups, ranks);
	}
	return groups;
}

static json_t *kinds_json(const struct mesh *m)
{
	json_t *kinds = json_object();

	for (enum mesh_kind kind = 0; kind < MESH_KINDS; kind++)
		if (mesh_size(m, kind) > 1)
			json_object_set_new(kinds, mesh_kind_name(kind), groups_json(m, kind));
	return kinds;
}

static void print_groups(const struct mesh *m)
{
	for (enum mesh_kind kind = 0; kind < MESH_KINDS; kind++) {
		if (mesh_size(m, kind) < 2)
			continue;
		printf("%s:", mesh_kind_name(kind));
		for (uint32_t group = 0; group < mesh_count(m, kind); group++)
			for (uint32_t i = 0; i < mesh_size(m, kind); i++)
				printf("%c%" PRIu32, i ? ',' : ' ',
				       mesh_rank(m, kind, group, i));
		putchar('\n');
	}
}

static int print(struct listing *t, const struct call *call, const struct needs *ranks,
		 const struct mesh *mesh)
{
	uint32_t world = mesh->world;
	uint64_t sum[NEEDS_TIERS] = { 0 }, total = 0;
	char device[16], host[16], nvme[16], all[16], most[16];
	uint32_t largest = 0, first = 0;
	int rc;

	for (uint32_t r = 0; r < world; r++) {
		for (int tier = 0; tier < NEEDS_TIERS; tier++)
			sum[tier] += ranks[r].tier[tier];
		total += total_of(&ranks[r]);
		largest = total_of(&ranks[r]) > total_of(&ranks[largest]) ? r : largest;
		if (r + 1 < world && !memcmp(&ranks[r + 1], &ranks[first], sizeof(*ranks)))
			continue;
		add_row(t, &ranks[first], first, r);
		first = r + 1;
	}
	if (call_has(call, 'J')) {
		json_t *root = json_pack("{so}", "output_version", call_output_version(call));

		json_object_set_new(root, "ranks", listing_rows_json(t));
		json_object_set_new(
			root, "sum",
			json_pack("{sIsIsIsI}", "device", (json_int_t)sum[NEEDS_DEVICE], "host",
				  (json_int_t)sum[NEEDS_HOST], "nvme",
				  (json_int_t)sum[NEEDS_NVME], "total", (json_int_t)total));
		json_object_set_new(root, "largest", json_integer(largest));
		if (call_has(call, 'g'))
			json_object_set_new(root, "groups", kinds_json(mesh));
		return call_print_json(root);
	}
	rc = listing_print(t, "ranks");
	if (rc || call_has(call, 'H'))
		return rc;
	printf("all %" PRIu32 " ranks: device %s, host %s, NVMe %s, total %s\n", world,
	       listing_size(sum[NEEDS_DEVICE], device), listing_size(sum[NEEDS_HOST], host),
	       listing_size(sum[NEEDS_NVME], nvme), listing_size(total, all));
	printf("largest: rank %" PRIu32 ", %s\n", largest,
	       listing_size(total_of(&ranks[largest]), most));
	if (call_has(call, 'g'))
		print_groups(mesh);
	return 0;
}

int plan_run(const struct call *call)
{
	CLEANUP(free) struct needs_param *params = NULL;
	CLEANUP(free) struct needs *ranks = NULL;
	struct needs_spec spec;
	uint32_t nparams = 0;
	struct engine *e;
	struct listing t;
	char why[512];
	int rc = listing_init(&t, call, plan_columns);

	if (rc)
		return rc;
	rc = open_model(&e, call->words[0]);
	if (rc)
		goto fini;
	rc = read_spec(&spec, call, engine_nranks(e));
	if (rc)
		goto close;
	params = calloc(engine_nparams(e) + 1, sizeof(*params));
	ranks = calloc(spec.mesh.world, sizeof(*ranks));
	rc = params && ranks ? read_params(params, &nparams, e, call->words[0])
			     : call_fail("%s", strerror(ENOMEM));
	if (rc)
		goto close;
	rc = needs_compute(ranks, &spec, params, nparams, why, sizeof(why));
	if (rc == -EINVAL)
		rc = call_usage("%s: %s", call->words[0], why);
	else if (rc == -EEXIST)
		rc = call_fail("%s: %s", call->words[0], why);
	else
		rc = rc ? call_fail("%s: %s", call->words[0], strerror(-rc))
			: print(&t, call, ranks, &spec.mesh);
close:
	engine_close(e);
fini:
	listing_fini(&t);
	return rc;
}
