/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/model/commit.h"

/* The model of engine/rank/participant.c and of its calls by engine/serve/serve.c. */

static bool bars(const struct edit *e)
{
	return e->state == EDIT_PREPARED || e->state == EDIT_DECIDED;
}

static void answer(struct state *s, unsigned r, unsigned to, enum type type, unsigned edit,
		   unsigned value)
{
	send(s, r, to,
	     (struct message){ .type = type & 31, .edit = edit & 1, .value = value & 31 });
}

void participant_stage(struct state *s, unsigned r, unsigned from, unsigned edit)
{
	struct edit *e = &s->ranks[r].edits[edit];
	bool taken = e->state == EDIT_STAGED || (!e->state && !e->remembered);

	if (taken)
		e->state = EDIT_STAGED;
	answer(s, r, from, STAGED, edit, taken);
}

static void vote(struct state *s, unsigned r, unsigned from, unsigned edit, enum vote vote)
{
	unsigned passed = s->ranks[r].boundary;

	send(s, r, from, (struct message){ VOTE, edit & 1, passed & 31, vote & 31 });
}

/* The first half of a promise: from here on the trainer sees the edit. */
void participant_prepare(struct state *s, unsigned r, unsigned from, struct message m)
{
	struct rank *rank = &s->ranks[r];
	struct edit *e = &rank->edits[m.edit];
	bool holder = bounds.holders >> r & 1;

	if (e->remembered || e->fenced || (holder && !e->state) || e->state > EDIT_PREPARED) {
		vote(s, r, from, m.edit, VOTE_NO);
		return;
	}
	e->coordinator = (uint8_t)from;
	e->order = m.value;
	if (e->state == EDIT_PREPARED && e->n == m.n &&
	    mutation != MUTATION_LOOKS_BEFORE_PROMISE) {
		vote(s, r, from, m.edit, VOTE_YES);
		return;
	}
	if (mutation == MUTATION_LOOKS_BEFORE_PROMISE && rank->boundary >= m.n) {
		e->state = EDIT_STAGED;
		vote(s, r, from, m.edit, VOTE_LATE);
		return;
	}
	if (mutation != MUTATION_LOOKS_BEFORE_PROMISE)
		e->state = EDIT_PREPARED;
	e->n = m.n;
	rank->promising = (uint8_t)(m.edit + 1);
}

/* The second half of a promise: votes by where the trainer is. */
void edits_promise(struct state *s, unsigned r)
{
	struct rank *rank = &s->ranks[r];
	unsigned edit = rank->promising - 1u;
	struct edit *e = &rank->edits[edit];
	bool in_time = e->arrived || rank->boundary < e->n;

	rank->promising = 0;
	if (is_watch(edit) && e->arrived && rank->boundary < e->n)
		/* the trainer goes on past this boundary */
		e->arrived = e->checked = e->found = 0;
	if (mutation == MUTATION_LOOKS_BEFORE_PROMISE) {
		e->state = EDIT_PREPARED;
		in_time = true;
	}
	if (!in_time && mutation != MUTATION_LATE_IS_YES)
		e->state = EDIT_STAGED;
	vote(s, r, e->coordinator, edit,
	     in_time || mutation == MUTATION_LATE_IS_YES ? VOTE_YES : VOTE_LATE);
}

static void clear(struct edit *e)
{
	e->n = e->order = e->coordinator = e->arrived = e->fenced = e->peer = 0;
	e->awaits = e->checked = e->found = 0;
}

static void settle(struct edit *e, bool commit, unsigned peer)
{
	e->remembered = commit ? COMMITTED : ABORTED;
	e->state = commit ? EDIT_DECIDED : EDIT_NONE;
	e->peer = (uint8_t)peer;
	if (!commit)
		clear(e);
}

/* Returns 0, 1: refused, or 2: decided and applied already. */
static unsigned decide(struct edit *e, bool commit, unsigned peer)
{
	if (e->remembered) {
		if (commit != (e->remembered == COMMITTED))
			return 1;
		if (!e->state)
			return 2;
		e->peer = (uint8_t)peer;
		return 0;
	}
	if (!e->state || (commit && e->state != EDIT_PREPARED) ||
	    (e->fenced && mutation != MUTATION_FENCED_DECIDES))
		return 1;
	settle(e, commit, peer);
	return 0;
}

void participant_decide(struct state *s, unsigned r, unsigned from, struct message m)
{
	struct edit *e = &s->ranks[r].edits[m.edit];
	bool is_coordinators = e->state == EDIT_PREPARED && !e->fenced;
	unsigned refused = 1;

	if (!is_coordinators || e->coordinator == from)
		refused = decide(e, m.value, from);
	if (from == WRITER)
		return;
	if (refused == 2 && m.value)
		answer(s, r, from, APPLIED, m.edit, 0);
	else
		answer(s, r, from, DECIDED, m.edit, refused == 1 && m.value);
}

