/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Ranks and observers that lie to a live engine: of rank 0, of rank 1, of an observer.  The
 * input is a little program: its first byte chooses the engine and how far it has joined its
 * job, then come steps. Nothing may crash it, change its registered memory without a STAGE and
 * a DECIDE, or make it keep more than its bounds.
 */

#include "engine/job/barrier.h"
#include "engine/api/api.h"
#include "engine/job/join-internal.h"
#include "engine/live/live.h"
#include "engine/live/loop.h"
#include "engine/node/file.h"
#include "engine/node/plan.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/scripted.h"
#include "tests/ports/transport-loop.h"

#include <stdio.h>
#include <string.h>

enum { WORLD = 2, NUMEL = 64, GUARD = 16, STAGE_ROOM = 1 << 16 };

struct input {
	const uint8_t *at, *end;
};

static uint8_t take(struct input *in)
{
	return in->at < in->end ? *in->at++ : 0;
}

/* What is not there any more is 0. */
static void take_bytes(struct input *in, void *to, size_t size)
{
	size_t there = u64_min(size, (size_t)(in->end - in->at));

	memset(to, 0, size);
	memcpy(to, in->at, there);
	in->at += there;
}

static struct {
	struct frag *f;
	struct engine *e;
	uint32_t world;
	uint8_t memory[2][GUARD + NUMEL * 4 + GUARD]; /* fp32, grad */
	bool staged, decided;
	struct engine_file *file;
	unsigned pending;
} it;

/* ---- the job ---- */

static const uint64_t shape[] = { 9, 7 };

static struct catalog *described(void)
{
	struct catalog *c = catalog_new();
	char why[200];

	catalog_add_param(c, "w", "", FRAG_BF16, 2, shape, 0, 0);
	catalog_add_group(c,
			  &(struct catalog_group){ .stage = 2,
						   .replicas = 1,
						   .nranks = WORLD,
						   .ranks = (uint32_t[]){ 0, 1 },
						   .nparams = 1,
						   .params = (uint32_t[]){ 0 },
						   .sub_group_size = 1000000000 },
			  why, sizeof(why));
	assert(!catalog_finish(c));
	return c;
}

static void describe(struct frag *f)
{
	int param = frag_param(f, &(struct frag_tensor){ sizeof(struct frag_tensor),
							 .name = "w", .dtype = FRAG_BF16,
							 .ndim = 2, .shape = shape });
	int group = frag_group(f, &param, 1,
			       &(struct frag_zero){ sizeof(struct frag_zero), .stage = 2 });

	assert(!frag_state_keep(f, group, 0, "fp32", FRAG_F32, it.memory[0] + GUARD));
	assert(!frag_state_keep(f, group, 0, "grad", FRAG_F32, it.memory[1] + GUARD));
	assert(!frag_ready(f));
}

static void open_rank(uint32_t rank, const struct transport_ops *memory)
{
	struct launch launch = { .rank = rank, .world = WORLD, .job = "fuzz", .host = "here" };

	assert(!api_open_over(&it.f, &launch, &transport_scripted, memory,
			      rank ? "scripted:zero" : NULL, false));
	it.e = it.f->engine;
	if (rank)
		assert(!node_open_messages(it.e, NULL));
	it.e->participant.bytes_max = STAGE_ROOM;
	describe(it.f);
}

static void open_observer(const struct transport_ops *memory)
{
	assert(!loop_new(&it.e, &live_ops, &transport_scripted, memory));
	it.e->write.allowed = true;
	strcpy(it.e->launch.host, "here");
	assert(!node_open_messages(it.e, NULL));
	assert(!join_start_observer(it.e, "scripted:zero"));
}

/* ---- messages ---- */

static uint32_t life_of(uint32_t rank)
{
	return it.e->peers && rank < it.e->world ? node_life(it.e->peers[rank].entry.cookie)
						 : 0;
}

static struct wire_header header_of(uint16_t type, uint32_t rank, uint64_t request)
{
	return (struct wire_header){ .magic = WIRE_MAGIC,
				     .version = WIRE_VERSION,
				     .type = type,
				     .request = request,
				     .job = it.e->job.hash,
				     .incarnation = it.e->job.incarnation,
				     .membership = it.e->job.membership,
				     .rank = rank,
				     .life = life_of(rank) };
}

