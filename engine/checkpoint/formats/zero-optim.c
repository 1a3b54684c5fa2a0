/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/formats/torch-hypers.h"
#include "engine/checkpoint/formats/zero-optim.h"
#include "engine/checkpoint/parse/torch-unsupported.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* One rank's pickle, and nodes in it. */
struct optim_reader {
	struct zero_optim *o;
	const struct torch_source *source;
	const struct pickle *p;
	uint32_t rank;
	uint32_t masters; /* the node of the list of masters, one for each unit */
	/* the node of group_paddings */
	uint32_t paddings;
};

static uint32_t get(const struct torch_source *s, const char *key)
{
	const struct pickle *p = s->torch.pickle;

	return pickle_get(p, pickle_get(p, s->root, "optimizer_state_dict"), key);
}

/* Returns the node of torch's own optimizer state in a rank's file. */
static uint32_t base_of(const struct zero_optim *o, const struct torch_source *s)
{
	return get(s, o->stage == 3 ? "optimizer_state_dict" : "base_optimizer_state");
}

/* Returns the dict of a unit's states. */
static uint32_t states_of(const struct zero_optim *o, const struct torch_source *s,
			  uint32_t unit)
{
	const struct pickle *p = s->torch.pickle;
	uint32_t base = base_of(o, s);

	if (pickle_kind(p, base) == PICKLE_LIST)
		return pickle_item(p, base, unit);
	return pickle_get_int(p, pickle_get(p, base, "state"), unit);
}

static const char *masters_key(const struct zero_optim *o)
{
	return o->stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups";
}

static int begin(struct optim_reader *r, struct zero_optim *o, struct torch_source *s,
		 uint32_t rank)
{
	*r = (struct optim_reader){ .o = o,
				    .source = s,
				    .p = s->torch.pickle,
				    .rank = rank,
				    .masters = get(s, masters_key(o)),
				    .paddings = get(s, "group_paddings") };
	if (pickle_kind(r->p, r->masters) != PICKLE_LIST)
		return torch_source_refuse(s, "has no %s", masters_key(o));
	if (pickle_count(r->p, r->masters) != o->nunits)
		return torch_source_refuse(s, "has %u groups, rank 0 has %u",
					   pickle_count(r->p, r->masters), o->nunits);
	return 0;
}

/* ---- parts ---- */

static bool find_part(const struct optim_reader *r, uint32_t node, struct torchfile_tensor *out)
{
	return torch_source_tensor(r->source, node, out) && out->tensor.ndim == 1 &&
	       out->tensor.contiguous;
}

static int take_part(const struct optim_reader *r, uint32_t unit, uint32_t key,
		     const struct torchfile_tensor *x)
{
	*zero_optim_part(r->o, r->rank, unit, key) =
		(struct zero_part){ x->at, x->tensor.numel, x->tensor.dtype };
	return torch_source_use(r->source, x);
}

/* Returns true if a state is as long as the partition, or as the partition with the padding
 * that the master does not have.
 */
static bool is_of_partition(const struct optim_reader *r, uint32_t unit, uint64_t count)
{
	const struct zero_part *master = zero_optim_part(r->o, r->rank, unit, ZERO_MASTER);
	int64_t padding = 0;

	pickle_int(r->p, pickle_item(r->p, r->paddings, unit), &padding);
	return count == master->count ||
	       (padding > 0 && count == master->count + (uint64_t)padding);
}

static int take_masters(struct optim_reader *r, struct torch_source *s)
{
	struct torchfile_tensor x;
	int rc = 0;

	for (uint32_t unit = 0; unit < r->o->nunits && !rc; unit++) {
		if (!find_part(r, pickle_item(r->p, r->masters, unit), &x))
			return torch_source_refuse(s, "%s %u is no flat tensor",
						   masters_key(r->o), unit);
		rc = take_part(r, unit, ZERO_MASTER, &x);
	}
	return rc;
}

