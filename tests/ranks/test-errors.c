/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/find-param.h"
#include "tests/ranks/observed.h"
#include "tests/run-suite.h"

#include "engine/job/join-internal.h"
#include "engine/live/live.h"
#include "engine/live/loop.h"
#include "engine/node/peers.h"
#include "engine/node/plan.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Wrong calls, and faults of the layers below, end with the right error, and harm nothing else.
 */

#define REFUSED(error, call) ck_assert_int_eq(call, -(error))

/* ---- frag.h ---- */

START_TEST(a_rank_that_describes_wrongly_is_told)
{
	struct launch launch = { .world = 2, .job = "alone", .host = "host", .plain = true };
	static const uint64_t shape[] = { 4 };
	struct frag_tensor t = { sizeof(t), .name = "w", .dtype = FRAG_F32, .ndim = 1,
				 .shape = shape };
	struct frag_zero z = { sizeof(z), .stage = 1 };
	uint32_t ranks[] = { 1, 7 };
	int param, group;
	struct frag *g;

	ck_assert_int_eq(
		api_open_over(&g, &launch, &transport_loop, &transport_loop, NULL, false), 0);
	REFUSED(EINVAL, frag_param(g, NULL));
	t.size = 1;
	REFUSED(EINVAL, frag_param(g, &t));
	t.size = sizeof(t);
	param = frag_param(g, &t);
	z.ranks = ranks;
	z.nranks = 2;
	REFUSED(EINVAL, frag_group(g, &param, 1, &z)); /* there is no rank 7 */
	z.nranks = 1;
	REFUSED(EINVAL, frag_group(g, &param, 1, &z)); /* rank 0 is not in the group */
	z.ranks = NULL;
	z.stage = 3;
	group = frag_group(g, &param, 1, &z);
	ck_assert_int_eq(group, 0);
	REFUSED(ENOENT, frag_local_get(g, param, "none", &z, 4));
	REFUSED(EAGAIN, frag_get_bytes(g, param, "fp32"));
	REFUSED(EAGAIN, frag_peer_read(g, 0, "mine", 0, &z, 8));
	REFUSED(EINVAL, frag_param(NULL, &t));
	ck_assert_int_eq(frag_ready(g), 0);
	REFUSED(EINVAL, frag_ready(g));
	frag_close(g);
}
END_TEST

