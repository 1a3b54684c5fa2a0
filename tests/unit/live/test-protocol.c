/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/commit/coordinator.h"
#include "engine/commit/coordinator-watch.h"
#include "engine/job/barrier.h"
#include "engine/api/api.h"
#include "engine/base/log.h"
#include "engine/job/join-internal.h"
#include "engine/live/loop.h"
#include "engine/node/peers.h"
#include "tests/fuzz/scripted.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* What an engine answers to messages that are old, foreign or untrue. */

enum { WORLD = 3, NUMEL = 64 };

static struct frag *f;
static struct engine *e;
static float memory[NUMEL];
static const uint64_t shape[] = { 9, 7 };

static void describe_rank(uint32_t rank)
{
	struct launch launch = { .rank = rank, .world = WORLD, .job = "job", .host = "here" };
	struct frag_tensor tensor = { sizeof(tensor), .name = "w", .dtype = FRAG_BF16,
				      .ndim = 2, .shape = shape };
	int param, group;

	scripted_reset();
	ck_assert_int_eq(
		api_open_over(&f, &launch, &transport_scripted, NULL, "scripted:zero", false),
		0);
	e = f->engine;
	param = frag_param(f, &tensor);
	group = frag_group(f, &param, 1,
			   &(struct frag_zero){ sizeof(struct frag_zero), .stage = 2 });
	ck_assert_int_eq(frag_state_keep(f, group, 0, "fp32", FRAG_F32, memory), 0);
}

static void setup_rank(uint32_t rank)
{
	describe_rank(rank);
	ck_assert_int_eq(frag_ready(f), 0);
}

static void setup_zero(void)
{
	setup_rank(0);
}

static void teardown(void)
{
	frag_close(f);
}

static struct wire_header header_of(enum wire_type type, uint32_t rank, uint64_t request)
{
	return (struct wire_header){ .magic = WIRE_MAGIC,
				     .version = WIRE_VERSION,
				     .type = (uint16_t)type,
				     .request = request,
				     .job = e->job.hash,
				     .incarnation = e->job.incarnation,
				     .rank = rank,
				     .life = rank < WORLD
						     ? node_life(e->peers[rank].entry.cookie)
						     : 0 };
}

static void say_as(const struct wire_header *header, uint32_t peer, const void *body,
		   const void *tail, size_t tail_size)
{
	uint8_t message[4096];
	size_t size = wire_body_size(header->type);

	memcpy(message, header, sizeof(*header));
	if (size)
		memcpy(message + sizeof(*header), body, size);
	if (tail_size)
		memcpy(message + sizeof(*header) + size, tail, tail_size);
	scripted_feed(peer, message, sizeof(*header) + size + tail_size);
	loop_turn(e, 0);
	loop_turn(e, 0); /* what it told itself */
}

static void say(enum wire_type type, uint32_t rank, const void *body)
{
	struct wire_header header = header_of(type, rank, 100 + rank);

	say_as(&header, rank, body, NULL, 0);
}

static int ack_status(uint64_t request)
{
	const struct scripted_sent *sent = scripted_last(WIRE_ACK);
	struct wire_ack ack;

	ck_assert_ptr_nonnull(sent);
	ck_assert_uint_eq(sent->header.request, request);
	memcpy(&ack, sent->body, sizeof(ack));
	return ack.status;
}

static struct wire_join join_of(uint32_t rank, uint64_t hash)
{
	struct wire_join join = { .entry = { .rank = rank,
					     .pid = 1,
					     .cookie = { rank, 2 },
					     .present = 1,
					     .host = "there",
					     .address = "scripted:other" },
				  .world = WORLD,
				  .catalog_hash = hash,
				  .catalog_bytes = 100 };

	return join;
}

static void join(uint32_t rank)
{
	struct wire_join message = join_of(rank, e->own->hash);

	say(WIRE_JOIN, rank, &message);
	ck_assert_ptr_nonnull(scripted_last(WIRE_JOINED));
}

static void join_all(void)
{
	for (uint32_t rank = 1; rank < WORLD; rank++)
		join(rank);
	ck_assert(e->job.ready);
}

/* ---- rank 0 takes others in ---- */

START_TEST(a_job_is_ready_when_the_last_rank_has_joined)
{
	join(1);
	ck_assert(!e->job.ready);
	join(2);
	ck_assert(e->job.ready);
	ck_assert_uint_eq(e->catalog->nparams, 1);
}
END_TEST

START_TEST(a_rank_0_that_came_back_goes_on_where_the_others_are)
{
	struct wire_join message = join_of(1, e->own->hash);
	struct wire_header header = header_of(WIRE_JOIN, 1, 7);
	struct wire_page page = { 0 };
	struct wire_joined joined;

	header.incarnation = 4711;
	header.membership = 30;
	message.barrier = 5;
	message.control = (struct wire_control){
		.step = 10, .boundary = 20, .generation = 19, .grads = 7
	};
	say_as(&header, 1, &message, NULL, 0);
	ck_assert_uint_eq(e->job.incarnation, 4711);
	ck_assert_uint_gt(e->job.membership, 30);
	ck_assert_uint_eq(atomic_load(&e->registry.control->boundary), 20);
	ck_assert_uint_eq(atomic_load(&e->registry.control->grads), 6);
	memcpy(&joined, scripted_last(WIRE_JOINED)->body, sizeof(joined));
	ck_assert_uint_eq(joined.incarnation, 4711);
	say(WIRE_TABLE_GET, 2, &page); /* not told before all are known */
	ck_assert_int_eq(ack_status(102), -EAGAIN);
	ck_assert_int_eq(frag_safe_point(f), 0);
	ck_assert_uint_eq(atomic_load(&e->registry.control->boundary), 21);
	join(2);
	ck_assert(e->job.ready);
}
END_TEST

START_TEST(a_rank_that_waited_long_for_the_others_is_not_silent)
{
	join(1);
	e->peers[1].heard_ms = 0;
	join(2);
	loop_turn(e, 0);
	ck_assert_int_eq(e->peers[1].state, ENGINE_RANK_ALIVE);
}
END_TEST

START_TEST(a_silent_ranks_place_is_its_replacements)
{
	struct wire_join message = join_of(1, e->own->hash);
	struct wire_refuse refuse;

	join(1);
	message.entry.cookie[0] = 77;
	say(WIRE_JOIN, 1, &message);
	ck_assert_ptr_nonnull(scripted_last(WIRE_REFUSE));
	memcpy(&refuse, scripted_last(WIRE_REFUSE)->body, sizeof(refuse));
	ck_assert_int_eq(refuse.status, -EBUSY); /* may be asked again */
	e->peers[1].heard_ms = 0;
	say(WIRE_JOIN, 1, &message);
	ck_assert_uint_eq(e->peers[1].entry.cookie[0], 77);
	e->peers[1].heard_ms = 0;
	say(WIRE_HELLO, 1, NULL); /* which it says while it waits for the others */
	message.entry.cookie[0] = 78;
	say(WIRE_JOIN, 1, &message);
	ck_assert_uint_eq(e->peers[1].entry.cookie[0], 77);
}
END_TEST

