/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/read/prefetch.h"
#include "tests/ranks/mounted-rounds.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"

#include "engine/live/loop.h"
#include "engine/node/peers.h"
#include "engine/read/view-reader.h"
#include "engine/rounds/landing.h"

#include <check.h>
#include <errno.h>
#include <string.h>

/* A rank's slots for mounts: which mounts have them, and wrong requests. */

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

/* The slots are lent to other files, which do not read. */
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
	ck_assert_uint_ge(fallback(WIRE_FALLBACK_ROOM), 1);
	engine_file_close(others[0]);
	engine_file_close(file);
	for (int i = 0; i < 20; i++)
		turn_all(NULL);
	file = open_state("exp_avg");
	observer->read.prefetch->retry_ms = 0;
	read_all();
	expect_truth();
	ck_assert_uint_eq(by_rounds(), 2 * PART + elsewhere(0));
	engine_file_close(others[1]);
	close_all();
}
END_TEST

static struct wire_landed collected;
static bool answered, is_lost;

static bool on_collected(struct engine *e, void *owner, uint64_t tag,
			 const struct answer *answer)
{
	answered = true;
	/* -EAGAIN: the rank has not answered yet, or is lost */
	is_lost = answer->status == -EAGAIN;
	if (is_lost)
		return false;
	ck_assert_int_eq(answer->type, WIRE_LANDED);
	memcpy(&collected, answer->body, sizeof(collected));
	return false;
}

static void ask_once(const struct wire_prefetch *body, const struct wire_piece *pieces,
		     size_t size)
{
	answered = false;
	pthread_mutex_lock(&observer->lock);
	ck_assert_int_eq(peers_call(observer, AGENT, WIRE_PREFETCH, body, pieces, size,
				    on_collected, NULL, 0),
			 0);
	pthread_mutex_unlock(&observer->lock);
	while (!answered)
		turn_all(NULL);
}

static void ask(const struct wire_prefetch *body, const struct wire_piece *pieces, size_t size)
{
	do
		ask_once(body, pieces, size);
	while (is_lost);
}

START_TEST(what_is_asked_for_wrongly_is_refused)
{
	struct wire_prefetch body = { .id = { 1, 1 }, .view = { 1, 1 }, .count = 2 };
	struct wire_piece pieces[2] = { { .size = LANDING_SLOT, .rank = OWNER },
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
	ck_assert_uint_eq(collected.fallback, WIRE_FALLBACK_TIER);
	close_all();
}
END_TEST

START_TEST(without_memory_nothing_is_brought)
{
	struct wire_prefetch body = { .id = { 1, 1 }, .view = { 1, 1 }, .count = 1 };
	struct wire_piece piece = { .size = 1, .rank = OWNER };
	struct wire_header header = { .type = WIRE_PREFETCH, .request = 77 };
	struct engine *e;

	open_all("host 0", "nccl");
	read_first_part();
	e = engine_of(AGENT);
	scarce_begin(1, 1);
	landing_serve(e, NODE_LOCAL, &header, &body, &piece, sizeof(piece));
	ck_assert_uint_eq(scarce_end(), 1);
	ask(&body, &piece, sizeof(piece)); /* there was none of that id */
	ck_assert_int_eq(collected.status, -ESTALE);
	close_all();
}
END_TEST

/* Asks for a part of the file's view, which OWNER has. */
static void ask_for_part(uint32_t wait_ms)
{
	struct wire_prefetch body = { .id = { 1, 1 },
				      .count = 1,
				      .tier = on_devices ? STATE_DEVICE : STATE_HOST,
				      .wait_ms = wait_ms };
	struct wire_piece piece = { .size = PART, .rank = OWNER };

	for (uint32_t i = 0; i < file->view.n; i++) {
		const struct view_reader_piece *of_rank = &file->view.pieces[i];
		const struct wire_view_run *run = of_rank->runs.items;

		if (of_rank->rank != OWNER)
			continue;
		piece.epoch = of_rank->epoch;
		piece.state = run->state;
		piece.offset = run->offset;
		view_reader_id(file, i + 1, body.view);
	}
	ask(&body, &piece, sizeof(piece));
}

/* Rank 0 has two slots.  Both are lent to the first mount, which would have one again as soon
 * as it has given it back.
 */
START_TEST(a_mount_leaves_a_slot_to_another)
{
	struct engine_file *theirs;

	on_devices = true;
	open_all("host 0", "nccl");
	observe_as(&other, "host 0", "nccl");
	observer->read.prefetch->window = 2 * PART;
	theirs = open_state_of(other, "exp_avg");
	all_go(GOAL);
	ck_assert_int_eq(read_at(0, PART), PART);
	while (fallback(WIRE_FALLBACK_ROOM) < 2)
		turn_all(NULL);
	ck_assert_int_eq(read_of(theirs, 0, PART), PART);
	ck_assert_uint_ge(other->counters.rounds_fallback[WIRE_FALLBACK_ROOM], 1);
	landing_close(engine_of(AGENT), find_window(2 * PART)->id);
	for (int i = 0; i < 20; i++)
		turn_all(NULL);
	ask_for_part(LONG_MS);
	ck_assert_int_eq(collected.status, -ENOSPC);
	other->read.prefetch->retry_ms = 0;
	ck_assert_int_eq(read_of(theirs, 0, PART), PART);
	ck_assert_uint_eq(other->counters.owner_bytes_rounds, PART);
	engine_file_close(theirs);
	loop_free(other);
	other = NULL;
	close_all();
}
END_TEST

/* A slot is lent for as long at most as the rank waits for others. */
START_TEST(whoever_waits_for_ever_is_answered_all_the_same)
{
	open_all("host 0", "nccl");
	read_first_part();
	ask_for_part(UINT32_MAX);
	ck_assert_uint_eq(collected.fallback, WIRE_FALLBACK_BOUNDARY);
	close_all();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("collects");
	TCase *t = tcase_create("collects");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, a_rank_says_what_it_has_brought);
	tcase_add_test(t, where_all_memory_is_lent_it_is_read_as_ever);
	tcase_add_test(t, what_is_asked_for_wrongly_is_refused);
	tcase_add_test(t, without_memory_nothing_is_brought);
	tcase_add_test(t, a_mount_leaves_a_slot_to_another);
	tcase_add_test(t, whoever_waits_for_ever_is_answered_all_the_same);
	return run_suite(s, t);
}
