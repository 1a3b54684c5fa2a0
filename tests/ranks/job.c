/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/rank/devices.h"
#include "tests/ranks/job.h"

#include "engine/base/convert.h"
#include "engine/job/join-internal.h"
#include "engine/live/live.h"
#include "engine/live/loop.h"
#include "engine/rounds/communicator.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static const struct job_key usual_keys[] = {
	{ "fp32", FRAG_F32, JOB_KEEP },
	{ "grad", FRAG_F32, JOB_KEEP },
	{ "exp_avg", FRAG_F32, JOB_KEEP },
	{ "exp_avg_sq", FRAG_F32, JOB_KEEP },
};

/* ---- chance ---- */

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static uint64_t seed_of_run(void)
{
	const char *text = getenv("TEST_SEED");
	uint64_t seed = text ? strtoull(text, NULL, 0) : monotonic_ns() % 1000000;

	printf("TEST_SEED=%llu\n", (unsigned long long)seed);
	fflush(stdout);
	return seed;
}

uint32_t job_random(struct job *job, uint32_t n)
{
	job->random = mix(job->random);
	return (uint32_t)(job->random >> 32) % n;
}

static uint32_t pattern32(uint64_t i, uint64_t chance)
{
	switch (i % 13) {
	case 3:
		return 0x80000000;
	case 5:
		return 0x7fa12345; /* signalling NaN */
	case 7:
		return 0xff812345;
	case 9:
		return 0xff800000;
	default:
		return (uint32_t)chance;
	}
}

static uint16_t pattern16(uint64_t i, uint64_t chance)
{
	switch (i % 13) {
	case 3:
		return 0x8000;
	case 5:
		return 0x7f81; /* signalling NaN as bfloat16, a NaN as float16 */
	case 7:
		return 0x7d01;
	default:
		return (uint16_t)chance;
	}
}

void job_fill(void *to, enum frag_dtype dtype, uint64_t numel, uint64_t seed)
{
	size_t element = frag_dtype_size(dtype);

	for (uint64_t i = 0; i < numel; i++) {
		uint64_t bits = mix(seed * 0x10001 + i);

		if (element == 4)
			bits = pattern32(i, bits);
		else if (element == 2)
			bits = pattern16(i, bits);
		memcpy((uint8_t *)to + i * element, &bits, element);
	}
}

/* ---- lookups ---- */

static int key_number(struct job *job, const char *key)
{
	for (uint32_t k = 0; k < job->spec.nkeys; k++)
		if (!strcmp(job->spec.keys[k].key, key))
			return (int)k;
	ck_assert_str_eq(key, "lp");
	return JOB_STATES_MAX;
}

static const struct job_param *param_of(struct job *job, uint32_t param)
{
	ck_assert_uint_lt(param, job->spec.nparams);
	return &job->spec.params[param];
}

static enum frag_dtype lp_dtype(struct job *job, uint32_t param)
{
	enum frag_dtype dtype = param_of(job, param)->dtype;

	return dtype ? dtype : FRAG_BF16;
}

uint64_t job_numel(struct job *job, uint32_t param)
{
	const struct job_param *p = param_of(job, param);
	uint64_t numel = 1;

	for (uint32_t i = 0; i < p->ndim; i++)
		numel *= p->shape[i];
	return numel;
}

enum frag_dtype job_dtype(struct job *job, uint32_t param, const char *key)
{
	int k = key_number(job, key);

	return k == JOB_STATES_MAX ? lp_dtype(job, param) : job->spec.keys[k].dtype;
}

uint64_t job_bytes(struct job *job, uint32_t param, const char *key)
{
	return job_numel(job, param) * frag_dtype_size(job_dtype(job, param, key));
}

struct frag *job_frag(struct job *job, uint32_t rank)
{
	return job->ranks[rank].f;
}

int job_number(struct job *job, uint32_t rank, uint32_t param)
{
	return job->ranks[rank].param[param];
}

static uint32_t ranks_of(struct job *job, const struct job_group *g)
{
	return g->nranks ? g->nranks : job->spec.world;
}