uint8_t participant_outcome(struct state *s, unsigned r, unsigned edit)
{
	struct edit *e = &s->ranks[r].edits[edit];
	uint8_t outcome = e->remembered;

	if (!outcome && e->state > EDIT_STAGED)
		e->fenced = 1;
	else if (!outcome)
		settle(e, false, NODES);
	return outcome;
}

bool participant_lose_writer(struct state *s, unsigned r, unsigned edit)
{
	struct edit *e = &s->ranks[r].edits[edit];

	if (!(s->dead >> WRITER & 1) || e->state != EDIT_STAGED || e->order)
		return false;
	settle(e, false, NODES);
	return true;
}

void participant_resolve(struct state *s, unsigned r, unsigned edit, bool commit)
{
	struct edit *e = &s->ranks[r].edits[edit];

	if (e->state == EDIT_PREPARED)
		settle(e, commit, NODES);
}

/* Hears the coordinator's answer to ARRIVED. */
void participant_hear(struct state *s, unsigned r, unsigned edit, bool commit)
{
	struct edit *e = &s->ranks[r].edits[edit];

	if (e->awaits && !e->fenced)
		participant_resolve(s, r, edit, commit);
	e->awaits = 0;
}

/* ---- the trainer ---- */

bool participant_pending(const struct state *s, unsigned r)
{
	const struct rank *rank = &s->ranks[r];

	for (unsigned i = 0; i < EDITS; i++)
		if (bars(&rank->edits[i]) && rank->edits[i].n <= rank->boundary)
			return true;
	return false;
}

/* Marks the edits at which the trainer has arrived.  Returns true if one is undecided; a watch
 * does not count, because it waits for the decision of other edits.
 */
static bool arrive(struct rank *rank)
{
	bool any = false;

	for (unsigned i = 0; i < EDITS; i++) {
		struct edit *e = &rank->edits[i];

		if (e->state != EDIT_PREPARED || e->n > rank->boundary)
			continue;
		e->arrived = true;
		any |= !is_watch(i);
	}
	return any;
}

static bool before(const struct edit *a, const struct edit *b)
{
	if (a->n != b->n)
		return a->n < b->n;
	return a->order < b->order && mutation != MUTATION_ORDER_OF_ARRIVAL;
}

static struct edit *next_decided(struct rank *rank)
{
	struct edit *next = NULL;

	for (unsigned i = 0; i < EDITS; i++) {
		struct edit *e = &rank->edits[i];

		if (e->state == EDIT_DECIDED && e->n <= rank->boundary &&
		    (!next || before(e, next)))
			next = e;
	}
	return next;
}

/* Returns true if the trainer waits for the verdict of a watch, which it checks first. */
static bool check(struct rank *rank, bool is_finder)
{
	struct edit *e = &rank->edits[0];

	if (!is_watch(0) || e->state != EDIT_PREPARED || !e->arrived)
		return false;
	if (!e->checked && is_finder)
		e->found = bounds.bad == BAD_BY_EDIT ? rank->edits[1].applied_at != 0
						     : e->n == bounds.bad;
	e->checked = 1;
	return true;
}

static void take_for_decided(struct rank *rank)
{
	for (unsigned i = 0; i < EDITS; i++)
		if (rank->edits[i].state == EDIT_PREPARED && rank->edits[i].n <= rank->boundary)
			settle(&rank->edits[i], true, rank->edits[i].coordinator);
}

bool participant_look(struct state *s, unsigned r)
{
	struct rank *rank = &s->ranks[r];
	bool undecided = false;
	struct edit *e;

	if (mutation == MUTATION_LAUNCHES_UNDECIDED)
		take_for_decided(rank);
	if (mutation != MUTATION_ORDER_OF_ARRIVAL || !next_decided(rank))
		undecided = arrive(rank);
	if (mutation == MUTATION_LOOKS_BEFORE_EDITS)
		check(rank, r == FINDER);
	if (undecided)
		return true;
	e = next_decided(rank);
	if (!e)
		return check(rank, r == FINDER);
	e->state = EDIT_APPLIED;
	e->applied_at = (uint8_t)(rank->boundary + 1);
	e->applied_as = ++rank->applied;
	round_launch(s, r, (unsigned)(e - rank->edits));
	return true;
}

/* Returns true if a round's rank has sent other bytes than those asked for. */
static bool was_spoiled(const struct state *s, unsigned r, unsigned edit)
{
	return s->ranks[r].launches[edit].how > LAUNCHED;
}

/* Reports an applied edit, and takes it out, as the engine thread does. */
bool edits_report(struct state *s, unsigned r, unsigned edit)
{
	struct edit *e = &s->ranks[r].edits[edit];

	if (e->state != EDIT_APPLIED)
		return false;
	if (e->peer != NODES)
		answer(s, r, e->peer, APPLIED, edit, was_spoiled(s, r, edit));
	e->state = EDIT_NONE;
	clear(e);
	return true;
}
