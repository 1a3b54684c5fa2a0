/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/fs/fake-engine.h"

#include "engine/base/log.h"
#include "engine/catalog/condition.h"
#include "engine/engine.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define TEN "0123456789"
#define HUNDRED TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN

enum { KEYS_MAX = 12, SLOW_MS = 20, NRANKS = 3 };

enum manner { AT_ONCE, OTHER_THREAD, SLOW, FAILS, NEVER, NEVER_ASYNC, WHEN_VALID };

struct fake_param {
	const char *name, *coordinate;
	uint32_t ndim;
	uint64_t shape[2];
	int group;
	const char *keys[KEYS_MAX];
};

#define USUAL                                                                                  \
	{                                                                                      \
		"bf16", "exp_avg", "fp32", "grad"                                              \
	}

static const struct fake_param params[] = {
	{ "layers.0.weight", "", 2, { 512, 1024 }, 0, USUAL },
	{ "layers.0.bias", "", 1, { 1000 }, 1, USUAL },
	{ "scale", "", 0, { 0 }, 0, USUAL },
	{ "empty", "", 2, { 0, 4 }, 0, USUAL },
	{ "odd/name%41@x", "", 1, { 3 }, 0, USUAL },
	{ "..", "", 1, { 3 }, 0, USUAL },
	{ ".hidden", "", 1, { 3 }, 0, USUAL },
	{ HUNDRED HUNDRED HUNDRED ".a", "", 1, { 3 }, 0, USUAL },
	{ HUNDRED HUNDRED HUNDRED ".b", "", 1, { 3 }, 0, USUAL },
	{ "shard", "tp=0", 1, { 7 }, 0, USUAL },
	{ "shard", "tp=1", 1, { 7 }, 0, USUAL },
	{ "faulty", "", 1, { 4096 }, 0, { "fails", "never", "never_async", "slow", "viewed" } },
	{ "frozen", "", 1, { 5 }, -1, { "bf16" } },
	{ "tail", "", 1, { 786432 + 250 }, 0, USUAL },
	{ "keys", "", 1, { 2 }, 0, { ".", "a.npy", "x/y z", "shape", "t\tn" } },
};

enum { NAMED = ARRAY_SIZE(params), HYPERS = 5 };

static const struct fake_param more = { "", "", 1, { 4 }, 1, USUAL };

static const char *const hyper_names[HYPERS] = { "commits", "extra_state", "grads_valid",
						 "kind", "lr" };
enum { COMMITS, EXTRA_STATE, GRADS_VALID, KIND, LR };

struct op {
	struct op *next;
	struct engine_read *read; /* or */
	struct engine_write *write;
	uint64_t due_ms; /* UINT64_MAX: not before it is cancelled */
	bool cancelled, when_valid;
};

struct engine_file {
	struct engine *engine;
	struct engine_address address;
	unsigned char *data, *viewed; /* viewed: what "viewed" had when it was opened */
	uint64_t bytes;
	enum manner manner;
	unsigned char *own; /* of several states: data is a copy */
};

struct engine {
	char source[64];
	uint32_t nparams;
	char (*names)[32];    /* of those behind NAMED */
	uint32_t *members[2]; /* of the groups */
	uint32_t nmembers[2];
	pthread_t thread;
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t changed;
	unsigned char *(*data)[KEYS_MAX]; /* [nparams] */
	double hypers[HYPERS];
	uint64_t epoch, generation;
	struct engine_wait *waits;
	uint64_t frozen, freezes; /* number of the one that lasts, 0: none; of the newest */
	char watch[CONDITION_TEXT_MAX]; /* a condition, which never holds; "": none */
	struct op *ops;
	bool stop;
	bool local; /* as opened */
};

unsigned char fake_byte(uint32_t param, const char *key, uint64_t offset)
{
	uint64_t seed = param * 29;

	for (; *key; key++)
		seed = seed * 53 + (unsigned char)*key;
	return (unsigned char)(seed + offset * 131 + (offset >> 8) * 7 + (offset >> 16) * 3);
}

static const struct fake_param *param_of(uint32_t param)
{
	return param < NAMED ? &params[param] : &more;
}

static uint64_t numel(uint32_t param)
{
	const struct fake_param *p = param_of(param);
	uint64_t n = 1;

	for (uint32_t i = 0; i < p->ndim; i++)
		n *= p->shape[i];
	return n;
}

