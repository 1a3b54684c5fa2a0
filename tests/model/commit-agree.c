/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/model/commit.h"

#include <string.h>

/* The model of engine/commit/coordinator.c. */

static struct message about(enum type type, unsigned edit, unsigned n, unsigned value)
{
	return (struct message){ type & 31, edit & 1, n & 31, value & 31 };
}

/* ---- deciding ---- */

static bool is_committed(const struct coordinator_transaction *a)
{
	return a->state == COORDINATOR_COMMITTING || a->state == COORDINATOR_COMMITTED;
}

static bool tell_decision(struct state *s, unsigned r, unsigned edit, unsigned rank)
{
	return !send(s, r, rank,
		     about(DECIDE, edit, 0, is_committed(&s->ranks[r].agreements[edit])));
}

static void ended(struct coordinator_transaction *a, unsigned rank)
{
	a->part[rank] = PART_NONE;
	a->outstanding &= (uint8_t) ~(1u << rank);
}

/* Hears DECIDED, whose value is true if the rank refuses the decision, or APPLIED. */
void agree_on_decided(struct state *s, unsigned r, unsigned from, struct message m)
{
	struct coordinator_transaction *a = &s->ranks[r].agreements[m.edit];
	bool refused = m.type == DECIDED && m.value;

	if (a->state < COORDINATOR_COMMITTING || !(a->outstanding >> from & 1))
		return;
	a->taken |= !refused;
	a->refused |= refused;
	a->spoiled |= m.type == APPLIED && m.value;
	if (refused || m.type == APPLIED || !is_committed(a))
		ended(a, from); /* after DECIDED of a commit, APPLIED follows */
}

static void tell(struct state *s, unsigned r, unsigned edit, unsigned rank)
{
	struct coordinator_transaction *a = &s->ranks[r].agreements[edit];

	if (a->part[rank] && tell_decision(s, r, edit, rank))
		a->outstanding |= (uint8_t)(1u << rank);
	else
		a->part[rank] = PART_NONE;
}

static void decide(struct state *s, unsigned r, unsigned edit, bool commit)
{
	struct coordinator_transaction *a = &s->ranks[r].agreements[edit];

	a->state = commit ? COORDINATOR_COMMITTING : COORDINATOR_ABORTED;
	a->outstanding = 0;
	for (unsigned rank = 0; rank < RANKS; rank++)
		if (rank != r || !commit || mutation == MUTATION_DECIDES_ALONE)
			tell(s, r, edit, rank);
	if (commit && mutation == MUTATION_DECIDES_ALONE)
		a->state = COORDINATOR_COMMITTED;
	if (!commit)
		send(s, r, WRITER, about(VERDICT, edit, 0, 0));
}

/* Tells itself the decision last: ranks that held it for dead may have aborted. */
static void decide_here(struct state *s, unsigned r, unsigned edit)
{
	struct coordinator_transaction *a = &s->ranks[r].agreements[edit];

	if (a->taken || (!a->outstanding && !a->refused)) {
		a->state = COORDINATOR_COMMITTED;
		tell(s, r, edit, r);
	} else if (!a->outstanding) {
		decide(s, r, edit, false);
	}
}

static void finish(struct state *s, unsigned r, unsigned edit)
{
	struct coordinator_transaction *a = &s->ranks[r].agreements[edit];

	if (is_committed(a))
		send(s, r, WRITER, about(VERDICT, edit, 0, !a->spoiled));
	memset(a, 0, sizeof(*a));
}

/* ---- voting ---- */

static uint8_t bounded(unsigned n)
{
	return (uint8_t)(n > bounds.boundaries ? bounds.boundaries + 1u : n);
}

static void ask_all(struct state *s, unsigned r, unsigned edit)
{
	struct rank *me = &s->ranks[r];
	struct coordinator_transaction *a = &me->agreements[edit];

	a->late = 0;
	a->order = ++me->agreed_order;
	if (!is_watch(edit))
		me->agreed_boundary = (uint8_t)u64_max(me->agreed_boundary, a->n);
	for (unsigned rank = 0; rank < RANKS; rank++) {
		if (!a->part[rank])
			continue;
		if (!send(s, r, rank, about(PREPARE, edit, a->n, a->order)))
			a->outstanding |= (uint8_t)(1u << rank);
		else if (a->part[rank] == PART_HOLDER)
			a->failed = 1;
		else
			a->part[rank] = PART_NONE;
	}
}