static int place_of(struct job *job, const struct job_group *g, uint32_t rank)
{
	for (uint32_t i = 0; i < ranks_of(job, g); i++)
		if ((g->nranks ? g->ranks[i] : i) == rank)
			return (int)i;
	return -1;
}

bool job_rank_has_group(struct job *job, uint32_t rank, uint32_t group)
{
	return place_of(job, &job->spec.groups[group], rank) >= 0;
}

int job_group_of(struct job *job, uint32_t param)
{
	for (uint32_t g = 0; g < job->spec.ngroups; g++)
		for (uint32_t i = 0; i < job->spec.groups[g].nparams; i++)
			if (job->spec.groups[g].params[i] == param)
				return (int)g;
	return -1;
}

static bool rank_has_param(struct job *job, uint32_t rank, uint32_t param)
{
	int group = job_group_of(job, param);

	return group < 0 || job_rank_has_group(job, rank, (uint32_t)group);
}

/* ---- truth ---- */

const void *job_truth(struct job *job, uint32_t param, const char *key)
{
	return job->truth[param][key_number(job, key)];
}

void job_expect(struct job *job, uint32_t param, const char *key, const void *value)
{
	memcpy(job->truth[param][key_number(job, key)], value, job_bytes(job, param, key));
}

void job_expect_lp_of(struct job *job, uint32_t param, const void *master)
{
	void *to = job->truth[param][JOB_STATES_MAX];
	uint64_t numel = job_numel(job, param);

	if (lp_dtype(job, param) == FRAG_BF16)
		convert_f32_to_bf16(to, master, numel);
	else if (lp_dtype(job, param) == FRAG_F16)
		convert_f32_to_f16(to, master, numel);
	else
		memcpy(to, master, job_bytes(job, param, "lp"));
}

static void make_truth(struct job *job, uint32_t param, uint32_t key, enum frag_dtype dtype)
{
	uint64_t numel = job_numel(job, param);

	job->truth[param][key] = malloc(numel * frag_dtype_size(dtype) + 1);
	ck_assert_ptr_nonnull(job->truth[param][key]);
	job_fill(job->truth[param][key], dtype, numel, param * 100 + key + 1);
}

static void make_truths(struct job *job)
{
	for (uint32_t p = 0; p < job->spec.nparams; p++) {
		for (uint32_t k = 0; k < job->spec.nkeys; k++)
			make_truth(job, p, k, job->spec.keys[k].dtype);
		make_truth(job, p, JOB_STATES_MAX, lp_dtype(job, p));
	}
}

/* ---- cuts: each element by itself ---- */

static uint32_t shards_of(struct job *job, const struct job_group *g)
{
	return ranks_of(job, g) / (g->replicas ? g->replicas : 1);
}

/* Returns the shard of element i: each cut divides a range of its dimension's indices. */
static uint32_t shard_of(const struct job_param *p, uint64_t i)
{
	uint64_t index[4], from[4] = { 0 }, size[4];
	uint32_t shard = 0;

	for (uint32_t d = p->ndim; d--;) {
		index[d] = i % p->shape[d];
		i /= p->shape[d];
		size[d] = p->shape[d];
	}
	for (uint32_t n = 0; n < p->ncuts; n++) {
		uint32_t d = p->cuts[n].dim, part = 0;
		uint64_t chunk = (size[d] + p->cuts[n].parts - 1) / p->cuts[n].parts;

		while (index[d] >= from[d] + chunk) {
			from[d] += chunk;
			size[d] -= chunk;
			part++;
		}
		size[d] = size[d] < chunk ? size[d] : chunk;
		shard = shard * p->cuts[n].parts + part;
	}
	return shard;
}