START_TEST(who_does_not_belong_is_refused_with_a_line)
{
	static const struct {
		uint32_t rank, world;
		uint64_t job;
		int status;
		const char *why;
	} bad[] = {
		{ 1, WORLD + 1, 0, -EINVAL, "another world size" },
		{ 0, WORLD, 0, -EINVAL, "malformed" },
		{ WORLD, WORLD, 0, -EINVAL, "malformed" },
		{ 1, WORLD, 1, -ENOENT, "another job" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct wire_join message = join_of(bad[i].rank, 5);
		struct wire_header header = header_of(WIRE_JOIN, bad[i].rank, i);
		struct wire_refuse refuse;

		message.world = bad[i].world;
		header.job += bad[i].job;
		say_as(&header, 1, &message, NULL, 0);
		ck_assert_ptr_nonnull(scripted_last(WIRE_REFUSE));
		memcpy(&refuse, scripted_last(WIRE_REFUSE)->body, sizeof(refuse));
		ck_assert_int_eq(refuse.status, bad[i].status);
		ck_assert_msg(strstr(refuse.why, bad[i].why) != NULL, "%s", refuse.why);
	}
	ck_assert_uint_eq(e->job.join->zero.catalogs.count, 1);
}
END_TEST

START_TEST(a_description_without_end_is_refused_with_a_line)
{
	struct wire_join message = join_of(1, 5);
	struct wire_refuse refuse;

	message.catalog_bytes = WIRE_CATALOG_MAX + (uint64_t)1;
	say(WIRE_JOIN, 1, &message);
	ck_assert_ptr_nonnull(scripted_last(WIRE_REFUSE));
	memcpy(&refuse, scripted_last(WIRE_REFUSE)->body, sizeof(refuse));
	ck_assert_ptr_nonnull(strstr(refuse.why, "more than 256 MiB"));
	ck_assert_uint_eq(e->job.join->zero.catalogs.count, 1);
}
END_TEST

START_TEST(a_rank_that_keeps_changing_its_description_takes_one_place)
{
	for (uint64_t hash = 1; hash < 1000; hash++) {
		struct wire_join message = join_of(1, hash);

		say(WIRE_JOIN, 1, &message);
	}
	ck_assert_uint_le(e->job.join->zero.catalogs.count, WORLD + 1);
	join_all(); /* and does no harm */
}
END_TEST

START_TEST(a_catalog_that_is_not_the_announced_one_is_refused)
{
	struct wire_join message = join_of(1, 12345);
	struct wire_header header = header_of(WIRE_CATALOG_PUT, 1, 7);
	struct wire_writer w = { 0 };
	struct wire_catalog part = { .hash = 12345 };

	ck_assert_int_eq(catalog_encode(e->own, &w), 0);
	message.catalog_bytes = part.total = part.size = w.size;
	say(WIRE_JOIN, 1, &message);
	say_as(&header, 1, &part, w.data, w.size);
	ck_assert_int_eq(ack_status(7), -EBADMSG);
	free(w.data);
	ck_assert(!e->job.ready);
}
END_TEST

/* ---- requests ---- */

static void put_own(uint32_t rank, const struct wire_writer *own)
{
	struct wire_header header = header_of(WIRE_CATALOG_PUT, rank, 100 + rank);
	struct wire_catalog part = { .hash = e->own->hash,
				     .total = own->size,
				     .size = own->size };

	say_as(&header, rank, &part, own->data, own->size);
	ck_assert_int_eq(ack_status(100 + rank), 0);
}

START_TEST(a_rank_still_sending_what_rank_0_has_by_now_is_heard_out)
{
	struct wire_writer own = { 0 };

	teardown();
	describe_rank(0);
	ck_assert_int_eq(catalog_finish(e->own), 0);
	ck_assert_int_eq(catalog_encode(e->own, &own), 0);
	for (uint32_t rank = 1; rank < WORLD; rank++) {
		struct wire_join message = join_of(rank, e->own->hash);

		message.catalog_bytes = own.size;
		say(WIRE_JOIN, rank, &message);
	}
	put_own(1, &own);
	ck_assert_int_eq(frag_ready(f), 0);
	put_own(2, &own);
	ck_assert(e->job.ready);
	free(own.data);
}
END_TEST

static uint64_t gather_mem(void)
{
	return e->trainer->gather_mem;
}

static uint64_t views_max(void)
{
	return e->view_owner.pool.max;
}

static const struct {
	const char *name;
	uint64_t (*get)(void);
} rooms[] = { { "FRAG_VIEW_MEM", views_max }, { "FRAG_GATHER_MEM", gather_mem } };

static uint64_t room(int i, const char *text)
{
	teardown();
	setenv(rooms[i].name, text, 1);
	setup_zero();
	unsetenv(rooms[i].name);
	return rooms[i].get();
}

START_TEST(room_is_a_number_that_fits)
{
	uint64_t usual = room(_i, "");

	ck_assert_uint_eq(room(_i, "12"), 12);
	ck_assert_uint_eq(room(_i, "3M"), 3 << 20);
	ck_assert_uint_eq(room(_i, "0"), 0);
	ck_assert_uint_eq(room(_i, "-1"), usual);
	ck_assert_uint_eq(room(_i, "99999999999G"), usual);
	ck_assert_uint_eq(room(_i, "99999999999999999999"), usual);
	ck_assert_uint_eq(room(_i, "3MB"), usual);
	ck_assert_uint_eq(room(_i, "M"), usual);
}
END_TEST

START_TEST(another_jobs_and_an_earlier_lifes_requests_are_stale)
{
	struct wire_header header = header_of(WIRE_PING, 1, 7);

	join_all();
	header.job++;
	say_as(&header, 1, NULL, NULL, 0);
	ck_assert_int_eq(ack_status(7), -ESTALE);
	header = header_of(WIRE_PING, 1, 8);
	header.incarnation++;
	say_as(&header, 1, NULL, NULL, 0);
	ck_assert_int_eq(ack_status(8), -ESTALE);
	say(WIRE_PING, 1, NULL);
	ck_assert_ptr_nonnull(scripted_last(WIRE_PONG));
}
END_TEST

START_TEST(another_version_is_refused_by_name)
{
	struct wire_header header = header_of(WIRE_HELLO, WIRE_OBSERVER, 9);
	struct wire_refuse refuse;

	header.version++;
	say_as(&header, 1, NULL, NULL, 0);
	ck_assert_ptr_nonnull(scripted_last(WIRE_REFUSE));
	ck_assert_uint_eq(scripted_last(WIRE_REFUSE)->header.request, 9);
	memcpy(&refuse, scripted_last(WIRE_REFUSE)->body, sizeof(refuse));
	ck_assert_int_eq(refuse.status, -EPROTO);
	ck_assert_ptr_nonnull(strstr(refuse.why, "version"));
}
END_TEST

START_TEST(an_answer_of_another_version_is_not_answered)
{
	struct wire_header header = header_of(WIRE_REFUSE, 0, 9);
	struct wire_refuse refuse = { .status = -EPROTO };
	uint64_t sent = scripted.nsent;

	header.version++;
	say_as(&header, 1, &refuse, NULL,
	       0); /* or two versions would refuse each other for ever */
	ck_assert_uint_eq(scripted.nsent, sent);
}
END_TEST

static int read_status(const struct wire_read *read)
{
	struct wire_data data;

	say(WIRE_READ, 1, read);
	ck_assert_ptr_nonnull(scripted_last(WIRE_DATA));
	memcpy(&data, scripted_last(WIRE_DATA)->body, sizeof(data));
	ck_assert_uint_eq(scripted_last(WIRE_DATA)->size,
			  sizeof(struct wire_header) + sizeof(data) + data.size);
	return data.status;
}

START_TEST(reads_beyond_a_row_or_of_none_are_errors)
{
	uint64_t epoch = e->registry.states.epoch, bytes = e->registry.states.rows[0].numel * 4;

	join_all();
	ck_assert_int_eq(read_status(&(struct wire_read){ epoch, 0, 8, 0, { 0, 0 } }), 0);
	ck_assert_int_eq(read_status(&(struct wire_read){ epoch, 0, 8, bytes - 7, { 0, 0 } }),
			 -EINVAL);
	ck_assert_int_eq(
		read_status(&(struct wire_read){ epoch, 0, 8, UINT64_MAX - 3, { 0, 0 } }),
		-EINVAL);
	ck_assert_int_eq(read_status(&(struct wire_read){ epoch, 0, UINT32_MAX, 0, { 0, 0 } }),
			 -EINVAL);
	ck_assert_int_eq(read_status(&(struct wire_read){ epoch, 1, 8, 0, { 0, 0 } }), -ESTALE);
	ck_assert_int_eq(read_status(&(struct wire_read){ epoch + 1, 0, 8, 0, { 0, 0 } }),
			 -ESTALE);
}
END_TEST

/* Epoch 0, any, is for the rank itself: the row may be another at each look. */
START_TEST(who_does_not_say_which_table_is_meant_reads_nothing)
{
	struct wire_view_open open = { .view = { 1, 1 }, .count = 1 };
	struct wire_view view;

	join_all();
	ck_assert_int_eq(read_status(&(struct wire_read){ 0, 0, 8, 0, { 0, 0 } }), -ESTALE);
	say(WIRE_VIEW_OPEN, 1, &open);
	memcpy(&view, scripted_last(WIRE_VIEW)->body, sizeof(view));
	ck_assert_int_eq(view.status, -ESTALE);
	ck_assert(!view_owner_any(&e->view_owner));
}
END_TEST

START_TEST(whom_too_much_waits_for_is_told_to_ask_again)
{
	struct wire_read read = { e->registry.states.epoch, 0, 32, 0, { 0, 0 } };
	struct wire_page page = { 0 };

	join_all();
	scripted.large = 64;
	say(WIRE_READ, 1, &read);
	ck_assert_int_eq(ack_status(101), -EAGAIN);
	say(WIRE_STATES_GET, 2, &page);
	ck_assert_int_eq(ack_status(102), -EAGAIN);
	say(WIRE_CATALOG_GET, 1, &page);
	ck_assert_int_eq(ack_status(101), -EAGAIN);
	scripted.large = 0;
	ck_assert_int_eq(read_status(&read), 0);
}
END_TEST

START_TEST(a_stage_whose_size_is_untrue_is_refused)
{
	struct wire_header header = header_of(WIRE_STAGE, 1, 11);
	struct wire_stage stage = { .transaction = { 1, 1 },
				    .epoch = e->registry.states.epoch,
				    .size = 8 };

	join_all();
	say_as(&header, 1, &stage, "1234567", 7);
	ck_assert_int_eq(ack_status(11), -EINVAL);
	stage.size = 0;
	say_as(&header, 1, &stage, NULL, 0);
	ck_assert_int_eq(ack_status(11), -EINVAL);
	ck_assert_uint_eq(e->participant.count, 0);
}
END_TEST

START_TEST(a_ping_of_its_writer_renews_what_was_staged)
{
	struct wire_stage stage = { .transaction = { 1, 1 },
				    .epoch = e->registry.states.epoch,
				    .size = 8 };
	struct wire_header header;
	struct edit *edit;
	uint64_t before;

	join_all();
	header = header_of(WIRE_STAGE, 1, 11);
	say_as(&header, 1, &stage, "12345678", 8);
	ck_assert_int_eq(ack_status(11), 0);
	edit = TAILQ_FIRST(&e->participant.list);
	ck_assert_ptr_nonnull(edit);
	edit->touched_ms = before = edit->touched_ms - 1000;
	say(WIRE_PING, 2, NULL);
	ck_assert_uint_eq(edit->touched_ms, before);
	say(WIRE_PING, 1, NULL);
	ck_assert_uint_ge(edit->touched_ms, edit->staged_ms);
}
END_TEST

/* ---- an edit by an operation ---- */

static struct wire_compute compute_of(void)
{
	double half = 0.5;
	struct wire_compute m = { .transaction = { 1, 1 },
				  .epoch = e->registry.states.epoch,
				  .dtype = FRAG_F32,
				  .end = 21,
				  .first = 2,
				  .naxes = 2,
				  .code = WIRE_MULTIPLY,
				  .axes = { { 2, 10 }, { 3, 2 } } };

	memcpy(&m.number, &half, sizeof(half));
	return m;
}

static int compute_status(const struct wire_compute *m, size_t tail_size)
{
	static uint64_t request = 1000;
	struct wire_header header = header_of(WIRE_COMPUTE, 1, ++request);

	say_as(&header, 1, m, "12345678", tail_size);
	return ack_status(request);
}

START_TEST(an_operation_that_makes_no_sense_is_refused)
{
	const struct {
		size_t at, size;
		uint64_t value;
		int status;
	} lies[] = {
#define LIE(field, value, status)                                                              \
	{ offsetof(struct wire_compute, field), sizeof(((struct wire_compute *)0)->field),     \
	  value, status }
		LIE(epoch, 0, -EINVAL),
		LIE(epoch, UINT64_MAX, -ESTALE),
		LIE(state, 7, -ESTALE),
		LIE(state, UINT32_MAX, -ESTALE),
		LIE(dtype, 0, -EINVAL),
		LIE(dtype, UINT32_MAX, -EINVAL),
		LIE(dtype, FRAG_F64, -EINVAL),
		LIE(dtype, FRAG_I32, -EOPNOTSUPP),
		LIE(start, 21, -EINVAL),
		LIE(start, 20, -EINVAL), /* none of the slice's elements */
		LIE(end, 0, -EINVAL),
		LIE(end, UINT64_MAX, -EINVAL),
		LIE(at, UINT64_MAX, -EINVAL),
		LIE(at, UINT64_MAX / 4 - 10, -EINVAL),
		LIE(at, 1ull << 60, -EINVAL),
		LIE(first, UINT64_MAX, -EINVAL),
		LIE(first, INT64_MAX - 3, -EINVAL),
		LIE(first, 1000, -EINVAL),
		LIE(naxes, FRAG_DIMS_MAX + 1, -EINVAL),
		LIE(naxes, UINT32_MAX, -EINVAL),
		LIE(naxes, 3, -EINVAL),
		LIE(code, WIRE_OPERATORS, -EINVAL),
		LIE(code, UINT32_MAX, -EINVAL),
		LIE(code, WIRE_FOLLOW, -EINVAL), /* no dtype */
		LIE(axes[0].count, 0, -EINVAL),
		LIE(axes[0].count, 1, -EINVAL),
		LIE(axes[0].count, UINT64_MAX, -EINVAL),
		LIE(axes[0].stride, 0, -EINVAL),
		LIE(axes[0].stride, 4, -EINVAL), /* elements twice */
		LIE(axes[0].stride, UINT64_MAX, -EINVAL),
		LIE(axes[0].stride, INT64_MAX, -EINVAL),
		LIE(axes[1].stride, 5, -EINVAL),
#undef LIE
	};

	join_all();
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		struct wire_compute m = compute_of();

		memcpy((char *)&m + lies[i].at, &lies[i].value, lies[i].size);
		ck_assert_msg(compute_status(&m, 0) == lies[i].status, "lie %zu", i);
	}
	ck_assert_uint_eq(e->participant.count, 0);
}
END_TEST

