/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/rank/participant.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { N = 64, ROOM = 1 << 16, WRITER = 3, OTHER = 4 };

static struct registry r;
static struct participant s;
static uint32_t master[N], grad[N];
static const uint64_t one[2] = { 1, 1 }, two[2] = { 1, 2 };
static uint64_t b; /* boundaries passed */

static void setup(void)
{
	setenv("FRAG_LOG", "error", 1);
	memset(master, 0, sizeof(master));
	memset(grad, 0, sizeof(grad));
	ck_assert_int_eq(registry_init(&r), 0);
	ck_assert_int_eq(registry_keep(&r, STATE_PARTITION, 0, 0, "fp32", FRAG_F32, N, master),
			 0);
	ck_assert_int_eq(registry_keep(&r, STATE_PARTITION, 0, 0, "grad", FRAG_F32, N, grad),
			 0);
	ck_assert_int_eq(participant_init(&s, ROOM), 0);
	b = 0;
}

static void teardown(void)
{
	participant_fini(&s);
	registry_fini(&r);
}

static int stage_bytes(const uint64_t transaction[2], uint32_t writer, uint64_t now,
		       uint32_t row, uint64_t offset, const void *data, uint32_t size)
{
	struct edit_piece *piece = participant_piece(&s, r.states.epoch, row, offset, size);

	memcpy(piece->data, data, size);
	return participant_stage(&s, transaction, writer, now, row == 1, piece);
}

static int stage_row(const uint64_t transaction[2], uint32_t row, uint64_t at, uint32_t value)
{
	return stage_bytes(transaction, WRITER, 1000, row, at * 4, &value, 4);
}

static int stage(const uint64_t transaction[2], uint64_t at, uint32_t value)
{
	return stage_row(transaction, 0, at, value);
}

static int promise(const uint64_t transaction[2], uint64_t boundary, bool holder)
{
	struct wire_prepare p = { .transaction = { transaction[0], transaction[1] },
				  .boundary = boundary,
				  .order = transaction[1],
				  .holder = holder,
				  .coordinator = 3,
				  .origin = { .bytes = transaction[1] } };

	return participant_prepare(&s, &r, &p, NULL, 1500);
}

/* Of gradients of that window. */
static int promise_grads(const uint64_t transaction[2], uint64_t boundary, bool holder,
			 uint64_t window)
{
	struct wire_prepare p = { .transaction = { transaction[0], transaction[1] },
				  .boundary = boundary,
				  .order = transaction[1],
				  .window = window,
				  .holder = holder,
				  .coordinator = 3 };

	return participant_prepare(&s, &r, &p, NULL, 1500);
}

static int decide(const uint64_t transaction[2], bool commit)
{
	return participant_decide(&s, transaction, commit, -EIO, 5, 77);
}

/* Promises the next boundary and is told to go on. */
static void commit(const uint64_t transaction[2])
{
	ck_assert_int_eq(promise(transaction, b + 1, true), 0);
	ck_assert_int_eq(decide(transaction, true), 0);
}

/* The trainer comes to its next boundary, and must wait there. */
static bool waits(void)
{
	atomic_store(&r.control->boundary, ++b);
	return participant_look(&s, b, true) == PARTICIPANT_UNDECIDED;
}

static int pass_here(uint64_t grads)
{
	int applied = 0;

	while (participant_look(&s, b, true) == PARTICIPANT_DECIDED)
		applied += participant_apply(&s, &r, b, grads);
	return applied;
}

/* The trainer comes to its next boundary; grads: the control page's word. */
static int pass(uint64_t grads)
{
	atomic_store(&r.control->grads, grads);
	atomic_store(&r.control->boundary, ++b);
	return pass_here(grads);
}

/* The status of the oldest applied edit. */
static int applied(const uint64_t transaction[2])
{
	struct edit *e = participant_take_over(&s);
	int status;

	ck_assert_ptr_nonnull(e);
	ck_assert_int_eq(memcmp(e->transaction, transaction, sizeof(e->transaction)), 0);
	ck_assert_uint_eq(e->peer, 5);
	ck_assert_uint_eq(e->request, 77);
	status = e->status;
	participant_free_edit(&s, e);
	return status;
}

START_TEST(nothing_is_applied_before_it_is_decided)
{
	ck_assert_int_eq(stage(one, 3, 7), 0);
	ck_assert_int_eq(decide(one, true), -ENOENT); /* nothing was promised */
	ck_assert_int_eq(pass(1), 0);
	ck_assert_int_eq(promise(one, b + 2, true), 0);
	ck_assert_int_eq(pass(1), 0);
	ck_assert_uint_eq(master[3], 0);
	ck_assert_ptr_null(participant_take_over(&s));
	ck_assert(waits());
	ck_assert_uint_eq(master[3], 0);
	ck_assert_int_eq(decide(one, true), 0);
	ck_assert_uint_eq(master[3], 0);
	ck_assert_int_eq(pass_here(1), 1);
	ck_assert_uint_eq(master[3], 7);
	ck_assert_int_eq(pass(1), 0);
	ck_assert_int_eq(applied(one), 0);
	ck_assert_ptr_null(participant_take_over(&s));
	ck_assert_uint_eq(s.bytes, 0);
	ck_assert_uint_eq(s.count, 0);
}
END_TEST

START_TEST(pieces_are_applied_in_the_order_they_came)
{
	for (uint32_t i = 1; i <= 5; i++)
		ck_assert_int_eq(stage(one, 3, i), 0);
	commit(one);
	ck_assert_int_eq(pass(1), 1);
	ck_assert_uint_eq(master[3], 5);
}
END_TEST

START_TEST(an_aborted_edit_is_forgotten)
{
	stage(one, 3, 7);
	ck_assert_int_eq(decide(one, false), 0);
	ck_assert_int_eq(decide(one, false), -EALREADY);
	ck_assert_int_eq(decide(one, true), -ENOENT);
	ck_assert_int_eq(pass(1), 0);
	ck_assert_uint_eq(master[3], 0);
	ck_assert_uint_eq(s.bytes, 0);
}
END_TEST

