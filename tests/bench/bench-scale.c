/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Models a job of more ranks than a machine runs: 64, 256 and 1024 engines and that of a mount
 * in this process, over the loop transport, without threads.  Counts messages, bytes and memory
 * of each for what readers and writers do.  An engine takes a turn when a message or a wake-up
 * is there for it, or its idle time is over, as its thread would.  A trainer that waits at a
 * boundary has a stack of its own.
 */

#include "engine/api/api.h"
#include "engine/job/join.h"
#include "engine/live/live.h"
#include "engine/live/loop.h"
#include "tests/bench/rows.h"
#include "tests/ports/transport-loop.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <ucontext.h>

enum {
	RANKS_MAX = 1024,
	RANKS_OF_HOST = 8,
	PARTITION = 1024, /* elements of a rank's partition */
	PARAMS = 300,
	WIDE = 1,   /* a parameter on several ranks */
	NARROW = 2, /* a parameter on one rank, which is not the coordinator */
	WIDE_NUMEL = 3000,
	NARROW_NUMEL = 50,
	STACK = 128 << 10,
	SILENCE_MS = 2000, /* time after which the reader of a lost rank is told */
	/* a waiting trainer looks again after so long, even without a message */
	TRAINER_MS = 200,
	WAIT_MS = 60000,
	IDLE_MS = 3000,
	STEP_MS = 20,
	STEPS = 10,
};

struct traffic {
	uint64_t messages, bytes; /* sent and received */
	uint64_t pings, waits;    /* of these kinds and their answers; not among messages */
	uint64_t ns;              /* time of its engine's thread on a core */
};

struct trainer {
	struct frag *f;
	uint8_t *memory;
	ucontext_t context;
	char *stack;
	bool inside; /* of a boundary */
	/* time of its last look, and the count of its messages then */
	uint64_t looked_ms, heard;
};

static struct trainer ranks[RANKS_MAX];
static struct engine *engines[RANKS_MAX + 1]; /* the last is the mount's; NULL: none */
static struct traffic traffic[RANKS_MAX + 1], before[RANKS_MAX + 1];
static uint64_t turned_ms[RANKS_MAX + 1];
static uint32_t world, current; /* current: the engine whose turn it is */
static struct trainer *training;
static ucontext_t here;
static struct transport_ops counted;

static const struct kind {
	const char *name;
	int stage;
	uint32_t shards; /* 0: as many as ranks; else the shards have copies */
} zero_1 = { "zero-1", 1, 0 }, zero_3 = { "zero-3", 3, 0 },
  copies = { "zero-1 on 8 ranks, copied", 1, 8 }, *kind;

static void need(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "bench-scale: %u ranks: %s: %s\n", world, what, frag_error());
	exit(1);
}

static size_t heap_bytes(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

/* ---- messages ---- */

static void count(const void *message, uint64_t bytes)
{
	struct wire_header header;

	memcpy(&header, message, sizeof(header));
	if (header.type == WIRE_PING || header.type == WIRE_PONG) {
		traffic[current].pings++;
		return;
	}
	if (header.type == WIRE_WAIT || header.type == WIRE_CHANGED) {
		traffic[current].waits++;
		return;
	}
	traffic[current].messages++;
	traffic[current].bytes += bytes;
}

static int send_counted(struct transport *t, uint32_t peer, const struct iovec *parts,
			unsigned n)
{
	int rc = transport_loop.send(t, peer, parts, n);
	uint64_t bytes = 0;

	for (unsigned i = 0; i < n; i++)
		bytes += parts[i].iov_len;
	if (!rc)
		count(parts[0].iov_base, bytes);
	return rc;
}

struct receiver {
	transport_receive receive;
	void *owner;
};

static void receive_counted(void *owner, uint32_t peer, const void *data, size_t size)
{
	struct receiver *r = owner;

	count(data, size);
	r->receive(r->owner, peer, data, size);
}

static int turn_counted(struct transport *t, transport_receive receive, void *owner, int max)
{
	struct receiver r = { receive, owner };

	return transport_loop.turn(t, receive_counted, &r, max);
}

static void begin_counting(void)
{
	memcpy(before, traffic, sizeof(before));
}

static struct traffic since(uint32_t i)
{
	return (struct traffic){ traffic[i].messages - before[i].messages,
				 traffic[i].bytes - before[i].bytes,
				 traffic[i].pings - before[i].pings,
				 traffic[i].waits - before[i].waits,
				 traffic[i].ns - before[i].ns };
}

/* Returns the most messages of a rank of [first, world). */
static uint64_t most_messages(uint32_t first)
{
	uint64_t most = 0;

	for (uint32_t i = first; i < world; i++)
		most = u64_max(most, since(i).messages);
	return most;
}

static unsigned ranks_asked(void)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < world; i++)
		n += since(i).messages != 0;
	return n;
}