static int take_states(struct optim_reader *r, uint32_t unit)
{
	uint32_t states = states_of(r->o, r->source, unit);
	struct torchfile_tensor x;
	int rc = 0;

	for (uint32_t key = ZERO_MASTER + 1; key < r->o->nkeys && !rc; key++)
		if (find_part(r, pickle_get(r->p, states, r->o->keys[key]), &x) &&
		    is_of_partition(r, unit, x.tensor.numel))
			rc = take_part(r, unit, key, &x);
	return rc;
}

static int take_rank(struct zero_optim *o, struct torch_source *s, uint32_t rank)
{
	struct optim_reader r;
	int rc = begin(&r, o, s, rank);

	if (!rc)
		rc = take_masters(&r, s);
	for (uint32_t unit = 0; unit < o->nunits && !rc; unit++)
		rc = take_states(&r, unit);
	return rc;
}

/* ---- keys ---- */

static bool is_taken(const struct zero_optim *o, const char *key)
{
	for (uint32_t i = 0; i < o->nkeys; i++)
		if (!strcmp(o->keys[i], key))
			return true;
	return false;
}

/* Returns true if another file of a parameter has the key as its name. */
static bool is_ours(const char *key)
{
	static const char *const keys[] = { "fp32", "master", "lp", "fp16", "bf16" };

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (!strcmp(keys[i], key))
			return true;
	return false;
}

static void add_key(struct zero_optim *o, const struct pickle *p, uint32_t node)
{
	char key[FRAG_KEY_MAX + 1];

	if (!torch_source_text(p, node, key, sizeof(key)) || !*key) {
		table_skip(o->table, "an optimizer's state",
			   "its name is too long, or no text");
		return;
	}
	if (!is_ours(key) && is_taken(o, key))
		return;
	if (is_ours(key) || o->nkeys == ZERO_KEYS_MAX)
		table_skip(o->table, key, "an optimizer's state of %s",
			   is_ours(key) ? "the name of another file" : "too many");
	else
		strcpy(o->keys[o->nkeys++], key);
}

/* Returns true if the state has elements of parameters.  A tensor without dimensions is a
 * number, such as step, and so is a tensor of one element beside a master of more.
 */
static bool has_elements(const struct optim_reader *r, uint32_t unit, uint32_t node)
{
	char why[TORCH_UNSUPPORTED_MAX];
	struct torchfile_tensor x, master;

	if (!torch_source_tensor(r->source, node, &x))
		return torch_unsupported(r->p, node, why);
	return x.tensor.ndim &&
	       (x.tensor.numel != 1 ||
		(torch_source_tensor(r->source, pickle_item(r->p, r->masters, unit), &master) &&
		 master.tensor.numel == 1));
}

/* Finds the keys of rank 0's states that may be as long as the partition. */
static void find_keys(struct optim_reader *r)
{
	for (uint32_t unit = 0; unit < r->o->nunits; unit++) {
		uint32_t states = states_of(r->o, r->source, unit);

		for (uint32_t i = 0; i < pickle_count(r->p, states); i++)
			if (has_elements(r, unit, pickle_value(r->p, states, i)))
				add_key(r->o, r->p, pickle_key(r->p, states, i));
	}
}

/* ---- rank 0 ---- */

static int read_stage(struct zero_optim *o)
{
	int64_t stage = 0;

	o->bf16_optimizer = get(&o->source, "zero_stage") == PICKLE_NOTHING;
	if (o->bf16_optimizer)
		stage = get(&o->source, "fp32_flat_groups") == PICKLE_NOTHING ? 1 : 3;
	else
		pickle_int(o->source.torch.pickle, get(&o->source, "zero_stage"), &stage);
	if (stage < 1 || stage > 3)
		return torch_source_refuse(&o->source,
					   "zero_stage is %" PRId64 ", none of 1, 2, 3", stage);
	o->stage = (int)stage;
	return 0;
}