const char *frag_version(void)
{
	return "fake";
}

/* ---- opening ---- */

static void make_members(struct engine *e)
{
	for (int g = 0; g < 2; g++) {
		e->members[g] = calloc(e->nparams, sizeof(**e->members));
		for (uint32_t i = 0; i < e->nparams; i++) {
			if (param_of(i)->group == g)
				e->members[g][e->nmembers[g]++] = i;
		}
	}
}

static void *worker(void *arg);

void engine_hidden_job(const struct engine_options *options, char *address, size_t size)
{
	*address = '\0';
}

bool engine_is_checkpoint(const struct engine_options *options)
{
	return false;
}

bool engine_is_unfinished(const struct engine_options *options)
{
	return false;
}

int engine_open(struct engine **out, const struct engine_options *options, char *why,
		size_t whysize)
{
	struct engine *e;
	sigset_t every, before;
	unsigned n = 0;

	if (strncmp(options->source, "fake", 4) != 0) {
		snprintf(why, whysize, "%s: nobody listens there", options->source);
		return -ENOENT;
	}
	sscanf(options->source, "fake:%u", &n);
	e = calloc(1, sizeof(*e));
	snprintf(e->source, sizeof(e->source), "%s", options->source);
	e->local = options->local;
	e->nparams = NAMED + n;
	e->names = calloc(n + 1, sizeof(*e->names));
	for (unsigned i = 0; i < n; i++)
		snprintf(e->names[i], sizeof(*e->names), "blocks.%u.mlp.weight", i);
	e->data = calloc(e->nparams, sizeof(*e->data));
	e->hypers[LR] = 0.001;
	e->hypers[GRADS_VALID] = 1;
	make_members(e);
	pthread_mutex_init(&e->lock, NULL);
	pthread_cond_init(&e->changed, NULL);
	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &before);
	pthread_create(&e->thread, NULL, worker, e);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	*out = e;
	return 0;
}

void engine_close(struct engine *e)
{
	pthread_mutex_lock(&e->lock);
	assert(!e->ops && !e->waits);
	e->stop = true;
	pthread_cond_broadcast(&e->changed);
	pthread_mutex_unlock(&e->lock);
	pthread_join(e->thread, NULL);
	for (uint32_t i = 0; i < e->nparams; i++) {
		for (int k = 0; k < KEYS_MAX; k++)
			free(e->data[i][k]);
	}
	free(e->members[0]);
	free(e->members[1]);
	free(e->names);
	free(e->data);
	free(e);
}

bool engine_is_live(struct engine *e)
{
	return true;
}

/* ---- what there is ---- */

uint32_t engine_nparams(struct engine *e)
{
	return e->nparams;
}

uint32_t engine_nbuffers(struct engine *e)
{
	return 0;
}

uint32_t engine_ngroups(struct engine *e)
{
	return 2;
}

uint32_t engine_nranks(struct engine *e)
{
	return NRANKS;
}

static uint32_t position_of(const struct engine *e, uint32_t param)
{
	int group = param_of(param)->group;
	uint32_t i = 0;

	while (group >= 0 && e->members[group][i] != param)
		i++;
	return i;
}

bool engine_param(struct engine *e, uint32_t param, struct engine_param *out)
{
	const struct fake_param *p = param_of(param);

	if (param >= e->nparams)
		return false;
	*out = (struct engine_param){ .name = param < NAMED ? p->name : e->names[param - NAMED],
				      .coordinate = p->coordinate,
				      .dtype = FRAG_BF16,
				      .ndim = p->ndim,
				      .shape = p->shape,
				      .numel = numel(param),
				      .group = p->group,
				      .position = position_of(e, param),
				      .frozen = p->group < 0,
				      .same_as = param };
	return true;
}

bool engine_group(struct engine *e, uint32_t group, struct engine_group *out)
{
	static const uint32_t ranks[] = { 0, 1, 2 };

	if (group > 1)
		return false;
	*out = (struct engine_group){ .kind = "zero2",
				      .shards = group ? 2 : 3,
				      .replicas = 1,
				      .sub_groups = 1,
				      .nparams = e->nmembers[group],
				      .params = e->members[group],
				      .nranks = group ? 2 : 3,
				      .ranks = ranks };
	return true;
}

