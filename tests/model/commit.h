/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_MODEL_COMMIT_H
#define TESTS_MODEL_COMMIT_H

/* How ranks agree on edits, as engine/commit/coordinator.c, participant.c, serve.c and
 * transaction.c do it: three ranks, each a trainer and an engine thread, and one writer.
 * Messages between two of them come in order, others in any. What a clock decides in the engine
 * may happen at any time here, and again.  Trainers are at most one boundary apart; when one
 * dies, the others go on.
 *
 * Simpler than there: what a rank says to itself, and what the writer is answered, arrives at
 * once; who is late names a boundary one later; STAGE is one message; only rank 0 is ever
 * stopped; there are no freezes but those of watches; the writer does not ask what became of
 * its edit when its coordinator died (termination.c).
 *
 * Rounds are edits (engine/rounds*.c): the writer is then the reader, a part of one of the
 * ranks, and what is applied is launched.  Their communicator is not made anew, and nothing is
 * ended by a deadline: whoever cannot go on is told.
 *
 * A watch is edit 0, without bytes: rank 1 finds that its condition holds at boundary `bad`,
 * or, with BAD_BY_EDIT, from where edit 1 is applied; to apply the watch is to stand.  It is
 * never taken back.
 */

#include "tests/model/explore.h"

enum { RANKS = 3, WRITER = RANKS, NODES, EDITS = 2, QUEUE = 7 };
enum { FINDER = 1 }; /* the rank that finds the condition of a watch to hold */
enum { BAD_BY_EDIT = 31 };

struct message {
	uint16_t type : 5; /* enum type; 0: none */
	uint16_t edit : 1;
	uint16_t n : 5; /* a boundary */
	uint16_t value : 5;
};

enum type {
	NOTHING,
	STAGE,
	STAGED,
	COMMIT,
	CANCEL,
	ACCEPTED,
	VERDICT, /* value: it is applied */
	PREPARE,
	VOTE,
	DECIDE, /* value: commit */
	DECIDED,
	APPLIED,
	ARRIVED,
	ARRIVED_KNOWN,
	OUTCOME,
	OUTCOME_KNOWN,
	PART,
	CHECKED, /* n: where; value: the condition holds */
};

enum vote { VOTE_YES, VOTE_LATE, VOTE_NO };
enum outcome { UNDECIDED, COMMITTED, ABORTED, COORDINATED };

enum edit_state { EDIT_NONE, EDIT_STAGED, EDIT_PREPARED, EDIT_DECIDED, EDIT_APPLIED };

struct edit {
	uint8_t state;
	uint8_t n;
	uint8_t order;
	uint8_t coordinator;
	uint8_t arrived;
	uint8_t checked; /* a watch: the trainer has looked, where it has arrived */
	uint8_t found;   /* and the condition held */
	uint8_t fenced;
	uint8_t awaits;     /* an answer to ARRIVED */
	uint8_t peer;       /* gets the report; NODES: nobody */
	uint8_t remembered; /* enum outcome */
	uint8_t applied_at; /* boundary + 1, for us to look at */
	uint8_t applied_as; /* the how manieth, from 1 */
};

enum coordinator_state {
	COORDINATOR_NONE,
	COORDINATOR_VOTING,
	COORDINATOR_ACCEPTED,
	COORDINATOR_DECIDED
};
enum part { PART_NONE, PART_PROMISED, PART_HOLDER };

struct coordinator_transaction {
	uint8_t state;
	uint8_t n;
	uint8_t order;
	uint8_t late;
	uint8_t arrived;
	uint8_t cancelled;
	uint8_t failed;
	uint8_t commit;
	uint8_t taken;   /* another rank has taken the decision */
	uint8_t refused; /* one would not */
	uint8_t spoiled; /* a round: one could not send what it ought to */
	uint8_t told_self;
	uint8_t passed;
	uint8_t checked; /* a watch: ranks that wait at n, a bit each */
	uint8_t found;
	uint8_t first; /* n that all had promised first */
	uint8_t part[RANKS];
	uint8_t outstanding; /* a bit a rank */
};

struct inquiry {
	uint8_t asked;
	uint8_t outstanding;
	uint8_t again;
	uint8_t outcome;
};

enum launch { NOT_LAUNCHED, LAUNCHED, NOT_KEPT, FAILED }; /* NOT_KEPT: other bytes are sent */

/* A rank's part in a round. */
struct launch_state {
	uint8_t how;   /* enum launch */
	uint8_t order; /* the how manieth, from 1 */
	uint8_t moved; /* with which ranks, a bit each */
};

enum swapper { RUNNING, ENTERED, WAITING };

struct rank {
	uint8_t boundary;  /* entered */
	uint8_t place;     /* of its trainer */
	uint8_t lost;      /* ranks it holds for lost, a bit each */
	uint8_t promising; /* edit + 1: promised, and not yet looked where the trainer is */
	uint8_t agreed_order;
	uint8_t agreed_boundary;
	uint8_t applied; /* how many */
	struct edit edits[EDITS];
	struct coordinator_transaction agreements[EDITS];
	struct inquiry inquiries[EDITS];
	uint8_t parted; /* its communicator has failed */
	struct launch_state launches[EDITS];
};

enum write_state { WRITE_STAGE, WRITE_ASKED, WRITE_ACCEPTED, WRITE_TOLD, WRITE_OVER };
enum result { RESULT_NONE, RESULT_APPLIED, RESULT_FAILED, RESULT_UNKNOWN };

struct write {
	uint8_t state;
	uint8_t sent;
	uint8_t outstanding; /* STAGE: a bit a rank; later: COMMIT */
	uint8_t coordinator;
	uint8_t cancelled;
	uint8_t failed;
	uint8_t result;
};

