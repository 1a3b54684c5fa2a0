/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_MODEL_COMMUNICATOR_H
#define TESTS_MODEL_COMMUNICATOR_H

/* The life of a communicator, as engine/rounds/communicator.c has it: three ranks and the
 * library below each.  Messages between two of them come in order, others in any.  What a clock
 * decides in the engine may happen at any time here, and again, but for the library's
 * deadlines, which end nothing here: whoever cannot go on is told, or asked.
 *
 * Simpler than there: INVITE and its answer are one; a communicator's number is one that nobody
 * knows any more; one round at most is launched, by all its members; PART's answer is waited
 * for for as long as it may come.
 */

#include "tests/model/explore.h"

enum { RANKS = 3, NUMBERS = 8, QUEUE = 7 };

enum type { NOTHING, FORM, FORMED, PART, PARTED };
enum status { STATUS_OK, STATUS_AGAIN, STATUS_NO };

struct message {
	uint16_t type : 3; /* enum type */
	uint16_t number : 3;
	uint16_t members : 3; /* a bit a rank */
	uint16_t status : 2;
	uint16_t made : 1;
	uint16_t stale : 1; /* nobody waits for the answer any more */
};

enum life { NONE, ASKING, OPENING, UP, PARTING };

/* OVER: it has failed, or was aborted, and touches nothing any more. */
enum library { NOT_OPEN, JOINING, READY, FAILED, OVER };

struct rank {
	uint8_t life;
	uint8_t number;  /* 0: none */
	uint8_t members; /* here and below: a bit a rank */
	uint8_t makes;   /* it asked who takes part */
	uint8_t answered, takes_part;
	uint8_t outstanding; /* whom it has asked what goes with its life */
	uint8_t have_it;     /* who has said that it has */
	uint8_t changed;     /* since then its table of ranks has */
	uint8_t lost;        /* ranks it holds for lost */
	uint8_t old;         /* whose new process it has not heard of */
	uint8_t left;        /* the number of the one that it had last */
	uint8_t tells;       /* whom it has told that it is no more */
	uint8_t broken;      /* the number of one that is to fail */
	uint8_t library;
	uint8_t under_way;
};

struct state {
	uint8_t dead, stopped; /* ranks */
	uint8_t crashes, returns, stops, doubts, losses, faults, rounds,
		failures;        /* that may come yet */
	uint8_t round;           /* the number of the communicator that it goes by */
	uint8_t due;             /* who has to launch it yet */
	uint8_t moved;           /* who has what it brings */
	uint8_t twice;           /* a rank has opened an id for the second time */
	uint8_t early;           /* one has let go of what another was using */
	uint8_t cut;             /* one was closed with something under way */
	uint8_t joined[NUMBERS]; /* who ever opened it */
	uint8_t ready[NUMBERS];  /* to whom it ever was ready */
	struct rank ranks[RANKS];
	struct message queue[RANKS][RANKS][QUEUE]; /* from, to */
};

struct bounds {
	uint8_t ranks;
	uint8_t without;          /* a library: a bit a rank */
	uint8_t crashes, returns; /* ranks that die; and come back as another process */
	uint8_t stops;            /* ranks that are stopped, and will go on */
	uint8_t doubts;           /* ranks that are held for lost although they go on */
	uint8_t victims;          /* of stops and doubts: a bit a rank */
	uint8_t doubters;
	uint8_t losses;           /* of messages */
	uint8_t faults;           /* of the library */
	uint8_t rounds, failures; /* of launches */
};
extern struct bounds bounds;

/* What is wrong on purpose. */
enum mutation {
	MUTATION_NONE,
	MUTATION_ASKS_NO_MEMBERS,
	MUTATION_ASKS_WHEN_UP,
	MUTATION_LOOKS_FOR_NOBODY,
	MUTATION_MISSES_NOBODY,
	MUTATION_BREAKS_NOTHING,
	MUTATION_JOINS_WHAT_WAS,
	MUTATION_JOINS_WHAT_IT_LEFT,
	MUTATION_LETS_GO_UNHEARD,
	MUTATION_CLOSES_UNDER_WAY,
	MUTATIONS
};
extern enum mutation mutation;

static inline bool has(unsigned ranks, unsigned rank)
{
	return ranks >> rank & 1;
}

static inline void put(uint8_t *ranks, unsigned rank)
{
	*ranks |= (uint8_t)(1u << rank);
}

static inline void take_away(uint8_t *ranks, unsigned rank)
{
	*ranks &= (uint8_t) ~(1u << rank);
}

static inline bool is_up(const struct state *s, unsigned rank)
{
	return !has(s->dead | s->stopped, rank);
}

/* explore_next, after what all do in the same turn. */
void then(struct explore *x, struct state *s, const char *what, int a, int b);

/* False: it is held for lost. */
bool send(struct state *s, unsigned from, unsigned to, struct message m);
/* What r has asked the rank is given up. */
void forget(struct state *s, unsigned r, unsigned rank);
bool is_under_way(const struct state *s, unsigned r, unsigned rank);
uint8_t new_number(struct state *s);

/* Rank r's engine thread. */
void life_take(struct state *s, unsigned r, unsigned from, struct message m);
void life_lose(struct state *s, unsigned r, unsigned rank); /* an end of what it was asked */
bool life_turn(struct state *s, unsigned r);                /* false: nothing to do */
void life_step(struct explore *x, const struct state *s, unsigned r);

/* The library below, and what is launched by it. */
void library_open(struct state *s, unsigned r);
void library_abort(struct state *s, unsigned r);
void library_step(struct explore *x, const struct state *s, unsigned r);
void round_step(struct explore *x, const struct state *s);

#endif
