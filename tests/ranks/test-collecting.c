/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/boundaries.h"

#include "engine/collecting.h"
#include "engine/collects.h"
#include "engine/collective-host.h"
#include "engine/communicator.h"
#include "engine/devices.h"
#include "engine/file.h"
#include "engine/join.h"
#include "engine/peers.h"
#include "engine/rounds.h"
#include "engine/turn.h"
#include "engine/viewing.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A mount on the host of rank 0 reads what lies on all ranks by rounds that rank 0 asks for, and whatever happens meanwhile it has
 * the bytes of its view, in time.
 */

enum { WORLD = 4, GOAL = 100000, OWNER = 3, AGENT = 0, LONG_MS = 10000, SHORT_MS = 50 };

/* Read at a time; rank 0 has the first bytes of it, whose memory the mount reads unless it is a device's. */
enum { PART = 8, OWN = 40 };

static const struct job_group sharded = { .stage = 2, .nparams = 2, .params = { 0, 1 } };

static struct engine *observer,
	*other; /* two mounts: the one that is tested, and one that there may be */
static struct engine_file *file;
static uint8_t got[BYTES];
static int64_t ended;
static bool has_ended;

static void turn_all(void *arg)
{
	turn(NULL);
	if (observer)
		engine_turn(observer, 0);
	if (other)
		engine_turn(other, 0);
}

/* ---- a job whose ranks are connected, and a mount of it ---- */

static void connect_ranks(void)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_int_eq(
			collects_init(engine_of(rank), rank == AGENT ? 2 * COLLECTS_SLOT : 0),
			0);
	boundaries_connect();
}

static void observe_as(struct engine **out, const char *host, const char *how)
{
	struct engine *e;
	char seed[160];

	ck_assert_int_eq(turn_new(&e, &transport_loop, &transport_loop), 0);
	*out = e;
	e->yield = turn_all;
	snprintf(e->launch.host, sizeof(e->launch.host), "%s", host);
	ck_assert_int_eq(collecting_init(e, how), 0);
	e->collecting.min = 0;
	e->collecting.wait_ms = LONG_MS;
	ck_assert_int_eq(node_open_messages(e, NULL), 0);
	snprintf(seed, sizeof(seed), "%s", engine_of(0)->address);
	ck_assert_int_eq(join_start_observer(e, seed), 0);
	while (!e->ready)
		turn_all(NULL);
}

static void observe(const char *host, const char *how)
{
	observe_as(&observer, host, how);
}

static struct engine_file *open_state_of(struct engine *e, const char *key)
{
	struct engine_address a = { ENGINE_PARAM, .param = 0 };
	struct engine_file *f;
	uint64_t bytes;

	snprintf(a.key, sizeof(a.key), "%s", key);
	ck_assert_int_eq(engine_file_open(e, &a, &f, &bytes), 0);
	ck_assert_uint_eq(bytes, BYTES);
	return f;
}

static struct engine_file *open_state(const char *key)
{
	return open_state_of(observer, key);
}

static void open_all(const char *host, const char *how)
{
	boundaries_open(WORLD, &sharded);
	connect_ranks();
	observe(host, how);
	file = open_state("exp_avg");
}

static void all_go(uint64_t more)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		if (job_frag(&job, rank))
			go_to(rank, passed(AGENT) + more);
}

/* None waits in a boundary. */
static void all_stop(void)
{
	uint64_t goal = 0;

	for (uint32_t rank = 0; rank < WORLD; rank++)
		if (job_frag(&job, rank))
			goal = u64_max(goal, passed(rank) + 1);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		if (job_frag(&job, rank))
			go_to(rank, goal);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		while (job_frag(&job, rank) && (waits_inside(rank) || passed(rank) < goal))
			turn_all(NULL);
}

static void close_all(void)
{
	if (file)
		engine_file_close(file);
	file = NULL;
	all_stop();
	turn_free(observer);
	observer = NULL;
	boundaries_close();
}

/* ---- reading ---- */

static void on_read(struct engine_read *read, const void *data, int64_t result)
{
	if (result > 0)
		memcpy(got + read->offset, data, (size_t)result);
	ended = result;
	has_ended = true;
}