struct state {
	uint8_t dead;                            /* nodes */
	uint8_t stopped;                         /* ranks that are, and will go on */
	uint8_t crashes, stops, losses, cancels; /* that may come yet */
	uint8_t failures, spoils;                /* of launches */
	uint8_t other_bytes;                     /* a bit a round: a sender sent others */
	uint8_t mistaken; /* bytes of one round were taken for another's */
	uint8_t lost;     /* ranks that the writer holds for lost */
	struct rank ranks[RANKS];
	struct write writes[EDITS];
	struct message queue[NODES][NODES][QUEUE]; /* from, to */
};

struct bounds {
	uint8_t edits;
	uint8_t holders; /* a bit a rank */
	uint8_t ranks;
	uint8_t boundaries;
	uint8_t crashes, stops, losses, cancels;
	uint8_t failures, spoils;
	uint8_t reader; /* rank + 1, which is the writer too, and a holder: rounds; 0: edits */
	uint8_t bad;    /* edit 0 is a watch, and there are no holders; 0: none */
};
extern struct bounds bounds;

static inline bool is_watch(unsigned edit)
{
	return bounds.bad && !edit;
}

/* What is wrong on purpose. */
enum mutation {
	MUTATION_NONE,
	MUTATION_DECIDES_BEFORE_VOTES,
	MUTATION_FENCED_DECIDES,
	MUTATION_LOOKS_BEFORE_PROMISE,
	MUTATION_ABORTS_UNASKED,
	MUTATION_LATE_IS_YES,
	MUTATION_NOBODY_ASKS,
	MUTATION_SUCCESS_WHEN_ACCEPTED,
	MUTATION_ORDER_OF_ARRIVAL,
	MUTATION_TOLD_IS_APPLIED,
	MUTATION_DECIDES_ALONE,
	MUTATION_LAUNCHES_UNDECIDED,
	MUTATION_LOST_HAS_SENT,
	MUTATION_FAILS_ALONE,
	MUTATION_PARTS_ALONE,
	MUTATION_DONE_WHEN_TOLD,
	MUTATION_GOES_ON_ALONE,
	MUTATION_OLD_CHECKS,
	MUTATION_LOST_IS_AWAITED,
	MUTATION_NOBODY_ASKS_AGAIN,
	MUTATION_LOOKS_BEFORE_EDITS,
	MUTATIONS
};
extern enum mutation mutation;

static inline bool is_up(const struct state *s, unsigned node)
{
	return !((s->dead | s->stopped) >> node & 1);
}

static inline bool holds_for_lost(const struct state *s, unsigned node, unsigned rank)
{
	return (node == WRITER ? s->lost : s->ranks[node].lost) >> rank & 1;
}

/* explore_next, after what all do in the same turn. */
void then(struct explore *x, struct state *s, const char *what, int a, int b);

/* -EIO: it is held for lost. */
int send(struct state *s, unsigned from, unsigned to, struct message m);
bool is_under_way(const struct state *s, unsigned from, unsigned to, enum type type,
		  unsigned edit);

/* Rank r's edits. */
void participant_stage(struct state *s, unsigned r, unsigned from, unsigned edit);
void participant_prepare(struct state *s, unsigned r, unsigned from, struct message m);
void edits_promise(struct state *s, unsigned r);
void participant_decide(struct state *s, unsigned r, unsigned from, struct message m);
uint8_t participant_outcome(struct state *s, unsigned r, unsigned edit);
bool participant_lose_writer(struct state *s, unsigned r, unsigned edit);
void participant_resolve(struct state *s, unsigned r, unsigned edit, bool commit);
void participant_hear(struct state *s, unsigned r, unsigned edit, bool commit);
bool participant_pending(const struct state *s, unsigned r);
bool participant_look(struct state *s, unsigned r); /* false: the trainer may go */
bool edits_report(struct state *s, unsigned r, unsigned edit);

/* Rank r as coordinator, and as one whose coordinator died. */
void coordinator_commit(struct state *s, unsigned r, unsigned edit);
void coordinator_cancel(struct state *s, unsigned r, unsigned edit);
void coordinator_arrived(struct explore *x, struct state *s, unsigned r, unsigned from,
			 unsigned edit);
void coordinator_checked(struct explore *x, struct state *s, unsigned r, unsigned from,
			 struct message m);
void agree_on_vote(struct state *s, unsigned r, unsigned from, struct message m);
void agree_on_decided(struct state *s, unsigned r, unsigned from, struct message m);
void agree_on_known(struct state *s, unsigned r, unsigned from, struct message m);
void termination_outcome(struct state *s, unsigned r, unsigned from, unsigned edit);
bool coordinator_turn(struct state *s, unsigned r, unsigned edit);
bool agree_inquire(struct state *s, unsigned r, unsigned edit);
bool agree_end_inquiry(struct state *s, unsigned r, unsigned edit);
bool agree_ask_again(struct state *s, unsigned r, unsigned rank, unsigned edit);
void agree_lost(struct state *s, unsigned r, unsigned rank);

/* How the next launch goes, and whether there was one. */
extern struct round_next {
	enum launch how;
	bool used;
} round_next;

/* Rank r's part in rounds. */
void round_launch(struct state *s, unsigned r, unsigned edit);
bool round_is_pending(const struct state *s, unsigned r, unsigned edit);
bool round_came(const struct state *s, unsigned edit);
void round_part(struct state *s, unsigned r, bool tell);
void round_move(struct explore *x, const struct state *s);
const char *round_broken(const struct state *s);
bool round_is_end(const struct state *s);

void write_turn(struct state *s);
void write_step(struct explore *x, const struct state *s, unsigned edit);
void write_on(struct state *s, unsigned from, struct message m);
void write_lost(struct state *s, unsigned rank);

#endif