START_TEST(an_abort_lets_the_trainer_go_on)
{
	stage(one, 3, 7);
	promise(one, 1, true);
	ck_assert(waits());
	ck_assert_int_eq(decide(one, false), 0);
	ck_assert_int_eq(pass_here(1), 0);
	ck_assert_uint_eq(master[3], 0);
}
END_TEST

START_TEST(a_boundary_that_is_passed_is_not_promised)
{
	stage(one, 3, 7);
	pass(1);
	pass(1);
	ck_assert_int_eq(promise(one, 2, true), -EAGAIN);
	ck_assert(!participant_pending(&s, UINT64_MAX - 1));
	ck_assert_int_eq(promise(one, 3, true), 0);
	ck_assert(participant_pending(&s, 3) && !participant_pending(&s, 2));
	ck_assert_int_eq(promise(one, 4, true),
			 0); /* the coordinator asks again, for a later one */
	ck_assert(!participant_pending(&s, 3));
}
END_TEST

START_TEST(a_rank_without_bytes_promises_and_counts_it_too)
{
	ck_assert_int_eq(promise(one, 1, true), -ENOENT); /* said to hold, and does not */
	ck_assert_int_eq(promise(one, 1, false), 0);
	ck_assert_int_eq(decide(one, true), 0);
	ck_assert_int_eq(pass(1), 1);
	ck_assert_int_eq(applied(one), 0);
}
END_TEST

START_TEST(edits_of_one_boundary_are_applied_in_the_coordinators_order)
{
	stage(two, 3, 2);
	stage(one, 3, 1);
	commit(two);
	commit(one);
	ck_assert_int_eq(pass(1), 2);
	ck_assert_uint_eq(master[3], 2);
}
END_TEST

START_TEST(an_edit_whose_coordinator_died_is_settled_by_what_others_know)
{
	stage(one, 3, 7);
	stage(two, 4, 8);
	promise(one, 1, true);
	promise(two, 1, true);
	ck_assert_int_eq(participant_outcome(&s, one), WIRE_UNDECIDED);
	ck_assert_int_eq(decide(one, true), -ESTALE); /* the dead one must not come back */
	participant_resolve(&s, one, true);
	participant_resolve(&s, two, false);
	ck_assert_int_eq(pass(1), 1);
	ck_assert_uint_eq(master[3], 7);
	ck_assert_uint_eq(master[4], 0);
	ck_assert_int_eq(participant_outcome(&s, one), WIRE_COMMITTED);
	ck_assert_int_eq(participant_outcome(&s, two), WIRE_ABORTED);
}
END_TEST

START_TEST(one_never_heard_of_is_undecided_and_then_never_taken)
{
	ck_assert_int_eq(participant_outcome(&s, one), WIRE_UNDECIDED);
	ck_assert_int_eq(participant_outcome(&s, one), WIRE_ABORTED);
	ck_assert_int_eq(promise(one, 1, false), -ECANCELED);
}
END_TEST

START_TEST(one_that_is_fenced_is_not_promised)
{
	stage(one, 0, 7);
	ck_assert_int_eq(participant_outcome(&s, one), WIRE_UNDECIDED);
	ck_assert_int_eq(promise(one, b + 1, true), -ECANCELED);
	stage(two, 0, 7);
	ck_assert_int_eq(promise(two, b + 1, true), 0);
	ck_assert_int_eq(participant_outcome(&s, two), WIRE_UNDECIDED);
	ck_assert_int_eq(promise(two, b + 2, true), -ECANCELED);
}
END_TEST

START_TEST(one_that_is_fenced_does_not_hear_its_coordinator)
{
	stage(one, 0, 7);
	ck_assert_int_eq(promise(one, b + 1, true), 0);
	participant_outcome(&s, one);
	participant_hear(&s, one, true);
	ck_assert_int_eq(participant_recall(&s, one, NULL), WIRE_UNDECIDED);
	participant_resolve(&s, one, false);
	ck_assert_int_eq(participant_recall(&s, one, NULL), WIRE_ABORTED);
	stage(two, 0, 7);
	ck_assert_int_eq(promise(two, b + 1, true), 0);
	participant_hear(&s, two, true);
	ck_assert_int_eq(participant_recall(&s, two, NULL), WIRE_COMMITTED);
}
END_TEST

static void abort_others(void)
{
	for (uint64_t i = 0; i < OUTCOME_LOG_MAX; i++) {
		uint64_t other[2] = { 7, i };

		stage(other, 0, 1);
		ck_assert_int_eq(promise(other, b + 1, true), 0);
		ck_assert_int_eq(decide(other, false), 0);
		participant_free_edit(&s, participant_take_over(&s));
	}
}

START_TEST(what_is_decided_long_ago_and_not_applied_is_not_promised_anew)
{
	stage(one, 3, 7);
	commit(one);
	abort_others();
	ck_assert_int_eq(promise(one, b + 2, true), -EBUSY);
}
END_TEST

START_TEST(what_is_decided_long_ago_and_not_applied_stays_decided)
{
	int status = 0;

	stage(one, 3, 7);
	commit(one);
	abort_others();
	ck_assert_int_eq(decide(one, true), 0); /* repeated: its report is yet to come */
	ck_assert_int_eq(decide(one, false), -ENOENT);
	ck_assert(!participant_forbid(&s, one));
	ck_assert_int_eq(participant_outcome(&s, one), WIRE_COMMITTED);
	registry_drop(&r, STATE_PARTITION, 0, 0, "fp32");
	ck_assert_int_eq(pass(1), 1);
	ck_assert_int_eq(participant_outcome(&s, one), WIRE_COMMITTED);
	ck_assert_int_eq(applied(one), -ESTALE);
	ck_assert_int_eq(participant_recall(&s, one, &status), WIRE_COMMITTED);
	ck_assert_int_eq(status, -ESTALE);
}
END_TEST

START_TEST(all_edits_of_a_boundary_are_remembered_after_it)
{
	uint64_t transaction[2] = { 8, 0 };
	struct edit *e;

	for (; transaction[1] < PARTICIPANT_EDITS_MAX; transaction[1]++) {
		ck_assert_int_eq(promise(transaction, 1, false), 0);
		ck_assert_int_eq(decide(transaction, true), 0);
	}
	ck_assert_int_eq(pass(1), PARTICIPANT_EDITS_MAX);
	while ((e = participant_take_over(&s)))
		participant_free_edit(&s, e);
	while (transaction[1]--)
		ck_assert_int_eq(decide(transaction, true), -EALREADY);
}
END_TEST