uint32_t zero_optim_partitions(const struct zero_optim *o, uint32_t unit)
{
	const struct pickle *p = o->source.torch.pickle;
	uint32_t counts = get(&o->source, "partition_count");
	int64_t count = 0;

	if (pickle_kind(p, counts) == PICKLE_LIST)
		counts = pickle_item(p, counts, unit);
	pickle_int(p, counts, &count);
	return count > 0 && count <= TABLE_RANKS_MAX ? (uint32_t)count : 0;
}

static int check_ranks(struct zero_optim *o)
{
	uint32_t most = 0;

	for (uint32_t unit = 0; unit < o->nunits; unit++)
		most = most > zero_optim_partitions(o, unit) ? most
							     : zero_optim_partitions(o, unit);
	if (!most && o->nunits)
		return torch_source_refuse(&o->source, "has no partition_count");
	if (most > o->nranks)
		return torch_source_refuse(
			&o->source,
			"partition_count is %u, but there is no optim_states "
			"of zero_pp_rank_%u",
			most, o->nranks);
	if (most && most < o->nranks)
		return torch_source_refuse(
			&o->source,
			"partition_count is %u, but there is an optim_states "
			"of zero_pp_rank_%u: of another run, or shards of "
			"shards",
			most, o->nranks - 1);
	return 0;
}

static int begin_first(struct zero_optim *o)
{
	struct optim_reader r;
	int rc = read_stage(o);

	if (rc)
		return rc;
	if (get(&o->source, "ds_zero_partition_groups") != PICKLE_NOTHING)
		return torch_source_refuse(&o->source,
					   "experts that ZeRO-3 cuts over ranks of their own "
					   "are not taken");
	o->nunits = pickle_count(o->source.torch.pickle, get(&o->source, masters_key(o)));
	strcpy(o->keys[o->nkeys++], "fp32");
	rc = begin(&r, o, &o->source, 0);
	if (!rc)
		rc = check_ranks(o);
	if (rc)
		return rc;
	find_keys(&r);
	/* nunits is below 2^32: the product below fits 64 bits */
	static_assert((uint64_t)TABLE_RANKS_MAX * ZERO_KEYS_MAX < 1ULL << 32, "fits");
	o->parts = calloc((uint64_t)o->nranks * o->nkeys * o->nunits + 1, sizeof(*o->parts));
	return o->parts ? 0 : -ENOMEM;
}

uint32_t zero_optim_alignment(const struct zero_optim *o, uint32_t unit)
{
	return pickle_item(o->source.torch.pickle, get(&o->source, "param_alignment_paddings"),
			   unit);
}

/* ---- all ranks ---- */

static int read_rank(struct zero_optim *o, const struct folder *f, const char *name,
		     uint32_t rank)
{
	struct torch_source s;
	int rc = torch_source_open(&s, o->table, f, name, o->first_rank + rank);

	if (rc)
		return rc;
	o->files[rank] = s.file;
	rc = take_rank(o, &s, rank);
	torch_source_close(&s);
	return rc;
}

enum having { NONE_HAS, SOME_HAVE, ALL_HAVE };

/* Returns whether the ranks that hold elements of a unit have a state of it. */
static enum having who_has(const struct zero_optim *o, uint32_t unit, uint32_t key)
{
	uint32_t have = 0, want = 0;

	for (uint32_t rank = 0; rank < o->nranks; rank++) {
		if (!zero_optim_part(o, rank, unit, ZERO_MASTER)->count)
			continue;
		want++;
		have += zero_optim_part(o, rank, unit, key)->dtype != 0;
	}
	return have == want ? ALL_HAVE : have ? SOME_HAVE : NONE_HAS;
}

/* Notes the states that not all ranks have as long as their partitions: they are left out. */
static void note_unsupported(struct zero_optim *o)
{
	for (uint32_t key = ZERO_MASTER + 1; key < o->nkeys; key++) {
		uint32_t n[ALL_HAVE + 1] = { 0 };

		for (uint32_t unit = 0; unit < o->nunits; unit++)
			n[who_has(o, unit, key)]++;
		if (n[SOME_HAVE] || !n[ALL_HAVE])
			table_skip(o->table, o->keys[key],
				   "an optimizer's state that not all ranks have as long as "
				   "their partitions");
	}
}

