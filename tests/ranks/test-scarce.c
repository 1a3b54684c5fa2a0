/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/commit/coordinator.h"
#include "engine/serve/serve-stats.h"
#include "engine/serve/serve.h"
#include "engine/stats/stats.h"
#include "tests/ranks/job.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"

#include "engine/job/barrier.h"
#include "engine/catalog/health.h"
#include "engine/job/join-internal.h"
#include "engine/launch/jobfile.h"
#include "engine/live/live.h"
#include "engine/live/loop.h"
#include "engine/node/peers.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The machine has no memory, or no descriptor, at the n-th call, for each n.  The call fails
 * with an error, or succeeds all the same; nothing is half done, and the next call succeeds.
 */

enum { WORLD = 2, TURN_MS = 10, TURNS_MAX = 3000, IN_A_ROW = 7 };

static const unsigned counts[] = { 1, IN_A_ROW };

static unsigned turns;

/* Begins the lack.  Until scarce_end nothing is asserted, because Check needs memory, too. */
static void begin(unsigned n, unsigned count)
{
	turns = 0;
	scarce_begin(n, count);
}

static bool in_time(void)
{
	return turns++ < TURNS_MAX;
}

/* ---- a job opens ---- */

static struct frag *ranks[WORLD];
static float lp[WORLD][64], master[WORLD][64];

static void turn_ranks(void *arg)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		if (ranks[rank])
			loop_turn(ranks[rank]->engine, 0);
	scarce_skip_ms(TURN_MS);
}

static int open_rank(uint32_t rank)
{
	struct launch launch = { .rank = rank, .world = WORLD, .job = "scarce", .plain = true };
	const char *seed = rank ? ranks[0]->engine->job.address : NULL;
	int rc;

	snprintf(launch.host, sizeof(launch.host), "host %u", rank);
	rc = api_open_over(&ranks[rank], &launch, &transport_loop, &transport_loop, seed,
			   false);
	if (!rc)
		ranks[rank]->engine->thread.yield = turn_ranks;
	return rc;
}

static int describe_states(struct frag *f, uint32_t rank, int group)
{
	static double lr = 1;
	void *memory;
	int rc = frag_state_keep(f, group, 0, "fp32", FRAG_F32, master[rank]);

	if (!rc)
		rc = frag_state_alloc(f, group, 0, "exp_avg", FRAG_F32, &memory);
	if (!rc)
		rc = frag_hyper(f, group, "lr", &lr);
	if (!rc)
		rc = frag_publish(f, "mine", master[rank], 8);
	return rc;
}

/* Describes a rank.  Rank 1 has a parameter more, so that its description has to be sent. */
static int describe_rank(uint32_t rank)
{
	static const uint64_t shape[] = { 5, 3 };
	struct frag_tensor tensors[] = {
		{ sizeof(tensors[0]), .name = "w", .dtype = FRAG_BF16, .ndim = 2,
		  .shape = shape, .lp = lp[rank] },
		{ sizeof(tensors[0]), .name = "v", .coordinate = "pp=1", .dtype = FRAG_F32,
		  .ndim = 1, .shape = shape },
	};
	struct frag *f = ranks[rank];
	int param, group, rc = rank ? frag_param(f, &tensors[1]) : 0;

	if (rc < 0)
		return rc;
	param = frag_param(f, &tensors[0]);
	if (param < 0)
		return param;
	group = frag_group(f, &param, 1,
			   &(struct frag_zero){ sizeof(struct frag_zero), .stage = 1,
						.flags = FRAG_ROUND_ROBIN });
	if (group < 0)
		return group;
	rc = describe_states(f, rank, group);
	return rc ? rc : frag_ready(f);
}

static int open_and_describe(void)
{
	int rc = 0;

	for (uint32_t rank = 0; rank < WORLD && !rc; rank++) {
		rc = open_rank(rank);
		if (!rc)
			rc = describe_rank(rank);
	}
	return rc;
}

static bool is_settled(void)
{
	bool all = true;

	for (uint32_t rank = 0; rank < WORLD; rank++) {
		if (ranks[rank]->engine->job.failure)
			return true;
		all &= ranks[rank]->engine->job.ready;
	}
	return all;
}