/* ---- turns ---- */

static bool has_messages(struct engine *e)
{
	struct pollfd fd = { .events = POLLIN };

	if (!e->messages.transport)
		return false;
	fd.fd = counted.fd(e->messages.transport);
	return poll(&fd, 1, 0) > 0;
}

static void turn_engine(uint32_t i, uint64_t now)
{
	uint64_t wakeups;
	ssize_t n = read(engines[i]->thread.wake_fd, &wakeups, sizeof(wakeups));

	uint64_t began = clock_ns(CLOCK_THREAD_CPUTIME_ID);

	(void)n; /* there may be no wake-up */
	current = i;
	turned_ms[i] = now;
	do {
		loop_turn(engines[i], 0);
	} while (has_messages(engines[i]));
	traffic[i].ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - began;
}

static void resume(struct trainer *t)
{
	t->looked_ms = monotonic_ms();
	t->heard = traffic[t - ranks].messages;
	training = t;
	swapcontext(&here, &t->context);
	training = NULL;
}

/* Returns true if the trainer waits and its engine has heard something since its last look. */
static bool is_woken(const struct trainer *t, uint64_t now)
{
	return t->inside &&
	       (traffic[t - ranks].messages != t->heard || now >= t->looked_ms + TRAINER_MS);
}

/* Returns true if the idle time is over: it is shorter for the mount and the coordinator. */
static bool is_due(uint32_t i, uint64_t now)
{
	unsigned tick = i == world || !i ? NODE_TICK_MS : NODE_IDLE_MS;

	return now >= turned_ms[i] + tick;
}

static void turn(void *arg)
{
	static struct pollfd fds[2 * (RANKS_MAX + 1)];
	uint64_t now = monotonic_ms();

	for (uint32_t i = 0; i <= world; i++) {
		struct engine *e = engines[i];

		fds[2 * i].fd = e ? e->thread.wake_fd : -1;
		fds[2 * i + 1].fd =
			e && e->messages.transport ? counted.fd(e->messages.transport) : -1;
		fds[2 * i].events = fds[2 * i + 1].events = POLLIN;
	}
	poll(fds, 2 * (world + 1), 0);
	for (uint32_t i = 0; i <= world; i++)
		if (engines[i] &&
		    (fds[2 * i].revents || fds[2 * i + 1].revents || is_due(i, now)))
			turn_engine(i, now);
	for (uint32_t i = 0; i < world; i++)
		if (is_woken(&ranks[i], now))
			resume(&ranks[i]);
}

static void turn_for(uint64_t ms)
{
	for (uint64_t until = monotonic_ms() + ms; monotonic_ms() < until;)
		turn(NULL);
}

/* Turns until no message is under way. */
static void settle(void)
{
	bool busy = true;

	turn_for(2 * NODE_TICK_MS);
	while (busy) {
		turn(NULL);
		busy = false;
		for (uint32_t i = 0; i <= world; i++)
			busy |= engines[i] && has_messages(engines[i]);
	}
}

static void turn_until(const bool *done, const char *what)
{
	uint64_t until = monotonic_ms() + WAIT_MS;

	while (!*done) {
		need(monotonic_ms() < until, what);
		turn(NULL);
	}
}

/* ---- trainers ---- */

static void yield(void *arg)
{
	if (training)
		swapcontext(&training->context, &here);
	else
		turn(NULL);
}

static void pass_boundary(void)
{
	need(!frag_safe_point(training->f), "frag_safe_point");
	training->inside = false;
}

static void enter_boundary(struct trainer *t)
{
	getcontext(&t->context);
	t->context.uc_stack.ss_sp = t->stack;
	t->context.uc_stack.ss_size = STACK;
	t->context.uc_link = &here;
	makecontext(&t->context, pass_boundary, 0);
	t->inside = true;
	resume(t);
}

