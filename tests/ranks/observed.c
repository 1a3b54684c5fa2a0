/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/observed.h"

#include "tests/ranks/scarce.h"

#include "engine/live/loop.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

enum { TURN_MS = 5 };

static const struct job_param params[] = {
	{ "w", .ndim = 1, .shape = { NUMEL } },
	{ "frozen", .ndim = 1, .shape = { 3 }, .flags = FRAG_FROZEN },
	{ "short", .ndim = 1, .shape = { 1 } },
};
static const struct job_group groups[] = { { .stage = 1, .nparams = 2, .params = { 0, 2 } } };

struct job job;
struct engine *observer;
uint64_t turned_ms;

void turn(void *arg)
{
	scarce_skip_ms(TURN_MS);
	turned_ms += TURN_MS;
	job_turn(&job);
	if (observer)
		loop_turn(observer, 0);
}

static const char *observer_host;

void observe(void)
{
	job_observe(&job, &observer, observer_host, turn);
}

static void open_over(struct job_spec spec, const char *host)
{
	faults_clear();
	spec.world = spec.world ? spec.world : WORLD;
	spec.messages = faults_over(&transport_loop);
	spec.params = params;
	spec.nparams = ARRAY_SIZE(params);
	if (!spec.ngroups) {
		spec.groups = groups;
		spec.ngroups = ARRAY_SIZE(groups);
	}
	job_open(&job, &spec);
	for (uint32_t rank = 0; rank < spec.world; rank++)
		job_frag(&job, rank)->engine->thread.yield = turn;
	observer_host = host;
	observe();
}

void open_near(void)
{
	open_over((struct job_spec){ .hosts = 1 }, "host 0");
}

void open_far(void)
{
	open_over((struct job_spec){ .hosts = WORLD }, "elsewhere");
}

void open_group(const struct job_group *group)
{
	open_over((struct job_spec){ .world = 4, .hosts = 4, .groups = group, .ngroups = 1 },
		  "elsewhere");
}

struct frag_devices observed_devices;

void open_tier(enum job_how how, const struct device_ops *on_device)
{
	const struct job_key keys[] = { { "fp32", FRAG_F32, how },
					{ "exp_avg", FRAG_F32, how } };

	open_over((struct job_spec){ .hosts = WORLD,
				     JOB_KEYS(keys),
				     .on_device = on_device,
				     .device_ops = on_device,
				     .devices = observed_devices },
		  "elsewhere");
	job_boundary(&job);
}

void close_job(void)
{
	loop_free(observer);
	observer = NULL;
	job_close(&job);
}

/* ---- reading ---- */

uint8_t read_bytes[BYTES];
static int64_t ended;
static bool has_ended;

static void on_read(struct engine_read *read, const void *data, int64_t result)
{
	if (result > 0)
		memcpy(read_bytes, data, (size_t)result);
	ended = result;
	has_ended = true;
}

struct engine_file *open_state(enum engine_address_kind kind, const char *key)
{
	struct engine_address a = { kind, .param = 0 };
	struct engine_file *file;
	uint64_t bytes;

	snprintf(a.key, sizeof(a.key), "%s", key);
	ck_assert_int_eq(engine_file_open(observer, &a, &file, &bytes), 0);
	return file;
}

int64_t read_file(struct engine_file *file, uint64_t offset, uint32_t size, bool nowait,
		  bool cancel)
{
	struct engine_read read = {
		.file = file, .offset = offset, .size = size, .done = on_read, .nowait = nowait
	};

	has_ended = false;
	engine_read(observer, &read);
	if (cancel && !has_ended)
		engine_read_cancel(observer, &read);
	for (int i = 0; i < TURNS && !has_ended; i++)
		turn(NULL);
	ck_assert(has_ended);
	return ended;
}

int64_t read_at(uint64_t offset, uint32_t size, const char *key, bool nowait, bool cancel)
{
	struct engine_file *file = open_state(ENGINE_PARAM, key);
	int64_t result = read_file(file, offset, size, nowait, cancel);

	engine_file_close(file);
	return result;
}