START_TEST(a_job_opens_or_says_why_not)
{
	unsigned n = 0, failed;
	int rc;

	do {
		begin(++n, counts[_i]);
		rc = open_and_describe();
		while (!rc && !is_settled() && in_time())
			turn_ranks(NULL);
		failed = scarce_end();
		ck_assert_uint_le(turns, TURNS_MAX);
		if (rc)
			ck_assert_msg(failed && (rc == -ENOMEM || rc == -EMFILE), "%d", rc);
		for (uint32_t rank = 0; rank < WORLD; rank++) {
			frag_close(ranks[rank]);
			ranks[rank] = NULL;
		}
	} while (failed);
	printf("%u calls\n", n - 1);
}
END_TEST

/* Rank 0 with an engine thread, as frag_open() starts it. */
START_TEST(a_job_that_does_not_open_is_not_published)
{
	struct launch launch = { .world = 1, .job = "unpublished", .plain = true };
	unsigned n = 0, failed;
	struct jobfile found;
	struct frag *f;
	int rc;

	do {
		begin(++n, 1);
		rc = api_open_over(&f, &launch, &transport_zmq, NULL, NULL, true);
		failed = scarce_end();
		ck_assert_int_eq(jobfile_find(launch.job, &found), rc ? -ENOENT : 0);
		if (!rc)
			frag_close(f);
	} while (failed);
	ck_assert_uint_gt(n, 10);
}
END_TEST

START_TEST(a_catalog_that_could_not_grow_knows_what_it_has)
{
	unsigned n = 0, failed;
	char name[16];

	do {
		struct catalog *c = catalog_new();
		int rc = 0;

		begin(++n, 1);
		for (unsigned i = 0; i < 100 && rc >= 0; i++) {
			snprintf(name, sizeof(name), "p%u", i);
			rc = catalog_add_param(c, name, "", FRAG_F32, 0, NULL, 0, 0);
		}
		failed = scarce_end();
		for (unsigned i = 0; i < c->nparams; i++) {
			snprintf(name, sizeof(name), "p%u", i);
			ck_assert_uint_eq(catalog_find(c, name, ""), i);
		}
		catalog_free(c);
	} while (failed);
	ck_assert_uint_gt(n, 3);
}
END_TEST

/* ---- an open job ---- */

enum { NUMEL = 37, BYTES = NUMEL * 4 };

static const struct job_param params[] = { { "w", .ndim = 1, .shape = { NUMEL } },
					   { "v", .ndim = 1, .shape = { NUMEL } } };
static const struct job_group groups[] = { { .stage = 1, .nparams = 1, .params = { 0 } },
					   { .stage = 1, .nparams = 1, .params = { 1 } } };

static struct job job;
static struct engine *observer;

static void turn_job(void *arg)
{
	scarce_skip_ms(TURN_MS);
	job_turn(&job);
	if (observer)
		loop_turn(observer, 0);
}

static void open_job_of(uint32_t hosts, const struct job_key *keys, uint32_t nkeys)
{
	job_open(&job, &(struct job_spec){ .world = 3,
					   .hosts = hosts,
					   .keys = keys,
					   .nkeys = nkeys,
					   JOB_PARAMS(params),
					   JOB_GROUPS(groups) });
	for (uint32_t rank = 0; rank < 3; rank++)
		job_frag(&job, rank)->engine->thread.yield = turn_job;
}

static void open_job(uint32_t hosts)
{
	open_job_of(hosts, NULL, 0);
}

/* Opens a job with one parameter, whose columns are cut over the ranks. */
static void open_cut_job(uint32_t hosts)
{
	static const struct job_param columns[] = {
		{ "columns", .ndim = 2, .shape = { 5, NUMEL }, .ncuts = 1,
		  .cuts = { { 1, 0 } } },
	};
	static const struct job_group group[] = { { .sharding = FRAG_FSDP2, .nparams = 1 } };

	job_open(&job,
		 &(struct job_spec){
			 .world = 3, .hosts = hosts, JOB_PARAMS(columns), JOB_GROUPS(group) });
	for (uint32_t rank = 0; rank < 3; rank++)
		job_frag(&job, rank)->engine->thread.yield = turn_job;
}

static void close_job(void)
{
	loop_free(observer);
	observer = NULL;
	job_close(&job);
}

/* Returns true if a lack may end with rc: also with an answer that could not be sent, from a
 * rank that then is held for lost until it is heard of again.
 */