static void cut_param(struct job *job, uint32_t param)
{
	struct job_param *p = &job->params[param];
	uint32_t shards, rest;
	uint64_t n = 0, numel = job_numel(job, param);

	if (!p->ncuts)
		return;
	shards = rest = shards_of(job, &job->groups[job_group_of(job, param)]);
	for (uint32_t i = 0; i < p->ncuts; i++) {
		p->cuts[i].parts = p->cuts[i].parts ? p->cuts[i].parts : rest;
		rest /= p->cuts[i].parts;
	}
	job->stored[param] = malloc(numel * sizeof(uint64_t) + 1);
	ck_assert_ptr_nonnull(job->stored[param]);
	for (uint32_t shard = 0; shard < shards; shard++) {
		job->start[param][shard] = n;
		for (uint64_t i = 0; i < numel; i++)
			if (shard_of(p, i) == shard)
				job->stored[param][n++] = i;
	}
	job->start[param][shards] = n;
	ck_assert_uint_eq(n, numel);
}

/* ---- what a buffer ought to hold ---- */

struct image {
	uint8_t *bytes;
	uint64_t numel;
	size_t element;
};

/* Lays elements [from, from + n) of the parameter, in stored order, at element `at`. */
static void lay(struct job *job, struct image *image, uint64_t at, uint32_t param, uint32_t key,
		uint64_t from, uint64_t n)
{
	ck_assert_uint_le(at + n, image->numel);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t of = job->stored[param] ? job->stored[param][from + i] : from + i;

		memcpy(image->bytes + (at + i) * image->element,
		       job->truth[param][key] + of * image->element, image->element);
	}
}

static void lay_partition(struct job *job, uint32_t rank, const struct job_memory *m,
			  struct image *image)
{
	const struct job_group *g = &job->spec.groups[m->group];
	struct frag_fragment at;

	for (uint32_t i = 0; i < g->nparams; i++)
		if (!frag_fragment(job_frag(job, rank), job_number(job, rank, g->params[i]),
				   &at) &&
		    at.sub == m->sub)
			lay(job, image, at.partition_offset, g->params[i], m->key,
			    at.param_offset, at.numel);
}

static void lay_whole(struct job *job, uint32_t rank, const struct job_memory *m,
		      struct image *image)
{
	const struct job_group *g = &job->spec.groups[m->group];
	const struct catalog *own = job_frag(job, rank)->engine->own;
	const struct layout *layout = &own->groups[job->ranks[rank].group[m->group]].layout;

	for (uint32_t i = 0; i < g->nparams; i++)
		lay(job, image, layout->offset[i], g->params[i], m->key, 0, layout->numel[i]);
}

static void lay_fragment(struct job *job, uint32_t rank, const struct job_memory *m,
			 struct image *image)
{
	struct frag_fragment at;

	ck_assert_int_eq(frag_fragment(job_frag(job, rank),
				       job_number(job, rank, (uint32_t)m->param), &at),
			 0);
	lay(job, image, 0, (uint32_t)m->param, m->key, at.param_offset, at.numel);
}

static uint32_t shard_on(struct job *job, const struct job_group *g, uint32_t rank)
{
	return (uint32_t)place_of(job, g, rank) % shards_of(job, g);
}

/* Returns the number of elements of a rank's piece of a parameter. */
static uint64_t lp_piece(struct job *job, const struct job_group *g, uint32_t param,
			 uint32_t rank)
{
	uint64_t shards = shards_of(job, g), shard = shard_on(job, g, rank);
	const struct job_param *p = param_of(job, param);
	uint64_t numel = job_numel(job, param);

	if (p->ncuts)
		return job->start[param][shard + 1] - job->start[param][shard];
	if (g->sharding != FRAG_FSDP2)
		return u64_div_ceil(numel, shards);
	return p->ndim && numel ? u64_div_ceil(p->shape[0], shards) * (numel / p->shape[0])
				: numel;
}

static void lay_lp_shard(struct job *job, uint32_t rank, const struct job_memory *m,
			 struct image *image)
{
	uint32_t param = (uint32_t)m->param;
	const struct job_group *g = &job->spec.groups[m->group];
	uint32_t shard = shard_on(job, g, rank);
	uint64_t start = job->stored[param] ? job->start[param][shard]
					    : lp_piece(job, g, param, rank) * shard;
	uint64_t numel = job_numel(job, param);

	if (start < numel)
		lay(job, image, 0, param, JOB_STATES_MAX, start,
		    u64_min(image->numel, numel - start));
}