/* Each trainer outside of a boundary enters its next one. */
static void all_enter_boundaries(void)
{
	for (uint32_t i = 0; i < world; i++)
		if (ranks[i].f && !ranks[i].inside)
			enter_boundary(&ranks[i]);
}

static void train_until(const bool *done, const char *what)
{
	uint64_t until = monotonic_ms() + WAIT_MS, step = 0;

	while (!*done) {
		need(monotonic_ms() < until, what);
		if (monotonic_ms() >= step) {
			all_enter_boundaries();
			step = monotonic_ms() + STEP_MS;
		}
		turn(NULL);
	}
}

static void until_all_are_through(void)
{
	bool through = false;

	for (uint64_t until = monotonic_ms() + WAIT_MS; !through; turn(NULL)) {
		need(monotonic_ms() < until, "boundaries");
		through = true;
		for (uint32_t i = 0; i < world; i++)
			through &= !ranks[i].inside;
	}
}

/* ---- the job ---- */

static uint64_t numel_of(uint32_t param)
{
	uint64_t shards = kind->shards ? kind->shards : world;
	uint64_t rest = (shards - 1) * PARTITION - WIDE_NUMEL - NARROW_NUMEL;

	if (!param)
		return PARTITION;
	if (param == WIDE)
		return WIDE_NUMEL;
	return param == NARROW ? NARROW_NUMEL : rest / (PARAMS - 3);
}

/* Returns the low-precision parameter's memory, which all ranks share: they write the same
 * values.
 */
static void *lp_memory(uint32_t param)
{
	static uint8_t *all;
	static uint64_t room;
	uint64_t need_room = (uint64_t)world * PARTITION * 2 + PARAMS * 4096;

	if (room < need_room) {
		free(all);
		all = calloc(1, room = need_room);
		need(all, "memory");
	}
	return kind->stage == 3 ? all : all + param * (room / PARAMS / 64 * 64);
}

static void describe(uint32_t rank)
{
	static const char *const keys[] = { "fp32", "exp_avg", "exp_avg_sq" };
	struct frag *f = ranks[rank].f;
	struct frag_zero zero = { .size = sizeof(zero),
				  .stage = kind->stage,
				  .replicas = kind->shards ? world / kind->shards : 1 };
	uint64_t bytes;
	int params[PARAMS];
	char name[64];

	for (uint32_t p = 0; p < PARAMS; p++) {
		uint64_t numel = numel_of(p);
		struct frag_tensor t = { .size = sizeof(t),
					 .name = name,
					 .dtype = FRAG_BF16,
					 .ndim = 1,
					 .shape = &numel };

		snprintf(name, sizeof(name), "model.layers.%u.mlp.weight", p);
		*(kind->stage == 3 ? &t.lp_shard : &t.lp) = lp_memory(p);
		params[p] = frag_param(f, &t);
		need(params[p] >= 0, "frag_param");
	}
	need(!frag_group(f, params, PARAMS, &zero), "frag_group");
	bytes = frag_partition_numel(f, 0, 0) * 4;
	ranks[rank].memory = calloc(ARRAY_SIZE(keys), bytes);
	for (unsigned k = 0; k < ARRAY_SIZE(keys); k++)
		need(!frag_state_keep(f, 0, 0, keys[k], FRAG_F32,
				      ranks[rank].memory + k * bytes),
		     "frag_state_keep");
	need(!frag_ready(f), "frag_ready");
}

static void open_rank(uint32_t rank)
{
	struct launch launch = { .rank = rank, .world = world, .job = "model", .plain = true };
	const char *seed = rank ? engines[0]->job.address : NULL;
	struct trainer *t = &ranks[rank];

	snprintf(launch.host, sizeof(launch.host), "host %u", rank / RANKS_OF_HOST);
	need(!api_open_over(&t->f, &launch, &counted, &transport_loop, seed, false), "a rank");
	engines[rank] = t->f->engine;
	engines[rank]->thread.yield = yield;
	t->stack = malloc(STACK);
	need(t->stack, "memory");
	describe(rank);
}

static bool all_ready(void)
{
	for (uint32_t i = 0; i < world; i++)
		if (!engines[i]->job.ready)
			return false;
	return true;
}

static void close_rank(uint32_t rank)
{
	struct trainer *t = &ranks[rank];

	current = rank;
	engines[rank] = NULL;
	frag_close(t->f);
	free(t->memory);
	free(t->stack);
	*t = (struct trainer){ 0 };
}