START_TEST(a_copy_follows_a_master_that_is_there)
{
	const struct {
		uint32_t master, dtype;
		uint64_t at;
		int status;
	} masters[] = { { 0, FRAG_F32, 0, 0 },
			{ 0, FRAG_BF16, 0, -EINVAL },
			{ 0, FRAG_F64, 0, -EOPNOTSUPP },
			{ 0, 0, 0, -EINVAL },
			{ 3, FRAG_F32, 0, -ESTALE },
			{ 0, FRAG_F32, 1000, -EINVAL },
			{ 0, FRAG_F32, UINT64_MAX - 3, -EINVAL } };

	join_all();
	for (size_t i = 0; i < ARRAY_SIZE(masters); i++) {
		struct wire_compute m = compute_of();

		m.code = WIRE_FOLLOW;
		m.master = masters[i].master;
		m.master_dtype = masters[i].dtype;
		m.master_at = masters[i].at;
		ck_assert_msg(compute_status(&m, 0) == masters[i].status, "master %zu", i);
	}
	ck_assert_uint_eq(e->participant.count, 1);
}
END_TEST

START_TEST(an_operation_has_no_bytes_behind_it)
{
	struct wire_compute m = compute_of();

	join_all();
	ck_assert_int_eq(compute_status(&m, 8), -EINVAL);
	ck_assert_uint_eq(e->participant.count, 0);
	ck_assert_int_eq(compute_status(&m, 0), 0);
	ck_assert_uint_eq(e->participant.count, 1);
}
END_TEST