START_TEST(what_is_decided_takes_no_more_pieces_and_no_other_decision)
{
	stage(one, 3, 7);
	commit(one);
	ck_assert_int_eq(stage(one, 4, 8), -EBUSY);
	ck_assert_int_eq(promise(one, b + 2, true), -EBUSY);
	ck_assert_int_eq(decide(one, false), -ENOENT);
	ck_assert_int_eq(pass(1), 1);
	ck_assert_uint_eq(master[3], 7);
	ck_assert_uint_eq(master[4], 0);
}
END_TEST

START_TEST(an_edit_of_memory_registered_anew_is_not_applied_at_all)
{
	stage(one, 3, 7);
	stage_row(one, 1, 4, 8);
	ck_assert_int_eq(promise_grads(one, 1, true, 1), 0);
	registry_drop(&r, STATE_PARTITION, 0, 0, "grad");
	registry_keep(&r, STATE_PARTITION, 0, 0, "grad", FRAG_F32, N, grad);
	ck_assert_int_eq(promise_grads(one, 1, true, 1), -ESTALE);
	ck_assert_int_eq(decide(one, true), 0);
	ck_assert_int_eq(pass(1), 1);
	ck_assert_int_eq(applied(one), -ESTALE);
	ck_assert_uint_eq(master[3], 0);
	ck_assert_uint_eq(grad[4], 0);
}
END_TEST

START_TEST(an_edit_of_which_some_memory_was_freed_is_not_applied_at_all)
{
	char *gone =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	registry_keep(&r, STATE_PARTITION, 0, 0, "exp_avg", FRAG_F32, N, gone);
	stage(one, 3, 7);
	stage_row(one, 2, 0, 8);
	stage(one, 4, 9);
	commit(one);
	munmap(gone, 4096);
	ck_assert_int_eq(pass(1), 1);
	ck_assert_int_eq(applied(one), -EFAULT);
	ck_assert_uint_eq(master[3], 0);
	ck_assert_uint_eq(master[4], 0);
}
END_TEST

START_TEST(edits_of_gradients_wait_until_they_are_valid)
{
	stage(one, 3, 7);
	stage_row(one, 1, 3, 8);
	stage(two, 5, 9);
	ck_assert_int_eq(promise_grads(one, 1, true, 1), 0);
	ck_assert_int_eq(decide(one, true), 0);
	commit(two);
	ck_assert_int_eq(pass(0), 1);
	ck_assert_uint_eq(master[3], 0); /* not half of it either */
	ck_assert_uint_eq(master[5], 9);
	ck_assert_int_eq(applied(two), 0);
	ck_assert_int_eq(pass(1), 1);
	ck_assert_uint_eq(master[3], 7);
	ck_assert_uint_eq(grad[3], 8);
	ck_assert_int_eq(applied(one), 0);
}
END_TEST

START_TEST(edits_of_gradients_end_with_their_window)
{
	stage_row(one, 1, 3, 8);
	ck_assert_int_eq(promise_grads(one, 1, true, 1), 0);
	ck_assert_int_eq(promise_grads(two, 1, false, 1), 0); /* without bytes alike */
	ck_assert_int_eq(decide(one, true), 0);
	ck_assert_int_eq(decide(two, true), 0);
	ck_assert_int_eq(pass(0), 0);
	ck_assert_int_eq(pass(3), 2); /* no boundary while they were 1 */
	ck_assert_uint_eq(grad[3], 0);
	ck_assert_int_eq(applied(one), -ENODATA);
	ck_assert_int_eq(applied(two), -ENODATA);
	ck_assert(!participant_pending(&s, UINT64_MAX - 1));
}
END_TEST

static int stage_round(const uint64_t transaction[2], bool has_grad)
{
	struct edit_round *round = calloc(1, sizeof(*round));

	ck_assert_ptr_nonnull(round);
	return participant_stage_round(&s, transaction, WRITER, 1000, has_grad, round);
}

static int count_launch(void *arg, const struct edit *e)
{
	++*(int *)arg;
	return 0;
}

/* i: 1: it comes in it. */
START_TEST(a_round_of_gradients_ends_with_their_window)
{
	struct wire_prepare p = { .transaction = { one[0], one[1] },
				  .boundary = b + 1,
				  .order = 1,
				  .window = 1,
				  .holder = true,
				  .coordinator = 3,
				  .round = true };
	int launched = 0;

	ck_assert_int_eq(stage_round(one, true), 0);
	ck_assert_int_eq(participant_prepare(&s, &r, &p, NULL, 1500), 0);
	ck_assert_int_eq(decide(one, true), 0);
	atomic_store(&r.control->boundary, ++b);
	participant_apply_round(&s, b, _i ? 1 : 3, count_launch, &launched);
	ck_assert_int_eq(launched, _i);
	ck_assert_int_eq(applied(one), _i ? 0 : -ENODATA);
}
END_TEST

START_TEST(a_transaction_has_one_round_or_pieces)
{
	struct wire_prepare p = { .transaction = { two[0], two[1] },
				  .boundary = 2,
				  .order = 1,
				  .holder = true,
				  .coordinator = 3,
				  .round = true };

	ck_assert_int_eq(stage_round(one, false), 0);
	ck_assert_int_eq(stage_round(one, false), -EEXIST);
	stage(two, 3, 7);
	ck_assert_int_eq(stage_round(two, false), -EEXIST);
	ck_assert_int_eq(promise(one, 2, true), -EINVAL);
	ck_assert_int_eq(participant_prepare(&s, &r, &p, NULL, 1500), -EINVAL);
}
END_TEST