static void feed(uint32_t peer, const struct wire_header *header, const void *body,
		 const void *tail, size_t tail_size)
{
	size_t body_size = wire_body_size(header->type);
	uint8_t *message = malloc(sizeof(*header) + body_size + tail_size);

	memcpy(message, header, sizeof(*header));
	if (body_size)
		memcpy(message + sizeof(*header), body, body_size);
	if (tail_size)
		memcpy(message + sizeof(*header) + body_size, tail, tail_size);
	if (!scripted.reads_only[peer]) { /* who may only read changes nothing */
		it.staged |= header->type == WIRE_STAGE || header->type == WIRE_COMPUTE;
		it.decided |= header->type == WIRE_DECIDE || header->type == WIRE_COMMIT ||
			      header->type == WIRE_KNOWN;
	}
	scripted_feed(peer, message, sizeof(*header) + body_size + tail_size);
	free(message);
}

static struct wire_entry entry_of(uint32_t rank)
{
	struct wire_entry entry = { .rank = rank,
				    .pid = getpid(),
				    .cookie = { rank + 1, 9 },
				    .present = 1,
				    .host = "here",
				    .address = "scripted:other" };

	if (it.e->is_rank && rank == it.e->rank)
		join_fill_entry(it.e, &entry);
	return entry;
}

/* An honest table of states of a rank, as large as it says. */
static struct wire_writer table_of(void)
{
	struct states s = { .epoch = 1 };
	struct wire_writer w = { 0 };
	uint32_t zero = 0;

	states_add(&s, STATE_PARTITION, 0, 0, "fp32", FRAG_F32, 32,
		   (struct state_segment){ 0, 32, (uintptr_t)it.memory[0] + GUARD });
	states_add(&s, STATE_HYPER, 0, 0, "lr", FRAG_F64, 1,
		   (struct state_segment){ 0, 1, (uintptr_t)it.memory[0] + GUARD });
	assert(!states_encode(&s, &zero, &zero, &w));
	states_fini(&s);
	return w;
}

/* ---- the honest way in ---- */

static void answer_welcome(const struct scripted_sent *asked, const struct catalog *c,
			   size_t bytes)
{
	struct wire_header h = header_of(WIRE_WELCOME, 0, asked->header.request);
	struct wire_welcome w = { .job = "fuzz",
				  .world = WORLD,
				  .joined = WORLD,
				  .incarnation = 5,
				  .membership = 1,
				  .catalog_hash = c->hash,
				  .catalog_bytes = bytes };

	feed(asked->peer, &h, &w, NULL, 0);
}

static void answer_table(const struct scripted_sent *asked)
{
	struct wire_header h = header_of(WIRE_TABLE, 0, asked->header.request);
	struct wire_table t = { .membership = 1, .total = WORLD, .count = WORLD };
	struct wire_entry entries[WORLD] = { entry_of(0), entry_of(1) };

	feed(asked->peer, &h, &t, entries, sizeof(entries));
}

static void answer_catalog(const struct scripted_sent *asked, const struct catalog *c,
			   const struct wire_writer *w)
{
	struct wire_header h = header_of(WIRE_CATALOG, 0, asked->header.request);
	struct wire_catalog part = { .hash = c->hash, .total = w->size, .size = w->size };

	feed(asked->peer, &h, &part, w->data, w->size);
}

static void answer_honestly(const struct scripted_sent *asked, const struct catalog *c,
			    const struct wire_writer *w)
{
	struct wire_joined joined = { .incarnation = 5 };
	struct wire_header h = header_of(WIRE_JOINED, 0, asked->header.request);

	if (asked->header.type == WIRE_JOIN)
		feed(asked->peer, &h, &joined, NULL, 0);
	else if (asked->header.type == WIRE_HELLO)
		answer_welcome(asked, c, w->size);
	else if (asked->header.type == WIRE_TABLE_GET)
		answer_table(asked);
	else if (asked->header.type == WIRE_CATALOG_GET)
		answer_catalog(asked, c, w);
}

static void join_zero(const struct catalog *c, const struct wire_writer *w)
{
	struct wire_join join = { .entry = entry_of(1),
				  .world = WORLD,
				  .catalog_hash = c->hash,
				  .catalog_bytes = w->size };
	struct wire_header h = header_of(WIRE_JOIN, 1, 1);

	feed(3, &h, &join, NULL, 0);
	loop_turn(it.e, 0);
}

static void join_honestly(void)
{
	struct catalog *c = described();
	struct wire_writer w = { 0 };

	assert(!catalog_encode(c, &w));
	if (it.e->is_rank && !it.e->rank)
		join_zero(c, &w);
	for (int i = 0; i < 20 && !it.e->job.ready; i++) {
		uint64_t n = scripted.nsent;

		it.e->job.join->retry_ms = 0; /* no waiting here */
		loop_turn(it.e, 0);
		for (; n < scripted.nsent; n++)
			answer_honestly(&scripted.sent[n % SCRIPTED_KEPT], c, &w);
	}
	assert(it.e->job.ready);
	free(w.data);
	catalog_free(c);
}