static void draw(struct job *job, uint32_t rank, const struct job_memory *m, uint8_t *bytes)
{
	enum frag_dtype dtype = m->key == JOB_STATES_MAX ? lp_dtype(job, (uint32_t)m->param)
							 : job->spec.keys[m->key].dtype;
	struct image image = { bytes, m->bytes / frag_dtype_size(dtype),
			       frag_dtype_size(dtype) };

	memset(bytes, JOB_PADDING, m->bytes);
	if (m->kind == STATE_LP)
		lay(job, &image, 0, (uint32_t)m->param, JOB_STATES_MAX, 0, image.numel);
	else if (m->kind == STATE_LP_SHARD)
		lay_lp_shard(job, rank, m, &image);
	else if (m->kind == STATE_WHOLE)
		lay_whole(job, rank, m, &image);
	else if (m->param >= 0)
		lay_fragment(job, rank, m, &image);
	else
		lay_partition(job, rank, m, &image);
}

static struct registry *registry_of(struct job *job, uint32_t rank)
{
	return &job_frag(job, rank)->engine->registry;
}

void job_look(struct job *job, uint32_t rank, const struct job_memory *m)
{
	const struct job_rank *r = &job->ranks[rank];
	bool lp = m->kind == STATE_LP_SHARD;
	int index = lp ? r->param[m->param] : r->group[m->group];
	enum frag_dtype dtype;
	int row = registry_find(registry_of(job, rank), m->kind, (uint32_t)index, m->sub,
				lp ? "" : job->spec.keys[m->key].key, &dtype);

	ck_assert_int_ge(row, 0);
	if (m->bytes)
		ck_assert_int_eq(registry_read(registry_of(job, rank), 0, (uint32_t)row, 0,
					       m->bytes_at, m->bytes),
				 0);
}

static void check_memory(struct job *job, uint32_t rank, const struct job_memory *m)
{
	CLEANUP(free) uint8_t *expected = malloc(m->bytes + 1);

	if (m->swapped)
		job_look(job, rank, m);
	draw(job, rank, m, expected);
	for (uint64_t i = 0; i < m->bytes; i++)
		if (m->bytes_at[i] != expected[i])
			ck_abort_msg("rank %u kind %u group %u sub %u key %u param %d: byte "
				     "%llu of %llu is "
				     "%02x, not %02x",
				     rank, m->kind, m->group, m->sub, m->key, m->param,
				     (unsigned long long)i, (unsigned long long)m->bytes,
				     m->bytes_at[i], expected[i]);
}

void job_check(struct job *job)
{
	for (uint32_t rank = 0; rank < job->spec.world; rank++)
		for (uint32_t i = 0; i < job->ranks[rank].nmemory && job->ranks[rank].f; i++)
			check_memory(job, rank, &job->ranks[rank].memory[i]);
}

struct job_memory *job_memory(struct job *job, uint32_t rank, uint32_t group, uint32_t sub,
			      const char *key)
{
	uint32_t k = (uint32_t)key_number(job, key);

	for (uint32_t i = 0; i < job->ranks[rank].nmemory; i++) {
		struct job_memory *m = &job->ranks[rank].memory[i];

		if (m->key == k && m->group == group && m->sub == sub && m->param < 0)
			return m;
	}
	return NULL;
}

/* ---- a rank describes what it has ---- */

static struct job_memory *add_memory(struct job_rank *r, struct job_memory m)
{
	r->memory = realloc(r->memory, (r->nmemory + 1) * sizeof(*r->memory));
	ck_assert_ptr_nonnull(r->memory);
	if (m.on_device) {
		hidden_new(&m.hidden, devices_port(r->f->engine->registry.devices),
			   (int)(r->f->engine->rank % DEVICE_HOST_DEVICES), m.bytes);
		m.bytes_at = m.hidden.at;
	} else if (!m.library) {
		m.bytes_at = malloc(m.bytes + 1);
	}
	ck_assert_ptr_nonnull(m.bytes_at);
	r->memory[r->nmemory] = m;
	return &r->memory[r->nmemory++];
}