static void forget_checks(struct coordinator_transaction *a)
{
	if (mutation != MUTATION_OLD_CHECKS)
		a->checked = a->found = 0;
}

static void ask_later(struct state *s, unsigned r, unsigned edit)
{
	struct rank *me = &s->ranks[r];
	struct coordinator_transaction *a = &me->agreements[edit];

	if (is_watch(edit) && a->passed < a->n) { /* a PREPARE or its VOTE was lost */
		ask_all(s, r, edit);
		return;
	}
	forget_checks(a);
	a->n = bounded((unsigned)u64_max(u64_max(a->passed, a->n) + 1, me->agreed_boundary));
	ask_all(s, r, edit);
}

void agree_on_vote(struct state *s, unsigned r, unsigned from, struct message m)
{
	struct coordinator_transaction *a = &s->ranks[r].agreements[m.edit];

	if (a->state != COORDINATOR_VOTING || !(a->outstanding >> from & 1))
		return;
	a->outstanding &= (uint8_t) ~(1u << from);
	if (m.value == VOTE_LATE)
		a->passed = (uint8_t)u64_max(a->passed, m.n);
	a->late |= m.value == VOTE_LATE;
	a->failed |= m.value == VOTE_NO;
}

static bool holder_is_lost(const struct state *s, unsigned r,
			   const struct coordinator_transaction *a)
{
	for (unsigned rank = 0; rank < RANKS; rank++)
		if (a->part[rank] == PART_HOLDER && holds_for_lost(s, r, rank))
			return true;
	return false;
}

static void end_voting(struct state *s, unsigned r, unsigned edit)
{
	struct coordinator_transaction *a = &s->ranks[r].agreements[edit];

	if (a->late) {
		ask_later(s, r, edit);
		return;
	}
	a->state = COORDINATOR_ACCEPTED;
	if (!a->first)
		send(s, r, WRITER, about(ACCEPTED, edit, a->n, 0));
	if (!a->first)
		a->first = a->n;
	if (mutation == MUTATION_SUCCESS_WHEN_ACCEPTED)
		send(s, r, WRITER, about(VERDICT, edit, 0, 1));
}

/* ---- a watch ---- */

static bool all_have_checked(const struct state *s, unsigned r,
			     struct coordinator_transaction *a)
{
	bool all = true, any = a->checked != 0;

	for (unsigned rank = 0; rank < RANKS; rank++) {
		if (!a->part[rank] || a->checked >> rank & 1)
			continue;
		if (!holds_for_lost(s, r, rank) || mutation == MUTATION_LOST_IS_AWAITED)
			all = false;
		else
			a->part[rank] = PART_NONE;
	}
	return mutation == MUTATION_GOES_ON_ALONE ? any : all;
}

static void watch(struct state *s, unsigned r, unsigned edit)
{
	struct coordinator_transaction *a = &s->ranks[r].agreements[edit];

	if (a->n > bounds.boundaries || !all_have_checked(s, r, a))
		return;
	if (a->found) {
		decide(s, r, edit, true);
		return;
	}
	forget_checks(a);
	a->n++;
	a->state = COORDINATOR_VOTING;
	for (unsigned rank = 0; rank < RANKS; rank++)
		if (!a->part[rank] && !holds_for_lost(s, r, rank))
			a->part[rank] = PART_PROMISED;
	ask_all(s, r, edit);
}

void coordinator_checked(struct explore *x, struct state *s, unsigned r, unsigned from,
			 struct message m)
{
	struct coordinator_transaction *a = &s->ranks[r].agreements[m.edit];

	if (a->state != COORDINATOR_VOTING && a->state != COORDINATOR_ACCEPTED) {
		coordinator_arrived(x, s, r, from, m.edit);
		return;
	}
	if (m.n != a->n)
		return;
	a->checked |= (uint8_t)(1u << from);
	a->found |= m.value;
}