/* ---- who may do what ---- */

enum { READER = 4 }; /* message peer */

static void say_reading(enum wire_type type, uint32_t rank, const void *body, const void *tail,
			size_t tail_size)
{
	struct wire_header header = header_of(type, rank, 200 + type);

	header.membership = 1000;
	scripted.reads_only[READER] = true;
	say_as(&header, READER, body, tail, tail_size);
}

/* Any body, and one that would do something if it were believed. */
static void lie(enum wire_type type, uint32_t rank)
{
	uint8_t body[1024] = { 0 };
	struct wire_join as_rank = join_of(rank, 77);
	struct wire_stage stage = { .transaction = { 1, 1 },
				    .epoch = e->registry.states.epoch,
				    .size = 8 };
	struct wire_prepare prepare = {
		.transaction = { 1, 1 }, .boundary = 1000, .order = 1, .coordinator = rank
	};
	struct wire_decide decide = { { 1, 1 }, 1, 0 };
	struct wire_compute compute = compute_of();

	if (type == WIRE_COMPUTE)
		memcpy(body, &compute, sizeof(compute));
	if (type == WIRE_JOIN)
		memcpy(body, &as_rank, sizeof(as_rank));
	else if (type == WIRE_STAGE)
		memcpy(body, &stage, sizeof(stage));
	else if (type == WIRE_PREPARE)
		memcpy(body, &prepare, sizeof(prepare));
	else if (type == WIRE_DECIDE)
		memcpy(body, &decide, sizeof(decide));
	say_reading(type, rank, body, "12345678", type == WIRE_STAGE ? 8 : 0);
}

static bool a_reader_sends(enum wire_type type)
{
	return type == WIRE_HELLO || type == WIRE_TABLE_GET || type == WIRE_CATALOG_GET ||
	       type == WIRE_STATES_GET || type == WIRE_READ || type == WIRE_VIEW_OPEN ||
	       type == WIRE_VIEW_CLOSE || type == WIRE_PING || type == WIRE_WAIT ||
	       type == WIRE_RANK_QUERY || type == WIRE_PREFETCH || type == WIRE_STATS;
}

/* Answers to nobody's question are passed over in silence. */
static void expect_refusal(enum wire_type type, uint64_t sent)
{
	if (scripted.nsent > sent)
		ck_assert_int_eq(ack_status(200 + type), -EACCES);
}

static unsigned count_text(const char *text, const char *what)
{
	unsigned n = 0;

	while ((text = strstr(text, what))) {
		text++;
		n++;
	}
	return n;
}

START_TEST(whatever_a_reader_sends_nothing_changes)
{
	static char log[1 << 16];
	struct peer before;
	uint64_t membership;

	join_all();
	membership = e->job.membership;
	before = e->peers[1];
	for (unsigned round = 0; round < 3; round++) {
		for (int type = 1; type < WIRE_TYPES; type++) {
			uint64_t sent = scripted.nsent;

			lie((enum wire_type)type, round % WORLD);
			if (!a_reader_sends((enum wire_type)type))
				expect_refusal((enum wire_type)type, sent);
		}
	}
	ck_assert_uint_eq(e->participant.count, 0);
	ck_assert_uint_eq(e->participant.decided.n + e->participant.forbidden.n, 0);
	ck_assert(LIST_EMPTY(&e->commit.coordinator->transactions));
	ck_assert_uint_eq(e->job.membership, membership);
	ck_assert(!e->job.join->refresh);
	ck_assert_uint_eq(e->job.barrier->arrived, 0);
	ck_assert_mem_eq(&e->peers[1].entry, &before.entry, sizeof(before.entry));
	ck_assert_uint_eq(e->peers[1].heard_ms, before.heard_ms);
	for (size_t i = 0; i < NUMEL; i++)
		ck_assert(memory[i] == 0);
	ck_assert_int_eq(frag_safe_point(f), 0);
	log_tail(log, sizeof(log));
	ck_assert_uint_eq(count_text(log, "may only read"), 1);
}
END_TEST

