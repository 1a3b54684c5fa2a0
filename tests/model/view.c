/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/model/run.h"
#include "tests/model/view.h"

#include <stdio.h>
#include <string.h>

struct bounds bounds;
enum mutation mutation;

static void crash(struct explore *x, const struct state *s, unsigned r)
{
	struct state next = *s;

	if (!s->crashes)
		return;
	next.crashes--;
	next.dead |= (uint8_t)(1u << r);
	memset(&next.ranks[r], 0, sizeof(next.ranks[r]));
	explore_next(x, &next, "%d dies", (int)r, 0);
}

static void step(struct explore *x, const void *state)
{
	const struct state *s = state;

	for (unsigned r = 0; r < bounds.ranks; r++) {
		if (s->dead >> r & 1)
			continue;
		trainer_step(x, s, r);
		rank_step(x, s, r);
		crash(x, s, r);
	}
	reader_step(x, s);
}

static void start(void *state)
{
	struct state *s = state;

	s->crashes = bounds.crashes;
	for (unsigned r = 0; r < bounds.ranks; r++) {
		s->ranks[r].generation = 1;
		s->ranks[r].bytes[0] = s->ranks[r].bytes[1] = 1;
	}
	s->state = WHOLE;
	if (!bounds.whole)
		reader_begin(s);
}

static const char *broken(const void *state)
{
	const struct state *s = state;

	if (s->mixed)
		return "the reader has bytes of another generation than its view's";
	return s->evicted ? "a rank went past the generation of a view" : NULL;
}

static bool is_end(const void *state)
{
	const struct state *s = state;

	for (unsigned r = 0; r < bounds.ranks; r++)
		if (!(s->dead >> r & 1) && (s->ranks[r].generation < bounds.generations ||
					    s->ranks[r].place != STABLE))
			return false;
	return s->state == DONE;
}

static void print(const void *state)
{
	const struct state *s = state;

	printf("the reader's generation %d, piece %d, place %d, got %d %d\n", s->generation,
	       s->at % bounds.ranks, s->reading, s->got[0], s->got[1]);
	for (unsigned r = 0; r < bounds.ranks; r++)
		printf("rank %u generation %d place %d bytes %d %d, view: state %d of %d, room "
		       "%d %d; asked %d\n",
		       r, s->ranks[r].generation, s->ranks[r].place, s->ranks[r].bytes[0],
		       s->ranks[r].bytes[1], s->ranks[r].state, s->ranks[r].shows,
		       s->ranks[r].room[0], s->ranks[r].room[1], s->pieces[r].asked);
}

/* ranks, generations, crashes, by_message, whole */
static const struct bounds bounds_of[] = {
	{ 2, 3, 1, 0, 0 }, { 2, 3, 1, 3, 0 }, { 2, 3, 1, 2, 1 },
	{ 3, 2, 1, 4, 0 }, { 3, 3, 1, 4, 1 },
};

static const struct run_case cases[] = {
	{ "by memory", &bounds_of[0], false },
	{ "by message", &bounds_of[1], false },
	{ "a small file", &bounds_of[2], false },
	{ "three ranks", &bounds_of[3], false },
	{ "three ranks, a small file", &bounds_of[4], true },
};

static const struct run_mutation mutations[] = {
	[MUTATION_NONE] = { "", "" },
	[MUTATION_NO_LOOK] = { "no look before a copy of what is to come", "by memory" },
	[MUTATION_NO_LOOK_WHOLE] = { "no look before a copy without a view", "a small file" },
	[MUTATION_NO_WITNESS] = { "no look after a copy", "by memory" },
	[MUTATION_KEEPS_BEFORE_SAYING] = { "keeps for views, then says that it changes",
					   "by memory" },
	[MUTATION_PLACED_BEFORE_COUNTED] = { "a view is placed before it is counted",
					     "by message" },
	[MUTATION_ANY_GENERATION] = { "each piece of its own generation", "by memory" },
	[MUTATION_NO_LABEL] = { "no look at the label before a copy of the room", "by memory" },
	[MUTATION_NO_SECOND_LOOK] = { "a READ does not look again", "by message" },
	[MUTATION_COPIES_AHEAD_UNLOCKED] = { "copies ahead what is not there yet",
					     "by message" },
};
static_assert(ARRAY_SIZE(mutations) == MUTATIONS, "mutations");

static void choose(const void *chosen, unsigned number)
{
	memcpy(&bounds, chosen, sizeof(bounds));
	mutation = (enum mutation)number;
}

static void print_bounds(void)
{
	printf("%u ranks, %u generations, %u crashes: ", bounds.ranks, bounds.generations,
	       bounds.crashes);
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
