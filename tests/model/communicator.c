/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/model/communicator.h"
#include "tests/model/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bounds bounds;
enum mutation mutation;

/* ---- messages ---- */

static bool is_request(struct message m)
{
	return m.type == FORM || m.type == PART;
}

bool send(struct state *s, unsigned from, unsigned to, struct message m)
{
	struct message *queue = s->queue[from][to];
	unsigned n = 0;

	if (is_request(m) && has(s->ranks[from].lost, to))
		return false;
	if (has(s->dead | s->ranks[from].old, to))
		return true;
	while (n < QUEUE && queue[n].type)
		n++;
	if (n == QUEUE) {
		fprintf(stderr, "more messages than the model has room for\n");
		exit(2);
	}
	queue[n] = m;
	return true;
}

static struct message take(struct message *queue, unsigned n)
{
	struct message taken = queue[n];

	memmove(queue + n, queue + n + 1, (QUEUE - 1 - n) * sizeof(*queue));
	memset(queue + QUEUE - 1, 0, sizeof(*queue));
	return taken;
}

bool is_under_way(const struct state *s, unsigned r, unsigned rank)
{
	bool any = false;

	for (unsigned i = 0; i < QUEUE; i++) {
		any |= is_request(s->queue[r][rank][i]) && !s->queue[r][rank][i].stale;
		any |= s->queue[rank][r][i].type && !is_request(s->queue[rank][r][i]);
	}
	return any;
}

void forget(struct state *s, unsigned r, unsigned rank)
{
	for (unsigned i = 0; i < QUEUE; i++)
		if (is_request(s->queue[r][rank][i]))
			s->queue[r][rank][i].stale = 1;
	for (unsigned i = QUEUE; i--;)
		if (s->queue[rank][r][i].type && !is_request(s->queue[rank][r][i]))
			take(s->queue[rank][r], i);
}

/* ---- numbers ---- */

static unsigned numbers_of(const struct state *s, unsigned r)
{
	const struct rank *me = &s->ranks[r];
	unsigned numbers = 1u << me->number | 1u << me->broken;

	for (unsigned to = 0; to < RANKS; to++)
		for (unsigned i = 0; i < QUEUE; i++)
			numbers |= 1u << s->queue[r][to][i].number;
	return numbers;
}

static unsigned known(const struct state *s)
{
	unsigned numbers = 1u | 1u << s->round;

	for (unsigned r = 0; r < RANKS; r++)
		numbers |= numbers_of(s, r) | 1u << s->ranks[r].left;
	return numbers;
}

uint8_t new_number(struct state *s)
{
	unsigned number = 1, numbers = known(s);

	while (number < NUMBERS && has(numbers, number))
		number++;
	if (number == NUMBERS) {
		fprintf(stderr, "more communicators than the model has room for\n");
		exit(2);
	}
	s->joined[number] = s->ready[number] = 0;
	return (uint8_t)number;
}

/* Forgets a rank's `left` if no other rank or message has that number, and what is known of
 * unused numbers.
 */
static void forget_numbers(struct state *s)
{
	unsigned numbers = 0;

	for (unsigned r = 0; r < RANKS; r++)
		numbers |= numbers_of(s, r);
	for (unsigned r = 0; r < RANKS; r++)
		if (!has(numbers, s->ranks[r].left))
			s->ranks[r].left = 0;
	numbers = known(s);
	for (unsigned number = 1; number < NUMBERS; number++)
		if (!has(numbers, number))
			s->joined[number] = s->ready[number] = 0;
}

/* ---- what happens by itself ---- */

void then(struct explore *x, struct state *s, const char *what, int a, int b)
{
	for (unsigned r = 0; r < RANKS; r++)
		while (is_up(s, r) && life_turn(s, r))
			;
	if (s->round && !s->due) { /* the round is over when nothing of it is under way */
		bool any = false;

		for (unsigned r = 0; r < RANKS; r++)
			any |= s->ranks[r].under_way;
		s->round = any ? s->round : 0;
		s->moved = any ? s->moved : 0;
	}
	forget_numbers(s);
	explore_next(x, s, what, a, b);
}

static void deliver(struct explore *x, const struct state *s, unsigned from, unsigned to)
{
	struct state next = *s;
	struct message m;

	if (!s->queue[from][to][0].type)
		return;
	m = take(next.queue[from][to], 0);
	if (s->losses || has(s->dead, from)) {
		next.losses = (uint8_t)(s->losses - !has(s->dead, from));
		then(x, &next, "a message of %d to %d is lost", (int)from, (int)to);
	}
	if (!is_up(s, to) || has(s->ranks[to].old, from))
		return;
	next = *s;
	take(next.queue[from][to], 0);
	if (!is_request(m) && !has(s->dead, from))
		take_away(&next.ranks[to].lost, from);
	life_take(&next, to, from, m);
	then(x, &next, "%d takes a message of %d", (int)to, (int)from);
}

/* ---- what goes wrong ---- */

