/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/mounted-rounds.h"
#include "tests/run-suite.h"

#include "tests/ports/collective-host.h"
#include "engine/node/peers.h"
#include "engine/read/prefetch.h"
#include "engine/read/view-reader.h"
#include "engine/rounds/communicator.h"
#include "engine/rounds/landing.h"
#include "engine/rounds/rounds.h"

#include <check.h>
#include <errno.h>
#include <string.h>

/* A mount on the host of rank 0 reads the bytes of all ranks by rounds that rank 0 asks for.
 * Whatever happens meanwhile, the mount has the bytes of its view in time.
 */

/* ---- bytes that come by a round ---- */

/* i: 1: from devices. */
START_TEST(what_a_mount_reads_comes_by_a_round)
{
	on_devices = _i;
	open_all("host 0", "nccl");
	all_go(GOAL);
	read_all();
	expect_truth();
	ck_assert_uint_eq(by_rounds(), elsewhere(0));
	ck_assert_uint_eq(observer->counters.owner_bytes_messages, 0);
	close_all();
}
END_TEST

static void spoil(void *arg)
{
	struct job_memory *m = arg;

	memset(m->bytes_at, 0x55, m->bytes);
}

/* A step that changes all elements of the state. */
static void step(void)
{
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		struct job_memory *m = job_memory(&job, rank, 0, 0, "exp_avg");

		ck_assert_int_eq(frag_step_begin(job_frag(&job, rank)), 0);
		if (on_devices)
			ck_assert_int_eq(device_host_enqueue(job.ranks[rank].stream, spoil, m),
					 0);
		else
			spoil(m);
		ck_assert_int_eq(frag_step_end(job_frag(&job, rank)), 0);
	}
}

START_TEST(they_are_those_of_the_view_whatever_was_trained_since)
{
	on_devices = _i;
	open_all("host 0", "nccl");
	read_first_part();
	for (int i = 0; i < 3; i++)
		step();
	all_go(GOAL);
	for (uint64_t at = PART; at < BYTES; at += PART)
		ck_assert_int_gt(read_at(at, PART), 0);
	expect_truth();
	ck_assert_uint_eq(by_rounds(), elsewhere(PART));
	engine_file_close(file);
	file = open_state("exp_avg");
	read_all();
	for (unsigned i = 0; i < BYTES; i++)
		ck_assert_uint_eq(got[i], 0x55);
	ck_assert_uint_eq(by_rounds(), elsewhere(PART) + elsewhere(0));
	close_all();
}
END_TEST

START_TEST(an_edit_at_the_same_boundary_is_not_in_it)
{
	struct writer w;

	on_devices = _i;
	open_all("host 0", "nccl");
	read_first_part();
	start(&w, 1, "exp_avg", 7);
	until_accepted(&w);
	all_go(GOAL);
	for (uint64_t at = PART; at < BYTES; at += PART)
		ck_assert_int_gt(read_at(at, PART), 0);
	ck_assert_int_eq(result(&w), 0);
	expect_truth();
	ck_assert_uint_eq(by_rounds(), elsewhere(PART));
	close_all();
}
END_TEST

/* Rank 0 has memory for two windows at a time, of two reads each. */
START_TEST(it_comes_ahead_of_its_reader)
{
	on_devices = true;
	open_all("host 0", "nccl");
	observer->read.prefetch->window = 2 * PART;
	all_go(GOAL);
	ck_assert_int_eq(read_at(0, PART), PART);
	while (fallback(WIRE_FALLBACK_ROOM) < 2)
		turn_all(NULL);
	ck_assert(find_window(2 * PART) && !find_window(4 * PART));
	ck_assert_int_eq(read_at(PART, PART), PART);
	while (!find_window(4 * PART))
		turn_all(NULL);
	read_all();
	expect_truth();
	ck_assert_uint_ge(by_rounds(), 6 * PART);
	close_all();
}
END_TEST

/* ---- reads without a round, and why ---- */

START_TEST(a_trainer_that_does_not_come_is_not_waited_for)
{
	open_all("host 0", "nccl");
	observer->read.prefetch->wait_ms = SHORT_MS;
	read_all();
	expect_truth();
	ck_assert_uint_eq(by_rounds(), 0);
	ck_assert_uint_ge(fallback(WIRE_FALLBACK_BOUNDARY), 1);
	close_all();
}
END_TEST

START_TEST(by_choice_boundaries_are_to_come_soon)
{
	open_all("host 0", "auto");
	read_all();
	expect_truth();
	ck_assert_uint_eq(by_rounds(), 0);
	ck_assert_uint_ge(fallback(WIRE_FALLBACK_BOUNDARY), 1);
	all_go(GOAL);
	while (!by_rounds()) {
		observer->read.prefetch->retry_ms = 0;
		engine_file_close(file);
		file = open_state("exp_avg");
		read_all();
		expect_truth();
	}
	close_all();
}
END_TEST