/* Returns false if there was nothing to do. */
bool coordinator_turn(struct state *s, unsigned r, unsigned edit)
{
	struct coordinator_transaction *a = &s->ranks[r].agreements[edit];
	struct coordinator_transaction was = *a;
	bool voted = !a->outstanding || mutation == MUTATION_DECIDES_BEFORE_VOTES;

	if (!a->state)
		return false;
	if (a->state <= COORDINATOR_ACCEPTED && holder_is_lost(s, r, a))
		a->failed = 1;
	if (a->state == COORDINATOR_VOTING && voted && !a->failed && !a->cancelled)
		end_voting(s, r, edit);
	if (a->state <= COORDINATOR_ACCEPTED && !a->outstanding && (a->failed || a->cancelled))
		decide(s, r, edit, false);
	if (a->state == COORDINATOR_ACCEPTED && is_watch(edit))
		watch(s, r, edit);
	if (a->state == COORDINATOR_ACCEPTED && a->arrived && !is_watch(edit))
		decide(s, r, edit, true);
	if (a->state == COORDINATOR_COMMITTING)
		decide_here(s, r, edit);
	if (a->state >= COORDINATOR_COMMITTED && !a->outstanding)
		finish(s, r, edit);
	return memcmp(a, &was, sizeof(was)) != 0;
}

/* ---- a writer asks ---- */

static bool is_repeated(struct state *s, unsigned r, unsigned edit)
{
	const struct coordinator_transaction *a = &s->ranks[r].agreements[edit];
	const struct edit *e = &s->ranks[r].edits[edit];

	if (a->state == COORDINATOR_ABORTED)
		send(s, r, WRITER, about(VERDICT, edit, 0, 0));
	else if (a->state > COORDINATOR_VOTING)
		send(s, r, WRITER, about(ACCEPTED, edit, a->n, 0));
	if (a->state)
		return true;
	if (e->remembered)
		send(s, r, WRITER, about(VERDICT, edit, 0, e->remembered == COMMITTED));
	return e->remembered;
}

void coordinator_commit(struct state *s, unsigned r, unsigned edit)
{
	struct rank *me = &s->ranks[r];
	struct coordinator_transaction *a = &me->agreements[edit];

	if (is_repeated(s, r, edit))
		return;
	a->state = COORDINATOR_VOTING;
	for (unsigned rank = 0; rank < RANKS; rank++) {
		bool live = !holds_for_lost(s, r, rank);

		a->part[rank] = live ? PART_PROMISED : PART_NONE;
		if (bounds.holders >> rank & 1) {
			a->failed |= !live;
			a->part[rank] = PART_HOLDER;
		}
	}
	a->n = bounded((unsigned)u64_max(me->boundary + 1u, me->agreed_boundary));
	if (!a->failed)
		ask_all(s, r, edit);
}

void coordinator_cancel(struct state *s, unsigned r, unsigned edit)
{
	if (s->ranks[r].agreements[edit].state)
		s->ranks[r].agreements[edit].cancelled = 1;
}

static void tell_known(struct state *s, unsigned r, unsigned to, unsigned edit,
		       unsigned outcome)
{
	send(s, r, to, about(ARRIVED_KNOWN, edit, 0, outcome));
}

/* Answers ARRIVED.  Calls explore_next itself when the answer comes by a timer. */
void coordinator_arrived(struct explore *x, struct state *s, unsigned r, unsigned from,
			 unsigned edit)
{
	struct coordinator_transaction *a = &s->ranks[r].agreements[edit];
	const struct edit *e = &s->ranks[r].edits[edit];
	struct state told;

	if (!a->state) {
		tell_known(s, r, from, edit, e->remembered ? e->remembered : ABORTED);
		return;
	}
	a->arrived = 1;
	if (a->state < COORDINATOR_COMMITTED)
		return;
	told = *s;
	if (a->part[from] && mutation == MUTATION_TOLD_IS_APPLIED)
		ended(&told.ranks[r].agreements[edit], from);
	tell_known(&told, r, from, edit, is_committed(a) ? COMMITTED : ABORTED);
	if (r != from && a->part[from])
		then(x, &told, "%d tells %d, which has arrived, the decision", (int)r,
		     (int)from);
	if (!a->part[from])
		*s = told;
}

/* ---- a coordinator died ---- */

void termination_outcome(struct state *s, unsigned r, unsigned from, unsigned edit)
{
	const struct edit *e = &s->ranks[r].edits[edit];
	bool waits = e->state == EDIT_PREPARED && !e->fenced &&
		     !holds_for_lost(s, r, e->coordinator);

	send(s, r, from,
	     about(OUTCOME_KNOWN, edit, 0,
		   waits ? COORDINATED : participant_outcome(s, r, edit)));
}