static void crash(struct explore *x, const struct state *s, unsigned r)
{
	struct state next = *s;

	if (!s->crashes)
		return;
	next.crashes--;
	put(&next.dead, r);
	take_away(&next.due, r);
	memset(&next.ranks[r], 0, sizeof(next.ranks[r]));
	for (unsigned from = 0; from < RANKS; from++)
		memset(next.queue[from][r], 0, sizeof(next.queue[from][r]));
	then(x, &next, "%d dies", (int)r, 0);
}

static bool has_sent(const struct state *s, unsigned r)
{
	bool any = false;

	for (unsigned to = 0; to < RANKS; to++)
		any |= s->queue[r][to][0].type != NOTHING;
	return any;
}

static void come_back(struct explore *x, const struct state *s, unsigned r)
{
	struct state next = *s;

	if (!s->returns || r >= bounds.ranks || has_sent(s, r))
		return;
	next.returns--;
	take_away(&next.dead, r);
	for (unsigned rank = 0; rank < RANKS; rank++) {
		if (rank >= bounds.ranks)
			put(&next.ranks[r].lost, rank);
		else if (rank != r && !has(s->dead, rank))
			put(&next.ranks[rank].old, r);
	}
	then(x, &next, "%d comes back as another process", (int)r, 0);
}

static void stop(struct explore *x, const struct state *s, unsigned r)
{
	struct state next = *s;

	if (has(s->stopped, r)) {
		take_away(&next.stopped, r);
		then(x, &next, "%d goes on", (int)r, 0);
	} else if (s->stops && has(bounds.victims, r)) {
		next.stops--;
		put(&next.stopped, r);
		then(x, &next, "%d is stopped", (int)r, 0);
	}
}

static void hold_for_lost(struct explore *x, const struct state *s, unsigned r, unsigned rank)
{
	struct state next = *s;
	bool wrongly = is_up(s, rank) && !has(s->ranks[r].old, rank);

	if (wrongly && (!s->doubts || !has(bounds.victims, rank) || !has(bounds.doubters, r)))
		return;
	next.doubts -= wrongly;
	put(&next.ranks[r].lost, rank);
	life_lose(&next, r, rank);
	then(x, &next, "%d holds %d for lost", (int)r, (int)rank);
}

static void notice(struct explore *x, const struct state *s, unsigned r, unsigned rank)
{
	struct state next = *s;
	struct rank *me = &next.ranks[r];

	if (rank == r || rank >= bounds.ranks)
		return;
	if (has(me->old, rank)) {
		life_lose(&next, r, rank);
		take_away(&me->old, rank);
		take_away(&me->lost, rank);
		me->changed = me->makes;
		then(x, &next, "%d hears of the new process of %d", (int)r, (int)rank);
	} else if (has(me->lost, rank) && is_up(s, rank)) {
		take_away(&me->lost, rank);
		then(x, &next, "%d hears %d again", (int)r, (int)rank);
	}
	if (!has(s->ranks[r].lost, rank))
		hold_for_lost(x, s, r, rank);
}

static void step(struct explore *x, const void *state)
{
	const struct state *s = state;

	for (unsigned r = 0; r < RANKS; r++) {
		for (unsigned from = 0; from < RANKS; from++)
			deliver(x, s, from, r);
		if (has(s->dead, r)) {
			come_back(x, s, r);
			continue;
		}
		crash(x, s, r);
		stop(x, s, r);
		if (!is_up(s, r))
			continue;
		for (unsigned rank = 0; rank < RANKS; rank++)
			notice(x, s, r, rank);
		life_step(x, s, r);
		library_step(x, s, r);
	}
	round_step(x, s);
}

static void start(void *state)
{
	struct state *s = state;

	for (unsigned r = bounds.ranks; r < RANKS; r++)
		put(&s->dead, r);
	for (unsigned r = 0; r < bounds.ranks; r++)
		s->ranks[r].lost = s->dead;
	s->crashes = bounds.crashes;
	s->returns = bounds.returns;
	s->stops = bounds.stops;
	s->doubts = bounds.doubts;
	s->losses = bounds.losses;
	s->faults = bounds.faults;
	s->rounds = bounds.rounds;
	s->failures = bounds.failures;
}

/* ---- what must hold ---- */

static const char *broken(const void *state)
{
	const struct state *s = state;

	if (s->twice)
		return "a rank has opened one that it was in before";
	if (s->early)
		return "a rank has let go of what another was using";
	return s->cut ? "one was closed with something under way" : NULL;
}

/* Returns the ranks that must be connected in the end: all that live and have a library, if the
 * first that lives has one and there are two; else none.
 */
static unsigned those_to_connect(const struct state *s)
{
	unsigned live = ((1u << RANKS) - 1) & ~s->dead, some = live & ~bounds.without;

	if (!(live & -live & some) || !(some & (some - 1)))
		return 0;
	return some;
}