uint32_t engine_nparts(struct engine *e)
{
	return 0;
}

bool engine_part(struct engine *e, uint32_t part, struct engine_part *out)
{
	return false;
}

uint64_t engine_epoch(struct engine *e)
{
	return e->epoch;
}

static _Thread_local struct engine_hurry *hurried;

void engine_hurry(struct engine_hurry *hurry)
{
	hurried = hurry;
}

uint64_t engine_asked_since(void)
{
	if (!hurried)
		return monotonic_ns();
	if (!hurried->since_ns)
		hurried->since_ns = monotonic_ns();
	return hurried->since_ns;
}

static struct engine_state state_of(uint32_t param, const char *key)
{
	bool lp = !strcmp(key, "bf16");
	struct engine_state s = { .dtype = lp ? FRAG_BF16 : FRAG_F32,
				  .bytes = numel(param) * (lp ? 2 : 4),
				  .flags = lp ? ENGINE_STATE_LP : ENGINE_STATE_WRITABLE };

	snprintf(s.key, sizeof(s.key), "%s", key);
	return s;
}

static void add(struct engine_state *out, int max, int *n, struct engine_state s)
{
	if (*n < max)
		out[*n] = s;
	++*n;
}

/* Adds the states "extra", "extra001" and so on, of parameter 0. */
static void add_extra(struct engine_state *out, int max, int *n, int count)
{
	char key[FRAG_KEY_MAX + 1] = "extra";

	for (int i = 0; i < count; i++) {
		if (i)
			snprintf(key, sizeof(key), "extra%03d", i);
		add(out, max, n, state_of(0, key));
	}
}

int engine_states(struct engine *e, uint32_t param, struct engine_state *out, int max)
{
	const struct fake_param *p = param_of(param);
	int n = 0, extra;

	if (param >= e->nparams)
		return -ENOENT;
	pthread_mutex_lock(&e->lock);
	extra = param ? 0 : (int)e->hypers[EXTRA_STATE];
	pthread_mutex_unlock(&e->lock);
	for (int i = 0; i < KEYS_MAX && p->keys[i]; i++) {
		if (strcmp("extra", p->keys[i]) < 0) { /* sorted, as a job's are */
			add_extra(out, max, &n, extra);
			extra = 0;
		}
		add(out, max, &n, state_of(param, p->keys[i]));
	}
	return n;
}

/* As one rank holds it. */
static struct engine_state rank_state(const struct engine *e, uint32_t param, const char *key)
{
	struct engine_state s = state_of(param, key);

	if (!e->local)
		s.flags &= ~(unsigned)ENGINE_STATE_WRITABLE;
	return s;
}

/* Rank r holds a third of every state, rank 2 nothing. */
int engine_rank_states(struct engine *e, uint32_t rank, uint32_t param,
		       struct engine_state *out, int max)
{
	const struct fake_param *p = param_of(param);
	int n = 0;

	if (param >= e->nparams || rank >= NRANKS)
		return -ENOENT;
	for (int i = 0; i < KEYS_MAX && p->keys[i] && rank < 2; i++) {
		struct engine_state s = rank_state(e, param, p->keys[i]);

		s.bytes /= 3;
		add(out, max, &n, s);
	}
	return n;
}

int engine_partition_states(struct engine *e, uint32_t rank, uint32_t group, uint32_t sub,
			    struct engine_state *out, int max)
{
	int n = 0;

	if (rank >= NRANKS || group > 1 || sub)
		return -ENOENT;
	if (rank == 2) /* it is lost */
		return -EIO;
	add(out, max, &n, rank_state(e, 0, "fp32"));
	return n;
}

int engine_hypers(struct engine *e, uint32_t group, struct engine_state *out, int max)
{
	int n = 0;

	for (int i = 0; i < HYPERS && !group; i++) {
		struct engine_state s = { .dtype = FRAG_F64,
					  .bytes = 8,
					  .flags = ENGINE_STATE_WRITABLE };

		snprintf(s.key, sizeof(s.key), "%s", hyper_names[i]);
		add(out, max, &n, s);
	}
	return n;
}

static bool grads_valid(struct engine *e)
{
	bool valid;

	pthread_mutex_lock(&e->lock);
	valid = e->hypers[GRADS_VALID];
	pthread_mutex_unlock(&e->lock);
	return valid;
}

