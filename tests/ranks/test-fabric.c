/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/node/rpc.h"
#include "tests/ranks/job.h"

#include "engine/live/loop.h"
#include "engine/node/fabric.h"
#include "engine/node/peers.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <string.h>

/* Answers by a second transport between ranks, which loses messages, breaks, and is reached by
 * strangers.
 */

enum { RANKS = 3, WAIT_MS = 60000, NUMEL = 3001, BYTES = NUMEL * 4, TURNS_BETWEEN = 12 };

static struct job job;
static uint64_t deadline, turns;
static struct transport_ops fabric;
static struct {
	unsigned sent[WIRE_TYPES];
	enum wire_type lose; /* type of the lost messages; 0: none */
	unsigned before;     /* how many such messages go through first */
	bool always;         /* loses all messages that follow, of any type */
	bool damage;         /* changes the token instead of losing the message */
	unsigned lost;
	uint32_t from[16]; /* peers that have sent something to rank 0 */
	unsigned nfrom;
	bool break_off;
} net;

static const struct job_param params[] = { { "w", .ndim = 1, .shape = { NUMEL } } };
static const struct job_group groups[] = { { .stage = 1, .nparams = 1, .params = { 0 } } };

/* ---- the fabric ---- */

static int send_damaged(struct transport *t, uint32_t peer, const struct iovec *parts,
			unsigned n)
{
	struct iovec changed[8];
	uint64_t token;

	ck_assert_uint_eq(parts[n - 1].iov_len, sizeof(token));
	memcpy(changed, parts, n * sizeof(*parts));
	memcpy(&token, parts[n - 1].iov_base, sizeof(token));
	token++;
	changed[n - 1].iov_base = &token;
	return transport_loop.send(t, peer, changed, n);
}

static bool is_lost(enum wire_type type)
{
	bool fits = type == net.lose || (net.always && net.lost);

	if (!fits || (net.lost && !net.always) || net.before)
		net.before -= fits && net.before;
	else
		return true;
	return false;
}

static int send_or_lose(struct transport *t, uint32_t peer, const struct iovec *parts,
			unsigned n)
{
	struct wire_header header;

	memcpy(&header, parts[0].iov_base, sizeof(header));
	net.sent[header.type]++;
	if (!is_lost(header.type))
		return transport_loop.send(t, peer, parts, n);
	net.lost++;
	return net.damage ? send_damaged(t, peer, parts, n) : 0;
}

struct passing {
	transport_receive receive;
	void *owner;
};

static void note(void *arg, uint32_t peer, const void *data, size_t size)
{
	struct passing *p = arg;
	struct engine *e = p->owner;

	if (!e->rank && net.nfrom < ARRAY_SIZE(net.from))
		net.from[net.nfrom++] = peer;
	p->receive(p->owner, peer, data, size);
}

static int turn_noting(struct transport *t, transport_receive receive, void *owner, int max)
{
	struct passing p = { receive, owner };

	return transport_loop.turn(t, note, &p, max);
}

static bool gone(struct transport *t, uint32_t *peer)
{
	if (!net.break_off ||
	    strcmp(transport_loop.address(t), fabric_address(job_frag(&job, 0)->engine)) != 0 ||
	    !net.nfrom)
		return false;
	*peer = net.from[--net.nfrom];
	return true;
}

/* ---- the job ---- */

static void turn(void *arg)
{
	ck_assert_msg(monotonic_ms() < deadline, "a rank waits for ever");
	turns++;
	for (uint32_t rank = 0; rank < RANKS; rank++) {
		struct engine *e = job_frag(&job, rank)->engine;

		for (uint32_t i = 0; i < RANKS && turns % TURNS_BETWEEN == rank; i++)
			/* turns pass faster than the seconds of PINGs */
			e->peers[i].pinged_ms = 0;
		loop_turn(e, 0);
	}
}

/* Opens a job; ranks from `first` on have no fabric. */
static void open_job(uint32_t first)
{
	fabric = transport_loop;
	fabric.send = send_or_lose;
	fabric.turn = turn_noting;
	fabric.gone = gone;
	memset(&net, 0, sizeof(net));
	deadline = monotonic_ms() + WAIT_MS;
	job_open(&job, &(struct job_spec){ .world = RANKS,
					   .hosts = RANKS,
					   JOB_PARAMS(params),
					   JOB_GROUPS(groups) });
	for (uint32_t rank = 0; rank < RANKS; rank++) {
		struct engine *e = job_frag(&job, rank)->engine;

		e->thread.yield = turn;
		if (rank < first)
			ck_assert_int_eq(
				fabric_open_over(e, &fabric, &(struct transport_config){ 0 }),
				0);
	}
}