/* Returns the address that the rank is told. */
static void *address_of(const struct job_memory *m)
{
	return m->on_device ? m->hidden.memory : m->bytes_at;
}

static enum job_lp lp_of(struct job *job, int group)
{
	if (job->spec.lp != JOB_LP_FITTING)
		return job->spec.lp;
	if (group < 0)
		return JOB_LP_WHOLE;
	return job->spec.groups[group].stage == 3 ||
			       job->spec.groups[group].sharding == FRAG_FSDP2
		       ? JOB_LP_SHARD
		       : JOB_LP_WHOLE;
}

static void describe_param(struct job *job, uint32_t rank, uint32_t param)
{
	struct job_rank *r = &job->ranks[rank];
	const struct job_param *p = param_of(job, param);
	int group = job_group_of(job, param);
	enum job_lp lp = lp_of(job, group);
	size_t element = frag_dtype_size(lp_dtype(job, param));
	struct frag_tensor t = { .size = sizeof(t),
				 .name = p->name,
				 .coordinate = p->coordinate,
				 .dtype = lp_dtype(job, param),
				 .ndim = p->ndim,
				 .shape = p->shape,
				 .flags = p->flags,
				 .cuts = p->cuts,
				 .ncuts = p->ncuts };
	struct job_memory m = { .key = JOB_STATES_MAX,
				.param = (int)param,
				.on_device = job->spec.on_device,
				.group = group < 0 ? 0 : (uint32_t)group };

	if (lp == JOB_LP_WHOLE || lp == JOB_LP_BOTH || (lp == JOB_LP_SWAP && group < 0)) {
		m.kind = STATE_LP;
		m.bytes = job_bytes(job, param, "lp");
		t.lp = address_of(add_memory(r, m));
	}
	if (group >= 0 && (lp == JOB_LP_SHARD || lp == JOB_LP_BOTH || lp == JOB_LP_SWAP)) {
		m.kind = STATE_LP_SHARD;
		m.bytes = lp_piece(job, &job->spec.groups[group], param, rank) * element;
		t.lp_shard = address_of(add_memory(r, m));
	}
	r->param[param] = frag_param(r->f, &t);
	ck_assert_int_ge(r->param[param], 0);
}

static void describe_group(struct job *job, uint32_t rank, uint32_t group)
{
	struct job_rank *r = &job->ranks[rank];
	const struct job_group *g = &job->spec.groups[group];
	struct frag_zero z = { .size = sizeof(z),
			       .stage = g->stage,
			       .sharding = g->sharding,
			       .ranks = g->nranks ? g->ranks : NULL,
			       .nranks = g->nranks,
			       .replicas = g->replicas,
			       .sub_group_size = g->sub_group_size,
			       .alignment = g->alignment,
			       .flags = g->flags };
	int params[JOB_PARAMS_MAX];

	for (uint32_t i = 0; i < g->nparams; i++)
		params[i] = r->param[g->params[i]];
	r->group[group] = frag_group(r->f, params, g->nparams, &z);
	ck_assert_int_ge(r->group[group], 0);
}

static void keep_partition(struct job *job, uint32_t rank, struct job_memory m)
{
	struct job_rank *r = &job->ranks[rank];
	const struct job_key *key = &job->spec.keys[m.key];
	int rc, group = r->group[m.group];
	void *memory;

	m.bytes = frag_partition_numel(r->f, group, m.sub) * frag_dtype_size(key->dtype);
	if (key->how == JOB_ALLOC) {
		rc = frag_state_alloc(r->f, group, m.sub, key->key, key->dtype, &memory);
		ck_assert_int_eq(rc, 0);
		m.library = true;
		m.bytes_at = memory;
		add_memory(r, m);
	} else if (key->how == JOB_SWAP) {
		rc = frag_state_swap(r->f, group, m.sub, key->key, key->dtype);
		ck_assert_int_eq(rc, 0);
		m.swapped = true;
		add_memory(r, m);
	} else {
		rc = frag_state_keep(r->f, group, m.sub, key->key, key->dtype,
				     address_of(add_memory(r, m)));
		ck_assert_int_eq(rc, 0);
	}
}