/* ---- steps ---- */

static void step_raw(struct input *in)
{
	uint8_t message[512];
	uint32_t peer = take(in) % SCRIPTED_PEERS;
	size_t size = take(in) * 2u;

	take_bytes(in, message, size);
	if (!scripted.reads_only[peer])
		it.staged = it.decided = true; /* it may be anything */
	scripted_feed(peer, message, size);
}

enum {
	OF_REQUEST = 1,
	OTHER_JOB = 2,
	OTHER_LIFE = 4,
	HONEST_TABLE = 8,
	HONEST_CATALOG = 16,
	OTHER_VERSION = 32,
	LONG_TAIL = 64
};

static size_t take_tail(struct input *in, unsigned how, uint8_t **tail)
{
	struct wire_writer w = { 0 };
	struct catalog *c;
	size_t size;

	if (how & HONEST_TABLE) {
		w = table_of();
	} else if (how & HONEST_CATALOG) {
		c = described();
		assert(!catalog_encode(c, &w));
		catalog_free(c);
	} else {
		size = how & LONG_TAIL ? take(in) * 300u : take(in);
		w.data = malloc(size + 1);
		w.size = size;
		take_bytes(in, w.data, size);
	}
	*tail = w.data;
	return w.size;
}

static void step_message(struct input *in)
{
	uint32_t peer = take(in) % SCRIPTED_PEERS;
	uint16_t type = take(in) % (WIRE_TYPES + 1);
	uint32_t rank = take(in);
	unsigned how = take(in);
	struct wire_header h = header_of(type, rank == 255 ? WIRE_OBSERVER : rank,
					 how & OF_REQUEST ? scripted.asked[peer] : take(in));
	uint8_t body[1024], *tail;
	size_t size;

	assert(wire_body_size(type) <= sizeof(body));
	take_bytes(in, body, wire_body_size(type));
	h.job += !!(how & OTHER_JOB);
	h.incarnation += !!(how & OTHER_LIFE);
	h.version += !!(how & OTHER_VERSION);
	size = take_tail(in, how, &tail);
	feed(peer, &h, body, tail, size);
	free(tail);
}

/* An answer to a request for a table of states, true but for what the body says. */
static void step_states(struct input *in)
{
	uint32_t peer = take(in) % SCRIPTED_PEERS;
	struct wire_header h = header_of(WIRE_STATES, take(in), scripted.asked[peer]);
	struct wire_writer w = table_of();
	struct wire_states part = { .epoch = 1, .total = w.size, .size = w.size };
	uint8_t at = take(in), value = take(in);

	if (at < w.size)
		w.data[at] = value;
	feed(peer, &h, &part, w.data, w.size);
	free(w.data);
}

static void see_prepared(void *arg, struct edit *edit)
{
	uint64_t *lowest = arg;

	*lowest = u64_min(*lowest, edit->boundary);
}

/* The next boundary has to wait for a decision, which may never come here. */
static bool trainer_would_wait(void)
{
	uint64_t lowest = UINT64_MAX;

	participant_each_prepared(&it.e->participant, see_prepared, &lowest);
	return lowest <= atomic_load(&it.e->registry.control->boundary) + 1;
}

static void step_trainer(struct input *in)
{
	unsigned what = it.f ? take(in) % 5 : 5;

	if (it.f && what < 2 && trainer_would_wait())
		return;
	switch (what) {
	case 0:
		frag_step_begin(it.f);
		break;
	case 1:
		frag_step_end(it.f);
		break;
	case 2:
		frag_grads_valid(it.f, 1.0);
		break;
	case 3:
		frag_grads_gone(it.f);
		break;
	case 4:
		it.e->job.barrier->wanted = it.e->job.barrier->passed + 1;
		break;
	}
}

struct request {
	struct engine_read read;
	struct engine_write write;
	struct engine_extent extent;
	uint8_t data[300];
};

static void on_read(struct engine_read *read, const void *data, int64_t result)
{
	uint64_t sum = 0;

	for (int64_t i = 0; i < result; i++)
		sum += ((const uint8_t *)data)[i];
	assert(result <= (int64_t)read->size && sum <= read->size * 255);
	it.pending--;
	free(read->owner);
}

static void on_write(struct engine_write *write, int result)
{
	assert(result <= 0);
	it.pending--;
	free(write->owner);
}