static int64_t read_of(struct engine_file *f, uint64_t offset, uint32_t size)
{
	struct engine_read read = {
		.file = f, .offset = offset, .size = size, .done = on_read
	};

	has_ended = false;
	engine_read(f->engine, &read);
	while (!has_ended)
		turn_all(NULL);
	return ended;
}

static int64_t read_at(uint64_t offset, uint32_t size)
{
	return read_of(file, offset, size);
}

static void read_all(void)
{
	memset(got, 0, sizeof(got));
	for (uint64_t at = 0; at < BYTES; at += PART)
		ck_assert_int_eq(read_at(at, PART), u64_min(PART, BYTES - at));
}

static void expect_truth(void)
{
	ck_assert_mem_eq(got, job_truth(&job, 0, "exp_avg"), BYTES);
}

/* Bytes from there on that no memory in reach has. */
static uint64_t elsewhere(uint64_t from)
{
	return BYTES - (on_devices ? from : OWN);
}

static uint64_t by_rounds(void)
{
	return atomic_load(&observer->counters.owner_bytes_rounds);
}

static uint64_t unfit(enum wire_unfit why)
{
	return atomic_load(&observer->counters.rounds_unfit[why]);
}

/* Opens the view, and asks for nothing. */
static void read_first_part(void)
{
	enum collecting_how how = observer->collecting.how;

	observer->collecting.how = COLLECTING_NOT_ASKED;
	ck_assert_int_eq(read_at(0, PART), PART);
	observer->collecting.how = how;
}

/* ---- what comes by a round ---- */

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

/* A step that changes all of the state. */
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

static struct window *find_window(uint64_t offset)
{
	for (unsigned i = 0; i < WINDOWS; i++)
		if (file->collecting.windows[i].state != WINDOW_NONE &&
		    file->collecting.windows[i].offset == offset)
			return &file->collecting.windows[i];
	return NULL;
}