bool engine_rank(struct engine *e, uint32_t rank, struct engine_rank *out)
{
	if (rank >= NRANKS)
		return false;
	*out = (struct engine_rank){ .host = "node",
				     .pid = 1000 + rank,
				     .since = 1234567890,
				     .state = rank < 2 ? ENGINE_RANK_ALIVE : ENGINE_RANK_LOST,
				     .way = "host",
				     .phase = "stable",
				     .grads_valid = grads_valid(e),
				     .loss_scale = 1024,
				     .bytes_host = 1 << 20 };
	snprintf(out->address, sizeof(out->address), "127.0.0.1:%u", 21017 + rank);
	if (rank == 2)
		snprintf(out->why, sizeof(out->why), "its process has ended");
	return true;
}

void engine_job(struct engine *e, struct engine_job *out)
{
	pthread_mutex_lock(&e->lock);
	*out = (struct engine_job){ .id = "fake",
				    .has_step = true,
				    .step = 41,
				    .generation = e->generation,
				    .phase = e->frozen ? "frozen" : "stable",
				    .alive = 2 };
	pthread_mutex_unlock(&e->lock);
}

/* ---- waiting: the generation is what changes ---- */

uint64_t engine_changes(struct engine *e)
{
	struct engine_job job;

	engine_job(e, &job);
	return job.generation;
}

void engine_wait(struct engine *e, struct engine_wait *wait)
{
	pthread_mutex_lock(&e->lock);
	wait->next = e->waits;
	e->waits = wait;
	pthread_cond_broadcast(&e->changed);
	pthread_mutex_unlock(&e->lock);
}

/* Nobody is ever told to come again. */
void engine_wait_epoch(struct engine *e, struct engine_wait *wait)
{
	abort();
}

void engine_wait_cancel(struct engine *e, struct engine_wait *wait)
{
	pthread_mutex_lock(&e->lock);
	wait->cancelled = true;
	pthread_cond_broadcast(&e->changed);
	pthread_mutex_unlock(&e->lock);
}

/* The lock is held. */
static struct engine_wait *take_over(struct engine *e)
{
	for (struct engine_wait **at = &e->waits; *at; at = &(*at)->next) {
		struct engine_wait *wait = *at;

		if (wait->cancelled || wait->seen != e->generation) {
			*at = wait->next;
			return wait;
		}
	}
	return NULL;
}

/* Each commit is one event. */
struct engine_events {
	struct engine *engine;
	uint64_t after;
};

int engine_events_open(struct engine *e, struct engine_events **events)
{
	*events = malloc(sizeof(**events));
	**events = (struct engine_events){ e, engine_changes(e) };
	return 0;
}

void engine_events_close(struct engine_events *events)
{
	free(events);
}

bool engine_events_ready(struct engine_events *events)
{
	return events->after != engine_changes(events->engine);
}

size_t engine_events_read(struct engine_events *events, char *out, size_t size)
{
	char line[64];

	if (!engine_events_ready(events))
		return 0;
	snprintf(line, sizeof(line), "{\"event\":\"edit\",\"generation\":%" PRIu64 "}\n",
		 ++events->after);
	assert(strlen(line) <= size);
	memcpy(out, line, strlen(line));
	return strlen(line);
}

static unsigned count_ops(struct engine *e)
{
	unsigned n = 0;

	pthread_mutex_lock(&e->lock);
	for (const struct op *op = e->ops; op; op = op->next)
		n++;
	pthread_mutex_unlock(&e->lock);
	return n;
}

enum { FAKE_ARENA_RANK = 1 };

char *engine_rank_text(struct engine *e, uint32_t rank, const char *what)
{
	if (rank == FAKE_ARENA_RANK && !strcmp(what, "arena"))
		return strdup(
			"bytes 4096 used 1792 used_max 3072 free 2304 largest 1280 blocks 3 "
			"holes 2 moved 512\n"
			"0\t1024\tused\tlayers.0.w\tlayers.0.b/shard\n"
			"2048\t256\tpinned\n"
			"2304\t512\tmoving\ta%2Fb@tp%3D1\n");
	return rank < NRANKS ? strdup("none\n") : NULL;
}

/* Takes orders, and carries none out. */
int engine_place(struct engine *e, const char *states, const char *tier)
{
	return 0;
}

