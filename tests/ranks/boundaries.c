/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/boundaries.h"

#include "tests/ports/collective-host.h"
#include "engine/live/loop.h"
#include "engine/node/peers.h"
#include "engine/rank/devices.h"
#include "engine/rounds/communicator.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>

enum { SILENCE_MS = 1500, WAIT_MS = 60000 };

struct job job;
bool asleep[JOB_WORLD_MAX];
bool on_devices;
enum frag_dtype grads_dtype = FRAG_F32;
static uint64_t deadline;

static const struct job_param params[] = { { "w", .ndim = 1, .shape = { NUMEL } },
					   { "v", .ndim = 1, .shape = { 1 } },
					   { "u", .ndim = 1, .shape = { EVEN } } };

/* ---- a network that loses messages ---- */

static struct transport_ops lossy;
struct loss loss;
struct sent sent;

struct engine *engine_of(uint32_t rank)
{
	return job_frag(&job, rank)->engine;
}

static void count(const struct iovec *parts)
{
	struct wire_header header;

	memcpy(&header, parts[0].iov_base, sizeof(header));
	sent.n += header.type == sent.type;
}

static bool is_lost(struct transport *t, uint32_t peer, const struct iovec *parts)
{
	struct wire_header header;
	struct engine *from;

	if (!loss.type || !job_frag(&job, loss.from))
		return false;
	from = engine_of(loss.from);
	memcpy(&header, parts[0].iov_base, sizeof(header));
	return from->messages.transport == t && header.type == loss.type &&
	       from->peers[loss.to].link == peer;
}

static int send_or_lose(struct transport *t, uint32_t peer, const struct iovec *parts,
			unsigned n)
{
	count(parts);
	if (!is_lost(t, peer, parts))
		return transport_loop.send(t, peer, parts, n);
	loss.dropped++;
	return loss.result;
}

/* ---- trainers ----
 *
 * A trainer with a goal has a thread, so that several can wait in their boundaries.  Only one
 * of all threads runs at a time: turn() lets a trainer run until it waits or has passed its
 * boundary.
 */

struct trainer {
	uint64_t goal;
	void (*errand)(uint32_t rank); /* NULL: it passes boundaries */
	bool has_thread, inside, stop;
	pthread_t thread;
	sem_t go, back;
};

static struct trainer trainers[JOB_WORLD_MAX];

static void *train(void *arg)
{
	struct trainer *t = arg;

	sem_wait(&t->go);
	while (!t->stop) {
		if (t->errand)
			t->errand((uint32_t)(t - trainers));
		else
			boundary((uint32_t)(t - trainers));
		t->errand = NULL;
		t->inside = false;
		sem_post(&t->back);
		sem_wait(&t->go);
	}
	return NULL;
}

static void lend(struct trainer *t)
{
	t->inside = true;
	sem_post(&t->go);
	sem_wait(&t->back);
}

/* A trainer that waits in a frag_ call lets the test go on. */
static void yield(void *arg)
{
	struct trainer *t = arg;

	if (!t->has_thread || !pthread_equal(pthread_self(), t->thread)) {
		turn(NULL);
		return;
	}
	sem_post(&t->back);
	sem_wait(&t->go);
}

static void need_thread(struct trainer *t)
{
	if (t->has_thread)
		return;
	sem_init(&t->go, 0, 0);
	sem_init(&t->back, 0, 0);
	ck_assert_int_eq(pthread_create(&t->thread, NULL, train, t), 0);
	t->has_thread = true;
}

void go_to(uint32_t rank, uint64_t goal)
{
	trainers[rank].goal = goal;
	need_thread(&trainers[rank]);
}

void send_off(uint32_t rank, void (*errand)(uint32_t rank))
{
	trainers[rank].errand = errand;
	need_thread(&trainers[rank]);
}

bool waits_inside(uint32_t rank)
{
	return trainers[rank].inside;
}

void boundaries_close(void)
{
	for (uint32_t rank = 0; rank < job.spec.world; rank++) {
		if (!trainers[rank].has_thread)
			continue;
		ck_assert(!trainers[rank].inside);
		trainers[rank].stop = true;
		sem_post(&trainers[rank].go);
		pthread_join(trainers[rank].thread, NULL);
	}
	job_close(&job);
}

void turn(void *arg)
{
	ck_assert_msg(monotonic_ms() < deadline, "a rank waits for ever");
	for (uint32_t i = 0; i < job.spec.world; i++) {
		uint32_t rank = job_random(&job, job.spec.world);

		if (job_frag(&job, rank) && !asleep[rank])
			loop_turn(engine_of(rank), 0);
	}
	for (uint32_t rank = 0; rank < job.spec.world; rank++)
		if (job_frag(&job, rank) && (trainers[rank].inside || trainers[rank].errand ||
					     passed(rank) < trainers[rank].goal))
			lend(&trainers[rank]);
}

void boundaries_wait_anew(void)
{
	deadline = monotonic_ms() + WAIT_MS;
}