/* engine_file_open, but that it does not wait for a table of states. */
static bool open_file(const struct engine_address *a)
{
	struct engine_state state;

	if (it.file || plan_describe(it.e, a, 0, &state))
		return it.file != NULL;
	it.file = calloc(1, sizeof(*it.file) + sizeof(*it.file->parts));
	it.file->engine = it.e;
	it.file->parts = (struct file_part *)(it.file + 1);
	*it.file->parts =
		(struct file_part){ .address = *a, .dtype = state.dtype, .bytes = state.bytes };
	it.file->nparts = 1;
	it.file->bytes = state.bytes;
	it.file->is_grad = !strcmp(a->key, "grad");
	return true;
}

/* A file, read or written: what it asks for is answered by later steps, or never. */
static void step_user(struct input *in)
{
	static const char *const keys[] = { "fp32", "lp", "grad" };
	struct engine_address a = { .kind = take(in) % 5, .rank = take(in) % 3 };
	struct request *r;

	strcpy(a.key, keys[take(in) % 3]);
	if (!it.e->job.ready || it.pending > 16)
		return;
	if (!open_file(&a))
		return;
	r = calloc(1, sizeof(*r));
	it.pending++;
	if (take(in) & 1) {
		r->extent = (struct engine_extent){ take(in), take(in), r->data };
		r->write = (struct engine_write){ .file = it.file,
						  .extents = &r->extent,
						  .nextents = 1,
						  .done = on_write,
						  .owner = r };
		it.staged = it.decided = true; /* to ourselves, perhaps */
		if (it.file->bytes <= 300 && !strcmp(it.file->parts->address.key, "grad"))
			engine_write(it.e, &r->write);
		else
			on_write(&r->write, 0);
		return;
	}
	r->read = (struct engine_read){ .file = it.file,
					.offset = take(in),
					.size = take(in),
					.nowait = take(in) & 1,
					.done = on_read,
					.owner = r };
	engine_read(it.e, &r->read);
}

/* Queues are full or not; a peer that we did not connect to has but the key for readers. */
static void step_world(uint8_t what)
{
	uint32_t peer = (what >> 2) % SCRIPTED_PEERS;

	scripted.full = what & 1;
	if (what & 2 && peer >= scripted.connected)
		scripted.reads_only[peer] = true;
}

static void step(struct input *in)
{
	switch (take(in) % 8) {
	case 0:
		step_raw(in);
		break;
	case 1:
	case 2:
	case 3:
		step_message(in);
		break;
	case 4:
		step_states(in);
		break;
	case 5:
		step_trainer(in);
		break;
	case 6:
		step_user(in);
		break;
	case 7:
		step_world(take(in));
		break;
	}
	loop_turn(it.e, 0);
}

/* ---- what must hold ---- */

static void check(void)
{
	const struct join *j = it.e->job.join;

	for (size_t i = 0; i < 2 && it.f; i++) {
		for (size_t k = 0; k < sizeof(it.memory[i]); k++) {
			bool guard = k < GUARD || k >= GUARD + NUMEL / 2 * 4;

			assert(it.memory[i][k] == 0x5a || (!guard && it.staged && it.decided));
		}
		assert(it.e->participant.bytes <= STAGE_ROOM &&
		       it.e->participant.count <= PARTICIPANT_EDITS_MAX);
	}
	assert(j->zero.catalogs.count <= it.e->world + 1);
	assert(it.e->world <= FRAG_WORLD_MAX);
}

static void open_it(unsigned how)
{
	const struct transport_ops *memory = how & 8 ? &transport_loop : NULL;

	memset(&it, 0, sizeof(it));
	memset(it.memory, 0x5a, sizeof(it.memory));
	scripted_reset();
	if ((how & 3) < 2)
		open_rank(how & 3, memory);
	else
		open_observer(memory);
	if (how & 4)
		join_honestly();
	it.staged = it.decided = false;
}

static void close_it(void)
{
	if (it.f)
		frag_close(it.f);
	else
		loop_free(it.e);
	assert(!it.pending);
	if (it.file) { /* its engine, with the read-ahead, is gone */
		for (uint32_t i = 0; i < it.file->view.n; i++)
			free(it.file->view.pieces[i].runs.items);
		free(it.file->view.pieces);
		free(it.file->view.runs.items);
		free(it.file->view.closed);
		free(it.file->whole);
	}
	free(it.file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, data + size };

	if (size < 2 || size > 4096)
		return 0;
	setenv("FRAG_LOG", "error", 1);
	open_it(take(&in));
	while (in.at < in.end)
		step(&in);
	for (int i = 0; i < 3; i++) {
		if (it.f && !trainer_would_wait())
			frag_safe_point(it.f);
		loop_turn(it.e, 0);
	}
	check();
	close_it();
	return 0;
}