START_TEST(a_reader_is_answered)
{
	uint64_t epoch = e->registry.states.epoch;

	join_all();
	say_reading(WIRE_HELLO, WIRE_OBSERVER, NULL, NULL, 0);
	ck_assert_ptr_nonnull(scripted_last(WIRE_WELCOME));
	say_reading(WIRE_READ, 1, &(struct wire_read){ epoch, 0, 8, 0, { 0, 0 } }, NULL, 0);
	ck_assert_uint_eq(scripted_last(WIRE_DATA)->header.request, 200 + WIRE_READ);
	ck_assert_uint_eq(scripted_last(WIRE_DATA)->peer, READER);
	say_reading(WIRE_PING, 1, NULL, NULL, 0);
	ck_assert_ptr_nonnull(scripted_last(WIRE_PONG));
}
END_TEST

/* ---- who reads ---- */

enum { WRITER = 5 }; /* message peer */

/* A PING of an observer that has that life and says that it may edit. */
static void ping_as(uint32_t peer, uint32_t life)
{
	static const struct wire_observer observer = {
		.pid = 7, .writes = 1, .host = "there", .program = "mount"
	};
	struct wire_header header = header_of(WIRE_PING, WIRE_OBSERVER, 1);

	header.life = life;
	scripted.reads_only[READER] = true;
	say_as(&header, peer, NULL, &observer, sizeof(observer));
}

static void open_view_as(uint32_t peer, uint32_t life, uint64_t number, uint64_t size)
{
	struct wire_header header = header_of(WIRE_VIEW_OPEN, WIRE_OBSERVER, 1);
	struct wire_view_open open = { .view = { life, number },
				       .epoch = e->registry.states.epoch,
				       .count = 1 };
	struct wire_view_run run = { .size = size };

	header.life = life;
	say_as(&header, peer, &open, &run, sizeof(run));
}

/* Returns how many lines of "readers" have this mode, and views of so many bytes. */
static unsigned count_readers(const char *mode, unsigned views, unsigned bytes)
{
	const char *line;
	unsigned n = 0;

	say(WIRE_RANK_QUERY, 1, &(struct wire_rank_query){ "readers" });
	line = (const char *)scripted_last(WIRE_RANK_TEXT)->body +
	       sizeof(struct wire_rank_text);
	for (; *line; line = strchr(line, '\n') + 1) {
		unsigned line_views, line_bytes;
		char line_mode[3];

		ck_assert_int_eq(sscanf(line, "0\tthere\t7\t0\tmount\t%2s\t%*s\t%u\t%u",
					line_mode, &line_views, &line_bytes),
				 3);
		n += !strcmp(line_mode, mode) && line_views == views && line_bytes == bytes;
	}
	return n;
}

START_TEST(a_reader_is_listed_with_its_own_views)
{
	join_all();
	ping_as(WRITER, 90);
	ping_as(WRITER + 1, 20);
	ping_as(READER, 50);
	open_view_as(WRITER, 90, 1, 8);
	open_view_as(WRITER + 1, 20, 1, 8);
	open_view_as(WRITER + 1, 20, 2, 16);
	ck_assert_uint_eq(count_readers("ro", 0, 0), 1);
	ck_assert_uint_eq(count_readers("rw", 1, 8), 1);
	ck_assert_uint_eq(count_readers("rw", 2, 24), 1);
	ping_as(WRITER + 2, 90); /* it has come again */
	ck_assert_uint_eq(count_readers("rw", 1, 8), 1);
}
END_TEST

START_TEST(a_reader_that_says_it_may_edit_is_not_believed)
{
	join_all();
	ping_as(READER, 90);
	ping_as(WRITER, 20);
	ck_assert_uint_eq(count_readers("ro", 0, 0), 1);
	ck_assert_uint_eq(count_readers("rw", 0, 0), 1);
}
END_TEST

static bool on_ack(struct engine *engine, void *owner, uint64_t tag,
		   const struct answer *answer)
{
	*(int *)owner = answer->status;
	return false;
}

START_TEST(a_reader_acknowledges_that_a_rank_has_left)
{
	struct wire_left left = { .rank = 1 };
	struct wire_header ack = header_of(WIRE_ACK, WIRE_OBSERVER, 0);
	static char log[1 << 16];
	int heard = -1;

	join_all();
	scripted.reads_only[READER] = true;
	pthread_mutex_lock(&e->lock);
	ck_assert_int_eq(rpc_call(e, WIRE_OBSERVER, READER, WIRE_LEFT, &left, NULL, 0, on_ack,
				  &heard, 0),
			 0);
	ack.request = scripted_last(WIRE_LEFT)->header.request;
	pthread_mutex_unlock(&e->lock);
	ack.membership = 1000;
	say_as(&ack, READER, &(struct wire_ack){ 0 }, NULL, 0);
	ck_assert_int_eq(heard, 0);
	ck_assert(!e->job.join->refresh);
	log_tail(log, sizeof(log));
	ck_assert_uint_eq(count_text(log, "may only read"), 0);
}
END_TEST

START_TEST(what_ranks_agree_on_does_not_come_from_others)
{
	static const enum wire_type of_ranks[] = { WIRE_LEAVE,   WIRE_BARRIER,     WIRE_PREPARE,
						   WIRE_ARRIVED, WIRE_CATALOG_PUT, WIRE_DROPPED,
						   WIRE_ROUND,   WIRE_INVITE,      WIRE_FORM,
						   WIRE_DISBAND, WIRE_LEFT };
	uint8_t body[1024] = { 0 };

	join_all();
	for (size_t i = 0; i < ARRAY_SIZE(of_ranks); i++) {
		struct wire_header header = header_of(of_ranks[i], WIRE_OBSERVER, 300 + i);

		say_as(&header, 5, body, NULL, 0);
		ck_assert_int_eq(ack_status(300 + i), -EACCES);
	}
	ck_assert_uint_eq(e->participant.count, 0);
}
END_TEST

static int vote_of(uint32_t rank, uint32_t coordinator)
{
	struct wire_prepare prepare = {
		.transaction = { 7, 7 }, .boundary = 100, .order = 1, .coordinator = coordinator
	};
	struct wire_vote vote;

	say(WIRE_PREPARE, rank, &prepare);
	memcpy(&vote, scripted_last(WIRE_VOTE)->body, sizeof(vote));
	return vote.status;
}

static int decide_as(uint32_t rank, uint32_t commit)
{
	struct wire_decide decide = { { 7, 7 }, commit, 0 };

	say(WIRE_DECIDE, rank, &decide);
	return ack_status(100 + rank);
}

START_TEST(only_its_coordinator_decides_an_edit)
{
	join_all();
	ck_assert_int_eq(vote_of(1, 2), -EINVAL);
	ck_assert_int_eq(vote_of(1, WIRE_OBSERVER), -EINVAL);
	ck_assert_uint_eq(e->participant.count, 0);
	ck_assert_int_eq(vote_of(1, 1), 0);
	ck_assert_int_eq(decide_as(2, 1), -EACCES);
	ck_assert_int_eq(decide_as(2, 0), -EACCES);
	ck_assert_uint_eq(participant_coordinator(&e->participant, (uint64_t[]){ 7, 7 }), 1);
	ck_assert_int_eq(decide_as(1, 0), 0);
	ck_assert_uint_eq(e->participant.count, 0);
}
END_TEST