int zero_optim_open(struct zero_optim *o, struct table *t, const struct folder *f,
		    const struct zero_file *files, uint32_t nranks, uint32_t first_rank)
{
	int rc;

	assert(nranks);
	*o = (struct zero_optim){ .table = t, .nranks = nranks, .first_rank = first_rank };
	o->files = calloc(nranks, sizeof(*o->files));
	rc = o->files ? torch_source_open(&o->source, t, f, files[0].name, first_rank)
		      : -ENOMEM;
	if (!rc) {
		o->files[0] = o->source.file;
		rc = begin_first(o);
	}
	if (!rc)
		rc = take_rank(o, &o->source, 0);
	for (uint32_t rank = 1; rank < nranks && !rc; rank++)
		rc = read_rank(o, f, files[rank].name, rank);
	if (rc)
		zero_optim_close(o);
	else
		note_unsupported(o);
	return rc;
}

void zero_optim_close(struct zero_optim *o)
{
	torch_source_close(&o->source);
	free(o->files);
	free(o->parts);
	*o = (struct zero_optim){ 0 };
}

/* ---- groups of the optimizer, and their hyper-parameters ---- */

static uint32_t groups_of(const struct zero_optim *o)
{
	return pickle_get(o->source.torch.pickle, base_of(o, &o->source), "param_groups");
}

static uint32_t group_of(const struct zero_optim *o, uint32_t group)
{
	return pickle_item(o->source.torch.pickle, groups_of(o), group);
}

uint32_t zero_optim_ngroups(const struct zero_optim *o)
{
	uint32_t n = pickle_count(o->source.torch.pickle, groups_of(o));

	if (o->stage != 3)
		return o->nunits;
	return n ? n : 1;
}

/* Returns the i-th unit of a group; nunits: there is none. */
static uint32_t unit_of(const struct zero_optim *o, uint32_t group, uint32_t i)
{
	const struct pickle *p = o->source.torch.pickle;
	uint32_t params = pickle_get(p, group_of(o, group), "params");
	int64_t unit;

	if (o->stage != 3)
		return group;
	/* without a list of params the first unit stands for the group */
	if (!params && o->nunits)
		return 0;
	return pickle_int(p, pickle_item(p, params, i), &unit) && unit >= 0 &&
			       unit < (int64_t)o->nunits
		       ? (uint32_t)unit
		       : o->nunits;
}

uint32_t *zero_optim_groups(const struct zero_optim *o)
{
	const struct pickle *p = o->source.torch.pickle;
	uint32_t *groups = calloc((size_t)o->nunits + 1, sizeof(*groups));

	for (uint32_t unit = 0; groups && unit < o->nunits && o->stage != 3; unit++)
		groups[unit] = unit;
	for (uint32_t g = 0; groups && g < zero_optim_ngroups(o) && o->stage == 3; g++) {
		uint32_t n = pickle_count(p, pickle_get(p, group_of(o, g), "params"));

		for (uint32_t i = 0; i < n; i++)
			groups[unit_of(o, g, i)] = g;
	}
	return groups;
}

/* The numbers of a group's first unit stand for all its units. */
int zero_optim_add_hypers(const struct zero_optim *o, uint32_t group, uint32_t table_group)
{
	const struct torch_source *s = &o->source;
	const struct pickle *p = s->torch.pickle;
	uint32_t optim = pickle_get(p, s->root, "optimizer_state_dict");
	uint32_t unit = unit_of(o, group, 0);
	struct tensor master = { .ndim = 1 };
	int rc = torch_hypers_add(s, table_group, group_of(o, group));

	if (unit < o->nunits)
		master.shape[0] = zero_optim_part(o, 0, unit, ZERO_MASTER)->count;
	if (!rc)
		rc = torch_hypers_add_states(s, table_group, states_of(o, s, unit), &master);
	return rc ? rc
		  : torch_hypers_add_one(s, table_group, "step",
					 pickle_get(p, optim, "base_optimizer_state_step"));
}