static void read_it(uint32_t rank)
{
	static float got[NUMEL];

	memset(got, 0x5a, sizeof(got));
	ck_assert_int_eq(frag_get(job_frag(&job, rank), job_number(&job, rank, 0), "exp_avg",
				  got, BYTES),
			 0);
	ck_assert_mem_eq(got, job_truth(&job, 0, "exp_avg"), BYTES);
}

static bool answers_so(uint32_t from, uint32_t to)
{
	return job_frag(&job, to)->engine->peers[from].fabric;
}

/* Reads until ranks 1 and 2 answer rank 0 by the fabric. */
static void read_until_by_fabric(void)
{
	while (!answers_so(1, 0) || !answers_so(2, 0)) {
		read_it(0);
		turn(NULL);
	}
}

/* ---- tests ---- */

START_TEST(answers_come_by_the_fabric)
{
	unsigned before;

	open_job(RANKS);
	read_until_by_fabric();
	before = net.sent[WIRE_DATA];
	for (int i = 0; i < 10; i++)
		read_it(0);
	ck_assert_uint_ge(net.sent[WIRE_DATA], before + 20);
	job_close(&job);
}
END_TEST

START_TEST(whoever_has_none_is_answered_and_answers_by_messages)
{
	open_job(2);
	for (int i = 0; i < 50; i++)
		read_it((uint32_t)i % RANKS);
	while (!answers_so(1, 0))
		read_it(0);
	ck_assert(!answers_so(2, 0));
	ck_assert(!answers_so(0, 2));
	job_close(&job);
}
END_TEST

/* Messages of the fabric that are lost or come with another token: one, or all from one on. */
static const enum wire_type kinds[] = { WIRE_PONG, WIRE_DATA };

START_TEST(a_read_is_whole_whatever_was_lost_of_it)
{
	open_job(RANKS);
	net.lose = kinds[_i & 1];
	net.before = (unsigned)_i >> 2;
	net.damage = _i & 2;
	for (int i = 0; i < 60 || !net.lost; i++)
		read_it((uint32_t)i % RANKS);
	job_close(&job);
}
END_TEST

/* Skips seconds, in steps, so that an asked rank answers before its time is over. */
static void let_pass(unsigned seconds)
{
	for (unsigned i = 0; i < 2 * seconds; i++) {
		scarce_skip_ms(500);
		deadline += 500;
		for (int j = 0; j < 2 * TURNS_BETWEEN; j++)
			turn(NULL);
	}
}

static void turn_slowly(void *arg)
{
	let_pass(1);
}

START_TEST(who_is_silent_on_the_fabric_is_read_by_messages_until_it_is_not)
{
	unsigned data;

	open_job(RANKS);
	read_until_by_fabric();
	net.lose = WIRE_DATA;
	net.always = true;
	job_frag(&job, 0)->engine->thread.yield = turn_slowly;
	read_it(0); /* waits until the ranks count as silent */
	ck_assert_uint_gt(net.lost, 0);
	while (answers_so(1, 0) || answers_so(2, 0))
		let_pass(1);
	data = net.sent[WIRE_DATA];
	read_it(0);
	ck_assert_uint_eq(net.sent[WIRE_DATA], data);
	let_pass(20); /* the fabric is tried again, in vain */
	ck_assert(!answers_so(1, 0) && !answers_so(2, 0));
	net.lose = 0;
	net.always = false;
	for (int i = 0; !answers_so(1, 0) || !answers_so(2, 0); i++) {
		ck_assert_int_lt(i, 60);
		let_pass(1);
	}
	read_it(0);
	ck_assert_uint_gt(net.sent[WIRE_DATA], data);
	job_close(&job);
}
END_TEST

START_TEST(without_memory_there_is_none)
{
	struct transport_config config = { 0 };
	struct engine *e;

	open_job(0);
	e = job_frag(&job, 0)->engine;
	scarce_begin(1, 1);
	ck_assert_int_eq(fabric_open_over(e, &fabric, &config), -ENOMEM);
	ck_assert_uint_eq(scarce_end(), 1);
	ck_assert_ptr_null(fabric_address(e));
	read_it(0);
	job_close(&job);
}
END_TEST

START_TEST(where_it_breaks_off_messages_go_on_at_once)
{
	uint64_t since;
	unsigned data;

	open_job(RANKS);
	read_until_by_fabric();
	read_it(0);
	since = monotonic_ms();
	net.break_off = true;
	while (answers_so(1, 0) || answers_so(2, 0))
		turn(NULL);
	for (int i = 0; i < 20; i++)
		turn(NULL); /* the ranks learn of it */
	data = net.sent[WIRE_DATA];
	for (int i = 0; i < 10; i++)
		read_it(0);
	ck_assert_uint_eq(net.sent[WIRE_DATA], data);
	ck_assert_uint_lt(monotonic_ms() - since, 3000);
	job_close(&job);
}
END_TEST