static int watch_status(uint32_t ms, uint32_t count, const void *tail, size_t size)
{
	struct wire_header header = header_of(WIRE_COMMIT, WIRE_OBSERVER, 77);
	struct wire_commit commit = { .transaction = { 6, 6 },
				      .count = count,
				      .freeze_ms = ms };

	say_as(&header, 5, &commit, tail, size);
	return ack_status(77);
}

static int watch_vote(uint32_t ms, const struct wire_condition *condition, size_t size)
{
	struct wire_header header = header_of(WIRE_PREPARE, 1, 78);
	struct wire_prepare prepare = { .transaction = { 6, 6 },
					.boundary = 100,
					.order = 1,
					.coordinator = 1,
					.freeze_ms = ms };
	struct wire_vote vote;

	say_as(&header, 1, &prepare, condition, size);
	memcpy(&vote, scripted_last(WIRE_VOTE)->body, sizeof(vote));
	return vote.status;
}

START_TEST(a_watch_of_another_engine_is_checked)
{
	struct wire_condition good = { .key = "grad", .pattern = "*" }, bad = good;
	struct wire_checked checked = { .transaction = { 6, 6 }, .count = 1 };
	struct wire_header header = header_of(WIRE_CHECKED, 1, 79);
	struct wire_known known;

	join_all();
	bad.quantity = WIRE_QUANTITIES;
	ck_assert_int_eq(watch_status(1000, 0, &good, sizeof(good) - 1), -EINVAL);
	ck_assert_int_eq(watch_status(1000, 0, &bad, sizeof(bad)), -EINVAL);
	ck_assert_int_eq(watch_status(1000, 1, &good, sizeof(good)), -EINVAL);
	ck_assert_int_eq(watch_status(0, 0, &good, sizeof(good)), -EINVAL);
	ck_assert_int_eq(watch_vote(1000, &bad, sizeof(bad)), -EINVAL);
	ck_assert_int_eq(watch_vote(1000, &good, sizeof(good) - 1), -EINVAL);
	ck_assert_int_eq(watch_vote(0, &good, sizeof(good)), -EINVAL);
	memset(bad.pattern, '*', sizeof(bad.pattern));
	bad.quantity = WIRE_NAN;
	ck_assert_int_eq(watch_vote(1000, &bad, sizeof(bad)), -EINVAL);
	ck_assert_uint_eq(e->participant.count, 0);
	say_as(&header, 1, &checked, NULL, 0);
	ck_assert_int_eq(ack_status(79), -EINVAL);
	checked.count = 0;
	say_as(&header, 1, &checked, NULL, 0);
	memcpy(&known, scripted_last(WIRE_KNOWN)->body, sizeof(known));
	ck_assert_uint_eq(known.outcome, WIRE_ABORTED);
}
END_TEST

START_TEST(a_finding_of_an_element_that_no_parameter_has_does_not_count)
{
	struct wire_condition condition = { .key = "grad", .pattern = "*" };
	struct wire_checked checked = { .count = 2 };
	struct wire_found found[2] = { { .element = 9 * 7 }, { .param = 1 } };
	struct coordinator_watch *w;
	double one = 1;

	join_all();
	w = coordinator_watch_new(e, &condition);
	ck_assert_ptr_nonnull(w);
	for (int i = 0; i < 2; i++)
		memcpy(&found[i].value, &one, sizeof(one));
	coordinator_watch_add(e, w, 1, &checked, found);
	ck_assert(!coordinator_watch_holds(w));
	found[0].element--;
	coordinator_watch_add(e, w, 2, &checked, found);
	ck_assert(coordinator_watch_holds(w));
	coordinator_watch_free(w);
}
END_TEST

static int commit_status(uint32_t peer, uint64_t n)
{
	struct wire_header header = header_of(WIRE_COMMIT, WIRE_OBSERVER, n);
	struct wire_commit commit = { .transaction = { 5, n } };
	uint64_t sent = scripted.nsent;

	say_as(&header, peer, &commit, NULL, 0);
	return scripted.nsent > sent && scripted_last(WIRE_ACK) &&
			       scripted_last(WIRE_ACK)->header.request == n
		       ? ack_status(n)
		       : 0;
}

START_TEST(one_writer_leaves_agreements_to_others)
{
	uint64_t n = 1;

	join_all();
	while (n < 2 * PARTICIPANT_EDITS_MAX && !commit_status(5, n))
		n++;
	ck_assert_uint_eq(n, PARTICIPANT_EDITS_OF_WRITER_MAX + 1);
	ck_assert_int_eq(commit_status(5, n), -ENOSPC);
	ck_assert_int_eq(commit_status(6, n + 1), 0);
}
END_TEST

START_TEST(an_answer_to_no_question_tells_nothing)
{
	struct wire_header header = header_of(WIRE_PONG, 1, 12345);
	struct wire_control control = { .step = 5 };

	join_all();
	header.membership = 1000;
	e->rank = 2; /* rank 0's own table is the newest */
	say_as(&header, 1, &control, NULL, 0);
	e->rank = 0;
	ck_assert(!e->job.join->refresh);
}
END_TEST

static int agree_status(uint32_t count, uint32_t holder)
{
	struct wire_header header = header_of(WIRE_COMMIT, WIRE_OBSERVER, 900);
	struct wire_commit commit = { .transaction = { 6, count }, .count = count };

	say_as(&header, 5, &commit, &holder, sizeof(holder));
	for (int i = 0; i < 3; i++)
		loop_turn(e, 0);
	return ack_status(900);
}

START_TEST(an_edit_of_holders_that_are_not_there_is_refused)
{
	join_all();
	ck_assert_int_eq(agree_status(2, 0), -EINVAL);
	ck_assert_int_eq(agree_status(1, WORLD), -EINVAL);
	say(WIRE_LEAVE, 2, NULL);
	ck_assert_int_eq(agree_status(1, 2), -EIO);
	ck_assert_uint_eq(e->participant.count, 0);
}
END_TEST

START_TEST(pages_and_parts_that_are_not_there_are_refused)
{
	struct wire_page page = { .first = WORLD };
	struct wire_catalog part = { .hash = 99, .total = 8, .size = 8 };
	struct wire_header header = header_of(WIRE_CATALOG_PUT, 1, 7);

	say_as(&header, 1, &part, "12345678", 8);
	ck_assert_int_eq(ack_status(7), -EINVAL);
	say(WIRE_STATES_GET, 1, &page);
	ck_assert_int_eq(ack_status(101), -EAGAIN); /* not all have come */
	join_all();
	say(WIRE_TABLE_GET, 1, &page);
	ck_assert_int_eq(ack_status(101), -EINVAL);
}
END_TEST

/* ---- barriers ---- */

static void arrive(uint32_t rank, uint64_t count)
{
	struct wire_barrier barrier = { .count = count, .boundary = 10 * count + rank };

	say(WIRE_BARRIER, rank, &barrier);
}