/* ---- rows ---- */

static void row(const char *what, double value, const char *unit, double goal)
{
	char name[200];

	snprintf(name, sizeof(name), "model of %u ranks, %s: %s", world, kind->name, what);
	rows_print(&(struct row){ name, unit, NULL, true, goal }, value, 0, NULL, 1);
}

static void row_against(const char *what, double value, const char *of, double reference)
{
	double ratio = value / reference;
	char name[200];

	snprintf(name, sizeof(name), "model of %u ranks, %s: %s", world, kind->name, what);
	rows_print(&(struct row){ name, "ranks", of, true, 1 }, value, reference, &ratio, 1);
}

/* ---- what is measured ---- */

static void open_job(void)
{
	size_t heap = heap_bytes();
	uint64_t began = monotonic_ns();

	begin_counting();
	for (uint32_t i = 0; i < world; i++)
		open_rank(i);
	while (!all_ready()) {
		need(monotonic_ns() < began + WAIT_MS * 1000000ull, "the ranks do not join");
		turn(NULL);
	}
	row("all join, on one core", (double)(monotonic_ns() - began) / 1e9, "s", 0);
	row("joining, bytes of rank 0", (double)since(0).bytes / (1 << 20), "MiB", 0);
	row("memory of a rank", (double)(heap_bytes() - heap) / world / 1024, "KiB", 0);
}

static void connect_mount(void)
{
	size_t heap = heap_bytes();
	uint64_t began = monotonic_ns();
	struct engine *e;
	char seed[160];

	begin_counting();
	need(!loop_new(&e, &live_ops, &counted, &transport_loop), "loop_new");
	engines[world] = e;
	current = world;
	e->thread.yield = yield;
	e->write.allowed = true;
	snprintf(e->launch.host, sizeof(e->launch.host), "elsewhere");
	snprintf(seed, sizeof(seed), "%s", engines[0]->job.address);
	need(!node_open_messages(e, NULL) && !join_start_observer(e, seed), "a mount");
	turn_until(&e->job.ready, "the mount does not connect");
	row("a mount connects", (double)(monotonic_ns() - began) / 1e9, "s", 2);
	row("a mount connects, memory", (double)(heap_bytes() - heap) / (1 << 20), "MiB", 100);
	row("a mount connects, ranks asked", ranks_asked(), "ranks", 1);
	row("a mount connects, bytes", (double)since(world).bytes / 1024, "KiB", 0);
}

static void idle(void)
{
	uint64_t most = 0;

	turn_for(IDLE_MS / 2);
	begin_counting();
	turn_for(IDLE_MS);
	for (uint32_t i = 1; i < world; i++)
		most = u64_max(most, since(i).messages + since(i).pings + since(i).waits);
	row("idle, messages a second of rank 0",
	    (double)(since(0).messages + since(0).pings + since(0).waits) * 1000 / IDLE_MS,
	    "messages", 0);
	row("idle, time of rank 0's engine in a second",
	    (double)since(0).ns / 1e6 * 1000 / IDLE_MS, "ms", 0);
	row("idle, messages a second of another rank", (double)most * 1000 / IDLE_MS,
	    "messages", 8);
}

static void list_states(void)
{
	struct engine_state states[16];

	settle();
	begin_counting();
	for (uint32_t p = 0; p < PARAMS; p++)
		need(engine_states(engines[world], p, states, 16) >= 4, "engine_states");
	row("states of all parameters are listed, ranks asked", ranks_asked(), "ranks", 1);
}

struct holders {
	uint8_t has[RANKS_MAX];
	unsigned n;
};

static void see_holder(void *arg, const struct engine_fragment *f)
{
	struct holders *h = arg;

	h->n += !h->has[f->rank];
	h->has[f->rank] = 1;
}

static unsigned count_holders(uint32_t param)
{
	struct holders h = { .n = 0 };

	engine_fragments(engines[world], param, "fp32", see_holder, &h);
	return kind->shards ? h.n * kind->shards / world : h.n;
}

struct reading {
	struct engine_read read;
	bool done;
	int64_t result;
};

static void on_read(struct engine_read *read, const void *data, int64_t n)
{
	struct reading *r = read->owner;

	r->result = n;
	r->done = true;
}