static void send_as_stranger(struct transport *stranger, uint32_t peer, const void *data,
			     size_t size)
{
	struct iovec part = { (void *)(uintptr_t)data, size };

	ck_assert_int_eq(transport_loop.send(stranger, peer, &part, 1), 0);
}

START_TEST(what_strangers_send_is_not_taken)
{
	struct engine *e;
	struct transport *stranger;
	uint64_t numbers, pong;
	uint8_t message[sizeof(struct wire_header) + sizeof(struct wire_control) + 8] = { 0 };
	struct wire_header header;
	uint32_t peer;

	open_job(RANKS);
	read_until_by_fabric();
	e = job_frag(&job, 0)->engine;
	ck_assert_int_eq(transport_loop.open(&stranger, &(struct transport_config){ 0 }), 0);
	ck_assert_int_eq(transport_loop.connect(stranger, fabric_address(e), &peer), 0);
	node_header(job_frag(&job, 1)->engine, &header, WIRE_PONG, UINT64_MAX);
	memcpy(message, &header, sizeof(header));
	numbers = e->rpc->number;
	for (size_t size = 0; size <= sizeof(message); size++)
		send_as_stranger(stranger, peer, message, size);
	header.rank = RANKS;
	memcpy(message, &header, sizeof(header));
	send_as_stranger(stranger, peer, message, sizeof(message));
	for (int i = 0; i < 30; i++)
		turn(NULL);
	pong = e->peers[1].fabric_pong;
	ck_assert_uint_ge(pong, 1);
	ck_assert_uint_le(pong, e->rpc->number);
	ck_assert_uint_ge(e->rpc->number, numbers);
	read_it(0);
	transport_loop.close(stranger);
	job_close(&job);
}
END_TEST

static bool keep_status(struct engine *e, void *owner, uint64_t tag,
			const struct answer *answer)
{
	*(int *)owner = answer->status;
	return false;
}

static int ask(const struct wire_fabric *asked)
{
	struct engine *e = job_frag(&job, 0)->engine;
	int status = 1;

	ck_assert_int_eq(peers_call(e, 1, WIRE_FABRIC, asked, NULL, 0, keep_status, &status, 0),
			 0);
	while (status == 1)
		turn(NULL);
	return status;
}

START_TEST(what_cannot_be_asked_for_is_refused)
{
	struct wire_fabric asked = { .what = WIRE_FABRIC_CALL, .token = 7 };

	open_job(RANKS);
	ck_assert_int_eq(ask(&asked), -EINVAL); /* no address */
	memset(asked.address, 'x', sizeof(asked.address));
	ck_assert_int_eq(ask(&asked), -EINVAL);
	asked.what = WIRE_FABRIC_USE;
	ck_assert_int_eq(ask(&asked), -ESTALE);
	asked.what = WIRE_FABRIC_STOP;
	ck_assert_int_eq(ask(&asked), -ESTALE);
	read_until_by_fabric();
	ck_assert_int_eq(ask(&asked), -ESTALE); /* another token */
	read_it(0);
	job_close(&job);
	open_job(0);
	ck_assert_int_eq(ask(&asked), -EOPNOTSUPP);
	job_close(&job);
}
END_TEST

START_TEST(a_rank_that_ends_is_forgotten)
{
	open_job(RANKS);
	read_until_by_fabric();
	peers_lose(job_frag(&job, 0)->engine, 1, -EIO, "for this test");
	turn(NULL);
	ck_assert(!answers_so(1, 0));
	while (!answers_so(1, 0)) /* rank 1 answers by the fabric again */
		if (!job_frag(&job, 0)->engine->peers[1].lost ||
		    peer_is_live(&job_frag(&job, 0)->engine->peers[1]))
			read_it(0);
		else
			turn(NULL);
	job_close(&job);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fabric");
	TCase *t = tcase_create("fabric");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, answers_come_by_the_fabric);
	tcase_add_test(t, whoever_has_none_is_answered_and_answers_by_messages);
	tcase_add_loop_test(t, a_read_is_whole_whatever_was_lost_of_it, 0, 12);
	tcase_add_test(t, who_is_silent_on_the_fabric_is_read_by_messages_until_it_is_not);
	tcase_add_test(t, without_memory_there_is_none);
	tcase_add_test(t, where_it_breaks_off_messages_go_on_at_once);
	tcase_add_test(t, what_strangers_send_is_not_taken);
	tcase_add_test(t, what_cannot_be_asked_for_is_refused);
	tcase_add_test(t, a_rank_that_ends_is_forgotten);
	return run_suite(s, t);
}