START_TEST(gradients_that_are_gone_are_not_promised)
{
	stage_row(one, 1, 3, 8);
	pass(2);
	ck_assert_int_eq(promise_grads(one, 2, true, 1), -ENODATA);
	ck_assert_int_eq(promise_grads(one, 2, true, 2), -EINVAL); /* no window */
	ck_assert_int_eq(promise(one, 2, true), -EINVAL);
	ck_assert_int_eq(promise_grads(one, 2, true, 3), 0);
	ck_assert_int_eq(promise_grads(two, 2, false, 1), -ENODATA);
	ck_assert_uint_eq(participant_expire(&s, 1500), 0); /* it is its coordinator's */
	ck_assert_uint_eq(participant_lose_writer(&s, 0), 0);
}
END_TEST

/* Elements 1, 3, 5 and 7 of the first row become twice what they are. */
static struct compute *operation_on_odd(void)
{
	struct wire_compute m = { .epoch = r.states.epoch,
				  .dtype = FRAG_F32,
				  .end = N,
				  .first = 1,
				  .naxes = 1,
				  .code = WIRE_MULTIPLY,
				  .axes = { { 4, 2 } } };
	struct compute *c = malloc(sizeof(*c));
	double two_times = 2;

	memcpy(&m.number, &two_times, sizeof(m.number));
	ck_assert_int_eq(compute_decode(c, &m), 0);
	return c;
}

static int stage_compute(const uint64_t transaction[2])
{
	return participant_stage_compute(&s, transaction, WRITER, 1000, false,
					 operation_on_odd());
}

START_TEST(an_operation_is_on_what_edits_before_it_have_left)
{
	const float halves[4] = { 0.5f, 1.5f, -2.5f, 3 };
	float got[N];

	ck_assert_int_eq(stage_compute(two), 0);
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t bits;

		memcpy(&bits, &halves[i], sizeof(bits));
		ck_assert_int_eq(stage(one, 2 * i + 1, bits), 0);
	}
	ck_assert_int_eq(promise(two, 1, true), 0);
	ck_assert_int_eq(promise(one, 1, true), 0);
	ck_assert_int_eq(decide(two, true), 0);
	ck_assert_int_eq(decide(one, true), 0);
	ck_assert_int_eq(pass(0), 2);
	memcpy(got, master, sizeof(got));
	for (uint32_t i = 0; i < N; i++)
		ck_assert(got[i] == (i < 8 && i % 2 ? 2 * halves[i / 2] : 0));
}
END_TEST

START_TEST(an_operation_may_be_beside_bytes_and_goes_with_its_edit)
{
	ck_assert_int_eq(stage(one, 1, 0x3f800000), 0);
	ck_assert_int_eq(stage_compute(one), 0);
	ck_assert_int_eq(stage_compute(two), 0);
	ck_assert_int_eq(promise(two, 1, true), 0);
	ck_assert_int_eq(decide(two, false), 0);
	commit(one);
	ck_assert_int_eq(stage_compute(one), -EBUSY);
	ck_assert_int_eq(pass(0), 1);
	ck_assert_uint_eq(master[1], 0x40000000);
	ck_assert_int_eq(stage_compute(two), -ESTALE);
}
END_TEST

/* Staging an operation allocates all memory that applying it needs, or fails. */
START_TEST(no_memory_leaves_no_operation_half_done)
{
	unsigned n, failed = 1, applied = 0;
	int rc;

	ck_assert_int_eq(stage(one, 1, 0x3f800000), 0);
	for (n = 1; failed; n++) {
		struct compute *c = operation_on_odd();

		scarce_begin(n, 1);
		rc = participant_stage_compute(&s, one, WRITER, 1000, false, c);
		failed = scarce_end();
		ck_assert_int_eq(rc, failed ? -ENOMEM : 0);
	}
	ck_assert_uint_gt(n, 2);
	commit(one);
	scarce_begin(1, 1000);
	applied = (unsigned)pass(0);
	ck_assert_uint_eq(scarce_end(), 0);
	ck_assert_uint_eq(applied, 1);
	ck_assert_uint_eq(master[1], 0x40000000);
}
END_TEST

/* A device or a disk takes each of them by itself, where they are more than 4 KiB apart. */
START_TEST(far_elements_are_too_many_but_in_memory)
{
	static const struct {
		uint64_t count, stride;
		enum state_tier tier;
		bool scattered;
	} cases[] = { { COMPUTE_RUNS_MAX + 1, 2048, STATE_HOST, false },
		      { COMPUTE_RUNS_MAX, 2048, STATE_SWAP, false },
		      { COMPUTE_RUNS_MAX + 1, 2048, STATE_SWAP, true },
		      { COMPUTE_RUNS_MAX + 1, 2048, STATE_DEVICE, true },
		      { COMPUTE_RUNS_MAX + 1, 1024, STATE_DEVICE, false } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct wire_compute m = { .epoch = r.states.epoch,
					  .dtype = FRAG_F32,
					  .end = (uint64_t)1 << 40,
					  .naxes = 1,
					  .code = WIRE_SET,
					  .axes = { { cases[i].count, cases[i].stride } } };
		struct compute c;
		bool scattered;

		ck_assert_int_eq(compute_decode(&c, &m), 0);
		r.states.rows[0].tier = (uint8_t)cases[i].tier;
		scattered = compute_is_scattered(&c, &r);
		r.states.rows[0].tier = STATE_HOST;
		ck_assert_msg(scattered == cases[i].scattered, "case %zu", i);
	}
}
END_TEST

START_TEST(operations_are_bounded_as_bytes_are)
{
	unsigned n = 0;

	while (!stage_compute(one))
		n++;
	ck_assert_uint_gt(n, 0);
	ck_assert_uint_le(n, ROOM / sizeof(struct compute));
}
END_TEST

START_TEST(staging_is_bounded_in_bytes)
{
	static uint8_t bytes[ROOM];

	ck_assert_int_eq(stage_bytes(one, WRITER, 1000, 0, 0, bytes, ROOM / 2), 0);
	ck_assert_int_eq(stage_bytes(one, WRITER, 1000, 0, 0, bytes, ROOM / 2), -ENOSPC);
	ck_assert_int_eq(stage_bytes(two, WRITER, 1000, 0, 0, bytes, ROOM), -ENOSPC);
	ck_assert_int_eq(promise(two, 1, true), -ENOENT); /* a refused one leaves nothing */
	decide(one, false);
	ck_assert_int_eq(stage_bytes(two, WRITER, 1000, 0, 0, bytes, ROOM / 2), 0);
}
END_TEST

