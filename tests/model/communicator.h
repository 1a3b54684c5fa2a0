/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_MODEL_COMMUNICATOR_H
#define TESTS_MODEL_COMMUNICATOR_H

/* The life of a communicator, as engine/rounds/communicator.c makes it: three ranks and the
 * library below each.  Messages between two ranks come in order, those of different pairs in
 * any order.  What a timer of the engine decides may happen at any time here, and again, but
 * for the library's deadlines, which end nothing here: a rank that cannot go on is told, or
 * asked.
 *
 * Simpler than the engine: INVITE and its answer are one step; a communicator's number is one
 * that no rank knows any more; at most one round is launched, by all members; the answer to
 * PART is waited for as long as it may come.
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
	uint16_t stale : 1; /* the asker waits for no answer any more */
};

enum life { NONE, ASKING, OPENING, UP, PARTING };

/* OVER: the library has failed, or was aborted, and touches no memory any more. */
enum library { NOT_OPEN, JOINING, READY, FAILED, OVER };

struct rank {
	uint8_t life;
	uint8_t number;  /* of the communicator; 0: none */
	uint8_t members; /* ranks, a bit each, as in all below */
	uint8_t makes;   /* this rank makes the communicator: it asked who takes part */
	uint8_t answered, takes_part;
	uint8_t outstanding; /* ranks that it has asked something that belongs to `life` */
	uint8_t have_it;     /* ranks that have said that they know the communicator */
	uint8_t changed;     /* its table of ranks has changed since it asked */
	uint8_t lost;        /* ranks that it holds for lost */
	uint8_t old;         /* ranks of whose new process it has not heard */
	uint8_t left;        /* number of the last communicator that it had */
	uint8_t tells;       /* ranks that it has told that the communicator is no more */
	uint8_t broken;      /* number of a communicator that is to fail */
	uint8_t library;
	uint8_t under_way;
};

struct state {
	uint8_t dead, stopped; /* ranks */
	uint8_t crashes, returns, stops, doubts, losses, faults, rounds,
		failures;        /* how many more may come */
	uint8_t round;           /* number of the communicator that the round goes by */
	uint8_t due;             /* ranks that have not launched it yet */
	uint8_t moved;           /* ranks that have its bytes */
	uint8_t twice;           /* a rank has opened an id for the second time */
	uint8_t early;           /* a rank has let go of memory that another was using */
	uint8_t cut;             /* a communicator was closed with a part under way */
	uint8_t joined[NUMBERS]; /* ranks that ever opened it */
	uint8_t ready[NUMBERS];  /* ranks that ever found it ready */
	struct rank ranks[RANKS];
	struct message queue[RANKS][RANKS][QUEUE]; /* from, to */
};

struct bounds {
	uint8_t ranks;
	uint8_t without;          /* ranks without a library, a bit each */
	uint8_t crashes, returns; /* ranks that die; that come back as another process */
	uint8_t stops;            /* ranks that are stopped, and will go on */
	uint8_t doubts;           /* ranks that are held for lost although they go on */
	uint8_t victims;          /* ranks that may be stopped or doubted, a bit each */
	uint8_t doubters;         /* ranks that may hold a victim for lost, a bit each */
	uint8_t losses;           /* of messages */
	uint8_t faults;           /* of the library */
	uint8_t rounds, failures; /* of launches */
};
extern struct bounds bounds;

/* Faults put in on purpose, each of which the model must find. */
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

/* Calls explore_next, after each engine has made what it does in the same turn. */
void then(struct explore *x, struct state *s, const char *what, int a, int b);

/* Returns false if the sender holds the receiver for lost. */
bool send(struct state *s, unsigned from, unsigned to, struct message m);
/* Gives up what r has asked the rank. */
void forget(struct state *s, unsigned r, unsigned rank);
bool is_under_way(const struct state *s, unsigned r, unsigned rank);
uint8_t new_number(struct state *s);

/* Rank r's engine thread. */
void life_take(struct state *s, unsigned r, unsigned from, struct message m);
/* the rank is lost: r's question to it ends */
void life_lose(struct state *s, unsigned r, unsigned rank);
bool life_turn(struct state *s, unsigned r); /* false: there was nothing to do */
void life_step(struct explore *x, const struct state *s, unsigned r);

/* The library below the ranks, and its launches. */
void library_open(struct state *s, unsigned r);
void library_abort(struct state *s, unsigned r);
void library_step(struct explore *x, const struct state *s, unsigned r);
void round_step(struct explore *x, const struct state *s);

#endif