int engine_place_check(struct engine *e, const char *states, const char *tier)
{
	return -EOPNOTSUPP;
}

int engine_rank_arena(struct engine *e, uint32_t rank)
{
	return rank < NRANKS ? rank == FAKE_ARENA_RANK : -ENOENT;
}

char *engine_text(struct engine *e, const char *what)
{
	char *text;
	int rc;

	if (!strcmp(what, "inflight"))
		return asprintf(&text, "%u\n", count_ops(e)) < 0 ? NULL : text;
	if (!strcmp(what, "freeze")) {
		pthread_mutex_lock(&e->lock);
		text = strdup(e->frozen ? "frozen\n" : "thawed\n");
		pthread_mutex_unlock(&e->lock);
		return text;
	}
	if (!strcmp(what, "control")) {
		pthread_mutex_lock(&e->lock);
		rc = asprintf(&text, "break %s\n", *e->watch ? e->watch : "off");
		pthread_mutex_unlock(&e->lock);
		return rc < 0 ? NULL : text;
	}
	if (!strcmp(what, "place"))
		return strdup(
			"rank\twaiting\twaiting_bytes\tmoved\tmoved_bytes\tfailed\terror\n"
			"0\t1\t4096\t0\t0\t0\tnone\n"
			"1\t-\t-\t-\t-\t-\tInput/output error\n");
	if (!strcmp(what, "log")) {
		text = malloc(65536);
		if (text)
			log_tail(text, 65536);
		return text;
	}
	return asprintf(&text, "%s of %s\n", what, e->source) < 0 ? NULL : text;
}

uint64_t engine_changed_ns(struct engine *e, const struct engine_address *address)
{
	uint64_t ns;

	pthread_mutex_lock(&e->lock);
	ns = (1700000000 + e->generation) * 1000000000;
	pthread_mutex_unlock(&e->lock);
	return ns;
}

void engine_fragments(struct engine *e, uint32_t param, const char *key,
		      void (*see)(void *arg, const struct engine_fragment *f), void *arg)
{
	for (uint32_t rank = 0; rank < 2; rank++)
		see(arg, &(struct engine_fragment){ .rank = rank,
						    .tier = rank ? "swap" : "host",
						    .param_offset = rank * numel(param) / 2,
						    .numel = numel(param) / 2 });
}

/* ---- files ---- */

static enum manner manner_of(const char *key)
{
	static const struct {
		const char *key;
		enum manner manner;
	} table[] = { { "exp_avg", OTHER_THREAD },
		      { "slow", SLOW },
		      { "fails", FAILS },
		      { "never", NEVER },
		      { "never_async", NEVER_ASYNC },
		      { "grad", WHEN_VALID } };

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (!strcmp(table[i].key, key))
			return table[i].manner;
	}
	return AT_ONCE;
}

/* The lock is held. */
static unsigned char *data_of(struct engine *e, uint32_t param, const char *key, uint64_t bytes)
{
	const struct fake_param *p = param_of(param);
	int k = 0;

	while (k < KEYS_MAX - 1 && p->keys[k] && strcmp(p->keys[k], key) != 0)
		k++;
	if (!e->data[param][k]) {
		e->data[param][k] = malloc(bytes + 1);
		for (uint64_t o = 0; o < bytes; o++)
			e->data[param][k][o] = fake_byte(param, key, o);
	}
	return e->data[param][k];
}

static int find(struct engine *e, const struct engine_address *a, struct engine_state *state)
{
	struct engine_state states[KEYS_MAX];
	int n;

	if (a->kind == ENGINE_HYPER)
		n = engine_hypers(e, a->group, states, KEYS_MAX);
	else if (a->kind == ENGINE_RANK_PARTITION)
		n = engine_partition_states(e, a->rank, a->group, a->sub, states, KEYS_MAX);
	else if (a->kind == ENGINE_RANK_PARAM)
		n = engine_rank_states(e, a->rank, a->param, states, KEYS_MAX);
	else
		n = engine_states(e, a->param, states, KEYS_MAX);
	for (int i = 0; i < n; i++) {
		if (!strcmp(states[i].key, a->key)) {
			*state = states[i];
			return i;
		}
	}
	return -ENOENT;
}

int engine_file_open(struct engine *e, const struct engine_address *address,
		     struct engine_file **file, uint64_t *bytes)
{
	struct engine_state state;
	struct engine_file *f;
	int number = find(e, address, &state);

