/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Gathers by the communicator, beside frag_get of the same bytes by each rank from the owners'
 * memory, and beside memcpy; scatters from one rank to all, beside frag_set by messages; and
 * the time that a round costs a trainer.  Four ranks are threads of this process, each with an
 * engine, and ZeroMQ between them.  The communicator is collective_host, which copies in one
 * thread at a time: its copies are not those of devices, but what is around them, to agree, to
 * meet, to keep the sent bytes, devices have too.  All runs once with states in memory of the
 * host, and once on devices, those of device_host: then the owners' memory is read by messages.
 */

#include "engine/api/api.h"
#include "engine/base/thread.h"
#include "tests/ports/collective-host.h"
#include "tests/ports/device-host.h"
#include "engine/rank/devices.h"
#include "engine/rounds/communicator.h"
#include "engine/rounds/landing.h"
#include "engine/rounds/rounds.h"
#include "tests/bench/rows.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum {
	RANKS = 4,
	PARAMS = 4,  /* of a group */
	SHARES = 32, /* of a group's bytes: a parameter has some of these shares */
	WAIT_MS = 120000,
	PAUSE_US = 1000, /* between boundaries */
	BARE = 20000,    /* boundaries that do nothing */
	SMALL = 4096,    /* bytes of each rank */
};

/* Equal pieces: each parameter is cut into one for each rank.  Unequal: the vector of all is
 * cut.
 */
static const struct shape {
	const char *name;
	int stage;
	unsigned nparams;
	unsigned shares[PARAMS];
} shapes[] = {
	{ "equal pieces", 3, 4, { 8, 8, 8, 8 } },
	{ "unequal pieces", 2, 4, { 5, 11, 13, 3 } },
	{ "small", 3, 1, { SHARES } },
};
enum { EQUAL, UNEQUAL, TINY, GROUPS };

struct piece {
	float *memory;
	struct frag_fragment at;
};

static struct rank {
	unsigned number;
	struct frag *f;
	pthread_t thread;
	int params[GROUPS][PARAMS];
	struct piece pieces[GROUPS][PARAMS];
	uint8_t *out;
	struct device_host_stream *stream;
} ranks[RANKS];

/* Where states are, and which communicator moves them. */
static const struct mode {
	const char *name;
	const struct collective_ops *by;
	bool on_device;
	uint64_t total; /* bytes of a group; fewer where messages, which are slow, carry them */
} modes[] = {
	{ ", devices", &collective_host, true, 64 << 20 },
	{ "", &collective_host, false, 256 << 20 },
};

static const struct mode *mode;

static void (*work)(struct rank *r);
static const struct shape *shape; /* of the current work */
static pthread_barrier_t begun, ended, met;
static bool come; /* rank 0 says, between two barriers, that the work is done */

static void must(const char *what, int rc)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "bench-rounds: %s: %s\n", what, strerror(-rc));
	exit(1);
}

static unsigned group_of(const struct shape *s)
{
	return (unsigned)(s - shapes);
}

static uint64_t numel_of(const struct shape *s, unsigned param)
{
	uint64_t bytes = s == &shapes[TINY] ? RANKS * SMALL : mode->total;

	return bytes / SHARES * s->shares[param] / sizeof(float);
}

static uint64_t bytes_of(const struct shape *s)
{
	uint64_t numel = 0;

	for (unsigned i = 0; i < s->nparams; i++)
		numel += numel_of(s, i);
	return numel * sizeof(float);
}

/* ---- a rank ---- */