static void keep_whole(struct job *job, uint32_t rank, struct job_memory m)
{
	struct job_rank *r = &job->ranks[rank];
	const struct job_key *key = &job->spec.keys[m.key];
	int group = r->group[m.group];

	m.kind = STATE_WHOLE;
	m.bytes = frag_flat_numel(r->f, group) * frag_dtype_size(key->dtype);
	ck_assert_int_eq(frag_state_keep_whole(r->f, group, key->key, key->dtype,
					       address_of(add_memory(r, m))),
			 0);
}

static void keep_fragments(struct job *job, uint32_t rank, struct job_memory m)
{
	struct job_rank *r = &job->ranks[rank];
	const struct job_group *g = &job->spec.groups[m.group];
	const struct job_key *key = &job->spec.keys[m.key];
	struct frag_fragment at;

	for (uint32_t i = g->nparams; i--;) { /* the library allows any order */
		int param = r->param[g->params[i]];

		if (frag_fragment(r->f, param, &at))
			continue;
		m.param = (int)g->params[i];
		m.sub = at.sub;
		m.bytes = at.numel * frag_dtype_size(key->dtype);
		ck_assert_int_eq(frag_fragment_keep(r->f, param, key->key, key->dtype,
						    address_of(add_memory(r, m))),
				 0);
	}
}

static bool on_device(const struct job *job, uint32_t key)
{
	enum job_how how = job->spec.keys[key].how;

	return job->spec.on_device && how != JOB_ALLOC && how != JOB_SWAP;
}

static void describe_key(struct job *job, uint32_t rank, uint32_t group, uint32_t key)
{
	struct job_memory m = { .kind = STATE_PARTITION,
				.group = group,
				.key = key,
				.param = -1,
				.on_device = on_device(job, key) };
	struct job_rank *r = &job->ranks[rank];
	enum job_how how = job->spec.keys[key].how;

	if (how == JOB_FRAGMENTS) {
		keep_fragments(job, rank, m);
	} else if (how == JOB_WHOLE) {
		keep_whole(job, rank, m);
	} else {
		for (; m.sub < frag_sub_groups(r->f, r->group[group]); m.sub++)
			keep_partition(job, rank, m);
	}
}

static void fill_swapped(struct job *job, uint32_t rank, const struct job_memory *m)
{
	const struct job_key *key = &job->spec.keys[m->key];
	uint64_t numel = m->bytes / frag_dtype_size(key->dtype);

	ck_assert_int_eq(frag_state_put(job_frag(job, rank), job->ranks[rank].group[m->group],
					m->sub, key->key, 0, m->bytes_at, numel, 0),
			 0);
}

/* Puts the parameters that have a group on NVMe. */
static void swap_params(struct job *job, uint32_t rank)
{
	struct job_rank *r = &job->ranks[rank];
	int params[JOB_PARAMS_MAX];
	size_t n = 0;

	for (uint32_t i = 0; i < r->nmemory; i++)
		if (r->memory[i].kind == STATE_LP_SHARD) {
			r->memory[i].swapped = true;
			params[n++] = r->param[r->memory[i].param];
		}
	ck_assert_int_eq(frag_params_swap(r->f, params, n, NULL), 0);
	for (uint32_t i = 0; i < r->nmemory; i++)
		if (r->memory[i].kind == STATE_LP_SHARD)
			memset(r->memory[i].bytes_at, 0xdd, r->memory[i].bytes);
}

static void describe(struct job *job, uint32_t rank)
{
	struct job_rank *r = &job->ranks[rank];

	for (uint32_t p = 0; p < job->spec.nparams; p++) {
		r->param[p] = -1;
		if (rank_has_param(job, rank, p))
			describe_param(job, rank, p);
	}
	for (uint32_t g = 0; g < job->spec.ngroups; g++) {
		r->group[g] = -1;
		if (job_rank_has_group(job, rank, g))
			describe_group(job, rank, g);
	}
	for (uint32_t g = 0; g < job->spec.ngroups; g++)
		for (uint32_t k = 0; k < job->spec.nkeys && r->group[g] >= 0; k++)
			describe_key(job, rank, g, k);
	for (uint32_t i = 0; i < r->nmemory; i++) {
		draw(job, rank, &r->memory[i], r->memory[i].bytes_at);
		if (r->memory[i].swapped)
			fill_swapped(job, rank, &r->memory[i]);
	}
	if (job->spec.lp == JOB_LP_SWAP)
		swap_params(job, rank);
	ck_assert_int_eq(frag_ready(r->f), 0);
}