static bool is_need(int rc)
{
	return rc == -ENOMEM || rc == -EMFILE || rc == -ENOSPC || rc == -ETIMEDOUT ||
	       rc == -EIO;
}

static bool all_live(void)
{
	for (uint32_t rank = 0; rank < 3; rank++)
		for (uint32_t of = 0; of < 3; of++)
			if (!peer_is_live(&job_frag(&job, rank)->engine->peers[of]))
				return false;
	return true;
}

static void recover(void)
{
	turns = 0;
	while (!all_live() && in_time())
		turn_job(NULL);
	ck_assert_uint_lt(turns, TURNS_MAX);
}

static void expect_read(int rc, const float *got)
{
	ck_assert_int_eq(rc, 0);
	ck_assert_mem_eq(got, job_truth(&job, 0, "exp_avg"), BYTES);
}

static int get(float *out)
{
	return frag_get(job_frag(&job, 1), job_number(&job, 1, 0), "exp_avg", out, BYTES);
}

/* Frees the buffers of answers, as before the first request. */
static void forget_answers(void)
{
	for (uint32_t rank = 0; rank < 3; rank++) {
		free(job_frag(&job, rank)->engine->serve.state->chunk);
		job_frag(&job, rank)->engine->serve.state->chunk = NULL;
	}
}

START_TEST(a_rank_gets_what_is_there_or_an_error)
{
	unsigned n = 0, failed;
	float got[NUMEL];
	int rc;

	open_job(_i % 2 ? 3 : 1);
	do {
		forget_answers();
		begin(++n, counts[_i / 2]);
		rc = get(got);
		failed = scarce_end();
		if (!is_need(rc) || !failed)
			expect_read(rc, got);
		recover();
		expect_read(get(got), got);
	} while (failed);
	close_job();
}
END_TEST

static void pass_boundaries(void)
{
	for (int i = 0; i < 20; i++)
		turn_job(NULL);
	job_boundary(&job);
}

static int set(float value, float *all)
{
	for (int i = 0; i < NUMEL; i++)
		all[i] = value;
	return frag_set(job_frag(&job, 1), job_number(&job, 1, 0), "fp32", all, BYTES);
}

static bool agrees(void)
{
	for (uint32_t rank = 0; rank < 3; rank++)
		if (!LIST_EMPTY(
			    &job_frag(&job, rank)->engine->commit.coordinator->transactions))
			return true;
	return false;
}

static void expect_set(const float *value)
{
	for (turns = 0; agrees(); pass_boundaries())
		ck_assert(in_time());
	job_expect(&job, 0, "fp32", value);
	job_expect_lp_of(&job, 0, value);
	job_check(&job);
}

static bool holds_edits(void)
{
	for (uint32_t rank = 0; rank < 3; rank++)
		if (job_frag(&job, rank)->engine->participant.count)
			return true;
	return false;
}

/* Checks that nothing is left of edits that were sent and given up: their abort may be lost. */
static void expect_nothing_left(void)
{
	uint64_t end = monotonic_ms() + 2 * PARTICIPANT_TOUCH_MS;

	for (turns = 0; holds_edits(); turn_job(NULL)) {
		ck_assert_uint_lt(monotonic_ms(), end);
		scarce_skip_ms(100);
	}
}

START_TEST(a_rank_sets_a_parameter_everywhere_or_nowhere)
{
	unsigned n = 0, failed;
	float value[NUMEL];
	int rc;

	open_job(_i % 2 ? 3 : 1);
	do {
		begin(++n, counts[_i / 2]);
		rc = set((float)n, value);
		failed = scarce_end();
		ck_assert_msg(!rc || (failed && is_need(rc)), "%d", rc);
		if (!rc)
			expect_set(value);
		else
			job_check(&job);
		recover();
		ck_assert_int_eq(set(-(float)n, value), 0);
		expect_set(value);
	} while (failed);
	expect_nothing_left();
	close_job();
}
END_TEST

/* ---- an observer ---- */

static struct engine_events *events;

static int open_observer(const char *host)
{
	int rc = loop_new(&observer, &live_ops, &transport_loop, &transport_loop);

	if (rc)
		return rc;
	observer->thread.yield = turn_job;
	observer->write.allowed = true;
	snprintf(observer->launch.host, sizeof(observer->launch.host), "%s", host);
	rc = node_open_messages(observer, NULL);
	if (!rc)
		rc = join_start_observer(observer, job_frag(&job, 0)->engine->job.address);
	while (!rc && !observer->job.ready && in_time()) {
		turn_job(NULL);
		rc = observer->job.failure;
	}
	return rc;
}

