/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "tests/cuda/collective-suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* TEST_SEED: of sizes and values. */

enum { SIZE = 100000, PAGE = 4096, WAIT_MS = 30000 };

const struct many *many;
struct collective *ranks[RANKS_MAX];
struct collective_options collective_test_options = {
	.open_ms = 20000, .wait_ms = 20000, .stuck_ms = 20000, .end_ms = 20000
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended;

/* ---- ranks ---- */

int rank_device(unsigned rank)
{
	return (int)rank % here->ndevices();
}

struct collective_options options_of(unsigned rank)
{
	struct collective_options o = collective_test_options;

	o.device = device;
	o.number = rank_device(rank);
	return o;
}

void short_pause(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

struct collective_id wait_for_id(struct collective *c)
{
	uint64_t end = monotonic_ms() + WAIT_MS;
	struct collective_id id;
	int rc;

	while ((rc = many->ops->id(c, &id)) == -EINPROGRESS && monotonic_ms() < end)
		short_pause();
	ck_assert_int_eq(rc, 0);
	return id;
}

static void open_rank(unsigned rank, unsigned nranks, const struct collective_id *id)
{
	struct collective_options o = options_of(rank);

	ck_assert_int_eq(many->ops->open(&ranks[rank], &o, rank, nranks, id), 0);
}

void open_some(unsigned n, unsigned nranks)
{
	struct collective_id id;

	open_rank(0, nranks, NULL);
	id = wait_for_id(ranks[0]);
	for (unsigned r = 1; r < n; r++)
		open_rank(r, nranks, &id);
}

void ranks_open(unsigned n)
{
	open_some(n, n);
}

void ranks_close(unsigned n)
{
	for (unsigned r = 0; r < n; r++)
		many->ops->close(ranks[r]);
}

int rank_opened(unsigned rank)
{
	uint64_t end = monotonic_ms() + WAIT_MS;
	int rc;

	while ((rc = many->ops->state(ranks[rank])) == -EINPROGRESS && monotonic_ms() < end)
		short_pause();
	return rc;
}

void expect_ready(unsigned n)
{
	for (unsigned r = 0; r < n; r++)
		ck_assert_int_eq(rank_opened(r), 0);
}

void many_open(void)
{
	port_open();
	ranks_open(many->nranks);
	expect_ready(many->nranks);
}

void many_close(void)
{
	ranks_close(many->nranks);
	port_close();
}

/* ---- operations ---- */

static void on_done(struct collective_io *io, int result)
{
	struct part *p = container_of(io, struct part, io);

	pthread_mutex_lock(&lock);
	ck_assert(!p->over);
	p->result = result;
	p->over = true;
	pthread_cond_broadcast(&ended);
	pthread_mutex_unlock(&lock);
}

int part_start(unsigned rank, struct part *p)
{
	p->over = false;
	p->io.done = on_done;
	return many->ops->launch(ranks[rank], &p->io);
}

int part_wait(struct part *p)
{
	struct timespec until = thread_in_ms(WAIT_MS);
	int rc = 0;

	pthread_mutex_lock(&lock);
	while (!p->over && !rc)
		rc = pthread_cond_timedwait(&ended, &lock, &until);
	pthread_mutex_unlock(&lock);
	ck_assert_int_eq(rc, 0);
	return p->result;
}

bool part_is_over(struct part *p)
{
	bool over;

	pthread_mutex_lock(&lock);
	over = p->over;
	pthread_mutex_unlock(&lock);
	return over;
}

void start_moves(unsigned rank, struct part *p, const struct collective_move *moves, unsigned n)
{
	p->io = (struct collective_io){ .nmoves = n, .moves = moves };
	ck_assert_int_eq(part_start(rank, p), 0);
}

void expect_done(struct part *p, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		ck_assert_int_eq(part_wait(&p[i]), 0);
}

/* ---- memory ---- */

static void *pinned(uint64_t size)
{
	uint64_t whole = u64_div_ceil(size, PAGE) * PAGE;
	void *memory = aligned_alloc(PAGE, whole);

	ck_assert_ptr_nonnull(memory);
	memset(memory, 0, whole);
	ck_assert_int_eq(here->ops->pin(device, memory, whole), 0);
	return memory;
}

static void unpin(void *memory)
{
	here->ops->unpin(device, memory);
	free(memory);
}

static uint8_t byte_of(unsigned rank, uint64_t i)
{
	return (uint8_t)(rank * 31 + i * 7 + i / 251);
}

/* A rank's own, on its device. */
uint8_t *device_bytes(unsigned rank, uint64_t size)
{
	uint8_t *memory = here->alloc(rank_device(rank), size), *host = malloc(size);

	for (uint64_t i = 0; i < size; i++)
		host[i] = byte_of(rank, i);
	here->put(memory, host, size);
	free(host);
	return memory;
}

static void expect_bytes_of(const uint8_t *bytes, unsigned rank, uint64_t from, uint64_t size)
{
	uint64_t i = 0;

	while (i < size && bytes[i] == byte_of(rank, from + i))
		i++;
	ck_assert_uint_eq(i, size);
}

void expect_on_device(const void *memory, unsigned rank, uint64_t from, uint64_t size)
{
	uint8_t *seen = malloc(size);

	here->get(seen, memory, size);
	expect_bytes_of(seen, rank, from, size);
	free(seen);
}

/* ---- what moves ---- */

START_TEST(all_ranks_become_ready)
{
	struct collective_about about;

	for (unsigned r = 0; r < many->nranks; r++) {
		many->ops->about(ranks[r], &about);
		ck_assert_uint_eq(about.rank, r);
		ck_assert_uint_eq(about.nranks, many->nranks);
		ck_assert_int_eq(about.number, rank_device(r));
		ck_assert_int_eq(about.state, 0);
		ck_assert_int_gt(about.version, 0);
		ck_assert_uint_eq(about.launched, 0);
		ck_assert_str_eq(about.error, "");
	}
}
END_TEST

START_TEST(a_rank_sends_to_itself)
{
	uint8_t *from = device_bytes(0, SIZE), *to = here->alloc(0, SIZE);
	const struct collective_move moves[] = { { .size = SIZE, .memory = to },
						 { true, 0, SIZE, from } };
	struct part p;

	start_moves(0, &p, moves, 2);
	expect_done(&p, 1);
	expect_on_device(to, 0, 0, SIZE);
	here->free(from);
	here->free(to);
}
END_TEST

/* Unequal pieces. */
static uint64_t piece(unsigned rank)
{
	return SIZE - 1000 * rank + rank;
}

START_TEST(pieces_of_all_are_gathered_into_pinned_memory)
{
	struct collective_move receive[RANKS_MAX + 1], send[RANKS_MAX];
	uint8_t *memory[RANKS_MAX], *to = pinned(RANKS_MAX * SIZE);
	struct part p[RANKS_MAX];
	struct collective_about about;
	unsigned n = many->nranks;

	for (unsigned r = 0; r < n; r++) {
		memory[r] = device_bytes(r, SIZE);
		receive[r] = (struct collective_move){ false, r, piece(r), to + r * SIZE };
		send[r] = (struct collective_move){ true, 0, piece(r), memory[r] };
	}
	receive[n] = send[0];
	start_moves(0, &p[0], receive, n + 1);
	for (unsigned r = 1; r < n; r++)
		start_moves(r, &p[r], &send[r], 1);
	expect_done(p, n);
	for (unsigned r = 0; r < n; r++) {
		expect_bytes_of(to + r * SIZE, r, 0, piece(r));
		here->free(memory[r]);
	}
	many->ops->about(ranks[n - 1], &about);
	ck_assert_uint_eq(about.launched, 1);
	ck_assert_uint_eq(about.ended, 1);
	ck_assert_uint_eq(about.bytes_sent, piece(n - 1));
	unpin(to);
}
END_TEST

START_TEST(pieces_are_scattered_from_pinned_memory)
{
	struct collective_move send[RANKS_MAX + 1], receive[RANKS_MAX];
	uint8_t *memory[RANKS_MAX], *from = pinned(SIZE);
	struct part p[RANKS_MAX];
	unsigned n = many->nranks;

	for (uint64_t i = 0; i < SIZE; i++)
		from[i] = byte_of(0, i);
	for (unsigned r = 0; r < n; r++) {
		memory[r] = here->alloc(rank_device(r), SIZE);
		send[r] = (struct collective_move){ true, r, SIZE / n, from + r * (SIZE / n) };
		receive[r] = (struct collective_move){ false, 0, SIZE / n, memory[r] };
	}
	send[n] = receive[0];
	for (unsigned r = 1; r < n; r++)
		start_moves(r, &p[r], &receive[r], 1);
	start_moves(0, &p[0], send, n + 1);
	expect_done(p, n);
	for (unsigned r = 0; r < n; r++) {
		expect_on_device(memory[r], 0, r * (SIZE / n), SIZE / n);
		here->free(memory[r]);
	}
	unpin(from);
}
END_TEST

/* Of a launch of each rank: MOVES to and from each, all ways at once. */
enum { MOVES = 5 };

struct crossing {
	uint8_t *memory[RANKS_MAX], *to[RANKS_MAX];
	struct collective_move moves[RANKS_MAX][2 * MOVES * RANKS_MAX];
	uint64_t sizes[RANKS_MAX][RANKS_MAX][MOVES];
};

/* Each is of another place and has another place to go to. */
static uint64_t place(unsigned peer, unsigned i)
{
	return (peer * MOVES + i) * (SIZE / MOVES / RANKS_MAX);
}

static void cross(struct crossing *x, unsigned rank, unsigned n)
{
	unsigned k = 0;

	for (unsigned peer = 0; peer < n; peer++)
		for (unsigned i = 0; i < MOVES; i++) {
			x->moves[rank][k++] =
				(struct collective_move){ true, peer, x->sizes[rank][peer][i],
							  x->memory[rank] + place(peer, i) };
			x->moves[rank][k++] =
				(struct collective_move){ false, peer, x->sizes[peer][rank][i],
							  x->to[rank] + place(peer, i) };
		}
}

static void expect_crossed(const struct crossing *x, unsigned rank, unsigned n)
{
	for (unsigned peer = 0; peer < n; peer++)
		for (unsigned i = 0; i < MOVES; i++)
			expect_on_device(x->to[rank] + place(peer, i), peer, place(rank, i),
					 x->sizes[peer][rank][i]);
}

START_TEST(moves_of_one_launch_cross_and_keep_their_order)
{
	static struct crossing x;
	struct part p[RANKS_MAX];
	unsigned n = many->nranks;

	for (unsigned i = 0; i < RANKS_MAX * RANKS_MAX * MOVES; i++)
		(&x.sizes[0][0][0])[i] = next_random(SIZE / MOVES / RANKS_MAX);
	x.sizes[0][n - 1][1] = 0;
	for (unsigned r = 0; r < n; r++) {
		x.memory[r] = device_bytes(r, SIZE);
		x.to[r] = here->alloc(rank_device(r), SIZE);
	}
	for (unsigned r = 0; r < n; r++) {
		cross(&x, r, n);
		start_moves(r, &p[r], x.moves[r], 2 * MOVES * n);
	}
	expect_done(p, n);
	for (unsigned r = 0; r < n; r++) {
		expect_crossed(&x, r, n);
		here->free(x.memory[r]);
		here->free(x.to[r]);
	}
}
END_TEST

static void gather_all(bool in_place)
{
	uint8_t *to[RANKS_MAX], *from[RANKS_MAX];
	struct part p[RANKS_MAX];
	unsigned n = many->nranks;

	for (unsigned r = 0; r < n; r++) {
		to[r] = device_bytes(r, n * SIZE);
		from[r] = in_place ? to[r] + r * SIZE : device_bytes(r, SIZE);
		p[r].io = (struct collective_io){ .what = COLLECTIVE_GATHER_ALL,
						  .from = from[r],
						  .to = to[r],
						  .size = SIZE };
		ck_assert_int_eq(part_start(r, &p[r]), 0);
	}
	expect_done(p, n);
	for (unsigned r = 0; r < n; r++) {
		for (unsigned q = 0; q < n; q++)
			expect_on_device(to[r] + q * SIZE, q, in_place ? q * SIZE : 0, SIZE);
		here->free(to[r]);
		if (!in_place)
			here->free(from[r]);
	}
}

START_TEST(equal_pieces_are_gathered_everywhere)
{
	gather_all(false);
	gather_all(true);
}
END_TEST

START_TEST(launches_run_in_their_order)
{
	enum { LAUNCHES = 30 };
	static struct part p[LAUNCHES][2];
	unsigned last = many->nranks - 1;
	uint8_t *a = device_bytes(0, SIZE), *b = here->alloc(rank_device(last), SIZE);
	uint8_t *c = here->alloc(0, SIZE);
	const struct collective_move there[] = { { true, last, SIZE, a },
						 { false, 0, SIZE, b } };
	const struct collective_move back[] = { { true, 0, SIZE, b },
						{ false, last, SIZE, c } };

	for (unsigned i = 0; i < LAUNCHES; i++) {
		const struct collective_move *m = i % 2 ? back : there;

		if (!last) {
			start_moves(0, &p[i][0], m, 2);
			continue;
		}
		start_moves(i % 2 ? last : 0, &p[i][0], &m[0], 1);
		start_moves(i % 2 ? 0 : last, &p[i][1], &m[1], 1);
	}
	for (unsigned i = 0; i < LAUNCHES; i++)
		expect_done(p[i], last ? 2 : 1);
	expect_on_device(c, 0, 0, SIZE);
	here->free(a);
	here->free(b);
	here->free(c);
}
END_TEST

START_TEST(nothing_is_an_operation_too)
{
	const struct collective_move none = { true, many->nranks - 1, 0, NULL };
	struct part p[2];

	start_moves(0, &p[0], &none, 1);
	start_moves(0, &p[1], NULL, 0);
	expect_done(p, 2);
}
END_TEST

START_TEST(what_is_no_operation_is_refused)
{
	uint8_t *memory = here->alloc(0, SIZE), host[8];
	struct collective_move moves[] = { { true, 0, 8, memory },
					   { false, 0, 8, memory + 8 } };
	struct part p = { .io = { .nmoves = 2, .moves = moves } };

	moves[0].peer = many->nranks;
	ck_assert_int_eq(part_start(0, &p), -EINVAL);
	moves[0].peer = 0;
	moves[1].memory = host;
	ck_assert_int_eq(part_start(0, &p), -EFAULT);
	moves[1] = (struct collective_move){ false, 0, UINT64_MAX, memory };
	ck_assert_int_eq(part_start(0, &p), -EOVERFLOW);
	p.io = (struct collective_io){ .what = COLLECTIVE_GATHER_ALL,
				       .from = memory,
				       .to = memory };
	ck_assert_int_eq(part_start(0, &p), -EINVAL);
	p.io.size = UINT64_MAX;
	ck_assert(many->nranks == 1 || part_start(0, &p) == -EOVERFLOW);
	p.io.size = 8;
	p.io.from = host;
	ck_assert_int_eq(part_start(0, &p), -EFAULT);
	p.io.from = memory;
	p.io.to = host;
	ck_assert_int_eq(part_start(0, &p), -EFAULT);
	ck_assert_int_eq(many->ops->state(ranks[0]), 0);
	here->free(memory);
}
END_TEST

/* ---- streams ---- */

START_TEST(an_operation_waits_for_what_the_stream_had_before)
{
	unsigned last = many->nranks - 1;
	uint8_t *from = here->alloc(rank_device(last), SIZE), *to = pinned(SIZE);
	const struct collective_move moves[] = { { true, 0, SIZE, from },
						 { false, last, SIZE, to } };
	void *stream = here->stream_new(rank_device(last));
	struct device_event *event;
	struct part p[2];

	here->hold(stream);
	here->fill(stream, from, 0x5a, SIZE);
	ck_assert_int_eq(here->ops->mark(device, rank_device(last), stream, &event), 0);
	p[0].io = (struct collective_io){ .nmoves = last ? 1 : 2,
					  .moves = moves,
					  .after = event };
	ck_assert_int_eq(part_start(last, &p[0]), 0);
	if (last)
		start_moves(0, &p[1], &moves[1], 1);
	ck_assert(!part_is_over(&p[0]));
	here->go(stream);
	expect_done(p, last ? 2 : 1);
	for (unsigned i = 0; i < SIZE; i += 100)
		ck_assert_uint_eq(to[i], 0x5a);
	here->ops->unmark(device, event);
	here->stream_free(stream);
	here->free(from);
	unpin(to);
}
END_TEST

/* ---- all ---- */

static TCase *moving(void)
{
	TCase *c = tcase_create("moving");

	tcase_add_checked_fixture(c, many_open, many_close);
	tcase_add_test(c, all_ranks_become_ready);
	tcase_add_test(c, a_rank_sends_to_itself);
	tcase_add_test(c, pieces_of_all_are_gathered_into_pinned_memory);
	tcase_add_test(c, pieces_are_scattered_from_pinned_memory);
	tcase_add_test(c, moves_of_one_launch_cross_and_keep_their_order);
	tcase_add_test(c, equal_pieces_are_gathered_everywhere);
	tcase_add_test(c, launches_run_in_their_order);
	tcase_add_test(c, nothing_is_an_operation_too);
	tcase_add_test(c, what_is_no_operation_is_refused);
	tcase_add_test(c, an_operation_waits_for_what_the_stream_had_before);
	return c;
}

int collective_suite_run(const struct many *of, TCase *const more[])
{
	TCase *all[] = { moving(), collective_suite_failing(), collective_suite_opening(),
			 NULL };
	SRunner *runner = srunner_create(suite_create(of->ops->name));
	Suite *rest = suite_create("more");
	int failed;

	many = of;
	here = of->trainer;
	random_begin();
	thread_cond_init(&ended);
	for (TCase **c = all; *c; c++)
		suite_add_tcase(rest, *c);
	for (; more && *more; more++)
		suite_add_tcase(rest, *more);
	srunner_add_suite(runner, rest);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