START_TEST(a_barrier_opens_when_the_last_has_come)
{
	struct wire_barrier passed;

	join_all();
	e->job.barrier->wanted = 1;
	arrive(1, 1);
	arrive(1, 1); /* twice is once */
	ck_assert_ptr_null(scripted_last(WIRE_PASSED));
	arrive(2, 1);
	ck_assert_uint_eq(e->job.barrier->passed, 1);
	ck_assert_int_eq(e->job.barrier->status, 0);
	memcpy(&passed, scripted_last(WIRE_PASSED)->body, sizeof(passed));
	ck_assert_uint_eq(passed.boundary, 12);
	arrive(1, 1); /* its answer got lost */
	ck_assert_uint_eq(scripted_last(WIRE_PASSED)->header.request, 101);
}
END_TEST

START_TEST(all_learn_that_a_rank_was_lost_also_who_comes_late)
{
	join_all();
	arrive(1, 1);
	say(WIRE_LEAVE, 2, NULL);
	ck_assert_int_eq(ack_status(101), -EIO);
	e->job.barrier->wanted = 1; /* ourselves, later: to itself, and back */
	for (int i = 0; i < 3; i++)
		loop_turn(e, 0);
	ck_assert_uint_eq(e->job.barrier->passed, 1);
	ck_assert_int_eq(e->job.barrier->status, -EIO);
}
END_TEST

static void wait_as(uint32_t peer, uint64_t request)
{
	struct wire_header header = header_of(WIRE_WAIT, WIRE_OBSERVER, request);
	struct wire_wait wait = { .step = e->registry.control->step,
				  .generation = e->registry.control->generation,
				  .phase = e->registry.control->phase };

	say_as(&header, peer, &wait, NULL, 0);
}

START_TEST(waits_are_kept_one_of_each_peer_and_not_too_many)
{
	join_all();
	wait_as(10, 500);
	wait_as(10, 501);
	for (uint32_t i = 1; i < WIRE_WAITS_MAX; i++)
		wait_as(10 + i, 502);
	ck_assert_ptr_null(scripted_last(WIRE_CHANGED));
	wait_as(9, 503);
	ck_assert_int_eq(ack_status(503), -ENOSPC);
	ck_assert_int_eq(frag_step_begin(f), 0);
	loop_turn(e, 0);
	ck_assert(LIST_EMPTY(&e->serve.waits));
	ck_assert_uint_eq(scripted_last(WIRE_CHANGED)->header.request, 501);
	ck_assert_uint_eq(scripted_last(WIRE_CHANGED)->peer, 10);
}
END_TEST

START_TEST(a_barrier_of_another_count_is_an_error)
{
	join_all();
	arrive(1, 2);
	ck_assert_int_eq(ack_status(101), -EINVAL);
	arrive(1, UINT64_MAX);
	ck_assert_int_eq(ack_status(101), -EINVAL);
	e->job.barrier->count = 2;
	arrive(1, 1); /* the others are past it */
	ck_assert_int_eq(ack_status(101), -EIO);
}
END_TEST

/* ---- a rank that joins ---- */

static const struct scripted_sent *asked(enum wire_type type)
{
	for (int i = 0; i < 10 && !scripted_last(type); i++) {
		e->job.join->retry_ms = 0;
		loop_turn(e, 0);
	}
	ck_assert_ptr_nonnull(scripted_last(type));
	return scripted_last(type);
}

static void answer(enum wire_type question, enum wire_type type, const void *body,
		   const void *tail, size_t size)
{
	const struct scripted_sent *sent = asked(question);
	struct wire_header header = header_of(type, 0, sent->header.request);

	say_as(&header, sent->peer, body, tail, size);
}

/* Rank 1 joins a rank 0 that knows all. */
static void join_scripted_zero(void)
{
	struct wire_joined joined = { .incarnation = 11 };
	struct wire_welcome welcome = { .job = "job",
					.world = WORLD,
					.joined = WORLD,
					.incarnation = 11,
					.membership = 3,
					.catalog_hash = e->own->hash,
					.catalog_bytes = 100 };
	struct wire_table table = { .membership = 3, .total = WORLD, .count = WORLD };
	struct wire_entry rows[WORLD];

	for (uint32_t i = 0; i < WORLD; i++)
		rows[i] = join_of(i, 0).entry;
	answer(WIRE_JOIN, WIRE_JOINED, &joined, NULL, 0);
	answer(WIRE_HELLO, WIRE_WELCOME, &welcome, NULL, 0);
	answer(WIRE_TABLE_GET, WIRE_TABLE, &table, rows, sizeof(rows));
	ck_assert(e->job.ready);
}

START_TEST(a_lost_rank_0_is_looked_for_whatever_tells_of_newer_tables)
{
	uint64_t before;

	setup_rank(1);
	join_scripted_zero();
	before = scripted_last(WIRE_JOIN)->header.request;
	peers_lose(e, 0, -EIO, "gone");
	for (int i = 0; i < 5; i++) {
		e->job.join->refresh =
			true; /* the next process of rank 0 tells so with each PONG */
		e->job.join->retry_ms = 0;
		loop_turn(e, 0);
	}
	ck_assert_uint_gt(scripted_last(WIRE_JOIN)->header.request, before);
	ck_assert_uint_eq(scripted_last(WIRE_JOIN)->header.incarnation, 11);
	teardown();
}
END_TEST

START_TEST(a_rank_whose_rank_0_speaks_another_version_says_so_and_stops_asking)
{
	struct wire_refuse refuse = { .status = -EPROTO };
	struct wire_header header;
	char version[32];

	setup_rank(1);
	header = header_of(WIRE_REFUSE, 0, asked(WIRE_JOIN)->header.request);
	header.version++;
	snprintf(version, sizeof(version), "version %u", header.version);
	say_as(&header, asked(WIRE_JOIN)->peer, &refuse, NULL, 0);
	ck_assert_int_eq(e->job.failure, -EPROTO);
	ck_assert_ptr_nonnull(strstr(e->job.why, version));
	ck_assert_int_eq(frag_barrier(f, 1000), -EPROTO);
	teardown();
}
END_TEST

START_TEST(a_rank_passes_over_another_job_of_another_version)
{
	struct wire_refuse refuse = { .status = -EPROTO };
	struct wire_header header;

	setup_rank(1);
	join_add_seed(&e->job.join->seeds, "scripted:next");
	header = header_of(WIRE_REFUSE, WIRE_OBSERVER, asked(WIRE_JOIN)->header.request);
	header.version++;
	header.job++;
	say_as(&header, asked(WIRE_JOIN)->peer, &refuse, NULL, 0);
	ck_assert_int_eq(e->job.failure, 0);
	ck_assert_uint_eq(e->job.join->seeds.current, 1);
	e->job.join->retry_ms = 0;
	loop_turn(e, 0);
	ck_assert_str_eq(e->job.address, "scripted:next");
	teardown();
}
END_TEST

START_TEST(a_rank_refused_for_good_says_why)
{
	struct wire_refuse refuse = { .status = -EINVAL, .why = "has another world size" };
	struct wire_header header;

	setup_rank(1);
	header = header_of(WIRE_REFUSE, 0, asked(WIRE_JOIN)->header.request);
	say_as(&header, asked(WIRE_JOIN)->peer, &refuse, NULL, 0);
	ck_assert_int_eq(e->job.failure, -EINVAL);
	ck_assert_ptr_nonnull(strstr(e->job.why, "has another world size"));
	teardown();
}
END_TEST