static const struct {
	const char *host, *how;
	uint64_t min;
	enum wire_fallback fallback;
} fallbacks[] = {
	{ "host 0", "host", 0, WIRE_FALLBACK_TOLD },
	{ "host 0", "auto", BYTES + 1, WIRE_FALLBACK_SIZE },
	{ "elsewhere", "nccl", 0, WIRE_FALLBACK_REACH },
};

START_TEST(what_does_not_fit_is_read_as_ever)
{
	open_all(fallbacks[_i].host, fallbacks[_i].how);
	observer->read.prefetch->min = fallbacks[_i].min;
	all_go(GOAL);
	read_all();
	expect_truth();
	ck_assert_uint_eq(by_rounds(), 0);
	ck_assert_uint_ge(fallback(fallbacks[_i].fallback), 1);
	close_all();
}
END_TEST

START_TEST(without_a_communicator_all_is_read_as_ever)
{
	boundaries_open(WORLD, &sharded);
	observe("host 0", "nccl");
	file = open_state("exp_avg");
	read_all();
	expect_truth();
	ck_assert_uint_eq(by_rounds(), 0);
	ck_assert_uint_ge(fallback(WIRE_FALLBACK_COMMUNICATOR), 1);
	close_all();
}
END_TEST

/* The state is on devices, which the communicator, of memory of hosts, does not reach. */
START_TEST(what_the_communicator_does_not_reach_is_read_as_ever)
{
	struct collective_options options = { .open_ms = 5000 };

	on_devices = true;
	boundaries_open(WORLD, &sharded);
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		struct engine *e = engine_of(rank);

		ck_assert_int_eq(rounds_init(e), 0);
		ck_assert_int_eq(landing_init(e, LANDING_SLOT), 0);
		ck_assert_int_eq(communicator_use(e, &collective_host, &options), 0);
	}
	for (uint32_t rank = 0; rank < WORLD; rank++)
		while (!communicator_number(engine_of(rank)))
			turn(NULL);
	observe("host 0", "nccl");
	file = open_state("exp_avg");
	read_all();
	expect_truth();
	ck_assert_uint_ge(fallback(WIRE_FALLBACK_TIER), 1);
	close_all();
}
END_TEST

/* ---- failures ---- */

static void forget_view(uint32_t rank)
{
	uint64_t id[2];

	for (uint32_t i = 0; i < file->view.n; i++)
		if (file->view.pieces[i].rank == rank) {
			view_reader_id(file, i + 1, id);
			view_owner_close(&engine_of(rank)->view_owner, id);
		}
}

/* i: 0: before the view's owner has promised; 1: between the promise and the boundary. */
START_TEST(a_view_that_an_owner_has_lost_is_no_view)
{
	struct engine_read read = { .offset = PART, .size = BYTES - PART, .done = on_read };

	on_devices = _i / 2;
	open_all("host 0", "nccl");
	read_first_part();
	has_ended = false;
	read.file = file;
	if (_i % 2 == 0)
		forget_view(OWNER);
	engine_read(observer, &read);
	while (_i % 2 &&
	       !participant_pending(&engine_of(OWNER)->participant, passed(OWNER) + 1))
		turn_all(NULL);
	if (_i % 2)
		forget_view(OWNER);
	all_go(GOAL);
	while (!has_ended)
		turn_all(NULL);
	ck_assert_int_eq(ended, -ESTALE);
	ck_assert_uint_eq(by_rounds(), 0);
	ck_assert_uint_ge(fallback(WIRE_FALLBACK_VIEW), 1);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_uint_ne(communicator_number(engine_of(rank)), 0);
	close_all();
}
END_TEST

static void next_view(void)
{
	pthread_mutex_lock(&observer->lock);
	view_reader_close(observer, file);
	pthread_mutex_unlock(&observer->lock);
}

START_TEST(after_a_view_that_was_gone_the_next_one_comes_by_rounds)
{
	open_all("host 0", "nccl");
	read_first_part();
	forget_view(OWNER);
	all_go(GOAL);
	ck_assert_int_eq(read_at(BYTES - PART, PART), -ESTALE);
	ck_assert_uint_ge(fallback(WIRE_FALLBACK_VIEW), 1);
	next_view();
	read_all();
	expect_truth();
	ck_assert_uint_eq(by_rounds(), elsewhere(0));
	close_all();
}
END_TEST

/* When the reader comes, its slot has been lent to another. */
START_TEST(a_slow_reader_reads_by_messages_until_the_next_view)
{
	open_all("host 0", "nccl");
	all_go(GOAL);
	ck_assert_int_eq(read_at(OWN, PART), PART);
	ck_assert_uint_eq(by_rounds(), PART);
	landing_close(engine_of(AGENT), find_window(OWN)->id);
	for (int i = 0; i < 20; i++)
		turn_all(NULL);
	ck_assert_int_eq(read_at(OWN + PART, PART), PART);
	ck_assert_uint_eq(by_rounds(), PART);
	ck_assert_uint_eq(fallback(WIRE_FALLBACK_LATE), 1);
	ck_assert_uint_eq(fallback(WIRE_FALLBACK_BROKEN), 0);
	next_view();
	read_all();
	expect_truth();
	ck_assert_uint_eq(by_rounds(), PART + elsewhere(0));
	close_all();
}
END_TEST