static struct engine_file *open_state(uint32_t param, const char *key, uint64_t *bytes)
{
	struct engine_address a = { .kind = ENGINE_PARAM, .param = param };
	struct engine_file *file;

	snprintf(a.key, sizeof(a.key), "%s", key);
	need(!engine_file_open(engines[world], &a, &file, bytes), "engine_file_open");
	return file;
}

static int64_t read_state(uint32_t param, const char *key)
{
	struct reading r = { .read = { .done = on_read, .owner = &r } };
	uint64_t bytes;

	r.read.file = open_state(param, key, &bytes);
	for (r.read.offset = 0; r.read.offset < bytes && r.result >= 0;
	     r.read.offset += (uint64_t)r.result) {
		r.read.size = bytes - r.read.offset;
		r.done = false;
		engine_read(engines[world], &r.read);
		turn_until(&r.done, "a read");
		if (r.result < 0)
			break;
	}
	engine_file_close(r.read.file);
	settle(); /* its view is closed */
	return r.result;
}

static void read_param(uint32_t param, const char *key, unsigned holders)
{
	char what[120];

	begin_counting();
	need(read_state(param, key) > 0, "a read");
	snprintf(what, sizeof(what), "read of %s on %u rank%s, ranks asked", key, holders,
		 holders == 1 ? "" : "s");
	row_against(what, ranks_asked(), "ranks that hold it", holders);
	begin_counting();
	need(read_state(param, key) > 0, "a read");
	snprintf(what, sizeof(what), "read of %s on %u rank%s again, messages of a rank", key,
		 holders, holders == 1 ? "" : "s");
	row(what, (double)most_messages(0), "messages", 6);
}

struct change {
	bool done;
	int result;
};

static void on_written(struct engine_write *write, int result)
{
	struct change *c = write->owner;

	*c = (struct change){ true, result };
}

static int commit(uint32_t param)
{
	static const float values[] = { 1, 2, 3, 4 };
	struct engine_extent extent = { 0, sizeof(values), values };
	struct change c = { false };
	struct engine_write write = {
		.extents = &extent, .nextents = 1, .done = on_written, .owner = &c
	};
	uint64_t bytes;

	write.file = open_state(param, "fp32", &bytes);
	engine_write(engines[world], &write);
	train_until(&c.done, "a commit");
	until_all_are_through();
	engine_file_close(write.file);
	if (c.result)
		fprintf(stderr, "bench-scale: a commit: %s\n", strerror(-c.result));
	return c.result;
}

static void row_of_all(const char *what)
{
	char line[160];

	snprintf(line, sizeof(line), "%s, messages of the coordinator", what);
	row(line, (double)since(0).messages / world, "a rank", 0);
	snprintf(line, sizeof(line), "%s, messages of another rank", what);
	row(line, (double)most_messages(1), "messages", 16);
	snprintf(line, sizeof(line), "%s, messages of the mount", what);
	row(line, (double)since(world).messages, "messages", 0);
}

static void edit(void)
{
	size_t heap = heap_bytes();
	uint64_t began;

	/* the tables of states of all holders come with the first commit */
	began = monotonic_ns();
	need(!commit(NARROW), "the first commit");
	row("the first commit", (double)(monotonic_ns() - began) / 1e9, "s", 0);
	row("the first commit, memory of the mount, all tables",
	    ((double)heap_bytes() - (double)heap) / (1 << 20), "MiB", 100);
	begin_counting();
	began = monotonic_ns();
	need(!commit(NARROW), "a commit");
	row("a commit", (double)(monotonic_ns() - began) / 1e9, "s", 0);
	row_of_all("a commit");
}

static void on_frozen(struct engine_freeze *freeze, int result)
{
	struct change *c = freeze->owner;

	*c = (struct change){ true, result };
}

static void freeze(void)
{
	struct change c = { false };
	struct engine_freeze f = { .ms = WAIT_MS, .done = on_frozen, .owner = &c };
	uint64_t id;

	begin_counting();
	engine_freeze(engines[world], &f);
	train_until(&c.done, "a freeze");
	need(!c.result, "a freeze");
	id = f.id;
	f = (struct engine_freeze){ .id = id, .done = on_frozen, .owner = &c };
	c.done = false;
	engine_freeze(engines[world], &f);
	turn_until(&c.done, "a thaw");
	need(!c.result, "a thaw");
	until_all_are_through();
	row_of_all("freeze and thaw");
}

