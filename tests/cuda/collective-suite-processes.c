/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/cuda/collective-suite.h"
#include "tests/cuda/mappings.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

/* What holds for an implementation whose ranks may be processes of one host: each has a port of its own. */

enum { SIZE = 100000, SMALL = 10000, N = 3, CHILD_S = 60, STUCK_MS = 300, LOST = N - 1 };

static struct {
	struct collective_id ids[2]; /* of all, of those that are left */
	_Atomic int made, came;
	_Atomic bool is_lost, is_back;
} * meeting;
static pid_t pids[N];

static void open_in(unsigned rank, unsigned nranks, int which)
{
	struct collective_options o = options_of(rank);
	uint64_t end = monotonic_ms() + CHILD_S * 1000;

	while (rank && atomic_load(&meeting->made) <= which && monotonic_ms() < end)
		short_pause();
	ck_assert_int_eq(many->ops->open(&ranks[rank], &o, rank, nranks,
					 rank ? &meeting->ids[which] : NULL),
			 0);
	if (!rank) {
		meeting->ids[which] = wait_for_id(ranks[0]);
		atomic_store(&meeting->made, which + 1);
	}
	ck_assert_int_eq(rank_opened(rank), 0);
}

/* Each sends to and hears from all, itself too, and then all have what all have. */
static void operate(unsigned rank, unsigned nranks)
{
	uint8_t *from = device_bytes(rank, SIZE),
		*to = here->alloc(rank_device(rank), N * SIZE);
	struct collective_move moves[2 * N];
	struct part p[2];

	for (unsigned r = 0; r < nranks; r++) {
		moves[r] = (struct collective_move){ true, r, SIZE - r, from + r };
		moves[nranks + r] =
			(struct collective_move){ false, r, SIZE - rank, to + r * SIZE };
	}
	start_moves(rank, &p[0], moves, 2 * nranks);
	expect_done(p, 1);
	for (unsigned r = 0; r < nranks; r++)
		expect_on_device(to + r * SIZE, r, rank, SIZE - rank);
	p[1].io = (struct collective_io){
		.what = COLLECTIVE_GATHER_ALL, .from = from, .to = to, .size = SIZE
	};
	ck_assert_int_eq(part_start(rank, &p[1]), 0);
	expect_done(&p[1], 1);
	for (unsigned r = 0; r < nranks; r++)
		expect_on_device(to + r * SIZE, r, 0, SIZE);
	here->free(from);
	here->free(to);
}

static int start_gather(unsigned rank, struct part *p, void *memory)
{
	p->io = (struct collective_io){ .what = COLLECTIVE_GATHER_ALL,
					.from = (uint8_t *)memory + rank * SIZE,
					.to = memory,
					.size = SIZE };
	return part_start(rank, p);
}

static void close_in(unsigned rank)
{
	many->ops->close(ranks[rank]);
	ranks[rank] = NULL;
}

static void await_loss(void)
{
	uint64_t end = monotonic_ms() + CHILD_S * 1000;

	while (!atomic_load(&meeting->is_lost) && monotonic_ms() < end)
		short_pause();
}

/* One that has no part in it is not heard of any more. */
static void miss_one(unsigned rank)
{
	void *memory = here->alloc(rank_device(rank), N * SIZE);
	struct part p;
	int rc;

	await_loss();
	rc = start_gather(rank, &p, memory);
	if (!rc)
		rc = part_wait(&p);
	ck_assert_msg(rc == -ETIMEDOUT || rc == -EIO, "%s", strerror(-rc));
	here->free(memory);
	close_in(rank);
}

static void all_operate(unsigned rank)
{
	open_in(rank, N, 0);
	operate(rank, N);
	close_in(rank);
	ck_assert_uint_eq(mappings_shared(), 0);
}

static void await_count(int came)
{
	uint64_t end = monotonic_ms() + CHILD_S * 1000;

	while (atomic_load(&meeting->came) < came && monotonic_ms() < end)
		short_pause();
}

/* When all are ready: who is not fails as one of them leaves. */
static void await_all_here(void)
{
	atomic_fetch_add(&meeting->came, 1);
	await_count(N);
}

static void others_go_on_without(unsigned rank)
{
	miss_one(rank);
	collective_test_options.stuck_ms = CHILD_S * 1000;
	open_in(rank, N - 1, 1);
	operate(rank, N - 1);
	close_in(rank);
}

static void one_is_killed(unsigned rank)
{
	collective_test_options.stuck_ms = STUCK_MS;
	open_in(rank, N, 0);
	await_all_here();
	if (rank == LOST)
		raise(SIGKILL);
	others_go_on_without(rank);
	ck_assert_uint_eq(mappings_shared(), 0);
}