static void close_observer(void)
{
	loop_free(observer);
	observer = NULL;
}

static bool has_ended;
static int64_t ended;
static float came[NUMEL];

static void on_read(struct engine_read *read, const void *data, int64_t result)
{
	has_ended = true;
	ended = result;
	if (result > 0)
		memcpy(came, data, (size_t)result);
}

static void on_write(struct engine_write *write, int result)
{
	has_ended = true;
	ended = result;
}

static void until_ended(bool boundaries)
{
	while (!has_ended && in_time()) {
		turn_job(NULL);
		for (uint32_t rank = 0; rank < 3 && boundaries && turns % 20 == 0; rank++)
			frag_safe_point(job_frag(&job, rank));
	}
}

static struct engine_address address_of(const char *key)
{
	struct engine_address a = { .kind = ENGINE_PARAM };

	snprintf(a.key, sizeof(a.key), "%s", key);
	return a;
}

static int read_range(const struct engine_address *a, uint64_t offset, uint64_t size)
{
	struct engine_read read = { .offset = offset, .size = size, .done = on_read };
	uint64_t bytes;
	int rc = engine_file_open(observer, a, &read.file, &bytes);

	if (rc)
		return rc;
	has_ended = false;
	engine_read(observer, &read);
	until_ended(false);
	engine_file_close(read.file);
	return ended < 0 ? (int)ended : 0;
}

/* Reads a part, which needs a view. */
static int read_half(void)
{
	struct engine_address a = address_of("exp_avg");

	return read_range(&a, 0, BYTES / 2);
}

/* Reads all, without a view, in a thread that has read nothing yet. */
static int read_whole(enum engine_address_kind kind)
{
	struct engine_address a = { .kind = kind, .key = "fp32" };

	return read_range(&a, 0, BYTES);
}

struct round { /* a thread's read with a lack of memory */
	enum engine_address_kind kind;
	unsigned n, count, failed;
	int rc;
};

static void *read_in_thread(void *arg)
{
	struct round *r = arg;

	begin(r->n, r->count);
	r->rc = read_whole(r->kind);
	r->failed = scarce_end();
	return NULL;
}

/* Writes from within an element on, so that the engine reads the edges. */
static int write_bytes(void)
{
	static const uint8_t byte;
	struct engine_address a = address_of("fp32");
	struct engine_extent extent = { 5, 1, &byte };
	struct engine_write write = { .extents = &extent, .nextents = 1, .done = on_write };
	uint64_t bytes;
	int rc = engine_file_open(observer, &a, &write.file, &bytes);

	if (rc)
		return rc;
	has_ended = false;
	engine_write(observer, &write);
	until_ended(true);
	engine_file_close(write.file);
	return (int)ended;
}

static void on_sums(struct engine_sums *sums)
{
	has_ended = true;
	ended = 0;
	for (uint32_t i = 0; i < sums->n; i++)
		if (!ended)
			ended = sums->states[i].result;
}

/* Sums by the owners, as if for the first time.  Also returns 0 if the owners want the bytes to
 * be read.
 */
static int sum_up(void)
{
	static struct stats values[2];
	struct engine_sum states[] = { { address_of("fp32"), .values = &values[0] },
				       { address_of("exp_avg"), .values = &values[1] } };
	struct engine_sums sums = { .states = states, .n = 2, .done = on_sums };
	int rc;

	for (uint32_t rank = 0; rank < 3; rank++)
		serve_stats_free(job_frag(&job, rank)->engine);
	for (int i = 0; i < 2; i++)
		stats_init(&values[i], false);
	has_ended = false;
	rc = engine_sums(observer, &sums);
	while (!rc && !has_ended && turns++ < TURNS_MAX) {
		turn_job(NULL);
		usleep(turns < 100 ? 0 : 5000); /* a thread of each rank adds up */
	}
	return rc ? rc : ended == -EAGAIN || ended == -EOPNOTSUPP ? 0 : (int)ended;
}

static void see_fragment(void *arg, const struct engine_fragment *fragment)
{
}