/* ---- life ---- */

static void turn_all(void *arg)
{
	job_turn(arg);
}

void job_turn(struct job *job)
{
	uint32_t order[JOB_WORLD_MAX];

	for (uint32_t i = 0; i < job->spec.world; i++) {
		uint32_t at = job_random(job, i + 1);

		order[i] = order[at];
		order[at] = i;
	}
	for (uint32_t i = 0; i < job->spec.world; i++)
		if (job->ranks[order[i]].f)
			loop_turn(job->ranks[order[i]].f->engine, 0);
}

static bool has_swapped(const struct job *job)
{
	for (uint32_t k = 0; k < job->spec.nkeys; k++)
		if (job->spec.keys[k].how == JOB_SWAP)
			return true;
	return false;
}

static void use_device(struct job *job, uint32_t rank)
{
	struct job_rank *r = &job->ranks[rank];
	struct frag_devices c = job->spec.devices;

	r->stream = device_host_stream_new();
	ck_assert_ptr_nonnull(r->stream);
	c.size = sizeof(c);
	c.number = (int)(rank % DEVICE_HOST_DEVICES);
	c.stream = r->stream;
	ck_assert_int_eq(
		api_devices_over(r->f, &c,
				 job->spec.device_ops ? job->spec.device_ops : &device_host),
		0);
}