static bool is_settled(const struct state *s, unsigned r, unsigned connected)
{
	const struct rank *me = &s->ranks[r];
	bool is_in = has(connected, r);

	for (unsigned to = 0; to < RANKS; to++)
		if (s->queue[r][to][0].type)
			return false;
	return has(s->dead, r) ||
	       (!me->under_way && !me->old && me->lost == s->dead &&
		me->life == (is_in ? UP : NONE) && me->members == (is_in ? connected : 0));
}

static bool is_end(const void *state)
{
	const struct state *s = state;
	unsigned connected = those_to_connect(s), numbers = 0;

	for (unsigned r = 0; r < RANKS; r++) {
		if (!is_settled(s, r, connected))
			return false;
		if (has(connected, r))
			numbers |= 1u << s->ranks[r].number;
	}
	return !s->stopped && !s->due && !(numbers & (numbers - 1));
}

static void print(const void *state)
{
	static const char *const lives[] = { "none", "asking", "opening", "up", "parting" };
	const struct state *s = state;

	for (unsigned r = 0; r < RANKS; r++) {
		const struct rank *me = &s->ranks[r];

		printf("rank %u%s %s number %d members %x, asked %x, library %d, lost %x\n", r,
		       has(s->dead, r) ? " (dead)" : "", lives[me->life], me->number,
		       me->members, me->outstanding, me->library, me->lost);
	}
}

/* ---- cases ---- */

/* ranks, without, crashes, returns, stops, doubts, victims, doubters, losses, faults, rounds,
 * failures
 */
static const struct bounds bounds_of[] = {
	{ 3, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0 }, { 2, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0 },
	{ 3, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0 }, { 2, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0 },
	{ 2, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0 }, { 3, 0, 0, 0, 0, 1, 1, 2, 0, 0, 0, 0 },
	{ 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1 }, { 3, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0 },
	{ 3, 0, 0, 0, 1, 0, 4, 0, 0, 0, 0, 0 }, { 3, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0 },
	{ 3, 0, 0, 0, 1, 0, 7, 0, 0, 0, 0, 0 }, { 3, 0, 0, 0, 0, 1, 7, 7, 0, 0, 0, 0 },
};

static const struct run_case cases[] = {
	{ "one dies", &bounds_of[0], false },
	{ "one of two dies and comes back", &bounds_of[1], false },
	{ "the library fails at one", &bounds_of[2], false },
	{ "two, messages are lost", &bounds_of[3], false },
	{ "the first of two is stopped", &bounds_of[4], false },
	{ "the first is held for lost", &bounds_of[5], false },
	{ "a part is not launched", &bounds_of[6], false },
	{ "the first has no library, one comes back", &bounds_of[7], false },
	{ "the last is stopped", &bounds_of[8], false },
	{ "one dies and comes back", &bounds_of[9], true },
	{ "one is stopped", &bounds_of[10], true },
	{ "one is held for lost", &bounds_of[11], true },
};

static const struct run_mutation mutations[] = {
	[MUTATION_NONE] = { "", "" },
	[MUTATION_ASKS_NO_MEMBERS] = { "asks nobody whether he has it yet",
				       "two, messages are lost" },
	[MUTATION_ASKS_WHEN_UP] = { "asks that only once it is up", "one dies" },
	[MUTATION_LOOKS_FOR_NOBODY] = { "does not see who has come", "the last is stopped" },
	[MUTATION_MISSES_NOBODY] = { "does not see who is lost", "one dies" },
	[MUTATION_BREAKS_NOTHING] = { "who cannot launch says nothing",
				      "a part is not launched" },
	[MUTATION_JOINS_WHAT_WAS] = { "joins one that it once had",
				      "the first is held for lost" },
	[MUTATION_JOINS_WHAT_IT_LEFT] = { "joins one that it has left",
					  "two, messages are lost" },
	[MUTATION_LETS_GO_UNHEARD] = { "lets go before all know", "the library fails at one" },
	[MUTATION_CLOSES_UNDER_WAY] = { "closes what the library has not let go",
					"a part is not launched" },
};
static_assert(ARRAY_SIZE(mutations) == MUTATIONS, "mutations");

static void choose(const void *chosen, unsigned number)
{
	memcpy(&bounds, chosen, sizeof(bounds));
	mutation = (enum mutation)number;
}

static void print_bounds(void)
{
	printf("%u ranks, %u crashes, %u returns, %u stops, %u doubts, %u losses, %u faults, "
	       "%u rounds, %u failures: ",
	       bounds.ranks, bounds.crashes, bounds.returns, bounds.stops, bounds.doubts,
	       bounds.losses, bounds.faults, bounds.rounds, bounds.failures);
}

int main(int argc, char **argv)
{
	static const struct explore_model model = {
		sizeof(struct state), start, step, broken, is_end, print
	};
	static const struct run run = {
		&model, cases,       mutations, ARRAY_SIZE(cases), ARRAY_SIZE(mutations),
		choose, print_bounds
	};

	return run_main(&run, argc, argv);
}