bool agree_inquire(struct state *s, unsigned r, unsigned edit)
{
	struct rank *me = &s->ranks[r];
	const struct edit *e = &me->edits[edit];
	struct inquiry *q = &me->inquiries[edit];

	if (e->state != EDIT_PREPARED || q->asked || mutation == MUTATION_NOBODY_ASKS ||
	    !(e->fenced || holds_for_lost(s, r, e->coordinator)))
		return false;
	q->asked = 1;
	for (unsigned rank = 0; rank < RANKS; rank++)
		if (!send(s, r, rank, about(OUTCOME, edit, 0, 0)))
			q->outstanding |= (uint8_t)(1u << rank);
	return true;
}

void agree_on_known(struct state *s, unsigned r, unsigned from, struct message m)
{
	struct inquiry *q = &s->ranks[r].inquiries[m.edit];

	if (!(q->outstanding >> from & 1))
		return;
	q->outstanding &= (uint8_t) ~(1u << from);
	q->again |= m.value == COORDINATED;
	if (m.value == COMMITTED)
		q->outcome = COMMITTED;
}

bool agree_end_inquiry(struct state *s, unsigned r, unsigned edit)
{
	struct inquiry *q = &s->ranks[r].inquiries[edit];

	if (!q->asked || (q->outstanding && mutation != MUTATION_ABORTS_UNASKED))
		return false;
	if (!q->again || q->outcome == COMMITTED)
		participant_resolve(s, r, edit, q->outcome == COMMITTED);
	memset(q, 0, sizeof(*q));
	return true;
}

/* ---- silence ---- */

/* Asks the rank again, if neither r's question nor its answer is under way. */
bool agree_ask_again(struct state *s, unsigned r, unsigned rank, unsigned edit)
{
	struct coordinator_transaction *a = &s->ranks[r].agreements[edit];
	struct inquiry *q = &s->ranks[r].inquiries[edit];
	bool any = false;

	if (a->state == COORDINATOR_VOTING && a->outstanding >> rank & 1 &&
	    !is_under_way(s, r, rank, PREPARE, edit) && !is_under_way(s, rank, r, VOTE, edit) &&
	    s->ranks[rank].promising != edit + 1) {
		a->outstanding &= (uint8_t) ~(1u << rank);
		a->late = any = true;
	}
	if (is_watch(edit) && a->state == COORDINATOR_ACCEPTED && !(a->checked >> rank & 1) &&
	    a->part[rank] && a->n <= bounds.boundaries &&
	    mutation != MUTATION_NOBODY_ASKS_AGAIN) {
		a->state = COORDINATOR_VOTING;
		ask_all(s, r, edit);
		any = true;
	}
	if (a->state >= COORDINATOR_COMMITTING && a->outstanding >> rank & 1 &&
	    !is_under_way(s, r, rank, DECIDE, edit) &&
	    !is_under_way(s, rank, r, DECIDED, edit) &&
	    !is_under_way(s, rank, r, APPLIED, edit))
		any = tell_decision(s, r, edit, rank);
	if (q->outstanding >> rank & 1 && !is_under_way(s, r, rank, OUTCOME, edit) &&
	    !is_under_way(s, rank, r, OUTCOME_KNOWN, edit)) {
		q->outstanding &= (uint8_t) ~(1u << rank);
		q->again = any = true;
	}
	return any;
}

/* r holds the rank for lost: its questions to the rank end. */
void agree_lost(struct state *s, unsigned r, unsigned rank)
{
	for (unsigned edit = 0; edit < EDITS; edit++) {
		struct coordinator_transaction *a = &s->ranks[r].agreements[edit];

		s->ranks[r].inquiries[edit].outstanding &= (uint8_t) ~(1u << rank);
		if (s->ranks[r].edits[edit].coordinator == rank)
			s->ranks[r].edits[edit].awaits = 0;
		if (!(a->outstanding >> rank & 1))
			continue;
		if (a->state == COORDINATOR_VOTING)
			a->failed |= a->part[rank] == PART_HOLDER;
		else if (bounds.reader && mutation != MUTATION_LOST_HAS_SENT)
			a->spoiled |= a->part[rank] == PART_HOLDER;
		ended(a, rank);
	}
}