static void *huge_pages(uint64_t size)
{
	enum { HUGE = 2 << 20 };
	uint8_t *memory = mmap(NULL, size + HUGE, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		must("memory", -errno);
	memory += -(uintptr_t)memory % HUGE;
	madvise(memory, size, MADV_HUGEPAGE);
	memset(memory, 1, size);
	return memory;
}

static void give(struct rank *r, void *memory, uint64_t size)
{
	if (mode->on_device)
		must("device_host_give",
		     device_host_give(devices_port(r->f->engine->registry.devices), 0, memory,
				      size, memory));
}

static void use_device(struct rank *r)
{
	struct frag_devices d = { .size = sizeof(d) };

	r->stream = device_host_stream_new();
	must("a stream", r->stream ? 0 : -ENOMEM);
	d.stream = r->stream;
	must("frag_devices", api_devices_over(r->f, &d, &device_host));
}

static void *state_of(struct rank *r, int group)
{
	uint64_t size = frag_partition_numel(r->f, group, 0) * sizeof(float);
	void *memory;

	if (!mode->on_device) {
		must("frag_state_alloc",
		     frag_state_alloc(r->f, group, 0, "fp32", FRAG_F32, &memory));
		return memory;
	}
	memory = huge_pages(size);
	give(r, memory, size);
	must("frag_state_keep", frag_state_keep(r->f, group, 0, "fp32", FRAG_F32, memory));
	return memory;
}

static float value_of(unsigned param, uint64_t i)
{
	return (float)(param * 8192 + i % 8191);
}

static void describe(struct rank *r, const struct shape *s)
{
	unsigned g = group_of(s);
	struct frag_zero zero = { sizeof(zero), .stage = s->stage };
	void *memory;
	int group;

	for (unsigned i = 0; i < s->nparams; i++) {
		uint64_t numel = numel_of(s, i);
		char name[32];
		struct frag_tensor t = { sizeof(t), .name = name, .dtype = FRAG_F32, .ndim = 1,
					 .shape = &numel };

		snprintf(name, sizeof(name), "%u.%u", g, i);
		must("frag_param", r->params[g][i] = frag_param(r->f, &t));
	}
	must("frag_group", group = frag_group(r->f, r->params[g], s->nparams, &zero));
	memory = state_of(r, group);
	for (unsigned i = 0; i < s->nparams; i++) {
		struct piece *p = &r->pieces[g][i];
		int rc = frag_fragment(r->f, r->params[g][i], &p->at);

		if (rc == -ENOENT)
			continue;
		must("frag_fragment", rc);
		p->memory = (float *)memory + p->at.partition_offset;
		for (uint64_t j = 0; j < p->at.numel; j++)
			p->memory[j] = value_of(i, p->at.param_offset + j);
	}
}

/* Gives a rank its communicator before the rank is ready: a rank that has none when it is asked
 * takes no part.
 */
static void use_communicator(struct engine *e)
{
	const struct collective_options options = {
		.device = mode->on_device ? devices_port(e->registry.devices) : NULL,
		.stuck_ms = WAIT_MS,
		.wait_ms = WAIT_MS
	};
	int rc;

	pthread_mutex_lock(&e->lock);
	rc = rounds_init(e);
	if (!rc)
		rc = landing_init(e, LANDING_SLOT);
	if (!rc)
		rc = communicator_use(e, mode->by, &options);
	pthread_mutex_unlock(&e->lock);
	must("the communicator", rc);
}

static void until_connected(struct engine *e)
{
	uint64_t deadline = monotonic_ms() + WAIT_MS;
	bool connected;

	pthread_mutex_lock(&e->lock);
	while (!communicator_number(e) && monotonic_ms() < deadline)
		node_wait(e, monotonic_ms() + 10);
	connected = communicator_number(e) && communicator_ranks(e) == RANKS;
	pthread_mutex_unlock(&e->lock);
	must("the communicator", connected ? 0 : -ETIMEDOUT);
}

static void be_rank(struct rank *r)
{
	struct launch launch = { .rank = r->number, .world = RANKS };

	snprintf(launch.job, sizeof(launch.job), "bench-rounds-%d-%d", (int)getpid(),
		 (int)(mode - modes));
	must("launch", launch_host(launch.host));
	must("frag_open",
	     api_open_over(&r->f, &launch, &transport_zmq, &transport_host, NULL, true));
	if (mode->on_device)
		use_device(r);
	use_communicator(r->f->engine);
	for (unsigned g = 0; g < GROUPS; g++)
		describe(r, &shapes[g]);
	r->out = huge_pages(mode->total);
	give(r, r->out, mode->total);
	must("frag_ready", frag_ready(r->f));
	must("frag_barrier", frag_barrier(r->f, WAIT_MS));
	until_connected(r->f->engine);
	must("frag_barrier", frag_barrier(r->f, WAIT_MS));
}

static void *run(void *arg)
{
	struct rank *r = arg;

	for (;;) {
		pthread_barrier_wait(&begun);
		if (!work)
			return NULL;
		work(r);
		pthread_barrier_wait(&ended);
	}
}

/* Makes all ranks do it at once; returns the seconds. */
static double all_do(void (*what)(struct rank *r))
{
	uint64_t since;

	work = what;
	since = monotonic_ns();
	pthread_barrier_wait(&begun);
	if (!what)
		return 0;
	pthread_barrier_wait(&ended);
	return (double)(monotonic_ns() - since) / 1e9;
}

/* ---- ways ---- */

static void for_params(struct rank *r,
		       void (*way)(struct rank *r, unsigned i, void *out, uint64_t bytes))
{
	uint8_t *out = r->out;

	for (unsigned i = 0; i < shape->nparams; i++) {
		uint64_t bytes = numel_of(shape, i) * sizeof(float);

		way(r, i, out, bytes);
		out += bytes;
	}
}

static int number_of(const struct rank *r, unsigned param)
{
	return r->params[group_of(shape)][param];
}

static void gather_one(struct rank *r, unsigned i, void *out, uint64_t bytes)
{
	must("frag_gather", frag_gather(r->f, number_of(r, i), "fp32", out, bytes, WAIT_MS));
}

static void get_one(struct rank *r, unsigned i, void *out, uint64_t bytes)
{
	must("frag_get", frag_get(r->f, number_of(r, i), "fp32", out, bytes));
}

static void copy_one(struct rank *r, unsigned i, void *out, uint64_t bytes)
{
	for (unsigned from = 0; from < RANKS; from++) {
		const struct piece *p = &ranks[from].pieces[group_of(shape)][i];

		memcpy((float *)out + p->at.param_offset, p->memory,
		       p->at.numel * sizeof(float));
	}
}

static void check_one(struct rank *r, unsigned i, void *out, uint64_t bytes)
{
	const float *got = out;

	for (uint64_t j = 0; j < bytes / sizeof(float); j++)
		if (got[j] != value_of(i, j))
			must("what came", -EBADMSG);
	memset(out, 0, bytes);
}

static void gather(struct rank *r)
{
	for_params(r, gather_one);
}

static void get(struct rank *r)
{
	for_params(r, get_one);
}

static void copy(struct rank *r)
{
	for_params(r, copy_one);
}

static void check(struct rank *r)
{
	for_params(r, check_one);
}

static int fetches[PARAMS];

static void fetch_one(struct rank *r, unsigned i, void *out, uint64_t bytes)
{
	fetches[i] = frag_fetch(r->f, number_of(r, i), "fp32", out, bytes);
	must("frag_fetch", fetches[i]);
}

static bool all_fetched(struct rank *r)
{
	bool all = true;

	for (unsigned i = 0; i < shape->nparams; i++) {
		int rc = fetches[i] < 0 ? 0 : frag_fetched(r->f, fetches[i]);

		all &= !rc;
		if (rc != -EAGAIN)
			must("frag_fetched", rc);
		fetches[i] = rc ? fetches[i] : -1;
	}
	return all;
}

/* Rank 0 asks; all ranks pass boundaries together until rank 0 has its bytes. */
static void fetch(struct rank *r)
{
	if (!r->number)
		for_params(r, fetch_one);
	do {
		must("frag_safe_point", frag_safe_point(r->f));
		usleep(PAUSE_US);
		pthread_barrier_wait(&met);
		if (!r->number)
			come = all_fetched(r);
		pthread_barrier_wait(&met);
	} while (!come);
}

static void scatter_one(struct rank *r, unsigned i, void *out, uint64_t bytes)
{
	must("frag_scatter",
	     frag_scatter(r->f, number_of(r, i), "fp32", 0, out, bytes, WAIT_MS));
}

static void set_one(struct rank *r, unsigned i, void *out, uint64_t bytes)
{
	if (!r->number)
		must("frag_set", frag_set(r->f, number_of(r, i), "fp32", out, bytes));
	pthread_barrier_wait(&met);
}

/* Passes boundaries, with all other ranks, until rank 0 has applied all edits. */
static void apply(struct rank *r)
{
	do {
		must("frag_safe_point", frag_safe_point(r->f));
		pthread_barrier_wait(&met);
		if (!r->number)
			come = atomic_load(&r->f->engine->participant.lowest) == UINT64_MAX;
		pthread_barrier_wait(&met);
	} while (!come);
}

static void scatter(struct rank *r)
{
	for_params(r, scatter_one);
	apply(r);
}

static void set(struct rank *r)
{
	for_params(r, set_one);
	apply(r);
}

static void first_gets(struct rank *r)
{
	if (!r->number)
		get(r);
}

static void first_copies(struct rank *r)
{
	if (!r->number)
		copy(r);
}

static void first_checks(struct rank *r)
{
	if (!r->number)
		check(r);
}

/* ---- rates ---- */

struct of {
	void (*what)(struct rank *r);
	const struct shape *shape;
	unsigned readers;
};

static double rate(const void *arg)
{
	const struct of *of = arg;

	shape = of->shape;
	return (double)(of->readers * bytes_of(shape)) / all_do(of->what) / 1e9;
}

static void prove(const struct of *of, void (*what)(struct rank *r))
{
	rate(of);
	shape = of->shape;
	all_do(what);
}

static void compare(const char *name, const char *other, struct rows_way ways[3],
		    unsigned rounds)
{
	rows_run(ways, 3, rounds);
	rows_compare(&(struct row){ .name = name, .unit = "GB/s", .reference = other },
		     ways[0].measured, ways[1].measured, rounds);
	rows_compare(&(struct row){ .name = name, .unit = "GB/s", .reference = "memcpy" },
		     ways[0].measured, ways[2].measured, rounds);
}

static void measure_gathers(const struct shape *s, unsigned rounds)
{
	const struct of by[] = { { gather, s, RANKS }, { get, s, RANKS }, { copy, s, RANKS } };
	struct rows_way ways[] = { WAY(rate, &by[0]), WAY(rate, &by[1]), WAY(rate, &by[2]) };
	char name[100];

	prove(&by[0], check);
	snprintf(name, sizeof(name), "gather %d MiB to all of %d ranks, %s%s",
		 (int)(mode->total >> 20), RANKS, s->name, mode->name);
	compare(name, "frag_get", ways, rounds);
}

/* The values are those that are there already. */
static void measure_scatters(const struct shape *s, unsigned rounds)
{
	const struct of by[] = { { scatter, s, 1 }, { set, s, 1 }, { first_copies, s, 1 } };
	struct rows_way ways[] = { WAY(rate, &by[0]), WAY(rate, &by[1]), WAY(rate, &by[2]) };
	char name[100];

	shape = s;
	all_do(gather);
	snprintf(name, sizeof(name), "scatter %d MiB of one to %d ranks, applied%s",
		 (int)(mode->total >> 20), RANKS, mode->name);
	compare(name, "frag_set", ways, rounds);
	all_do(check);
}

static void measure_fetches(unsigned rounds)
{
	const struct shape *s = &shapes[EQUAL];
	const struct of by[] = { { fetch, s, 1 },
				 { first_gets, s, 1 },
				 { first_copies, s, 1 } };
	struct rows_way ways[] = { WAY(rate, &by[0]), WAY(rate, &by[1]), WAY(rate, &by[2]) };
	char name[100];

	prove(&by[0], first_checks);
	snprintf(name, sizeof(name), "fetch %d MiB to one of %d ranks%s",
		 (int)(mode->total >> 20), RANKS, mode->name);
	compare(name, "frag_get", ways, rounds);
}

/* ---- the cost for a trainer ---- */

static uint64_t held_ns(void)
{
	uint64_t ns = 0;

	for (unsigned i = 0; i < RANKS; i++)
		ns += atomic_load(&ranks[i].f->engine->registry.control->held_ns);
	return ns;
}

/* Returns the microseconds that a round holds a rank's trainer. */
static double held_by_round(const void *arg)
{
	uint64_t before;

	shape = arg;
	before = held_ns();
	all_do(fetch);
	return (double)(held_ns() - before) / 1e3 / RANKS / shape->nparams;
}

static double bare; /* us, of rank 0 on its core */

static double core_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void pass_bare(struct rank *r)
{
	double before = core_us();

	for (unsigned i = 0; i < BARE; i++)
		must("frag_safe_point", frag_safe_point(r->f));
	if (!r->number)
		bare = (core_us() - before) / BARE;
}

static double bare_us(const void *arg)
{
	all_do(pass_bare);
	return bare;
}

static double copy_us(const void *arg)
{
	const struct shape *s = arg;
	const struct piece *p = &ranks[0].pieces[group_of(s)][0];
	uint64_t since = monotonic_ns();

	memcpy(ranks[0].out, p->memory, p->at.numel * sizeof(float));
	return (double)(monotonic_ns() - since) / 1e3;
}

static void measure_boundaries(unsigned rounds)
{
	struct rows_way ways[] = { WAY(held_by_round, &shapes[TINY]), WAY(bare_us, NULL) };
	struct rows_way large[] = { WAY(held_by_round, &shapes[EQUAL]),
				    WAY(copy_us, &shapes[EQUAL]) };
	char name[100];

	rows_run(ways, 2, rounds * 3);
	snprintf(name, sizeof(name), "boundary with a round of %d KiB of each rank%s",
		 SMALL >> 10, mode->name);
	rows_compare(
		&(struct row){
			.name = name, .unit = "us", .reference = "no round", .less = true },
		ways[0].measured, ways[1].measured, rounds * 3);
	rows_run(large, 2, rounds);
	snprintf(name, sizeof(name), "boundary with a round of %d MiB of each rank%s",
		 (int)(ranks[0].pieces[EQUAL][0].at.numel * sizeof(float) >> 20), mode->name);
	rows_compare(
		&(struct row){
			.name = name, .unit = "us", .reference = "memcpy", .less = true },
		large[0].measured, large[1].measured, rounds);
}

/* ---- all ---- */

/* Checks that the communicator has carried the bytes. */
static void check_figures(void)
{
	struct collective_about about;
	struct rounds_figures f;

	rounds_figures(ranks[0].f->engine, &f);
	communicator_about(ranks[0].f->engine, &about);
	if (f.failed || about.failed || !f.rounds || about.launched == f.launched)
		must("bytes went by the host", -EIO);
}

static void open_ranks(void)
{
	pthread_barrier_init(&begun, NULL, RANKS + 1);
	pthread_barrier_init(&ended, NULL, RANKS + 1);
	pthread_barrier_init(&met, NULL, RANKS);
	for (unsigned i = 0; i < RANKS; i++) {
		ranks[i].number = i;
		must("a thread", thread_start(&ranks[i].thread, run, &ranks[i]));
	}
	all_do(be_rank);
}

static void leave(struct rank *r)
{
	frag_close(r->f);
}

static void close_ranks(void)
{
	all_do(leave);
	all_do(NULL);
	for (unsigned i = 0; i < RANKS; i++)
		pthread_join(ranks[i].thread, NULL);
}

static void measure_all(unsigned rounds)
{
	open_ranks();
	measure_gathers(&shapes[EQUAL], rounds);
	measure_gathers(&shapes[UNEQUAL], rounds);
	measure_fetches(rounds);
	measure_scatters(&shapes[EQUAL], rounds);
	measure_boundaries(rounds);
	check_figures();
	close_ranks();
}

int main(void)
{
	unsigned rounds = rows_rounds(7);

	setenv("FRAG_LOG", "error", 1); /* without warnings of ranks that leave */
	rows_go_first("bench-rounds");
	for (mode = modes; mode < modes + ARRAY_SIZE(modes); mode++)
		measure_all(rounds);
	return 0;
}