START_TEST(one_writer_leaves_room_to_others)
{
	static uint8_t bytes[ROOM];

	ck_assert_int_eq(stage_bytes(one, WRITER, 1000, 0, 0, bytes, ROOM / 4 * 3),
			 -ENOSPC); /* with what it costs besides */
	ck_assert_int_eq(stage_bytes(one, WRITER, 1000, 0, 0, bytes, ROOM / 8 * 5), 0);
	ck_assert_int_eq(stage_bytes(two, WRITER, 1000, 0, 0, bytes, ROOM / 8), -ENOSPC);
	ck_assert_int_eq(stage_bytes(two, OTHER, 1000, 0, 0, bytes, ROOM / 8), 0);
}
END_TEST

START_TEST(staging_is_bounded_however_small_its_pieces_are)
{
	unsigned n = 0;

	while (n < ROOM && !stage_bytes(one, WRITER, 1000, 0, 0, "", 1))
		n++;
	ck_assert_uint_gt(n, 100);
	ck_assert_uint_le(n * sizeof(struct edit_piece), ROOM);
}
END_TEST

START_TEST(large_pieces_of_an_edit_are_the_next_ones)
{
	static uint8_t bytes[WIRE_CHUNK];
	struct edit_piece *piece;

	participant_fini(&s);
	ck_assert_int_eq(participant_init(&s, 2 * sizeof(bytes)), 0);
	ck_assert_int_eq(stage_bytes(one, WRITER, 1000, 0, 0, bytes, sizeof(bytes)), 0);
	piece = STAILQ_FIRST(&TAILQ_FIRST(&s.list)->pieces);
	participant_drop(&s, one);
	ck_assert_int_eq(stage_bytes(two, WRITER, 1000, 0, 0, bytes, sizeof(bytes)), 0);
	ck_assert_ptr_eq(STAILQ_FIRST(&TAILQ_FIRST(&s.list)->pieces), piece);
	participant_drop(&s, two);
	participant_trim(&s, s.spare_ms); /* given back just then */
	ck_assert(!STAILQ_EMPTY(&s.spare));
	participant_trim(&s, s.spare_ms + 1);
	ck_assert(STAILQ_EMPTY(&s.spare));
}
END_TEST

START_TEST(staging_is_bounded_in_transactions)
{
	uint64_t transaction[2] = { 9, 0 };
	unsigned n = 0;

	participant_fini(&s);
	ck_assert_int_eq(participant_init(&s, (uint64_t)1 << 30), 0);
	while (!stage(transaction, 0, 1) && n <= PARTICIPANT_EDITS_MAX) {
		transaction[1]++;
		n++;
	}
	ck_assert_uint_eq(n, PARTICIPANT_EDITS_OF_WRITER_MAX);
	for (; !stage_bytes(transaction, OTHER, 1000, 0, 0, "1234", 4); n++)
		transaction[1]++;
	ck_assert_uint_eq(n, PARTICIPANT_EDITS_MAX);
	ck_assert_int_eq(stage(transaction, 0, 1), -ENOSPC);
	ck_assert_int_eq(promise(transaction, b + 1, false), -ENOSPC);
	transaction[1] = 0;
	ck_assert_int_eq(stage(transaction, 1, 1), 0); /* those that are there go on */
}
END_TEST

START_TEST(a_silent_writers_edit_expires_unless_it_is_decided)
{
	uint32_t value = 7;

	stage(one, 3, 7);
	stage(two, 4, 8);
	stage_bytes(two, WRITER, 2000, 0, 0, &value, 4); /* it goes on */
	ck_assert_uint_eq(participant_expire(&s, 1000), 0);
	ck_assert_uint_eq(participant_expire(&s, 1001), 1);
	ck_assert_int_eq(decide(one, true), -ENOENT);
	commit(two);
	ck_assert_uint_eq(participant_expire(&s, UINT64_MAX), 0);
	ck_assert_int_eq(pass(1), 1);
	ck_assert_uint_eq(master[4], 8);
}
END_TEST

/* It stages the rest elsewhere. */
START_TEST(an_edit_of_a_writer_that_is_heard_does_not_expire)
{
	enum { TOUCHED = 50000, NOW = 70000, SILENT = 60000 };
	uint64_t now = PARTICIPANT_TOUCH_MS;

	ck_assert_int_eq(stage_bytes(one, WRITER, 0, 0, 0, "1234", 4), 0);
	ck_assert_int_eq(stage_bytes(two, OTHER, 0, 0, 4, "1234", 4), 0);
	participant_touch(&s, WRITER, TOUCHED);
	ck_assert_uint_eq(participant_expire(&s, NOW - SILENT), 1); /* the other writer's */
	ck_assert_int_eq(promise(two, b + 1, true), -ECANCELED);
	participant_touch(&s, WRITER, now - 1);
	ck_assert_uint_eq(participant_expire(&s, now - 1), 0);
	participant_touch(&s, WRITER, now); /* its abort may have been lost */
	ck_assert_uint_eq(participant_expire(&s, now), 1);
}
END_TEST

START_TEST(an_edit_that_its_coordinator_has_asked_for_is_not_renewed)
{
	ck_assert_int_eq(stage(one, 0, 7), 0);
	pass(1);
	ck_assert_int_eq(promise(one, b, true), -EAGAIN);
	participant_touch(&s, WRITER, 2000);
	ck_assert_uint_eq(participant_expire(&s, 1501), 1);
}
END_TEST

/* What is over and was not applied: why. */
static const char *aborted(const uint64_t transaction[2])
{
	struct edit *e = participant_take_over(&s);
	const char *why;

	ck_assert_ptr_nonnull(e);
	ck_assert_int_eq(memcmp(e->transaction, transaction, sizeof(e->transaction)), 0);
	ck_assert_int_eq(e->state, EDIT_ABORTED);
	ck_assert_uint_eq(e->origin.bytes, transaction[1]);
	ck_assert_ptr_null(STAILQ_FIRST(&e->pieces));
	why = e->why;
	participant_free_edit(&s, e);
	return why ? why : "";
}