START_TEST(a_rank_that_comes_too_late_costs_its_reader_time_alone)
{
	open_all("host 0", "nccl");
	read_first_part();
	for (uint32_t rank = 0; rank < WORLD; rank++)
		if (rank != OWNER)
			go_to(rank, GOAL);
	for (uint64_t at = PART; at < BYTES; at += PART)
		ck_assert_int_gt(read_at(at, PART), 0);
	expect_truth();
	ck_assert_uint_eq(by_rounds(), 0);
	close_all();
}
END_TEST

/* i: the message after which a rank dies, and which rank. */
static const uint32_t victims[] = { AGENT, OWNER };
static const enum wire_type messages[] = { WIRE_PREFETCH, WIRE_ROUND,   WIRE_PREPARE,
					   WIRE_DECIDE,   WIRE_APPLIED, WIRE_LANDED };

START_TEST(whoever_dies_the_reader_has_its_bytes_or_an_error)
{
	uint32_t victim = victims[_i % (int)ARRAY_SIZE(victims)];
	struct engine_read read = { .offset = 0, .size = BYTES, .done = on_read };

	open_all("host 0", "nccl");
	read_first_part();
	sent.type = messages[_i / (int)ARRAY_SIZE(victims)];
	has_ended = false;
	read.file = file;
	engine_read(observer, &read);
	all_go(GOAL);
	for (unsigned turns = 0; !sent.n && !has_ended && turns < 2000; turns++)
		turn_all(NULL);
	for (uint32_t n = job_random(&job, 4); n; n--)
		turn_all(NULL);
	while (waits_inside(victim))
		turn_all(NULL);
	die(victim, true);
	peers_lose(observer, victim, -EIO, "gone");
	while (!has_ended)
		turn_all(NULL);
	if (ended > 0)
		expect_truth();
	else
		ck_assert_int_eq(ended, -EIO);
	close_all();
}
END_TEST

START_TEST(what_is_closed_meanwhile_is_let_go)
{
	struct engine_read read = { .offset = OWN, .size = PART, .done = on_read };

	open_all("host 0", "nccl");
	read_first_part();
	read.file = file;
	has_ended = false;
	engine_read(observer, &read);
	for (uint32_t n = 5 + job_random(&job, 40); n; n--)
		turn_all(NULL);
	engine_read_cancel(observer, &read);
	while (!has_ended)
		turn_all(NULL);
	ck_assert_int_eq(ended, -ECANCELED);
	engine_file_close(file);
	all_go(GOAL);
	for (int i = 0; i < 2; i++) {
		file = open_state("exp_avg");
		read_all();
		expect_truth();
		engine_file_close(file);
	}
	file = NULL;
	ck_assert_uint_eq(by_rounds(), 2 * elsewhere(0));
	close_all();
}
END_TEST

START_TEST(a_way_that_there_is_not_is_refused)
{
	static struct prefetch prefetch;
	static struct engine e = { .read.prefetch = &prefetch };

	ck_assert_int_eq(prefetch_init(&e, "ipc"), -EINVAL);
	ck_assert_int_eq(prefetch_init(&e, NULL), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("collecting");
	TCase *t = tcase_create("collecting");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, a_way_that_there_is_not_is_refused);
	tcase_add_loop_test(t, what_a_mount_reads_comes_by_a_round, 0, 2);
	tcase_add_loop_test(t, they_are_those_of_the_view_whatever_was_trained_since, 0, 2);
	tcase_add_loop_test(t, an_edit_at_the_same_boundary_is_not_in_it, 0, 2);
	tcase_add_test(t, it_comes_ahead_of_its_reader);
	tcase_add_test(t, a_trainer_that_does_not_come_is_not_waited_for);
	tcase_add_test(t, by_choice_boundaries_are_to_come_soon);
	tcase_add_loop_test(t, what_does_not_fit_is_read_as_ever, 0, ARRAY_SIZE(fallbacks));
	tcase_add_test(t, without_a_communicator_all_is_read_as_ever);
	tcase_add_test(t, what_the_communicator_does_not_reach_is_read_as_ever);
	tcase_add_loop_test(t, a_view_that_an_owner_has_lost_is_no_view, 0, 4);
	tcase_add_test(t, after_a_view_that_was_gone_the_next_one_comes_by_rounds);
	tcase_add_test(t, a_slow_reader_reads_by_messages_until_the_next_view);
	tcase_add_test(t, a_rank_that_comes_too_late_costs_its_reader_time_alone);
	tcase_add_loop_test(t, whoever_dies_the_reader_has_its_bytes_or_an_error, 0,
			    ARRAY_SIZE(messages) * ARRAY_SIZE(victims));
	tcase_add_test(t, what_is_closed_meanwhile_is_let_go);
	return run_suite(s, t);
}