static int look(void)
{
	static const char *const texts[] = { "config",   "health", "metrics",
					     "inflight", "log",    "freeze" };
	struct engine_state out[8];
	int rc = engine_states(observer, 0, out, 8);

	if (rc >= 0)
		rc = engine_rank_states(observer, 1, 0, out, 8);
	for (unsigned i = 0; i < ARRAY_SIZE(texts); i++)
		free(engine_text(observer, texts[i]));
	engine_fragments(observer, 0, "fp32", see_fragment, NULL);
	return rc < 0 ? rc : 0;
}

/* Checks that a text is whole, or missing. */
static int check_text(char *text)
{
	int rc = text ? 0 : -errno;

	if (text && (!*text || text[strlen(text) - 1] != '\n'))
		rc = -EBADMSG;
	free(text);
	return rc;
}

static int hear(void)
{
	static const char *const texts[] = { "comms", "nccl", "leaves", "place" };
	static const char *const of_rank[] = { "log", "comms", "nccl", "arena", "swap" };
	int rc = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(texts) && !rc; i++)
		rc = check_text(engine_text(observer, texts[i]));
	for (unsigned i = 0; i < ARRAY_SIZE(of_rank) && !rc; i++)
		rc = check_text(engine_rank_text(observer, 1, of_rank[i]));
	return rc;
}

static int listen_to(void)
{
	char line[256];
	int rc = engine_events_open(observer, &events);

	if (rc)
		return rc;
	for (int i = 0; i < 100; i++)
		turn_job(NULL);
	for (uint32_t rank = 0; rank < 3; rank++)
		frag_safe_point(job_frag(&job, rank));
	engine_events_read(events, line, sizeof(line));
	engine_events_close(events);
	return 0;
}

static bool all_passed(void)
{
	for (uint32_t rank = 0; rank < 3; rank++) {
		struct engine *e = job_frag(&job, rank)->engine;

		if (e->job.barrier->passed < e->job.barrier->wanted)
			return false;
	}
	return true;
}

static int barrier(void)
{
	struct engine *zero = job_frag(&job, 0)->engine;
	int rc;

	free(zero->job.barrier->arrivals); /* as before the first barrier */
	zero->job.barrier->arrivals = NULL;

	for (uint32_t rank = 1; rank < 3; rank++) {
		struct engine *e = job_frag(&job, rank)->engine;

		e->job.barrier->wanted = e->job.barrier->passed + 1;
	}
	rc = frag_barrier(job_frag(&job, 0), 60000);
	while (!all_passed() && in_time())
		turn_job(NULL);
	return rc;
}

static int parse_health(void)
{
	struct engine_rank *parsed;
	uint32_t n;
	CLEANUP(free) char *text = engine_text(observer, "health");
	int rc = text ? health_parse(text, &parsed, &n) : -ENOMEM;

	if (!rc)
		free(parsed);
	return rc;
}

/* ---- a trainer's own calls ---- */

static void keep_grad(void *arg, int param, float *grad, uint64_t numel)
{
}

static bool has_key(struct frag *f, int param, const char *key)
{
	char keys[8][FRAG_KEY_MAX + 1];
	int n = frag_state_keys(f, param, keys, 8);

	for (int i = 0; i < n; i++)
		if (!strcmp(keys[i], key))
			return true;
	return false;
}

static int call_all(void)
{
	static const float piece[NUMEL];
	static float whole[NUMEL];
	const void *pieces[] = { piece };
	struct frag *f = job_frag(&job, 0);
	int param = job_number(&job, 0, 0);
	char keys[8][FRAG_KEY_MAX + 1];
	int rc = frag_state_keys(f, param, keys, 8);

	if (rc >= 0)
		rc = frag_update_grads(f, &param, 1, keep_grad, NULL);
	if (!rc)
		rc = frag_update_hp(f, param);
	if (!rc)
		rc = frag_update_lp(f, param);
	if (!rc)
		rc = frag_state_from_fragments(f, 0, 0, "new", FRAG_F32, pieces, 1);
	if (!rc)
		rc = frag_state_drop(f, 0, 0, "new");
	if (!rc)
		rc = frag_fragment_keep(f, job_number(&job, 0, 1), "mine", FRAG_F32, whole);
	if (!rc)
		rc = frag_state_drop(f, 1, 0, "mine");
	return rc < 0 ? rc : 0;
}

static void settle(void)
{
	recover();
	for (turns = 0; agrees(); pass_boundaries())
		ck_assert(in_time());
}