static void name(const uint64_t transaction[2])
{
	participant_name(&s, transaction, &(struct wire_origin){ .bytes = transaction[1] });
}

START_TEST(what_a_lost_writer_staged_is_dropped_at_once_and_never_taken)
{
	static const uint64_t asked[2] = { 1, 3 };

	stage(one, 3, 7);
	name(one);
	stage(asked, 5, 9); /* its coordinator ends it */
	ck_assert_int_eq(promise(asked, b + 1, true), 0);
	stage_bytes(two, OTHER, 1000, 0, 16, "here", 4);
	ck_assert_uint_eq(participant_lose_writer(&s, WRITER), 1);
	ck_assert_str_eq(aborted(one), "its writer was lost before it asked for a boundary");
	ck_assert_ptr_null(participant_take_over(&s));
	ck_assert_int_eq(stage(one, 4, 8), -ESTALE); /* or some of its bytes would be taken */
	ck_assert_int_eq(promise(one, b + 2, false), -ECANCELED);
	ck_assert_int_eq(decide(asked, true), 0);
	ck_assert_uint_eq(s.count, 2);
	ck_assert_uint_eq(participant_lose_writer(&s, OTHER), 1);
}
END_TEST

START_TEST(what_is_aborted_is_told_unless_its_writer_took_it_back)
{
	stage(one, 3, 7);
	ck_assert_int_eq(decide(one, false), 0);
	ck_assert_ptr_null(participant_take_over(&s));
	stage(two, 3, 7);
	name(two);
	ck_assert_int_eq(promise(two, b + 1, true), 0);
	ck_assert_int_eq(decide(two, false), 0);
	ck_assert_str_eq(aborted(two), "");
	ck_assert_uint_eq(s.bytes, 0);
}
END_TEST

START_TEST(what_was_staged_is_over_when_its_coordinator_is)
{
	stage(one, 3, 7);
	name(one);
	ck_assert_int_eq(participant_outcome(&s, one), WIRE_UNDECIDED);
	ck_assert_str_eq(aborted(one), "its coordinator died");
	ck_assert_int_eq(participant_outcome(&s, one), WIRE_ABORTED);
}
END_TEST

START_TEST(what_another_rank_has_dropped_is_not_promised)
{
	stage(one, 3, 7);
	name(one);
	stage(two, 3, 7);
	ck_assert_int_eq(promise(two, b + 1, true), 0);
	ck_assert(participant_forbid(&s, one));
	ck_assert(!participant_forbid(&s, two));
	ck_assert_str_eq(aborted(one), "");
	ck_assert_int_eq(promise(one, b + 1, false), -ECANCELED);
	ck_assert_int_eq(decide(two, true), 0);
}
END_TEST

START_TEST(what_its_own_rank_drops_nobody_hears_of)
{
	stage(one, 3, 7);
	stage(two, 3, 7);
	ck_assert_int_eq(promise(two, b + 1, true), 0);
	participant_drop(&s, one);
	participant_drop(&s, two);
	ck_assert_ptr_null(participant_take_over(&s));
	ck_assert_int_eq(promise(one, b + 1, false), -ECANCELED);
	ck_assert_int_eq(decide(two, true), 0);
}
END_TEST

START_TEST(what_was_decided_is_known_however_many_writers_are_lost)
{
	uint64_t lost[2] = { 77, 0 };

	ck_assert_int_eq(promise(one, b + 1, false), 0);
	ck_assert_int_eq(decide(one, true), 0);
	participant_apply(&s, &r, b + 1, 0);
	participant_free_edit(&s, participant_take_over(&s));
	for (lost[1] = 1; lost[1] <= OUTCOME_LOG_MAX; lost[1]++)
		ck_assert(participant_forbid(&s, lost));
	ck_assert_int_eq(participant_outcome(&s, one), WIRE_COMMITTED);
	ck_assert(!participant_forbid(&s, one));
}
END_TEST

/* ---- freezes ---- */

static void freeze(const uint64_t transaction[2], uint64_t at, uint32_t ms, uint64_t heard)
{
	struct wire_prepare p = { .transaction = { transaction[0], transaction[1] },
				  .boundary = at,
				  .order = 1,
				  .coordinator = 3,
				  .freeze_ms = ms };

	ck_assert_int_eq(participant_prepare(&s, &r, &p, NULL, heard), 0);
	ck_assert_int_eq(decide(transaction, true), 0);
}

/* What the trainer is to do at its next boundary. */
static enum participant_next arrive(bool whole)
{
	atomic_store(&r.control->boundary, ++b);
	return participant_pending(&s, b) ? participant_look(&s, b, whole) : PARTICIPANT_GO;
}

static enum participant_next look(void)
{
	return participant_look(&s, b, true);
}

enum { HOUR_MS = 3600000 };

static const struct wire_origin who = { .pid = 4711 };
static struct participant_stay stay;

START_TEST(a_frozen_trainer_stands_until_it_is_thawed)
{
	freeze(one, b + 2, HOUR_MS, monotonic_ms());
	ck_assert_int_eq(arrive(true), PARTICIPANT_GO);
	ck_assert_int_eq(arrive(true), PARTICIPANT_FROZEN);
	ck_assert_int_eq(look(), PARTICIPANT_FROZEN);
	ck_assert_int_eq(applied(one), 0); /* reported while it stands */
	ck_assert_int_eq(participant_thaw(&s, two, &who), -ENOENT);
	ck_assert_int_eq(look(), PARTICIPANT_FROZEN);
	ck_assert(!participant_take_thawed(&s, &stay));
	ck_assert_int_eq(participant_thaw(&s, one, &who), 0);
	ck_assert(participant_take_thawed(&s, &stay));
	ck_assert(stay.thawed && stay.boundary == b && stay.by.pid == who.pid);
	ck_assert_mem_eq(stay.transaction, one, sizeof(one));
	ck_assert(!participant_take_thawed(&s, &stay));
	ck_assert_int_eq(look(), PARTICIPANT_GO);
	ck_assert_int_eq(participant_thaw(&s, one, &who), -ENOENT);
	ck_assert_int_eq(arrive(true), PARTICIPANT_GO);
}
END_TEST