static void reply(enum wire_type asked_by, enum wire_type type, const void *body,
		  const void *tail, size_t tail_size)
{
	struct wire_header header = header_of(type, 0, asked(asked_by)->header.request);

	header.life = 0;
	say_as(&header, asked(asked_by)->peer, body, tail, tail_size);
}

enum lie {
	LIE_WORLD,
	LIE_WELCOME_BYTES,
	LIE_TABLE_COUNT,
	LIE_ENTRY,
	LIE_CATALOG_OFFSET,
	LIE_CATALOG_HASH,
	LIES
};

static void say_welcome(enum lie lie)
{
	struct wire_welcome w = {
		.job = "job", .world = WORLD, .catalog_hash = 77, .catalog_bytes = 8
	};

	w.world += lie == LIE_WORLD;
	if (lie == LIE_WELCOME_BYTES)
		w.catalog_bytes = WIRE_CATALOG_MAX + (uint64_t)1;
	reply(WIRE_HELLO, WIRE_WELCOME, &w, NULL, 0);
}

static void say_table(enum lie lie)
{
	struct wire_table t = { .total = WORLD, .count = WORLD };
	struct wire_entry entries[WORLD] = { 0 };

	for (uint32_t rank = 0; rank < WORLD; rank++)
		entries[rank] = (struct wire_entry){ .rank = rank, .present = 1 };
	t.count -= lie == LIE_TABLE_COUNT;
	entries[1].rank += lie == LIE_ENTRY;
	reply(WIRE_TABLE_GET, WIRE_TABLE, &t, entries, sizeof(entries));
}

static void say_catalog(enum lie lie)
{
	struct wire_catalog part = { .total = 8, .size = 8 };
	const uint32_t none[2] = { 0, 0 }; /* parameters, groups: not what hash 77 is of */

	part.offset = lie == LIE_CATALOG_OFFSET;
	reply(WIRE_CATALOG_GET, WIRE_CATALOG, &part, none, sizeof(none));
}

START_TEST(what_rank_0_says_of_the_job_must_fit)
{
	struct wire_joined joined = { 0 };

	setup_rank(1);
	reply(WIRE_JOIN, WIRE_JOINED, &joined, NULL, 0);
	say_welcome((enum lie)_i);
	if (_i >= LIE_TABLE_COUNT)
		say_table((enum lie)_i);
	if (_i >= LIE_CATALOG_OFFSET)
		say_catalog((enum lie)_i);
	ck_assert_int_eq(e->job.failure, -EPROTO);
	ck_assert(!e->job.ready);
	teardown();
}
END_TEST

START_TEST(an_address_that_is_none_is_passed_over)
{
	setup_rank(1);
	strcpy(e->job.join->seeds.list, "nonsense,scripted:zero");
	asked(WIRE_JOIN);
	ck_assert_str_eq(e->job.address, "scripted:zero");
	teardown();
}
END_TEST

static TCase *zero(void)
{
	TCase *t = tcase_create("zero");

	tcase_add_checked_fixture(t, setup_zero, teardown);
	tcase_add_test(t, a_job_is_ready_when_the_last_rank_has_joined);
	tcase_add_test(t, a_rank_0_that_came_back_goes_on_where_the_others_are);
	tcase_add_test(t, a_rank_that_waited_long_for_the_others_is_not_silent);
	tcase_add_test(t, a_silent_ranks_place_is_its_replacements);
	tcase_add_test(t, who_does_not_belong_is_refused_with_a_line);
	tcase_add_test(t, a_description_without_end_is_refused_with_a_line);
	tcase_add_test(t, a_rank_that_keeps_changing_its_description_takes_one_place);
	tcase_add_test(t, a_catalog_that_is_not_the_announced_one_is_refused);
	tcase_add_test(t, a_rank_still_sending_what_rank_0_has_by_now_is_heard_out);
	tcase_add_loop_test(t, room_is_a_number_that_fits, 0, ARRAY_SIZE(rooms));
	tcase_add_test(t, another_jobs_and_an_earlier_lifes_requests_are_stale);
	tcase_add_test(t, another_version_is_refused_by_name);
	tcase_add_test(t, an_answer_of_another_version_is_not_answered);
	tcase_add_test(t, reads_beyond_a_row_or_of_none_are_errors);
	tcase_add_test(t, who_does_not_say_which_table_is_meant_reads_nothing);
	tcase_add_test(t, whom_too_much_waits_for_is_told_to_ask_again);
	tcase_add_test(t, a_stage_whose_size_is_untrue_is_refused);
	tcase_add_test(t, a_ping_of_its_writer_renews_what_was_staged);
	tcase_add_test(t, an_operation_that_makes_no_sense_is_refused);
	tcase_add_test(t, a_copy_follows_a_master_that_is_there);
	tcase_add_test(t, an_operation_has_no_bytes_behind_it);
	tcase_add_test(t, whatever_a_reader_sends_nothing_changes);
	tcase_add_test(t, a_reader_is_answered);
	tcase_add_test(t, a_reader_is_listed_with_its_own_views);
	tcase_add_test(t, a_reader_that_says_it_may_edit_is_not_believed);
	tcase_add_test(t, a_reader_acknowledges_that_a_rank_has_left);
	tcase_add_test(t, what_ranks_agree_on_does_not_come_from_others);
	tcase_add_test(t, only_its_coordinator_decides_an_edit);
	tcase_add_test(t, a_watch_of_another_engine_is_checked);
	tcase_add_test(t, a_finding_of_an_element_that_no_parameter_has_does_not_count);
	tcase_add_test(t, one_writer_leaves_agreements_to_others);
	tcase_add_test(t, an_answer_to_no_question_tells_nothing);
	tcase_add_test(t, an_edit_of_holders_that_are_not_there_is_refused);
	tcase_add_test(t, pages_and_parts_that_are_not_there_are_refused);
	tcase_add_test(t, a_barrier_opens_when_the_last_has_come);
	tcase_add_test(t, all_learn_that_a_rank_was_lost_also_who_comes_late);
	tcase_add_test(t, a_barrier_of_another_count_is_an_error);
	tcase_add_test(t, waits_are_kept_one_of_each_peer_and_not_too_many);
	return t;
}

static TCase *other(void)
{
	TCase *t = tcase_create("other");

	tcase_add_test(t, a_lost_rank_0_is_looked_for_whatever_tells_of_newer_tables);
	tcase_add_test(t, a_rank_whose_rank_0_speaks_another_version_says_so_and_stops_asking);
	tcase_add_test(t, a_rank_passes_over_another_job_of_another_version);
	tcase_add_test(t, a_rank_refused_for_good_says_why);
	tcase_add_loop_test(t, what_rank_0_says_of_the_job_must_fit, 0, LIES);
	tcase_add_test(t, an_address_that_is_none_is_passed_over);
	return t;
}

int main(void)
{
	Suite *s = suite_create("protocol");

	suite_add_tcase(s, zero());
	return run_suite(s, other());
}