static void open_rank(struct job *job, uint32_t rank)
{
	struct launch launch = {
		.rank = rank, .world = job->spec.world, .job = "made-up", .plain = true
	};
	const char *seed = rank ? job->ranks[0].f->engine->job.address : NULL;
	struct frag **f = &job->ranks[rank].f;

	if (has_swapped(job))
		launch.swap = (struct swap_config){ .pinned = 12 * 4096,
						    .slice = 4096,
						    .least = 1,
						    .in_memory = job->spec.in_memory,
						    .fast_init = job->spec.fast_init };
	if (has_swapped(job))
		snprintf(launch.swap.dir, sizeof(launch.swap.dir), "%s",
			 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	snprintf(launch.host, sizeof(launch.host), "host %u",
		 job->spec.hosts ? rank % job->spec.hosts : 0);
	ck_assert_int_eq(
		api_open_over(f, &launch,
			      job->spec.messages ? job->spec.messages : &transport_loop,
			      &transport_loop, seed, false),
		0);
	(*f)->engine->thread.yield = turn_all;
	(*f)->engine->thread.yield_arg = job;
	if (job->spec.on_device)
		use_device(job, rank);
}

static bool all_ready(struct job *job)
{
	for (uint32_t rank = 0; rank < job->spec.world; rank++) {
		struct engine *e = job->ranks[rank].f->engine;

		if (e->job.failure)
			ck_abort_msg("rank %u: %s", rank, e->job.why);
		if (!e->job.ready)
			return false;
	}
	return true;
}

static void take_spec(struct job *job, const struct job_spec *spec)
{
	const struct job_key *keys = spec->keys ? spec->keys : usual_keys;

	*job = (struct job){ .spec = *spec, .random = seed_of_run() };
	job->spec.nkeys = spec->keys ? spec->nkeys : ARRAY_SIZE(usual_keys);
	ck_assert_uint_le(spec->nparams, JOB_PARAMS_MAX);
	ck_assert_uint_le(spec->ngroups, JOB_GROUPS_MAX);
	ck_assert_uint_le(job->spec.nkeys, JOB_STATES_MAX);
	ck_assert_uint_le(spec->world, JOB_WORLD_MAX);
	if (spec->nparams)
		memcpy(job->params, spec->params, spec->nparams * sizeof(*spec->params));
	if (spec->ngroups)
		memcpy(job->groups, spec->groups, spec->ngroups * sizeof(*spec->groups));
	memcpy(job->keys, keys, job->spec.nkeys * sizeof(*keys));
	job->spec.params = job->params;
	job->spec.groups = job->groups;
	job->spec.keys = job->keys;
}

void job_open(struct job *job, const struct job_spec *spec)
{
	uint64_t deadline = monotonic_ms() + JOB_WAIT_MS;

	take_spec(job, spec);
	make_truths(job);
	for (uint32_t p = 0; p < spec->nparams; p++)
		cut_param(job, p);
	for (uint32_t rank = 0; rank < spec->world; rank++) {
		open_rank(job, rank);
		describe(job, rank);
	}
	while (!all_ready(job)) {
		ck_assert_uint_lt(monotonic_ms(), deadline);
		job_turn(job);
	}
}

void job_close_rank(struct job *job, uint32_t rank)
{
	struct job_rank *r = &job->ranks[rank];

	frag_close(r->f);
	r->f = NULL;
	for (uint32_t i = 0; i < r->nmemory; i++) {
		r->memory[i].hidden.device = NULL;
		if (r->memory[i].on_device)
			hidden_free(&r->memory[i].hidden);
		else if (!r->memory[i].library)
			free(r->memory[i].bytes_at);
	}
	if (r->stream)
		device_host_stream_free(r->stream);
	r->stream = NULL;
	free(r->memory);
	r->memory = NULL;
	r->nmemory = 0;
}

void job_start_again(struct job *job, uint32_t rank)
{
	job_close_rank(job, rank);
	open_rank(job, rank);
	describe(job, rank);
	for (uint32_t i = 1; i < job->spec.world && !rank; i++) {
		struct join_seeds *s = &job->ranks[i].f->engine->job.join->seeds;

		snprintf(s->list, sizeof(s->list), "%s", job->ranks[0].f->engine->job.address);
	}
}

void job_close(struct job *job)
{
	for (uint32_t rank = 0; rank < job->spec.world; rank++)
		job_close_rank(job, rank);
	for (uint32_t p = 0; p < job->spec.nparams; p++) {
		free(job->stored[p]);
		for (uint32_t k = 0; k <= JOB_STATES_MAX; k++)
			free(job->truth[p][k]);
	}
}

void job_observe(struct job *job, struct engine **observer, const char *host,
		 void (*turn)(void *))
{
	const struct transport_ops *messages = job->spec.messages;
	struct engine *e;
	char seed[160];

	messages = messages ? messages : &transport_loop;
	ck_assert_int_eq(loop_new(&e, &live_ops, messages, messages), 0);
	*observer = e;
	e->thread.yield = turn;
	snprintf(e->launch.host, sizeof(e->launch.host), "%s", host);
	ck_assert_int_eq(node_open_messages(e, NULL), 0);
	snprintf(seed, sizeof(seed), "%s", job_frag(job, 0)->engine->job.address);
	ck_assert_int_eq(join_start_observer(e, seed), 0);
	while (!e->job.ready)
		turn(NULL);
}

bool job_is_connected(struct job *job)
{
	uint64_t number = communicator_number(job_frag(job, 0)->engine);
	bool is = number;

	for (uint32_t rank = 0; rank < job->spec.world; rank++) {
		struct engine *e = job_frag(job, rank)->engine;

		is &= communicator_number(e) == number &&
		      communicator_ranks(e) == job->spec.world;
	}
	return is;
}

/* ---- the trainers' threads ---- */

static void each(struct job *job, int (*call)(struct frag *f))
{
	for (uint32_t rank = 0; rank < job->spec.world; rank++)
		if (job->ranks[rank].f)
			ck_assert_int_eq(call(job->ranks[rank].f), 0);
}

void job_boundary(struct job *job)
{
	each(job, frag_safe_point);
}

static int valid(struct frag *f)
{
	return frag_grads_valid(f, 1);
}

void job_grads_valid(struct job *job)
{
	each(job, valid);
}

void job_grads_gone(struct job *job)
{
	each(job, frag_grads_gone);
}