START_TEST(a_trainers_calls_do_all_or_say_why_not)
{
	struct frag *f;
	unsigned n = 0, failed;
	int rc;

	open_job(_i % 2 ? 3 : 1);
	f = job_frag(&job, 0);
	job_grads_valid(&job);
	do {
		begin(++n, counts[_i / 2]);
		rc = call_all();
		failed = scarce_end();
		ck_assert_msg(!rc || (failed && is_need(rc)), "%d", rc);
		settle();
		ck_assert(!has_key(f, job_number(&job, 0, 0), "new"));
		ck_assert(!has_key(f, job_number(&job, 0, 1), "mine"));
		ck_assert_int_eq(call_all(), 0);
		settle();
	} while (failed);
	close_job();
}
END_TEST

static void set_grad(void *arg, int param, float *grad, uint64_t numel)
{
	for (uint64_t i = 0; i < numel; i++)
		grad[i] = *(const float *)arg;
}

/* Checks that all gradients are value, a power of 2, which bfloat16 holds exactly. */
static void expect_grad(float value)
{
	uint16_t got[NUMEL];
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	ck_assert_int_eq(
		frag_get(job_frag(&job, 0), job_number(&job, 0, 0), "grad", got, sizeof(got)),
		0);
	for (int i = 0; i < NUMEL; i++)
		ck_assert_uint_eq(got[i], bits >> 16);
}

START_TEST(half_gradients_change_everywhere_or_nowhere)
{
	static const struct job_key keys[] = { { "fp32", FRAG_F32, JOB_KEEP },
					       { "grad", FRAG_BF16, JOB_KEEP } };
	unsigned n = 0, failed;
	float before = 1, value = 1;
	struct frag *f;
	int param, rc;

	open_job_of(1, keys, ARRAY_SIZE(keys));
	f = job_frag(&job, 0);
	param = job_number(&job, 0, 0);
	job_grads_valid(&job);
	ck_assert_int_eq(frag_update_grads(f, &param, 1, set_grad, &before), 0);
	do {
		value *= n % 2 ? 0.5f : 2;
		begin(++n, counts[_i]);
		rc = frag_update_grads(f, &param, 1, set_grad, &value);
		failed = scarce_end();
		ck_assert_msg(!rc || (failed && is_need(rc)), "%d", rc);
		settle();
		expect_grad(rc ? before : value);
		before = rc ? before : value;
	} while (failed);
	ck_assert_uint_gt(n, 4);
	close_job();
}
END_TEST

static const struct looking {
	const char *name;
	int (*what)(void);
} looking[] = {
	{ "read", read_half },   { "write", write_bytes }, { "texts", look },
	{ "events", listen_to }, { "barrier", barrier },   { "health", parse_health },
	{ "sums", sum_up },      { "words", hear },
};

START_TEST(an_observer_gets_in_or_says_why_not)
{
	unsigned n = 0, failed;
	int rc;

	open_job(3);
	do {
		begin(++n, counts[_i]);
		rc = open_observer("elsewhere");
		failed = scarce_end();
		ck_assert_uint_le(turns, TURNS_MAX);
		ck_assert_msg(!rc || failed, "%d", rc);
		if (rc && !observer)
			continue;
		close_observer();
	} while (failed);
	close_job();
}
END_TEST

/* An observer keeps its options, with which it joins the job anew when the job is started
 * again.
 */
START_TEST(an_observer_keeps_its_options_or_says_why_not)
{
	struct engine_options *kept;
	int rc[4];

	open_job(1);
	ck_assert_int_eq(open_observer("host 0"), 0);
	kept = &observer->job.join->options;
	for (unsigned n = 0; n < ARRAY_SIZE(rc); n++) {
		const struct engine_options o = { .source = "a:1",
						  .key_file = n < 3 ? "/none" : NULL };

		free((char *)(uintptr_t)kept->source);
		free((char *)(uintptr_t)kept->key_file);
		scarce_begin(n + 1, 1);
		rc[n] = join_keep_options(observer, &o);
		scarce_end();
	}
	ck_assert_int_eq(rc[0], -ENOMEM);
	ck_assert_int_eq(rc[1], -ENOMEM);
	ck_assert_int_eq(rc[2], 0);
	ck_assert_int_eq(rc[3], 0);
	close_job();
}
END_TEST

