/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/mounted-rounds.h"

#include "engine/job/join.h"
#include "engine/live/live.h"
#include "engine/live/loop.h"
#include "engine/read/prefetch.h"
#include "engine/rounds/landing.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

const struct job_group sharded = { .stage = 2, .nparams = 2, .params = { 0, 1 } };

struct engine *observer, *other;
struct engine_file *file;
uint8_t got[BYTES];
int64_t ended;
bool has_ended;

void turn_all(void *arg)
{
	turn(NULL);
	if (observer)
		loop_turn(observer, 0);
	if (other)
		loop_turn(other, 0);
}

/* ---- a job whose ranks are connected, and a mount of it ---- */

static void connect_ranks(void)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_int_eq(
			landing_init(engine_of(rank), rank == AGENT ? 2 * LANDING_SLOT : 0), 0);
	boundaries_connect();
}

void observe_as(struct engine **out, const char *host, const char *how)
{
	struct engine *e;
	char seed[160];

	ck_assert_int_eq(loop_new(&e, &live_ops, &transport_loop, &transport_loop), 0);
	*out = e;
	e->thread.yield = turn_all;
	snprintf(e->launch.host, sizeof(e->launch.host), "%s", host);
	ck_assert_int_eq(prefetch_init(e, how), 0);
	e->read.prefetch->min = 0;
	e->read.prefetch->wait_ms = LONG_MS;
	ck_assert_int_eq(node_open_messages(e, NULL), 0);
	snprintf(seed, sizeof(seed), "%s", engine_of(0)->job.address);
	ck_assert_int_eq(join_start_observer(e, seed), 0);
	while (!e->job.ready)
		turn_all(NULL);
}

void observe(const char *host, const char *how)
{
	observe_as(&observer, host, how);
}

struct engine_file *open_state_of(struct engine *e, const char *key)
{
	struct engine_address a = { ENGINE_PARAM, .param = 0 };
	struct engine_file *f;
	uint64_t bytes;

	snprintf(a.key, sizeof(a.key), "%s", key);
	ck_assert_int_eq(engine_file_open(e, &a, &f, &bytes), 0);
	ck_assert_uint_eq(bytes, BYTES);
	return f;
}

struct engine_file *open_state(const char *key)
{
	return open_state_of(observer, key);
}

void open_all(const char *host, const char *how)
{
	boundaries_open(WORLD, &sharded);
	connect_ranks();
	observe(host, how);
	file = open_state("exp_avg");
}

void all_go(uint64_t more)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		if (job_frag(&job, rank))
			go_to(rank, passed(AGENT) + more);
}

/* Lets every trainer come out of its boundary. */
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

void close_all(void)
{
	if (file)
		engine_file_close(file);
	file = NULL;
	all_stop();
	loop_free(observer);
	observer = NULL;
	boundaries_close();
}

/* ---- reading ---- */

void on_read(struct engine_read *read, const void *data, int64_t result)
{
	if (result > 0)
		memcpy(got + read->offset, data, (size_t)result);
	ended = result;
	has_ended = true;
}

int64_t read_of(struct engine_file *f, uint64_t offset, uint32_t size)
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

int64_t read_at(uint64_t offset, uint32_t size)
{
	return read_of(file, offset, size);
}

void read_all(void)
{
	memset(got, 0, sizeof(got));
	for (uint64_t at = 0; at < BYTES; at += PART)
		ck_assert_int_eq(read_at(at, PART), u64_min(PART, BYTES - at));
}

void expect_truth(void)
{
	ck_assert_mem_eq(got, job_truth(&job, 0, "exp_avg"), BYTES);
}

uint64_t elsewhere(uint64_t from)
{
	return BYTES - (on_devices ? from : OWN);
}

uint64_t by_rounds(void)
{
	return atomic_load(&observer->counters.owner_bytes_rounds);
}

uint64_t fallback(enum wire_fallback why)
{
	return atomic_load(&observer->counters.rounds_fallback[why]);
}

void read_first_part(void)
{
	enum prefetch_how how = observer->read.prefetch->how;

	observer->read.prefetch->how = PREFETCH_NOT_ASKED;
	ck_assert_int_eq(read_at(0, PART), PART);
	observer->read.prefetch->how = how;
}

struct prefetch_window *find_window(uint64_t offset)
{
	for (unsigned i = 0; i < PREFETCH_WINDOWS; i++)
		if (file->prefetch.windows[i].state != PREFETCH_WINDOW_NONE &&
		    file->prefetch.windows[i].offset == offset)
			return &file->prefetch.windows[i];
	return NULL;
}