	if (number < 0)
		return -ENOENT;
	f = calloc(1, sizeof(*f));
	*f = (struct engine_file){ .engine = e,
				   .address = *address,
				   .bytes = state.bytes,
				   .manner = manner_of(address->key) };
	pthread_mutex_lock(&e->lock);
	f->data = address->kind == ENGINE_HYPER
			  ? (unsigned char *)&e->hypers[number]
			  : data_of(e, address->param, address->key, 4 * numel(address->param));
	if (!strcmp(address->key, "viewed")) {
		f->viewed = malloc(f->bytes);
		memcpy(f->viewed, f->data, f->bytes);
	}
	pthread_mutex_unlock(&e->lock);
	*file = f;
	*bytes = state.bytes;
	return 0;
}

int engine_file_open_many(struct engine *e, const struct engine_address *addresses, uint32_t n,
			  struct engine_file **file, uint64_t *bytes)
{
	struct engine_file *f = calloc(1, sizeof(*f));

	*f = (struct engine_file){ .engine = e, .address = *addresses };
	for (uint32_t i = 0; i < n; i++) {
		struct engine_file *one;
		uint64_t size;

		if (engine_file_open(e, &addresses[i], &one, &size)) {
			engine_file_close(f);
			return -ENOENT;
		}
		f->own = realloc(f->own, f->bytes + size + 1);
		pthread_mutex_lock(&e->lock);
		memcpy(f->own + f->bytes, one->data, size);
		pthread_mutex_unlock(&e->lock);
		f->bytes += size;
		engine_file_close(one);
	}
	f->data = f->own;
	*file = f;
	*bytes = f->bytes;
	return 0;
}

void engine_file_close(struct engine_file *file)
{
	free(file->viewed);
	free(file->own);
	free(file);
}

/* ---- reading and writing ---- */

static struct engine_file *file_of(const struct op *op)
{
	return op->read ? op->read->file : op->write->file;
}

static void finish_read(struct engine_read *r, int error)
{
	uint64_t start = u64_min(r->offset, r->file->bytes);

	if (error || r->file->manner == FAILS)
		r->done(r, NULL, error ? error : -EIO);
	else
		r->done(r, (r->file->viewed ? r->file->viewed : r->file->data) + start,
			(int64_t)u64_min(r->size, r->file->bytes - start));
}

static void apply(struct engine *e, struct engine_write *w)
{
	struct engine_file *f = w->file;

	pthread_mutex_lock(&e->lock);
	for (size_t i = 0; i < w->nextents; i++) {
		const struct engine_extent *x = &w->extents[i];

		assert(x->offset + x->size <= f->bytes && x->size);
		assert(!i || x->offset >= x[-1].offset + x[-1].size);
		memcpy(f->data + x->offset, x->data, x->size);
	}
	e->hypers[COMMITS] += f->address.kind != ENGINE_HYPER;
	e->epoch++;
	e->generation++;
	pthread_cond_broadcast(&e->changed);
	pthread_mutex_unlock(&e->lock);
}

/* Such a value of a hyper-parameter is not committed. */
static bool is_negative(const struct engine_write *w)
{
	double value = 0;

	if (w->file->address.kind == ENGINE_HYPER)
		memcpy(&value, w->extents->data, sizeof(value));
	return value < 0;
}

static void finish(struct engine *e, struct op *op)
{
	int error = op->cancelled ? -ECANCELED : 0;

	if (op->read) {
		finish_read(op->read, error);
	} else {
		if (!error && (op->write->file->manner == FAILS || is_negative(op->write)))
			error = -EIO;
		if (!error)
			apply(e, op->write);
		op->write->done(op->write, error);
	}
	free(op);
}

static bool is_due(const struct engine *e, const struct op *op)
{
	if (op->cancelled)
		return true;
	if (op->when_valid && !e->hypers[GRADS_VALID])
		return false;
	return op->due_ms <= monotonic_ms();
}

static struct op *take_due(struct engine *e)
{
	for (struct op **at = &e->ops; *at; at = &(*at)->next) {
		struct op *op = *at;

		if (is_due(e, op)) {
			*at = op->next;
			return op;
		}
	}
	return NULL;
}