static void events(void)
{
	uint64_t until = monotonic_ms() + WAIT_MS;
	struct engine_events *stream;
	uint64_t most = 0;
	unsigned asked = 0;
	char lines[4096];

	need(!engine_events_open(engines[world], &stream), "events");
	turn_for(100);
	begin_counting();
	for (int step = 0; step < STEPS; step++) {
		for (uint32_t i = 0; i < world; i++)
			need(!frag_step_begin(ranks[i].f) && !frag_step_end(ranks[i].f),
			     "a step");
		while (!engine_events_ready(stream)) {
			need(monotonic_ms() < until, "no event");
			turn(NULL);
		}
		while (engine_events_read(stream, lines, sizeof(lines)))
			;
	}
	engine_events_close(stream);
	for (uint32_t i = 0; i < world; i++) {
		asked += since(i).messages + since(i).waits != 0;
		most = u64_max(most, since(i).messages + since(i).waits);
	}
	row("events of 10 steps are followed, ranks asked", asked, "ranks", 1);
	row("events of 10 steps are followed, messages of a rank", (double)most, "messages", 0);
}

/* The first read of .frag/health makes the mount ask; the second has the answers. */
static void health(void)
{
	size_t heap = heap_bytes();
	uint64_t most = 0;

	begin_counting();
	free(engine_text(engines[world], "health"));
	turn_for(1500);
	free(engine_text(engines[world], "health"));
	for (uint32_t i = 1; i < world; i++)
		most = u64_max(most, since(i).messages + since(i).pings);
	row(".frag/health, messages of a rank in 1.5 s", (double)most, "messages", 16);
	row(".frag/health, bytes but PONG's", (double)since(world).bytes / 1024, "KiB", 0);
	row(".frag/health, memory", ((double)heap_bytes() - (double)heap) / (1 << 20), "MiB",
	    100);
}

static uint32_t holder_of(uint32_t param)
{
	struct holders h = { .n = 0 };
	uint32_t rank = 0;

	engine_fragments(engines[world], param, "fp32", see_holder, &h);
	while (!h.has[rank])
		rank++;
	return rank;
}

/* Loses the rank of the last parameter, which is not the coordinator. */
static void lose_rank(void)
{
	uint32_t rank = holder_of(PARAMS - 1);
	uint64_t began;

	need(read_state(PARAMS - 1, "fp32") > 0, "a read");
	engines[rank]->job.ready = false; /* a killed process sends no LEAVE */
	engines[world]->timeout_ms = SILENCE_MS;
	close_rank(rank);
	begin_counting();
	began = monotonic_ns();
	need(read_state(PARAMS - 1, "fp32") < 0, "a read of a lost rank");
	row("a rank is lost, seconds until its reader is told",
	    (double)(monotonic_ns() - began) / 1e9, "s", 2.0 * SILENCE_MS / 1000);
	turn_for(1000);
	row("a rank is lost, messages of another", (double)most_messages(0), "messages", 16);
}

static void close_job(void)
{
	current = world;
	loop_free(engines[world]);
	engines[world] = NULL;
	for (uint32_t i = world; i--;)
		if (ranks[i].f)
			close_rank(i);
	memset(turned_ms, 0, sizeof(turned_ms));
	malloc_trim(0);
}

static void model(uint32_t n, const struct kind *of)
{
	world = n;
	kind = of;
	open_job();
	connect_mount();
	idle();
	read_param(WIDE, "bf16", kind->stage == 3 ? count_holders(WIDE) : 1);
	read_param(NARROW, "fp32", count_holders(NARROW));
	read_param(WIDE, "fp32", count_holders(WIDE));
	list_states();
	events();
	health();
	edit();
	freeze();
	lose_rank();
	close_job();
}

int main(void)
{
	static const uint32_t sizes[] = { 64, 256, RANKS_MAX };
	struct rlimit files;

	setvbuf(stdout, NULL, _IOLBF, 0);
	counted = transport_loop;
	counted.send = send_counted;
	counted.turn = turn_counted;
	setenv("FRAG_LOG", "error", 1);
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++)
		model(sizes[i], &zero_1);
	model(RANKS_MAX, &copies);
	model(RANKS_MAX, &zero_3);
	return 0;
}