/* Rank 0 has memory for two windows at a time, of two reads each. */
START_TEST(it_comes_ahead_of_its_reader)
{
	on_devices = true;
	open_all("host 0", "nccl");
	observer->collecting.window = 2 * PART;
	all_go(GOAL);
	ck_assert_int_eq(read_at(0, PART), PART);
	while (unfit(WIRE_UNFIT_ROOM) < 2)
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

START_TEST(a_rank_says_what_it_has_brought)
{
	char *text;

	open_all("host 0", "nccl");
	all_go(GOAL);
	read_all();
	text = engine_text(observer, "nccl");
	ck_assert_ptr_nonnull(text);
	ck_assert_msg(strstr(text, "for mounts: brought 108 bytes") != NULL, "%s", text);
	ck_assert_msg(strstr(text, "this mount: gather nccl, by rounds 108 bytes") != NULL,
		      "%s", text);
	free(text);
	close_all();
}
END_TEST

/* ---- what does not, and why ---- */

START_TEST(a_trainer_that_does_not_come_is_not_waited_for)
{
	open_all("host 0", "nccl");
	observer->collecting.wait_ms = SHORT_MS;
	read_all();
	expect_truth();
	ck_assert_uint_eq(by_rounds(), 0);
	ck_assert_uint_ge(unfit(WIRE_UNFIT_BOUNDARY), 1);
	close_all();
}
END_TEST

START_TEST(by_choice_boundaries_are_to_come_soon)
{
	open_all("host 0", "auto");
	read_all();
	expect_truth();
	ck_assert_uint_eq(by_rounds(), 0);
	ck_assert_uint_ge(unfit(WIRE_UNFIT_BOUNDARY), 1);
	all_go(GOAL);
	while (!by_rounds()) {
		observer->collecting.retry_ms = 0;
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
	enum wire_unfit unfit;
} unfits[] = {
	{ "host 0", "host", 0, WIRE_UNFIT_TOLD },
	{ "host 0", "auto", BYTES + 1, WIRE_UNFIT_SIZE },
	{ "elsewhere", "nccl", 0, WIRE_UNFIT_REACH },
};

START_TEST(what_does_not_fit_is_read_as_ever)
{
	open_all(unfits[_i].host, unfits[_i].how);
	observer->collecting.min = unfits[_i].min;
	all_go(GOAL);
	read_all();
	expect_truth();
	ck_assert_uint_eq(by_rounds(), 0);
	ck_assert_uint_ge(unfit(unfits[_i].unfit), 1);
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
	ck_assert_uint_ge(unfit(WIRE_UNFIT_COMMUNICATOR), 1);
	close_all();
}
END_TEST

/* Its slots are with others, who do not read. */
START_TEST(where_all_memory_is_lent_it_is_read_as_ever)
{
	struct engine_file *others[2];

	open_all("host 0", "nccl");
	for (int i = 0; i < 2; i++) {
		others[i] = file;
		all_go(GOAL);
		ck_assert_int_eq(read_at(OWN, PART), PART);
		file = open_state("exp_avg");
	}
	ck_assert_uint_eq(by_rounds(), 2 * PART);
	read_all();
	expect_truth();
	ck_assert_uint_eq(by_rounds(), 2 * PART);
	ck_assert_uint_ge(unfit(WIRE_UNFIT_ROOM), 1);
	engine_file_close(others[0]);
	engine_file_close(file);
	for (int i = 0; i < 20; i++)
		turn_all(NULL);
	file = open_state("exp_avg");
	observer->collecting.retry_ms = 0;
	read_all();
	expect_truth();
	ck_assert_uint_eq(by_rounds(), 2 * PART + elsewhere(0));
	engine_file_close(others[1]);
	close_all();
}
END_TEST

/* The state is on devices, and the communicator is the hosts': it does not reach it. */
START_TEST(what_the_communicator_does_not_reach_is_read_as_ever)
{
	struct collective_options options = { .open_ms = 5000 };

	on_devices = true;
	boundaries_open(WORLD, &sharded);
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		struct engine *e = engine_of(rank);

		ck_assert_int_eq(rounds_init(e), 0);
		ck_assert_int_eq(collects_init(e, COLLECTS_SLOT), 0);
		ck_assert_int_eq(communicator_use(e, &collective_host, &options), 0);
	}
	for (uint32_t rank = 0; rank < WORLD; rank++)
		while (!communicator_number(engine_of(rank)))
			turn(NULL);
	observe("host 0", "nccl");
	file = open_state("exp_avg");
	read_all();
	expect_truth();
	ck_assert_uint_ge(unfit(WIRE_UNFIT_TIER), 1);
	close_all();
}
END_TEST

static struct wire_collected collected;
static bool answered, is_lost;

static bool on_collected(struct engine *e, void *owner, uint64_t tag,
			 const struct answer *answer)
{
	answered = true;
	is_lost = answer->status == -EAGAIN; /* or not answered yet */
	if (is_lost)
		return false;
	ck_assert_int_eq(answer->type, WIRE_COLLECTED);
	memcpy(&collected, answer->body, sizeof(collected));
	return false;
}

static void ask_once(const struct wire_collect *body, const struct wire_piece *pieces,
		     size_t size)
{
	answered = false;
	pthread_mutex_lock(&observer->lock);
	ck_assert_int_eq(peers_call(observer, AGENT, WIRE_COLLECT, body, pieces, size,
				    on_collected, NULL, 0),
			 0);
	pthread_mutex_unlock(&observer->lock);
	while (!answered)
		turn_all(NULL);
}

static void ask(const struct wire_collect *body, const struct wire_piece *pieces, size_t size)
{
	do
		ask_once(body, pieces, size);
	while (is_lost);
}

START_TEST(what_is_asked_for_wrongly_is_refused)
{
	struct wire_collect body = { .id = { 1, 1 }, .view = { 1, 1 }, .count = 2 };
	struct wire_piece pieces[2] = { { .size = COLLECTS_SLOT, .rank = OWNER },
					{ .size = 1, .rank = WORLD } };

	open_all("host 0", "nccl");
	read_first_part();
	ask(&body, pieces, sizeof(pieces)); /* too much */
	ck_assert_int_eq(collected.status, -E2BIG);
	ask(&body, pieces, sizeof(pieces[0])); /* half of it is missing */
	ck_assert_int_eq(collected.status, -EINVAL);
	pieces[0].size = 1;
	ask(&body, pieces, sizeof(pieces)); /* no such rank */
	ck_assert_int_eq(collected.status, -EREMOTE);
	body.id[1]++;
	pieces[1].rank = OWNER;
	ask(&body, pieces, sizeof(pieces)); /* no such view */
	ck_assert_int_eq(collected.status, -ESTALE);
	body.id[1]++;
	pieces[1].size = 0;
	ask(&body, pieces, sizeof(pieces)); /* nothing, of one of them */
	ck_assert_int_eq(collected.status, -EINVAL);
	body.count = 0;
	ask(&body, pieces, 0); /* how one is that there never was */
	ck_assert_int_eq(collected.status, -EINVAL);
	body.tier = STATE_TIERS;
	ask(&body, pieces, 0);
	ck_assert_uint_eq(collected.unfit, WIRE_UNFIT_TIER);
	close_all();
}
END_TEST

/* Of the file's view, on OWNER. */
static void ask_for_part(uint32_t wait_ms)
{
	struct wire_collect body = { .id = { 1, 1 },
				     .count = 1,
				     .tier = on_devices ? STATE_DEVICE : STATE_HOST,
				     .wait_ms = wait_ms };
	struct wire_piece piece = { .size = PART, .rank = OWNER };

	for (uint32_t i = 0; i < file->viewing.n; i++)
		if (file->viewing.pieces[i].rank == OWNER) {
			piece.epoch = file->viewing.pieces[i].epoch;
			piece.state = file->viewing.pieces[i].row;
			piece.offset = file->viewing.pieces[i].offset;
		}
	memcpy(body.view, file->viewing.id, sizeof(body.view));
	ask(&body, &piece, sizeof(piece));
}

/* Rank 0 has two slots, both with the first mount, which would have one again as soon as it is let go. */
START_TEST(a_mount_leaves_a_slot_to_another)
{
	struct engine_file *theirs;

	on_devices = true;
	open_all("host 0", "nccl");
	observe_as(&other, "host 0", "nccl");
	observer->collecting.window = 2 * PART;
	theirs = open_state_of(other, "exp_avg");
	all_go(GOAL);
	ck_assert_int_eq(read_at(0, PART), PART);
	while (unfit(WIRE_UNFIT_ROOM) < 2)
		turn_all(NULL);
	ck_assert_int_eq(read_of(theirs, 0, PART), PART);
	ck_assert_uint_ge(other->counters.rounds_unfit[WIRE_UNFIT_ROOM], 1);
	collects_close(engine_of(AGENT), find_window(2 * PART)->id);
	for (int i = 0; i < 20; i++)
		turn_all(NULL);
	ask_for_part(LONG_MS);
	ck_assert_int_eq(collected.status, -ENOSPC);
	other->collecting.retry_ms = 0;
	ck_assert_int_eq(read_of(theirs, 0, PART), PART);
	ck_assert_uint_eq(other->counters.owner_bytes_rounds, PART);
	engine_file_close(theirs);
	turn_free(other);
	other = NULL;
	close_all();
}
END_TEST

/* A slot is his for as long as the rank waits for others at most. */
START_TEST(whoever_waits_for_ever_is_answered_all_the_same)
{
	open_all("host 0", "nccl");
	read_first_part();
	ask_for_part(UINT32_MAX);
	ck_assert_uint_eq(collected.unfit, WIRE_UNFIT_BOUNDARY);
	close_all();
}
END_TEST

/* ---- what fails ---- */

static void forget_view(uint32_t rank)
{
	views_close(&engine_of(rank)->views, file->viewing.id);
}

/* i 0: before its owner has promised; 1: between that and the boundary. */
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
	while (_i % 2 && !edits_pending(&engine_of(OWNER)->edits, passed(OWNER) + 1))
		turn_all(NULL);
	if (_i % 2)
		forget_view(OWNER);
	all_go(GOAL);
	while (!has_ended)
		turn_all(NULL);
	ck_assert_int_eq(ended, -ESTALE);
	ck_assert_uint_eq(by_rounds(), 0);
	ck_assert_uint_ge(unfit(WIRE_UNFIT_VIEW), 1);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_uint_ne(communicator_number(engine_of(rank)), 0);
	close_all();
}
END_TEST