static void *worker(void *arg)
{
	struct engine *e = arg;

	pthread_mutex_lock(&e->lock);
	while (!e->stop) {
		struct engine_wait *wait = take_over(e);
		struct op *op = wait ? NULL : take_due(e);
		struct timespec soon;

		if (wait) {
			pthread_mutex_unlock(&e->lock);
			wait->done(wait, wait->cancelled ? -ECANCELED : 0);
			pthread_mutex_lock(&e->lock);
			continue;
		}
		if (op) {
			pthread_mutex_unlock(&e->lock);
			finish(e, op);
			pthread_mutex_lock(&e->lock);
			continue;
		}
		clock_gettime(CLOCK_REALTIME, &soon);
		soon.tv_nsec += 5000000;
		soon.tv_sec += soon.tv_nsec / 1000000000;
		soon.tv_nsec %= 1000000000;
		if (e->ops)
			pthread_cond_timedwait(&e->changed, &e->lock, &soon);
		else
			pthread_cond_wait(&e->changed, &e->lock);
	}
	pthread_mutex_unlock(&e->lock);
	return NULL;
}

static void queue(struct engine *e, struct op op)
{
	struct op *copy = malloc(sizeof(*copy)), **end = &e->ops;
	enum manner manner = file_of(&op)->manner;

	op.when_valid = manner == WHEN_VALID && op.read;
	op.due_ms = monotonic_ms() + (manner == SLOW ? SLOW_MS : 0);
	if (manner == NEVER || manner == NEVER_ASYNC)
		op.due_ms = UINT64_MAX;
	*copy = op;
	pthread_mutex_lock(&e->lock);
	while (*end)
		end = &(*end)->next;
	*end = copy;
	pthread_cond_broadcast(&e->changed);
	pthread_mutex_unlock(&e->lock);
}

void engine_read_from(const char *caller, struct engine *e, struct engine_read *read)
{
	if (read->file->manner == WHEN_VALID && read->nowait && !grads_valid(e))
		read->done(read, NULL, -ENODATA);
	else if (read->file->manner == AT_ONCE)
		finish_read(read, 0);
	else
		queue(e, (struct op){ .read = read });
}

void engine_write_from(const char *caller, struct engine *e, struct engine_write *write)
{
	if (write->operation)
		write->done(write, -EOPNOTSUPP);
	else
		queue(e, (struct op){ .write = write });
}

static void cancel(struct engine *e, const void *request)
{
	struct op *op, **at;
	bool at_once = false;

	pthread_mutex_lock(&e->lock);
	for (at = &e->ops; (op = *at); at = &op->next) {
		if (op->read != request && op->write != request)
			continue;
		op->cancelled = true;
		at_once = file_of(op)->manner == NEVER;
		if (at_once)
			*at = op->next;
		break;
	}
	pthread_cond_broadcast(&e->changed);
	pthread_mutex_unlock(&e->lock);
	if (at_once)
		finish(e, op);
}

int engine_sums(struct engine *e, struct engine_sums *sums)
{
	return -EOPNOTSUPP;
}

void engine_sums_cancel(struct engine *e, struct engine_sums *sums)
{
}

void engine_read_cancel(struct engine *e, struct engine_read *read)
{
	cancel(e, read);
}

void engine_write_cancel(struct engine *e, struct engine_write *write)
{
	cancel(e, write);
}

/* ---- freezes: at once ---- */

static int watch(struct engine *e, const char *text)
{
	struct wire_condition c;
	uint32_t ms;
	int rc = *text ? condition_parse(text, &c, &ms) : 0;

	if (!rc)
		e->watch[0] = '\0';
	if (!rc && *text)
		condition_print(&c, e->watch);
	return rc;
}

static int freeze(struct engine *e, struct engine_freeze *f)
{
	if (f->watch)
		return watch(e, f->watch);
	if (f->ms && e->frozen)
		return -EBUSY;
	if (f->id && f->id != e->frozen)
		return -ETIMEDOUT;
	e->frozen = f->ms ? f->id = ++e->freezes : 0;
	return 0;
}

void engine_freeze(struct engine *e, struct engine_freeze *f)
{
	int rc;

	pthread_mutex_lock(&e->lock);
	rc = freeze(e, f);
	pthread_mutex_unlock(&e->lock);
	f->done(f, rc);
}

void engine_freeze_cancel(struct engine *e, struct engine_freeze *f)
{
}