START_TEST(a_call_without_sense_is_refused)
{
	struct frag_arena arena = { sizeof(arena), 1 << 16, NULL, NULL, NULL };
	float value[NUMEL] = { 0 };
	const void *pieces[] = { value, value };
	char longer[FRAG_KEY_MAX + 2];
	enum frag_dtype dtype;
	struct frag *f;
	void *memory;

	memset(longer, 'a', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	open_near();
	f = job_frag(&job, 1);
	REFUSED(EINVAL, frag_world(NULL));
	REFUSED(EINVAL, frag_rank(NULL));
	REFUSED(EINVAL, frag_safe_point(NULL));
	REFUSED(EINVAL, frag_step_begin(NULL));
	REFUSED(EINVAL, frag_step_end(NULL));
	REFUSED(EINVAL, frag_grads_valid(NULL, 1));
	REFUSED(EINVAL, frag_grads_gone(NULL));
	REFUSED(EINVAL, frag_grads_skip(NULL));
	REFUSED(EINVAL, frag_asked(NULL, -1));
	REFUSED(EINVAL, frag_barrier(NULL, 0));
	REFUSED(EINVAL, frag_get_bytes(f, 99, "fp32"));
	REFUSED(EINVAL, frag_get_bytes(f, 0, longer));
	REFUSED(EINVAL, frag_peer_read(f, WORLD, "mine", 0, value, 4));
	REFUSED(EINVAL, frag_peer_read(f, -1, "mine", 0, value, 4));
	REFUSED(EINVAL, frag_peer_read(f, 0, longer, 0, value, 4));
	REFUSED(EAGAIN, frag_peer_read(f, 0, "not there", 0, value, 4));
	ck_assert_int_eq(frag_publish(f, "there", value, 4), 0);
	ck_assert_int_eq(frag_peer_read(f, 1, "there", 0, value, 4), 0);
	REFUSED(EINVAL, frag_group(f, NULL, 0, NULL));
	REFUSED(EINVAL, frag_fragment(NULL, 0, NULL));
	ck_assert_int_eq(frag_arena_open(f, &arena), 0);
	REFUSED(ENOENT, frag_arena_assign(f, job_number(&job, 1, 1), FRAG_SHARD, 1, 0));
	REFUSED(EINVAL, frag_state_move(NULL, 0, 0, "fp32", value));
	REFUSED(EINVAL, frag_fragments_move(NULL, NULL, 0, "fp32", NULL));
	REFUSED(EINVAL, frag_state_keep(f, 0, 0, "a/b", FRAG_F32, value));
	frag_error();
	REFUSED(EINVAL, frag_state_keep(f, 0, 0, "bf16", FRAG_F32, value));
	ck_assert_ptr_nonnull(strstr(frag_error(), "cannot have the key bf16"));
	ck_assert_str_eq(frag_error(), "");
	REFUSED(EINVAL, frag_state_alloc(f, 0, 0, "lp", FRAG_F32, &memory));
	REFUSED(EINVAL, frag_state_keep_whole(f, 0, "shape", FRAG_F32, value));
	REFUSED(ENOENT, frag_state_keep(f, 0, 9, "new", FRAG_F32, value));
	REFUSED(ENOENT, frag_state_keep(f, 9, 0, "new", FRAG_F32, value));
	REFUSED(ENOENT, frag_state_keep_whole(f, 9, "new", FRAG_F32, value));
	REFUSED(EINVAL, frag_fragment_keep(f, 0, "new", 0, value));
	REFUSED(EINVAL, frag_state_drop(f, -1, 0, "fp32"));
	REFUSED(ENOENT, frag_state_drop(f, 0, 0, "none"));
	REFUSED(EINVAL, frag_hyper(f, 0, "lr", NULL));
	REFUSED(EINVAL, frag_publish(f, "mine", NULL, 4));
	REFUSED(EINVAL, frag_local_get(f, 0, NULL, value, 4));
	REFUSED(EINVAL, frag_local_get(f, 99, "fp32", value, 4));
	REFUSED(ENOENT, frag_local_get(f, 1, "fp32", value, 4)); /* in no group */
	REFUSED(ENOENT, frag_local_view(f, 0, "none", &memory, &dtype));
	REFUSED(EINVAL, frag_state_keys(f, 0, NULL, -1));
	REFUSED(EINVAL, frag_state_keys(NULL, 0, NULL, 0));
	REFUSED(EINVAL, frag_update_grads(f, NULL, 1, NULL, NULL));
	REFUSED(EINVAL, frag_state_from_fragments(f, 0, 0, NULL, FRAG_F32, pieces, 2));
	REFUSED(EINVAL, frag_state_from_fragments(f, 0, 0, "new", FRAG_F32, pieces, 1));
	REFUSED(ENOENT, frag_state_from_fragments(f, 9, 0, "new", FRAG_F32, pieces, 1));
	REFUSED(EINVAL, frag_state_from_fragments(f, 0, 0, "fp32", FRAG_BF16, pieces, 2));
	ck_assert_int_eq(frag_state_keep_whole(f, 0, "whole", FRAG_F32, value), 0);
	REFUSED(EEXIST, frag_state_from_fragments(f, 0, 0, "whole", FRAG_F32, pieces, 2));
	job_check(&job);
	close_job();
}
END_TEST

/* ---- the door ---- */

static int open_address(struct engine_address a)
{
	struct engine_file *file;
	uint64_t bytes;
	int rc = engine_file_open(observer, &a, &file, &bytes);

	if (!rc)
		engine_file_close(file);
	return rc;
}

START_TEST(what_is_not_there_is_enoent)
{
	struct engine_state out[8];
	uint32_t number;

	open_near();
	ck_assert_int_eq(find_param(observer, "w", "", &number), 0);
	REFUSED(ENOENT, engine_states(observer, 99, out, 8));
	REFUSED(ENOENT, engine_rank_states(observer, 99, 0, out, 8));
	REFUSED(ENOENT, engine_partition_states(observer, 0, 99, 0, out, 8));
	REFUSED(ENOENT, engine_partition_states(observer, 0, 0, 99, out, 8));
	REFUSED(ENOENT, engine_hypers(observer, 99, out, 8));
	REFUSED(ENOENT, open_address((struct engine_address){ .kind = 99 }));
	REFUSED(ENOENT, open_address((struct engine_address){ ENGINE_PARAM, .param = 99 }));
	REFUSED(ENOENT, open_address((struct engine_address){ ENGINE_PARAM, .param = 1,
							      .key = "fp32" }));
	REFUSED(ENOENT, open_address((struct engine_address){ ENGINE_HYPER, .group = 99 }));
	REFUSED(ENOENT, open_address((struct engine_address){ ENGINE_RANK_PARAM, .rank = 1,
							      .param = 1, .key = "fp32" }));
	ck_assert_int_eq(open_address((struct engine_address){ ENGINE_RANK_PARAM, .rank = 1,
							       .param = 1, .key = "bf16" }),
			 0);
	REFUSED(ENOENT, open_address((struct engine_address){ ENGINE_RANK_PARAM, .rank = 9,
							      .key = "fp32" }));
	REFUSED(ENOENT, open_address((struct engine_address){ ENGINE_RANK_PARAM, .rank = 0,
							      .param = 2, .key = "fp32" }));
	close_job();
}
END_TEST

static int64_t ended;
static bool has_ended;

static void on_read(struct engine_read *read, const void *data, int64_t result)
{
	ended = result;
	has_ended = true;
}

static void on_write(struct engine_write *write, int result)
{
	ended = result;
	has_ended = true;
}

static int64_t write_of(enum engine_address_kind kind, const char *key, bool cancel)
{
	static const float value[NUMEL];
	struct engine_extent extent = { 0, BYTES, value };
	struct engine_write write = { .file = open_state(kind, key),
				      .extents = &extent,
				      .nextents = 1,
				      .done = on_write };

	has_ended = false;
	engine_write(observer, &write);
	if (cancel && !has_ended)
		engine_write_cancel(observer, &write);
	for (int i = 0; i < TURNS && !has_ended; i++) {
		turn(NULL);
		if (i % 20 == 19)
			job_boundary(&job);
	}
	ck_assert(has_ended);
	engine_file_close(write.file);
	return ended;
}

static void on_freeze(struct engine_freeze *freeze, int result)
{
	ended = result;
}

static int64_t freeze_of(uint32_t ms)
{
	struct engine_freeze freeze = { .ms = ms, .done = on_freeze };

	engine_freeze(observer, &freeze);
	return ended;
}

START_TEST(a_read_is_ended_by_its_reader)
{
	open_far();
	ck_assert_int_eq(read_at(0, BYTES, "fp32", false, true), -ECANCELED);
	ck_assert_int_eq(read_at(0, BYTES, "grad", true, false), -ENODATA);
	ck_assert_int_eq(read_at(0, BYTES, "fp32", false, false), BYTES);
	close_job();
}
END_TEST

static void must_not_wait(void *arg)
{
	ck_abort_msg("a thread waits for a rank");
}

/* Makes an edit of fp32 that cuts elements, whose low-precision copies need them whole. */
static int64_t write_cut(uint64_t offset, uint64_t size, bool cancel, float *value)
{
	struct engine_extent extent = { offset, size, (uint8_t *)value + offset };
	struct engine_write write = { .file = open_state(ENGINE_PARAM, "fp32"),
				      .extents = &extent,
				      .nextents = 1,
				      .done = on_write };

	has_ended = false;
	observer->thread.yield = must_not_wait;
	engine_write(observer, &write);
	observer->thread.yield = turn;
	if (cancel)
		engine_write_cancel(observer, &write);
	for (int i = 0; i < TURNS && !has_ended; i++) {
		turn(NULL);
		if (i % 20 == 19)
			job_boundary(&job);
	}
	ck_assert(has_ended);
	engine_file_close(write.file);
	return ended;
}

START_TEST(an_edit_that_cuts_elements_elsewhere_waits_in_no_thread)
{
	static const struct {
		uint64_t offset, size;
	} cuts[] = { { 0, BYTES }, { 5, 1 },  { 4, 3 },        { 7, 1 },
		     { 2, 11 },    { 3, 13 }, { 1, BYTES - 2 } };
	float value[NUMEL], *now = malloc(BYTES);

	open_far();
	observer->write.allowed = true;
	memset(value, 0x3e, BYTES);
	memcpy(now, job_truth(&job, 0, "fp32"), BYTES);
	for (size_t i = 0; i < ARRAY_SIZE(cuts); i++) {
		ck_assert_int_eq(write_cut(cuts[i].offset, cuts[i].size, false, value), 0);
		memcpy((uint8_t *)now + cuts[i].offset, (uint8_t *)value + cuts[i].offset,
		       cuts[i].size);
		memset(value, 0x30 + (int)i, BYTES);
		job_expect(&job, 0, "fp32", now);
		job_expect_lp_of(&job, 0, now);
		job_check(&job);
	}
	memset(value, 0x3c, BYTES);
	ck_assert_int_eq(write_cut(2, 11, true, value), -ECANCELED);
	job_check(&job);
	free(now);
	close_job();
}
END_TEST

START_TEST(who_is_waited_for_by_cut_elements_may_be_lost)
{
	float value[NUMEL] = { 0 };

	open_far();
	observer->write.allowed = true;
	faults_add(&(struct fault){ FAULT_SEND, .type = WIRE_READ, .count = MANY });
	ck_assert_int_eq(write_cut(2, 11, _i, value), _i ? -ECANCELED : -ETIMEDOUT);
	faults_clear();
	job_check(&job);
	close_job();
}
END_TEST

START_TEST(who_may_not_write_changes_nothing)
{
	open_far();
	observer->write.allowed = false;
	ck_assert_int_eq(write_of(ENGINE_PARAM, "fp32", false), -EROFS);
	ck_assert_int_eq(freeze_of(1000), -EROFS);
	observer->write.allowed = true;
	ck_assert_int_eq(freeze_of(UINT32_MAX), -EINVAL);
	ck_assert_int_eq(write_of(ENGINE_RANK_PARAM, "fp32", false), -EACCES); /* not local */
	job_check(&job);
	close_job();
}
END_TEST

START_TEST(an_unknown_transport_is_refused)
{
	struct engine *e;
	char why[200];

	REFUSED(EINVAL, engine_open(&e,
				    &(struct engine_options){ .source = "127.0.0.1:1",
							      .transport = "pigeon" },
				    why, sizeof(why)));
	ck_assert_ptr_nonnull(strstr(why, "pigeon"));
}
END_TEST

/* ---- the layers below ---- */

static const struct below {
	struct fault fault;
	int64_t result; /* of a read; BYTES: the read found another way */
} reading[] = {
	{ { FAULT_GET, .result = -EFAULT }, BYTES },
	{ { FAULT_GET, .result = -EFAULT, .count = 5 }, BYTES },
	{ { FAULT_GET, .result = -EPERM, .count = 1000 }, BYTES },
	{ { FAULT_GET, .result = -ESRCH }, -EIO },
	{ { FAULT_GET, .result = -ESTALE, .nth = 2 }, -EIO },
	{ { FAULT_GET, .result = -EIO, .count = 1000 }, BYTES },
	{ { FAULT_ATTACH, .result = -EPERM, .count = 10 }, BYTES },
};

START_TEST(a_get_that_fails_is_what_it_means)
{
	int64_t expected = reading[_i].result, result;
	const struct fault *fault;

	open_near();
	if (reading[_i].fault.call == FAULT_ATTACH)
		for (uint32_t rank = 0; rank < WORLD; rank++)
			observer->peers[rank].way = PEER_WAY_UNKNOWN;
	fault = faults_add(&reading[_i].fault);
	result = read_at(0, BYTES, "fp32", false, false);
	/* the rank itself may answer by message until a witness has been asked about it */
	for (int i = 0; i < TURNS && expected < 0 && result == BYTES; i++) {
		turn(NULL);
		result = read_at(0, BYTES, "fp32", false, false);
	}
	ck_assert_int_eq(result, expected);
	ck_assert_uint_gt(fault->fired, 0);
	close_job();
}
END_TEST

static const struct below sending[] = {
	{ { FAULT_SEND, .type = WIRE_READ, .result = -EAGAIN, .count = 3 }, BYTES },
	{ { FAULT_SEND, .type = WIRE_READ, .result = -EAGAIN, .count = MANY }, -ETIMEDOUT },
	{ { FAULT_SEND, .type = WIRE_READ, .result = -ENOTCONN }, BYTES },
	{ { FAULT_SEND, .type = WIRE_READ, .result = -EMSGSIZE }, -EMSGSIZE },
	{ { FAULT_SEND, .type = WIRE_READ, .delay = 40 }, BYTES },
	{ { FAULT_SEND, .type = WIRE_VIEW_OPEN, .result = -EAGAIN, .count = 3 }, BYTES },
	{ { FAULT_SEND, .type = WIRE_VIEW_OPEN, .result = -ENOTCONN }, BYTES },
	{ { FAULT_SEND, .type = WIRE_VIEW_OPEN, .delay = 40 }, BYTES },
	{ { FAULT_SEND, .type = WIRE_STATES_GET, .result = -ENOTCONN }, BYTES },
	{ { FAULT_CONNECT, .result = -ENFILE }, BYTES },
	{ { FAULT_SEND, .type = WIRE_DATA, .cut = 4 }, -EIO },
	{ { FAULT_SEND, .type = WIRE_STATES, .cut = 4 }, BYTES },
	{ { FAULT_SEND, .type = WIRE_DATA, .acked = true }, -EIO },
	{ { FAULT_SEND, .type = WIRE_DATA, .acked = true, .result = -ESTALE, .count = MANY },
	  -ESTALE },
	{ { FAULT_SEND, .type = WIRE_VIEW, .acked = true }, -EIO },
	{ { FAULT_SEND, .type = WIRE_VIEW, .acked = true, .result = -ESTALE, .count = MANY },
	  -EIO },
	{ { FAULT_SEND, .type = WIRE_VIEW, .poked = true, .poke = 7 }, -EIO },
	{ { FAULT_SEND, .type = WIRE_VIEW, .poked = true, .poke = (uint32_t)-5000 }, -EIO },
};

START_TEST(a_message_that_cannot_be_sent_is_sent_anew_or_an_error)
{
	const struct fault *fault;

	open_far();
	fault = faults_add(&sending[_i].fault);
	ck_assert_int_eq(read_at(0, BYTES, "fp32", false, false), sending[_i].result);
	ck_assert_uint_gt(fault->fired, 0);
	faults_clear();
	ck_assert_int_eq(read_at(0, BYTES, "exp_avg", false, false), BYTES);
	close_job();
}
END_TEST

static const struct below writing[] = {
	{ { FAULT_SEND, .type = WIRE_STAGE, .result = -EAGAIN, .count = 3 }, 0 },
	{ { FAULT_SEND, .type = WIRE_STAGE, .result = -ENOTCONN }, 0 },
	{ { FAULT_SEND, .type = WIRE_STAGE, .result = -EMSGSIZE, .nth = 2 }, -EMSGSIZE },
	{ { FAULT_SEND, .type = WIRE_COMMIT, .result = -EAGAIN, .count = 3 }, 0 },
	{ { FAULT_SEND, .type = WIRE_COMMIT, .result = -ENOTCONN }, 0 },
	{ { FAULT_SEND, .type = WIRE_COMMIT, .result = -EMSGSIZE }, -EMSGSIZE },
	{ { FAULT_SEND, .type = WIRE_COMMIT, .delay = 100 }, 0 },
	{ { FAULT_SEND, .type = WIRE_VOTE, .acked = true }, 0 },
	{ { FAULT_SEND, .type = WIRE_VOTE, .acked = true, .count = MANY }, -EIO },
	{ { FAULT_SEND, .type = WIRE_VOTE, .acked = true, .result = -ENOMEM, .count = MANY },
	  -ENOMEM },
	{ { FAULT_SEND, .type = WIRE_VOTE, .acked = true, .result = -EAGAIN, .count = MANY },
	  -EBUSY },
	{ { FAULT_SEND, .type = WIRE_ACK, .acked = true, .result = -ESTALE, .count = MANY },
	  -EIO },
};

START_TEST(an_edit_whose_messages_fail_is_everywhere_or_nowhere)
{
	static const float value[NUMEL];
	const struct fault *fault;

	open_far();
	observer->write.allowed = true;
	fault = faults_add(&writing[_i].fault);
	ck_assert_int_eq(write_of(ENGINE_PARAM, "fp32", false), writing[_i].result);
	ck_assert_uint_gt(fault->fired, 0);
	if (!writing[_i].result) {
		job_expect(&job, 0, "fp32", value);
		job_expect_lp_of(&job, 0, value);
	}
	job_check(&job);
	close_job();
}
END_TEST

/* Loses the table of states alone, so that the rank is not silent. */
static void lose_states(void)
{
	faults_add(&(struct fault){ FAULT_SEND, .type = WIRE_STATES_GET, .count = MANY });
	for (uint32_t rank = 0; rank < WORLD; rank++)
		peer_fetch_states(&observer->peers[rank]);
}

START_TEST(who_is_never_told_where_the_bytes_are_gives_up)
{
	static const float value[NUMEL];
	struct engine_extent extent = { 0, BYTES, value };
	struct engine_write write = { .extents = &extent, .nextents = 1, .done = on_write };
	struct engine_read read = { .size = 8, .done = on_read };
	struct engine_address a = { _i ? ENGINE_PARAM : ENGINE_RANK_PARAM, .key = "fp32" };
	struct engine_file *file;
	uint64_t bytes;

	open_far();
	observer->write.allowed = true;
	ck_assert_int_eq(engine_file_open(observer, &a, &file, &bytes), 0);
	read.file = write.file = file;
	lose_states();
	has_ended = false;
	if (_i)
		engine_write(observer, &write);
	else
		engine_read(observer, &read);
	for (int i = 0; i < TURNS && !has_ended; i++)
		turn(NULL);
	ck_assert_int_eq(ended, -ETIMEDOUT);
	engine_file_close(file);
	job_check(&job);
	close_job();
}
END_TEST

START_TEST(a_view_of_a_process_that_was_replaced_is_estale)
{
	struct engine_read read = { .size = 8, .done = on_read };
	struct engine_address a = { ENGINE_PARAM, .param = 0, .key = "fp32" };
	uint64_t bytes;

	open_far();
	ck_assert_int_eq(engine_file_open(observer, &a, &read.file, &bytes), 0);
	for (int again = 0; again < 2; again++) {
		has_ended = false;
		engine_read(observer, &read);
		for (int i = 0; i < TURNS && !has_ended; i++)
			turn(NULL);
		ck_assert_int_eq(ended, again ? -ESTALE : 8);
		observer->peers[0].entry.cookie[0]++;
	}
	engine_file_close(read.file);
	close_job();
}
END_TEST

START_TEST(a_thaw_that_is_not_waited_for_is_cancelled)
{
	struct engine_freeze thaw = { .done = on_freeze };

	open_far();
	observer->write.allowed = true;
	faults_add(&(struct fault){ FAULT_SEND, .type = WIRE_THAW, .count = MANY });
	ended = 1;
	engine_freeze(observer, &thaw);
	for (int i = 0; i < 10; i++)
		turn(NULL);
	ck_assert_int_eq(ended, 1);
	engine_freeze_cancel(observer, &thaw);
	for (int i = 0; i < TURNS && ended == 1; i++)
		turn(NULL);
	ck_assert_int_eq(ended, -ECANCELED);
	close_job();
}
END_TEST

START_TEST(a_range_or_a_rank_that_is_not_there_is_refused_below_too)
{
	struct engine_address a = { ENGINE_PARAM, .param = 0, .key = "fp32" };
	char seeds[2 * sizeof(observer->job.join->seeds.list)];
	struct engine *other;
	struct plan plan;

	open_near();
	ck_assert_int_eq(read_at(0, BYTES, "fp32", false, false), BYTES);
	REFUSED(EINVAL, plan_read(observer, &a, 0, BYTES + 1, 0, &plan));
	REFUSED(EINVAL, plan_read(observer, &a, 0, 1, BYTES, &plan));
	REFUSED(EINVAL, plan_write(observer, &a, 0, 1, BYTES, NULL, NULL));
	REFUSED(EIO, peers_want_states(observer, WORLD));
	REFUSED(EIO, peers_reach(observer, WORLD));
	REFUSED(EIO, peers_lost_status(observer, 0)); /* not lost, and yet asked about */
	memset(seeds, '1', sizeof(seeds) - 1);
	seeds[sizeof(seeds) - 1] = '\0';
	ck_assert_int_eq(loop_new(&other, &live_ops, &transport_loop, NULL), 0);
	REFUSED(EINVAL, join_start_observer(other, seeds));
	loop_free(other);
	close_job();
}
END_TEST

static void see_tier(void *arg, const struct engine_fragment *f)
{
	unsigned *all = arg;

	ck_assert_str_eq(f->tier, "host");
	++*all;
}

START_TEST(before_a_table_has_come_a_state_is_held_for_one_in_memory)
{
	unsigned before = 0, after = 0;

	open_near();
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_ptr_null(observer->peers[rank].states);
	engine_fragments(observer, 0, "fp32", see_tier, &before);
	ck_assert_int_eq(read_at(0, BYTES, "fp32", false, false), BYTES);
	engine_fragments(observer, 0, "fp32", see_tier, &after);
	ck_assert_uint_eq(before, WORLD);
	ck_assert_uint_eq(after, WORLD);
	close_job();
}
END_TEST

/* Opens one more observer of the job; returns its failure. */
static int failure_of_one_more(void)
{
	struct engine *other;
	int rc;

	ck_assert_int_eq(loop_new(&other, &live_ops, faults_over(&transport_loop),
				  faults_over(&transport_loop)),
			 0);
	ck_assert_int_eq(node_open_messages(other, NULL), 0);
	ck_assert_int_eq(join_start_observer(other, job_frag(&job, 0)->engine->job.address), 0);
	for (int i = 0; i < TURNS && !other->job.ready && !other->job.failure; i++) {
		turn(NULL);
		loop_turn(other, 0);
	}
	rc = other->job.failure;
	loop_free(other);
	return rc;
}

START_TEST(a_job_that_has_failed_or_describes_itself_wrongly_is_not_entered)
{
	struct engine *zero;

	open_near();
	zero = job_frag(&job, 0)->engine;
	faults_add(&(struct fault){
		FAULT_SEND, .type = WIRE_WELCOME, .poked = true, .poke = UINT32_MAX,
		.poke_at = offsetof(struct wire_welcome, world), .count = MANY });
	REFUSED(EPROTO, failure_of_one_more());
	faults_clear();
	zero->job.failure = -ENOMEM;
	REFUSED(EINVAL, failure_of_one_more());
	zero->job.failure = 0;
	ck_assert_int_eq(failure_of_one_more(), 0);
	close_job();
}
END_TEST

START_TEST(a_rank_passes_over_a_process_that_is_not_rank_0)
{
	struct launch launch = { .world = 3, .job = "passes-over", .plain = true };
	uint64_t until = monotonic_ms() + 50000;
	struct frag *ranks[3];
	struct engine *e;

	for (launch.rank = 0; launch.rank < 3; launch.rank++) {
		const char *seed = launch.rank ? ranks[0]->engine->job.address : NULL;

		ck_assert_int_eq(api_open_over(&ranks[launch.rank], &launch, &transport_loop,
					       &transport_loop, seed, false),
				 0);
		ck_assert_int_eq(frag_ready(ranks[launch.rank]), 0);
	}
	while (!ranks[0]->engine->peers[1].entry.present && monotonic_ms() < until)
		for (uint32_t rank = 0; rank < 2; rank++)
			loop_turn(ranks[rank]->engine, 0);
	e = ranks[2]->engine;
	snprintf(e->job.join->seeds.list, sizeof(e->job.join->seeds.list), "%s,%s",
		 ranks[0]->engine->peers[1].entry.address, ranks[0]->engine->job.address);
	ck_assert(ranks[0]->engine->peers[1].entry.present);
	while (!e->job.ready && !e->job.failure && monotonic_ms() < until)
		for (uint32_t rank = 0; rank < 3; rank++)
			loop_turn(ranks[rank]->engine, 0);
	ck_assert_msg(!e->job.failure, "%s", e->job.why);
	ck_assert(e->job.ready);
	for (uint32_t rank = 3; rank-- > 0;)
		frag_close(ranks[rank]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("errors");
	TCase *t = tcase_create("errors");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, a_rank_that_describes_wrongly_is_told);
	tcase_add_test(t, a_call_without_sense_is_refused);
	tcase_add_test(t, what_is_not_there_is_enoent);
	tcase_add_test(t, a_read_is_ended_by_its_reader);
	tcase_add_test(t, an_edit_that_cuts_elements_elsewhere_waits_in_no_thread);
	tcase_add_loop_test(t, who_is_waited_for_by_cut_elements_may_be_lost, 0, 2);
	tcase_add_test(t, who_may_not_write_changes_nothing);
	tcase_add_test(t, an_unknown_transport_is_refused);
	tcase_add_loop_test(t, a_get_that_fails_is_what_it_means, 0, ARRAY_SIZE(reading));
	tcase_add_loop_test(t, a_message_that_cannot_be_sent_is_sent_anew_or_an_error, 0,
			    ARRAY_SIZE(sending));
	tcase_add_loop_test(t, an_edit_whose_messages_fail_is_everywhere_or_nowhere, 0,
			    ARRAY_SIZE(writing));
	tcase_add_loop_test(t, who_is_never_told_where_the_bytes_are_gives_up, 0, 2);
	tcase_add_test(t, a_view_of_a_process_that_was_replaced_is_estale);
	tcase_add_test(t, a_thaw_that_is_not_waited_for_is_cancelled);
	tcase_add_test(t, a_range_or_a_rank_that_is_not_there_is_refused_below_too);
	tcase_add_test(t, before_a_table_has_come_a_state_is_held_for_one_in_memory);
	tcase_add_test(t, a_job_that_has_failed_or_describes_itself_wrongly_is_not_entered);
	tcase_add_test(t, a_rank_passes_over_a_process_that_is_not_rank_0);
	return run_suite(s, t);
}
