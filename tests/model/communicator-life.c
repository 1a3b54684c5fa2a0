/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/model/communicator.h"

/* The model of engine/rounds/communicator.c. */

static bool is_connected(const struct rank *me)
{
	return me->life == OPENING || me->life == UP;
}

/* ---- the end of a communicator ---- */

static void part(struct state *s, unsigned r)
{
	struct rank *me = &s->ranks[r];

	for (unsigned rank = 0; rank < RANKS; rank++)
		forget(s, r, rank);
	me->outstanding = 0;
	library_abort(s, r);
	me->life = PARTING;
}

static void fail(struct state *s, unsigned r, unsigned number)
{
	struct rank *me = &s->ranks[r];

	if (!number || me->number != number || !is_connected(me))
		return;
	part(s, r);
	for (unsigned rank = 0; rank < RANKS; rank++)
		if (rank != r && has(me->members, rank) &&
		    send(s, r, rank, (struct message){ .type = PART, .number = number & 7u }))
			put(&me->outstanding, rank);
	me->tells = me->outstanding;
}

static void be_none(struct rank *me)
{
	me->life = NONE;
	me->members = me->makes = me->answered = me->takes_part = 0;
	me->have_it = me->changed = me->tells = 0;
}

/* Returns true if the rank can be reached, and its device would reach r's memory. */
static bool uses(const struct state *s, unsigned rank, unsigned number)
{
	const struct rank *other = &s->ranks[rank];

	return is_up(s, rank) && other->number == number && other->library == READY;
}

static void close_it(struct state *s, unsigned r)
{
	struct rank *me = &s->ranks[r];

	for (unsigned rank = 0; rank < RANKS; rank++)
		s->early |= has(me->tells, rank) && uses(s, rank, me->number);
	s->cut |= me->under_way;
	me->left = me->number;
	me->number = me->library = me->under_way = 0;
	be_none(me);
}

static bool turn_parting(struct state *s, unsigned r)
{
	struct rank *me = &s->ranks[r];

	if ((me->outstanding && mutation != MUTATION_LETS_GO_UNHEARD) ||
	    (me->library != OVER && mutation != MUTATION_CLOSES_UNDER_WAY))
		return false;
	for (unsigned rank = 0; rank < RANKS; rank++)
		forget(s, r, rank);
	me->outstanding = 0;
	close_it(s, r);
	return true;
}

/* ---- the beginning of a communicator ---- */

static unsigned first_live(const struct rank *me)
{
	unsigned rank = 0;

	while (has(me->lost, rank))
		rank++;
	return rank;
}

static void invite(struct state *s, unsigned r)
{
	struct rank *me = &s->ranks[r];

	me->life = ASKING;
	me->makes = 1;
	me->changed = 0;
	put(&me->answered, r);
	put(&me->takes_part, r);
	me->outstanding = (uint8_t)(((1u << RANKS) - 1) & ~(1u << r | me->lost));
}

static void open_first(struct state *s, unsigned r)
{
	struct rank *me = &s->ranks[r];

	me->members = me->takes_part;
	if (me->members == 1u << r) {
		be_none(me);
		return;
	}
	me->number = new_number(s);
	me->life = OPENING;
	put(&me->have_it, r);
	library_open(s, r);
}

static void form(struct state *s, unsigned r)
{
	struct rank *me = &s->ranks[r];

	for (unsigned rank = 0; rank < RANKS; rank++)
		if (rank != r && has(me->members, rank) &&
		    send(s, r, rank,
			 (struct message){ .type = FORM,
					   .number = me->number & 7u,
					   .members = me->members & 7u,
					   .made = has(me->have_it, rank) }))
			put(&me->outstanding, rank);
}

static bool has_come(struct rank *me)
{
	unsigned live = ((1u << RANKS) - 1) & ~me->lost;
	bool came = me->makes && (me->changed || live & ~me->answered);

	if (mutation == MUTATION_LOOKS_FOR_NOBODY)
		return false;
	me->changed &= !came;
	return came;
}

static void watch(struct state *s, unsigned r)
{
	struct rank *me = &s->ranks[r];
	bool misses = me->members & me->lost && mutation != MUTATION_MISSES_NOBODY;

	if (misses || has_come(me) || me->library == FAILED || me->library == OVER)
		fail(s, r, me->number);
	else if (me->library == READY)
		me->life = UP;
}

bool life_turn(struct state *s, unsigned r)
{
	struct rank *me = &s->ranks[r], was = *me;

	if (mutation != MUTATION_BREAKS_NOTHING)
		fail(s, r, me->broken);
	me->broken = 0;
	if (me->life == ASKING && !me->outstanding)
		open_first(s, r);
	if (is_connected(me))
		watch(s, r);
	if (me->life == PARTING)
		turn_parting(s, r);
	return memcmp(me, &was, sizeof(was)) != 0;
}