START_TEST(a_threads_first_read_is_answered_or_an_error)
{
	struct round r = { _i % 2 ? ENGINE_RANK_PARAM : ENGINE_PARAM, .count = counts[_i / 2] };
	pthread_t thread;

	open_job(1);
	ck_assert_int_eq(open_observer("host 0"), 0);
	do {
		r.n++;
		ck_assert_int_eq(pthread_create(&thread, NULL, read_in_thread, &r), 0);
		pthread_join(thread, NULL);
		ck_assert_msg(!r.rc || (r.failed && is_need(r.rc)), "%u: %d", r.n, r.rc);
		recover();
		ck_assert_int_eq(read_whole(r.kind), 0);
	} while (r.failed);
	close_job();
}
END_TEST

/* Calls l once for each n = 1, 2, ... until no allocation, thread or the like is left to fail:
 * `count` calls in a row fail from the n-th on.  Then l is called again, and must succeed.
 */
static void try_all(const struct looking *l, unsigned count)
{
	unsigned n = 0, failed;
	int rc;

	do {
		begin(++n, count);
		rc = l->what();
		failed = scarce_end();
		ck_assert_uint_le(turns, TURNS_MAX);
		/* -ECANCELED: an edit of which ranks only remember that it was not made */
		ck_assert_msg(!rc || (failed && (is_need(rc) || rc == -ECANCELED)), "%s %d",
			      l->name, rc);
		recover();
		while (peers_first_live(observer) && in_time())
			turn_job(NULL);
		turns = 0;
		rc = l->what();
		ck_assert_msg(!rc, "%s %u: %d", l->name, n, rc);
	} while (failed);
}

START_TEST(what_an_observer_asks_is_answered_or_an_error)
{
	open_job(_i % 2 ? 3 : 1);
	job_grads_valid(&job);
	ck_assert_int_eq(open_observer("host 0"), 0);
	try_all(&looking[_i / 4], counts[_i / 2 % 2]);
	close_job();
}
END_TEST

static int get_columns(void)
{
	static float out[5 * NUMEL];

	return frag_get_range(job_frag(&job, 1), job_number(&job, 1, 0), "exp_avg", 3, out,
			      sizeof(out) - 5);
}

/* Reads from within an element on. */
static int read_columns(void)
{
	struct engine_address a = address_of("exp_avg");

	return read_range(&a, 3, BYTES - 5);
}

static const struct looking cut[] = {
	{ "get", get_columns },
	{ "read", read_columns },
	{ "write", write_bytes },
};

START_TEST(columns_are_read_and_written_or_an_error)
{
	open_cut_job(_i % 2 ? 3 : 1);
	ck_assert_int_eq(open_observer("host 0"), 0);
	try_all(&cut[_i / 2], 1);
	close_job();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("scarce");
	TCase *t = tcase_create("scarce");

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, a_job_opens_or_says_why_not, 0, ARRAY_SIZE(counts));
	tcase_add_test(t, a_job_that_does_not_open_is_not_published);
	tcase_add_test(t, a_catalog_that_could_not_grow_knows_what_it_has);
	tcase_add_loop_test(t, a_rank_gets_what_is_there_or_an_error, 0,
			    2 * ARRAY_SIZE(counts));
	tcase_add_loop_test(t, a_rank_sets_a_parameter_everywhere_or_nowhere, 0,
			    2 * ARRAY_SIZE(counts));
	tcase_add_loop_test(t, a_trainers_calls_do_all_or_say_why_not, 0,
			    2 * ARRAY_SIZE(counts));
	tcase_add_loop_test(t, half_gradients_change_everywhere_or_nowhere, 0,
			    ARRAY_SIZE(counts));
	tcase_add_loop_test(t, an_observer_gets_in_or_says_why_not, 0, ARRAY_SIZE(counts));
	tcase_add_test(t, an_observer_keeps_its_options_or_says_why_not);
	tcase_add_loop_test(t, a_threads_first_read_is_answered_or_an_error, 0,
			    2 * ARRAY_SIZE(counts));
	tcase_add_loop_test(t, what_an_observer_asks_is_answered_or_an_error, 0,
			    4 * ARRAY_SIZE(looking));
	tcase_add_loop_test(t, columns_are_read_and_written_or_an_error, 0,
			    2 * ARRAY_SIZE(cut));
	return run_suite(s, t);
}