void boundaries_open(uint32_t world, const struct job_group *group)
{
	const struct job_key keys[] = { { "fp32", FRAG_F32, JOB_KEEP },
					{ "grad", grads_dtype, JOB_KEEP },
					{ "exp_avg", FRAG_F32, JOB_KEEP },
					{ "exp_avg_sq", FRAG_F32, JOB_KEEP } };

	lossy = transport_loop;
	lossy.send = send_or_lose;
	memset(&loss, 0, sizeof(loss));
	memset(&sent, 0, sizeof(sent));
	memset(asleep, 0, sizeof(asleep));
	memset(trainers, 0, sizeof(trainers));
	boundaries_wait_anew();
	job_open(&job, &(struct job_spec){ .world = world,
					   .hosts = world,
					   JOB_PARAMS(params),
					   JOB_KEYS(keys),
					   .groups = group,
					   .ngroups = 1,
					   .on_device = on_devices,
					   .messages = &lossy });
	for (uint32_t rank = 0; rank < world; rank++) {
		engine_of(rank)->thread.yield = yield;
		engine_of(rank)->thread.yield_arg = &trainers[rank];
		engine_of(rank)->timeout_ms = SILENCE_MS;
	}
}

void boundary(uint32_t rank)
{
	ck_assert_int_eq(frag_safe_point(job_frag(&job, rank)), 0);
}

uint64_t generation(uint32_t rank)
{
	return atomic_load(&engine_of(rank)->registry.control->generation);
}

uint64_t passed(uint32_t rank)
{
	return atomic_load(&engine_of(rank)->registry.control->boundary);
}

void all_pass(uint64_t n)
{
	for (uint32_t rank = 0; rank < job.spec.world; rank++)
		while (job_frag(&job, rank) && passed(rank) < n)
			boundary(rank);
}

/* ---- writers ---- */

static void on_done(struct engine_write *write, int result)
{
	struct writer *w = write->owner;

	ck_assert(!w->ended);
	w->ended = true;
	w->result = result;
}

void start(struct writer *w, uint32_t rank, const char *key, float value)
{
	struct engine_address a;
	uint64_t bytes;

	memset(w, 0, sizeof(*w));
	w->e = engine_of(rank);
	for (unsigned i = 0; i < NUMEL; i++)
		w->value[i] = value;
	w->extent = (struct engine_extent){ 0, BYTES, w->value };
	w->write = (struct engine_write){
		.extents = &w->extent, .nextents = 1, .done = on_done, .owner = w
	};
	ck_assert_int_eq(
		api_address_of(job_frag(&job, rank), job_number(&job, rank, 0), key, &a), 0);
	ck_assert_int_eq(engine_file_open(w->e, &a, &w->write.file, &bytes), 0);
	ck_assert_uint_eq(bytes, BYTES);
	engine_write(w->e, &w->write);
}

static bool is_in(struct engine *e, const char *phase)
{
	char *text = engine_text(e, "inflight");
	bool found = text && strstr(text, phase);

	free(text);
	return found;
}

void until_accepted(struct writer *w)
{
	while (!is_in(w->e, "waiting for its boundary")) {
		ck_assert(!w->ended);
		turn(NULL);
	}
}

int result(struct writer *w)
{
	while (!w->ended)
		turn(NULL);
	engine_file_close(w->write.file);
	return w->result;
}

void expect(const char *key, const struct writer *w)
{
	job_expect(&job, 0, key, w->value);
	if (!strcmp(key, "fp32"))
		job_expect_lp_of(&job, 0, w->value);
}

/* ---- connected devices ---- */

static void connect_rank(uint32_t rank)
{
	struct engine *e = engine_of(rank);
	struct collective_options options = { .open_ms = 5000,
					      .stuck_ms = 2000,
					      .number = (int)(rank % DEVICE_HOST_DEVICES) };

	if (on_devices)
		options.device = devices_port(e->registry.devices);
	ck_assert_int_eq(rounds_init(e), 0);
	ck_assert_int_eq(communicator_use(e, &collective_host, &options), 0);
}

void boundaries_connect(void)
{
	boundaries_connect_some(job.spec.world);
}

void boundaries_connect_some(uint32_t ranks)
{
	for (uint32_t rank = 0; rank < ranks; rank++)
		connect_rank(rank);
	for (uint32_t rank = 0; rank < ranks; rank++)
		while (!communicator_number(engine_of(rank)))
			turn(NULL);
}

/* ---- a rank dies ---- */

void die(uint32_t rank, bool at_once)
{
	job_close_rank(&job, rank);
	for (uint32_t i = 0; i < job.spec.world && at_once; i++)
		if (job_frag(&job, i))
			peers_lose(engine_of(i), rank, -EIO, "gone");
}

void cancel_round(struct engine *e, struct rounds_get *get)
{
	pthread_mutex_lock(&e->lock);
	rounds_end(e, get);
	pthread_mutex_unlock(&e->lock);
	node_wake(e);
}