START_TEST(a_freeze_that_is_thawed_before_the_trainer_comes_does_not_hold_it)
{
	static const uint64_t any[2];

	freeze(one, b + 1, HOUR_MS, monotonic_ms());
	ck_assert_int_eq(participant_thaw(&s, any, &who), 0);
	ck_assert_int_eq(arrive(true), PARTICIPANT_GO);
	ck_assert_int_eq(applied(one), -ETIMEDOUT);
	ck_assert(!participant_take_thawed(&s, &stay)); /* nobody stood */
}
END_TEST

START_TEST(who_is_silent_holds_nobody)
{
	uint64_t long_ago = monotonic_ms() - LEASE_SILENT_MS;

	freeze(one, b + 1, HOUR_MS, long_ago);
	ck_assert_int_eq(arrive(true), PARTICIPANT_GO);
	ck_assert_int_eq(applied(one), -ETIMEDOUT);
	freeze(two, b + 1, HOUR_MS, monotonic_ms());
	ck_assert_int_eq(arrive(true), PARTICIPANT_FROZEN);
	scarce_skip_ms(LEASE_SILENT_MS * 3 / 5);
	ck_assert_int_eq(participant_renew(&s, two), 0);
	scarce_skip_ms(LEASE_SILENT_MS * 3 / 5);
	ck_assert_int_eq(look(), PARTICIPANT_FROZEN); /* it was heard of */
	s.lease.heard_ms = long_ago;
	ck_assert_int_eq(participant_renew(&s, two), -ENOENT);
	ck_assert_int_eq(look(), PARTICIPANT_GO);
}
END_TEST

START_TEST(the_bound_of_a_freeze_counts_from_its_decision)
{
	enum { MS = LEASE_SILENT_MS * 3 / 5 };

	freeze(one, b + 1, MS, monotonic_ms());
	ck_assert_int_eq(arrive(true), PARTICIPANT_FROZEN);
	participant_wait(&s, 10);
	scarce_skip_ms(MS);
	ck_assert_int_eq(look(), PARTICIPANT_GO);
	ck_assert(participant_take_thawed(&s, &stay));
	ck_assert(!stay.thawed && stay.boundary == b && stay.until_ms <= monotonic_ms());
	ck_assert_int_eq(participant_thaw(&s, one, &who), -ENOENT);
}
END_TEST

START_TEST(a_freeze_waits_for_the_end_of_a_step)
{
	freeze(one, b + 1, HOUR_MS, monotonic_ms());
	ck_assert_int_eq(arrive(false), PARTICIPANT_GO);
	ck_assert_int_eq(arrive(false), PARTICIPANT_GO);
	ck_assert_int_eq(arrive(true), PARTICIPANT_FROZEN);
}
END_TEST

START_TEST(one_freeze_at_a_time)
{
	struct wire_prepare p = { .transaction = { two[0], two[1] },
				  .boundary = b + 3,
				  .order = 1,
				  .coordinator = 3,
				  .freeze_ms = HOUR_MS };

	freeze(one, b + 1, HOUR_MS, monotonic_ms());
	ck_assert_int_eq(participant_prepare(&s, &r, &p, NULL, monotonic_ms()), -EBUSY);
	ck_assert_uint_eq(s.count, 1);
	ck_assert_int_eq(arrive(true), PARTICIPANT_FROZEN);
	ck_assert_int_eq(participant_prepare(&s, &r, &p, NULL, monotonic_ms()), -EBUSY);
	ck_assert_int_eq(participant_thaw(&s, one, &who), 0);
	ck_assert_int_eq(participant_prepare(&s, &r, &p, NULL, monotonic_ms()), 0);
	ck_assert_int_eq(look(), PARTICIPANT_GO);
}
END_TEST

/* A watch that holds at an earlier boundary takes the lease of a freeze that is decided. */
START_TEST(a_freeze_whose_lease_a_watch_takes_holds_nobody)
{
	static const struct wire_condition condition = { .key = "grad", .pattern = "*" };
	struct wire_prepare p = { .transaction = { two[0], two[1] },
				  .boundary = b + 1,
				  .order = 1,
				  .coordinator = 3,
				  .freeze_ms = HOUR_MS };

	ck_assert_int_eq(participant_prepare(&s, &r, &p, &condition, monotonic_ms()), 0);
	freeze(one, b + 1, HOUR_MS, monotonic_ms());
	ck_assert_int_eq(decide(two, true), 0);
	ck_assert_int_eq(arrive(true), PARTICIPANT_FROZEN);
	ck_assert_int_eq(applied(two), 0);
	ck_assert_int_eq(applied(one), -EBUSY);
	ck_assert_int_eq(participant_thaw(&s, one, &who), -ENOENT);
	ck_assert_int_eq(look(), PARTICIPANT_FROZEN);
	ck_assert_int_eq(participant_thaw(&s, two, &who), 0);
	ck_assert_int_eq(look(), PARTICIPANT_GO);
}
END_TEST

START_TEST(a_watch_without_memory_is_not_promised)
{
	static const struct wire_condition condition = { .key = "grad", .pattern = "*" };
	struct wire_prepare p = { .transaction = { one[0], one[1] },
				  .boundary = b + 1,
				  .order = 1,
				  .coordinator = 3,
				  .freeze_ms = HOUR_MS };
	unsigned n = 0, failed;
	int rc;

	do {
		scarce_begin(++n, 1);
		rc = participant_prepare(&s, &r, &p, &condition, monotonic_ms());
		failed = scarce_end();
		ck_assert(failed ? rc == -ENOMEM || rc == -ENOSPC : !rc);
		ck_assert_int_eq(arrive(true), failed ? PARTICIPANT_GO : PARTICIPANT_CHECK);
		p.boundary = b + 1;
	} while (failed);
	ck_assert_uint_eq(n, 3);
}
END_TEST