/* Its bytes have left it, and may be gone with it. */
static void one_is_killed_that_has_sent(unsigned rank)
{
	struct collective_move move;
	struct part p;

	open_in(rank, N, 0);
	await_all_here();
	move = (struct collective_move){ rank == LOST, rank ? 0 : LOST, SMALL,
					 here->alloc(rank_device(rank), SMALL) };
	p.io = (struct collective_io){ .nmoves = 1, .moves = &move };
	if (rank == LOST) {
		ck_assert_int_eq(part_start(rank, &p), 0);
		expect_done(&p, 1);
		raise(SIGKILL);
	}
	await_loss();
	if (!rank) {
		ck_assert_int_eq(part_start(rank, &p), 0);
		ck_assert_int_eq(part_wait(&p), -EIO);
		atomic_fetch_add(&meeting->came, 1);
	}
	await_count(N + 1);
	here->free(move.memory);
}

static void expect_to_keep_until_it_is_back(unsigned rank)
{
	uint64_t end = monotonic_ms() + CHILD_S * 1000;
	struct collective_options o = options_of(rank);

	ck_assert_uint_eq(mappings_shared(), 1);
	atomic_fetch_add(&meeting->came, 1);
	while (!atomic_load(&meeting->is_back) && monotonic_ms() < end)
		short_pause();
	ck_assert_int_eq(many->ops->open(&ranks[rank], &o, 0, 1, NULL), 0);
	ck_assert_int_eq(rank_opened(rank), 0);
	ck_assert_uint_eq(mappings_shared(), 1); /* the new one's */
	close_in(rank);
	ck_assert_uint_eq(mappings_shared(), 0);
}

/* It may go on when the others have done so; nothing that it still does is theirs. */
static void one_is_stopped(unsigned rank)
{
	void *memory;
	struct part p;
	int rc;

	collective_test_options.stuck_ms = STUCK_MS;
	collective_test_options.end_ms = 4000;
	open_in(rank, N, 0);
	await_all_here();
	if (rank != LOST) {
		others_go_on_without(rank);
		expect_to_keep_until_it_is_back(rank);
		return;
	}
	memory = here->alloc(rank_device(rank), N * SIZE);
	raise(SIGSTOP);
	rc = start_gather(rank, &p, memory);
	if (!rc)
		rc = part_wait(&p);
	ck_assert_msg(rc == -EIO || rc == -ETIMEDOUT, "%s", strerror(-rc));
	here->free(memory);
}

static _Noreturn void be_rank(unsigned rank, void (*what)(unsigned rank))
{
	alarm(CHILD_S);
	port_open();
	what(rank);
	if (ranks[rank])
		close_in(rank);
	port_close();
	_exit(0);
}

static void start_all(void (*what)(unsigned rank))
{
	meeting = mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(meeting, MAP_FAILED);
	for (unsigned r = 0; r < N; r++) {
		pids[r] = fork();
		if (!pids[r])
			be_rank(r, what);
	}
}

static void expect_end(unsigned rank, int expected)
{
	int status;

	ck_assert_int_eq(waitpid(pids[rank], &status, 0), pids[rank]);
	ck_assert_int_eq(status, expected);
}

START_TEST(processes_move_bytes_between_their_devices)
{
	start_all(all_operate);
	for (unsigned r = 0; r < N; r++)
		expect_end(r, 0);
}
END_TEST

static void (*const killings[])(unsigned rank) = { one_is_killed, one_is_killed_that_has_sent };

START_TEST(processes_go_on_without_one_that_is_killed)
{
	start_all(killings[_i]);
	expect_end(LOST, SIGKILL);
	atomic_store(&meeting->is_lost, true);
	for (unsigned r = 0; r < LOST; r++)
		expect_end(r, 0);
}
END_TEST

START_TEST(processes_go_on_without_one_that_is_stopped)
{
	int status;

	start_all(one_is_stopped);
	ck_assert_int_eq(waitpid(pids[LOST], &status, WUNTRACED), pids[LOST]);
	ck_assert(WIFSTOPPED(status));
	atomic_store(&meeting->is_lost, true);
	await_count(N + LOST);
	kill(pids[LOST], SIGCONT);
	expect_end(LOST, 0);
	atomic_store(&meeting->is_back, true);
	for (unsigned r = 0; r < LOST; r++)
		expect_end(r, 0);
}
END_TEST

TCase *collective_suite_processes(void)
{
	TCase *c = tcase_create("processes");

	tcase_set_timeout(c, CHILD_S);
	tcase_add_test(c, processes_move_bytes_between_their_devices);
	tcase_add_loop_test(c, processes_go_on_without_one_that_is_killed, 0, 2);
	tcase_add_test(c, processes_go_on_without_one_that_is_stopped);
	return c;
}