static void next_view(void)
{
	pthread_mutex_lock(&observer->lock);
	viewing_close(observer, file);
	pthread_mutex_unlock(&observer->lock);
}

START_TEST(after_a_view_that_was_gone_the_next_one_comes_by_rounds)
{
	open_all("host 0", "nccl");
	read_first_part();
	forget_view(OWNER);
	all_go(GOAL);
	ck_assert_int_eq(read_at(BYTES - PART, PART), -ESTALE);
	ck_assert_uint_ge(unfit(WIRE_UNFIT_VIEW), 1);
	next_view();
	read_all();
	expect_truth();
	ck_assert_uint_eq(by_rounds(), elsewhere(0));
	close_all();
}
END_TEST

/* The slot is another's when he comes. */
START_TEST(a_slow_reader_reads_by_messages_until_the_next_view)
{
	open_all("host 0", "nccl");
	all_go(GOAL);
	ck_assert_int_eq(read_at(OWN, PART), PART);
	ck_assert_uint_eq(by_rounds(), PART);
	collects_close(engine_of(AGENT), find_window(OWN)->id);
	for (int i = 0; i < 20; i++)
		turn_all(NULL);
	ck_assert_int_eq(read_at(OWN + PART, PART), PART);
	ck_assert_uint_eq(by_rounds(), PART);
	ck_assert_uint_eq(unfit(WIRE_UNFIT_LATE), 1);
	ck_assert_uint_eq(unfit(WIRE_UNFIT_BROKEN), 0);
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

/* i: which message the death comes with, who. */
static const uint32_t victims[] = { AGENT, OWNER };
static const enum wire_type messages[] = { WIRE_COLLECT, WIRE_ROUND,   WIRE_PREPARE,
					   WIRE_DECIDE,  WIRE_APPLIED, WIRE_COLLECTED };

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
	peers_lose(observer, victim, "gone");
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

int main(void)
{
	Suite *s = suite_create("collecting");
	TCase *t = tcase_create("collecting");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, what_a_mount_reads_comes_by_a_round, 0, 2);
	tcase_add_loop_test(t, they_are_those_of_the_view_whatever_was_trained_since, 0, 2);
	tcase_add_loop_test(t, an_edit_at_the_same_boundary_is_not_in_it, 0, 2);
	tcase_add_test(t, it_comes_ahead_of_its_reader);
	tcase_add_test(t, a_rank_says_what_it_has_brought);
	tcase_add_test(t, a_trainer_that_does_not_come_is_not_waited_for);
	tcase_add_test(t, by_choice_boundaries_are_to_come_soon);
	tcase_add_loop_test(t, what_does_not_fit_is_read_as_ever, 0, ARRAY_SIZE(unfits));
	tcase_add_test(t, without_a_communicator_all_is_read_as_ever);
	tcase_add_test(t, where_all_memory_is_lent_it_is_read_as_ever);
	tcase_add_test(t, what_the_communicator_does_not_reach_is_read_as_ever);
	tcase_add_test(t, what_is_asked_for_wrongly_is_refused);
	tcase_add_test(t, a_mount_leaves_a_slot_to_another);
	tcase_add_test(t, whoever_waits_for_ever_is_answered_all_the_same);
	tcase_add_loop_test(t, a_view_that_an_owner_has_lost_is_no_view, 0, 4);
	tcase_add_test(t, after_a_view_that_was_gone_the_next_one_comes_by_rounds);
	tcase_add_test(t, a_slow_reader_reads_by_messages_until_the_next_view);
	tcase_add_test(t, a_rank_that_comes_too_late_costs_its_reader_time_alone);
	tcase_add_loop_test(t, whoever_dies_the_reader_has_its_bytes_or_an_error, 0,
			    ARRAY_SIZE(messages) * ARRAY_SIZE(victims));
	tcase_add_test(t, what_is_closed_meanwhile_is_let_go);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