START_TEST(a_freeze_that_comes_too_late_keeps_no_other_out)
{
	struct wire_prepare p = { .transaction = { one[0], one[1] },
				  .boundary = b,
				  .order = 1,
				  .coordinator = 3,
				  .freeze_ms = HOUR_MS };
	uint64_t now = monotonic_ms();

	ck_assert_int_eq(participant_prepare(&s, &r, &p, NULL, now), -EAGAIN);
	memcpy(p.transaction, two, sizeof(p.transaction));
	p.boundary = b + 1;
	ck_assert_int_eq(participant_prepare(&s, &r, &p, NULL, now),
			 -EBUSY); /* it is asked again */
	ck_assert_int_eq(participant_prepare(&s, &r, &p, NULL, now + 1000), 0);
}
END_TEST

START_TEST(edits_may_name_the_boundary_that_the_trainer_stands_at)
{
	stage(two, 3, 7);
	ck_assert(!participant_frozen_at(&s, b));
	freeze(one, b + 1, HOUR_MS, monotonic_ms());
	ck_assert_int_eq(arrive(true), PARTICIPANT_FROZEN);
	ck_assert(participant_frozen_at(&s, b));
	ck_assert_int_eq(promise(two, b - 1, true), -EAGAIN);
	ck_assert_int_eq(promise(two, b, true), 0);
	ck_assert_int_eq(look(), PARTICIPANT_UNDECIDED);
	ck_assert_int_eq(participant_thaw(&s, one, &who), 0);
	ck_assert_int_eq(look(), PARTICIPANT_UNDECIDED); /* it promised not to go */
	ck_assert_int_eq(decide(two, true), 0);
	ck_assert_int_eq(pass_here(1), 1);
	ck_assert_uint_eq(master[3], 7);
	ck_assert_int_eq(look(), PARTICIPANT_GO);
	ck_assert_int_eq(promise((uint64_t[2]){ 1, 3 }, b, false), -EAGAIN);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("edits");
	TCase *t = tcase_create("edits");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, nothing_is_applied_before_it_is_decided);
	tcase_add_test(t, pieces_are_applied_in_the_order_they_came);
	tcase_add_test(t, an_aborted_edit_is_forgotten);
	tcase_add_test(t, what_is_decided_long_ago_and_not_applied_is_not_promised_anew);
	tcase_add_test(t, what_is_decided_long_ago_and_not_applied_stays_decided);
	tcase_add_test(t, all_edits_of_a_boundary_are_remembered_after_it);
	tcase_add_test(t, what_is_decided_takes_no_more_pieces_and_no_other_decision);
	tcase_add_test(t, an_edit_of_memory_registered_anew_is_not_applied_at_all);
	tcase_add_test(t, an_edit_of_which_some_memory_was_freed_is_not_applied_at_all);
	tcase_add_test(t, edits_of_gradients_wait_until_they_are_valid);
	tcase_add_test(t, edits_of_gradients_end_with_their_window);
	tcase_add_loop_test(t, a_round_of_gradients_ends_with_their_window, 0, 2);
	tcase_add_test(t, a_transaction_has_one_round_or_pieces);
	tcase_add_test(t, gradients_that_are_gone_are_not_promised);
	tcase_add_test(t, an_abort_lets_the_trainer_go_on);
	tcase_add_test(t, a_boundary_that_is_passed_is_not_promised);
	tcase_add_test(t, a_rank_without_bytes_promises_and_counts_it_too);
	tcase_add_test(t, edits_of_one_boundary_are_applied_in_the_coordinators_order);
	tcase_add_test(t, an_edit_whose_coordinator_died_is_settled_by_what_others_know);
	tcase_add_test(t, what_was_decided_is_known_however_many_writers_are_lost);
	tcase_add_test(t, one_never_heard_of_is_undecided_and_then_never_taken);
	tcase_add_test(t, one_that_is_fenced_is_not_promised);
	tcase_add_test(t, one_that_is_fenced_does_not_hear_its_coordinator);
	tcase_add_test(t, staging_is_bounded_in_bytes);
	tcase_add_test(t, staging_is_bounded_however_small_its_pieces_are);
	tcase_add_test(t, one_writer_leaves_room_to_others);
	tcase_add_test(t, large_pieces_of_an_edit_are_the_next_ones);
	tcase_add_test(t, staging_is_bounded_in_transactions);
	tcase_add_test(t, a_silent_writers_edit_expires_unless_it_is_decided);
	tcase_add_test(t, an_edit_of_a_writer_that_is_heard_does_not_expire);
	tcase_add_test(t, an_edit_that_its_coordinator_has_asked_for_is_not_renewed);
	tcase_add_test(t, what_a_lost_writer_staged_is_dropped_at_once_and_never_taken);
	tcase_add_test(t, what_is_aborted_is_told_unless_its_writer_took_it_back);
	tcase_add_test(t, what_was_staged_is_over_when_its_coordinator_is);
	tcase_add_test(t, what_another_rank_has_dropped_is_not_promised);
	tcase_add_test(t, what_its_own_rank_drops_nobody_hears_of);
	tcase_add_test(t, a_frozen_trainer_stands_until_it_is_thawed);
	tcase_add_test(t, a_freeze_that_is_thawed_before_the_trainer_comes_does_not_hold_it);
	tcase_add_test(t, a_freeze_whose_lease_a_watch_takes_holds_nobody);
	tcase_add_test(t, a_watch_without_memory_is_not_promised);
	tcase_add_test(t, who_is_silent_holds_nobody);
	tcase_add_test(t, an_operation_is_on_what_edits_before_it_have_left);
	tcase_add_test(t, an_operation_may_be_beside_bytes_and_goes_with_its_edit);
	tcase_add_test(t, no_memory_leaves_no_operation_half_done);
	tcase_add_test(t, far_elements_are_too_many_but_in_memory);
	tcase_add_test(t, operations_are_bounded_as_bytes_are);
	tcase_add_test(t, the_bound_of_a_freeze_counts_from_its_decision);
	tcase_add_test(t, a_freeze_waits_for_the_end_of_a_step);
	tcase_add_test(t, one_freeze_at_a_time);
	tcase_add_test(t, a_freeze_that_comes_too_late_keeps_no_other_out);
	tcase_add_test(t, edits_may_name_the_boundary_that_the_trainer_stands_at);
	return run_suite(suite, t);
}