/* ---- messages ---- */

static unsigned join(struct state *s, unsigned r, struct message m)
{
	struct rank *me = &s->ranks[r];

	if (me->number == m.number && me->life != PARTING)
		return STATUS_OK;
	if (m.made && mutation != MUTATION_JOINS_WHAT_WAS)
		return STATUS_NO;
	if (m.number == me->left && mutation != MUTATION_JOINS_WHAT_IT_LEFT)
		return STATUS_NO;
	if (is_connected(me))
		part(s, r);
	if (me->life == PARTING)
		return STATUS_AGAIN;
	if (me->life == ASKING)
		return STATUS_NO;
	me->number = m.number;
	me->members = m.members;
	me->life = OPENING;
	library_open(s, r);
	return STATUS_OK;
}

static void take_request(struct state *s, unsigned r, unsigned from, struct message m)
{
	bool without = has(bounds.without, r);
	struct message answer = { .type = (m.type + 1u) & 7,
				  .number = m.number,
				  .status = without ? STATUS_NO : STATUS_OK };

	if (m.type == FORM && !without)
		answer.status = join(s, r, m) & 3;
	if (m.type == PART && m.number == s->ranks[r].number && is_connected(&s->ranks[r]))
		part(s, r);
	if (!m.stale)
		send(s, r, from, answer);
}

static void take_answer(struct state *s, unsigned r, unsigned from, struct message m)
{
	struct rank *me = &s->ranks[r];

	take_away(&me->outstanding, from);
	if (m.type == FORMED && m.status == STATUS_OK)
		put(&me->have_it, from);
	else if (m.type == FORMED && m.status == STATUS_NO)
		fail(s, r, me->number);
}

void life_take(struct state *s, unsigned r, unsigned from, struct message m)
{
	if (m.type == FORM || m.type == PART)
		take_request(s, r, from, m);
	else
		take_answer(s, r, from, m);
}

void life_lose(struct state *s, unsigned r, unsigned rank)
{
	struct rank *me = &s->ranks[r];

	if (!has(me->outstanding, rank))
		return;
	forget(s, r, rank);
	take_away(&me->outstanding, rank);
	take_away(&me->tells, rank);
	if (is_connected(me))
		fail(s, r, me->number);
}

/* ---- timers ---- */

/* r learns whether the rank takes part, behind all messages between the two. */
static void hear_of(struct explore *x, const struct state *s, unsigned r, unsigned rank)
{
	struct state next = *s;
	struct rank *me = &next.ranks[r];

	if (s->queue[r][rank][0].type || s->queue[rank][r][0].type)
		return;
	take_away(&me->outstanding, rank);
	put(&me->answered, rank);
	if (!has(bounds.without, rank))
		put(&me->takes_part, rank);
	then(x, &next, "%d hears whether %d takes part", (int)r, (int)rank);
}

/* r gives up its question to the rank, which was lost, or its answer was. */
static void ask_again(struct explore *x, const struct state *s, unsigned r, unsigned rank)
{
	struct state next = *s;
	struct rank *me = &next.ranks[r];

	if (is_under_way(s, r, rank))
		return;
	take_away(&me->outstanding, rank);
	take_away(&me->tells, rank);
	then(x, &next, "%d sees that what it asked %d got lost", (int)r, (int)rank);
}

static bool tells(const struct rank *me)
{
	if (me->have_it != me->members)
		return true;
	if (mutation == MUTATION_ASKS_WHEN_UP)
		return me->life == UP;
	return mutation != MUTATION_ASKS_NO_MEMBERS;
}

void life_step(struct explore *x, const struct state *s, unsigned r)
{
	const struct rank *me = &s->ranks[r];
	struct state next = *s;

	if (me->life == NONE && first_live(me) == r && !has(bounds.without, r)) {
		invite(&next, r);
		then(x, &next, "%d asks who takes part", (int)r, 0);
	} else if (is_connected(me) && me->makes && !me->outstanding && tells(me)) {
		form(&next, r);
		then(x, &next, "%d tells its members the id", (int)r, 0);
	}
	for (unsigned rank = 0; rank < RANKS; rank++) {
		if (!has(me->outstanding, rank) || !is_up(s, rank) || has(me->old, rank))
			continue;
		if (me->life == ASKING)
			hear_of(x, s, r, rank);
		else
			ask_again(x, s, r, rank);
	}
}
