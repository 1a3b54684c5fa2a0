/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/model/communicator.h"

/* The model of a library below engine/collective/collective.h.  Each rank joins an id once; a
 * rank that has joined is ready when all have; a library that has failed or was aborted lets go
 * some time later.  A launch ends when all ranks have launched their part, or when the library
 * lets go.
 */

void library_open(struct state *s, unsigned r)
{
	struct rank *me = &s->ranks[r];
	uint8_t *joined = &s->joined[me->number];

	s->twice |= has(*joined, r);
	put(joined, r);
	me->library = JOINING;
}

void library_abort(struct state *s, unsigned r)
{
	uint8_t *library = &s->ranks[r].library;

	if (*library == JOINING || *library == READY)
		*library = FAILED;
}

static void let_go(struct explore *x, const struct state *s, unsigned r)
{
	struct state next = *s;

	next.ranks[r].library = OVER;
	next.ranks[r].under_way = 0;
	then(x, &next, "the library of %d lets go", (int)r, 0);
}

static void go_wrong(struct explore *x, const struct state *s, unsigned r)
{
	struct state next = *s;

	if (!s->faults)
		return;
	next.faults--;
	next.ranks[r].library = FAILED;
	then(x, &next, "the library of %d fails", (int)r, 0);
}

/* Returns true if all members have joined the same id, or were ready once, as all had joined
 * then.
 */
static bool all_have_come(const struct state *s, unsigned r)
{
	const struct rank *me = &s->ranks[r];
	bool all = true;

	for (unsigned rank = 0; rank < RANKS; rank++) {
		const struct rank *other = &s->ranks[rank];
		bool is_in = other->number == me->number &&
			     (other->library == JOINING || other->library == READY);

		all &= !has(me->members, rank) || is_in || has(s->ready[me->number], rank);
	}
	return all;
}

void library_step(struct explore *x, const struct state *s, unsigned r)
{
	const struct rank *me = &s->ranks[r];
	struct state next = *s;

	if (me->library == FAILED)
		let_go(x, s, r);
	if (me->library == JOINING || me->library == READY)
		go_wrong(x, s, r);
	if (me->library != JOINING || !all_have_come(s, r))
		return;
	next.ranks[r].library = READY;
	put(&next.ready[me->number], r);
	then(x, &next, "the library of %d is ready", (int)r, 0);
}

/* ---- a round ---- */

static bool have_promised(const struct state *s, unsigned r)
{
	const struct rank *me = &s->ranks[r];
	bool all = me->life == UP;

	for (unsigned rank = 0; rank < RANKS; rank++)
		all &= !has(me->members, rank) ||
		       (is_up(s, rank) && s->ranks[rank].life == UP &&
			s->ranks[rank].number == me->number);
	return all;
}

static void begin(struct explore *x, const struct state *s, unsigned r)
{
	struct state next = *s;

	if (!s->rounds || !have_promised(s, r))
		return;
	next.rounds--;
	next.round = s->ranks[r].number;
	next.due = s->ranks[r].members;
	then(x, &next, "%d has promises of all", (int)r, 0);
}

static void launch(struct explore *x, const struct state *s, unsigned r, bool fails)
{
	struct state next = *s;
	struct rank *me = &next.ranks[r];
	bool can = me->number == s->round && me->library == READY && !fails;

	take_away(&next.due, r);
	next.failures -= fails;
	if (can)
		me->under_way = 1;
	else
		me->broken = s->round;
	then(x, &next, can ? "%d launches its part" : "%d cannot launch its part", (int)r, 0);
}

/* Returns true if r's part and those of all others are launched. */
static bool moves(const struct state *s, unsigned r)
{
	const struct rank *me = &s->ranks[r];
	bool all = me->under_way && me->library == READY && !s->due;

	for (unsigned rank = 0; rank < RANKS; rank++) {
		const struct rank *other = &s->ranks[rank];

		all &= !has(me->members, rank) || has(s->moved, rank) ||
		       (other->under_way && other->library == READY);
	}
	return all;
}

static void move(struct explore *x, const struct state *s, unsigned r)
{
	struct state next = *s;

	put(&next.moved, r);
	next.ranks[r].under_way = 0;
	then(x, &next, "%d has its part", (int)r, 0);
}

void round_step(struct explore *x, const struct state *s)
{
	for (unsigned r = 0; r < RANKS; r++) {
		if (!is_up(s, r))
			continue;
		if (s->rounds)
			begin(x, s, r);
		if (has(s->due, r))
			launch(x, s, r, false);
		if (has(s->due, r) && s->failures)
			launch(x, s, r, true);
		if (moves(s, r))
			move(x, s, r);
	}
}
