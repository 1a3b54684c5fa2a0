/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_MODEL_COMMIT_H
#define TESTS_MODEL_COMMIT_H

/* The model of two-phase commit among ranks, as engine/commit/coordinator.c,
 * engine/rank/participant.c, engine/serve/serve.c and engine/write/transaction.c make it: three
 * ranks, each a trainer and an engine thread, and one writer.  Messages between two nodes come
 * in order, those of different pairs in any order.  What a timer of the engine decides may
 * happen at any time here, and again.  Trainers are at most one boundary apart; when one dies,
 * the others go on.
 *
 * Simpler than the engine: messages of a rank to itself and answers to the writer arrive at
 * once; after a late vote the boundary is the one after the rank's; STAGE is one message; only
 * rank 0 is ever stopped; there are no freezes but those of watches; the writer does not
 * inquire about its edit when its coordinator has died (engine/commit/termination.c).
 *
 * Rounds (engine/rounds/) are edits: the writer is then the reader, a part of one of the ranks,
 * and to apply an edit is to launch its round.  The communicator is not made anew, and no
 * deadline ends anything: a rank that cannot go on is told.
 *
 * A watch is edit 0, without bytes: rank 1 finds that its condition holds at boundary `bad` or,
 * with BAD_BY_EDIT, from the boundary on at which edit 1 is applied; to apply the watch is to
 * stand.  It is never taken back.
 */

#include "tests/model/explore.h"

enum { RANKS = 3, WRITER = RANKS, NODES, EDITS = 2, QUEUE = 7 };
enum { FINDER = 1 }; /* the rank that finds that the condition of a watch holds */
enum { BAD_BY_EDIT = 31 };

struct message {
	uint16_t type : 5; /* enum type; 0: none */
	uint16_t edit : 1;
	uint16_t n : 5; /* number of a boundary */
	uint16_t value : 5;
};

enum type {
	NOTHING,
	STAGE,
	STAGED,
	COMMIT,
	CANCEL,
	ACCEPTED,
	VERDICT, /* value: the edit is applied */
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
	CHECKED, /* n: the boundary; value: the condition holds there */
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
	/* a watch: the trainer has checked the condition where it has arrived */
	uint8_t checked;
	uint8_t found; /* a watch: the condition held there */
	uint8_t fenced;
	uint8_t awaits;     /* waits for an answer to ARRIVED */
	uint8_t peer;       /* rank that gets the report; NODES: none */
	uint8_t remembered; /* enum outcome */
	uint8_t applied_at; /* boundary + 1; only for the model's checks */
	uint8_t applied_as; /* place among the rank's applied edits, from 1 */
};

enum coordinator_state {
	COORDINATOR_NONE,
	COORDINATOR_VOTING,
	COORDINATOR_ACCEPTED,
	COORDINATOR_COMMITTING,
	COORDINATOR_COMMITTED,
	COORDINATOR_ABORTED
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
	uint8_t taken;   /* another rank has taken the decision over */
	uint8_t refused; /* a rank has refused the decision */
	uint8_t spoiled; /* a round: a rank could not send the bytes asked for */
	uint8_t passed;
	uint8_t checked; /* a watch: ranks that wait at boundary n, a bit each */
	uint8_t found;
	uint8_t first; /* the first n that all ranks have promised */
	uint8_t part[RANKS];
	uint8_t outstanding; /* ranks that have not answered, a bit each */
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
	uint8_t order; /* place among the rank's launches, from 1 */
	uint8_t moved; /* ranks with which bytes were exchanged, a bit each */
};

enum swapper { RUNNING, ENTERED, WAITING };

struct rank {
	uint8_t boundary; /* the last boundary that the trainer has entered */
	uint8_t place;    /* enum swapper, of the trainer */
	uint8_t lost;     /* ranks it holds for lost, a bit each */
	/* edit + 1: the first half of a promise was made, the second was not; 0: none */
	uint8_t promising;
	uint8_t agreed_order;
	uint8_t agreed_boundary;
	uint8_t applied; /* count of applied edits */
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
	/* WRITE_STAGE: ranks that have not answered STAGE, a bit each; later: COMMIT is not
	 * answered
	 */
	uint8_t outstanding;
	uint8_t coordinator;
	uint8_t cancelled;
	uint8_t failed;
	uint8_t result;
};

struct state {
	uint8_t dead;                            /* nodes */
	uint8_t stopped;                         /* ranks that are stopped, and will go on */
	uint8_t crashes, stops, losses, cancels; /* how many more may come */
	uint8_t failures, spoils;                /* how many launches may still go so */
	/* rounds in which a sender has sent other bytes, a bit each */
	uint8_t other_bytes;
	uint8_t mistaken; /* bytes of one round were taken for those of another */
	uint8_t lost;     /* ranks that the writer holds for lost */
	struct rank ranks[RANKS];
	struct write writes[EDITS];
	struct message queue[NODES][NODES][QUEUE]; /* from, to */
};

struct bounds {
	uint8_t edits;
	uint8_t holders; /* ranks that hold bytes of the edits, a bit each */
	uint8_t ranks;
	uint8_t boundaries;
	uint8_t crashes, stops, losses, cancels;
	uint8_t failures, spoils;
	/* rank + 1 of the reader, which is writer and holder: edits are rounds; 0: edits are
	 * edits
	 */
	uint8_t reader;
	/* boundary at which the condition of a watch holds; edit 0 is the watch, there are no
	 * holders; 0: no watch
	 */
	uint8_t bad;
};
extern struct bounds bounds;

static inline bool is_watch(unsigned edit)
{
	return bounds.bad && !edit;
}

/* Faults put in on purpose, each of which the model must find. */
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

/* Calls explore_next, after each engine and the writer have made what they do in the same turn.
 */
void then(struct explore *x, struct state *s, const char *what, int a, int b);

/* -EIO: the sender holds the receiver for lost. */
int send(struct state *s, unsigned from, unsigned to, struct message m);
bool is_under_way(const struct state *s, unsigned from, unsigned to, enum type type,
		  unsigned edit);

/* Rank r as participant. */
void participant_stage(struct state *s, unsigned r, unsigned from, unsigned edit);
void participant_prepare(struct state *s, unsigned r, unsigned from, struct message m);
void edits_promise(struct state *s, unsigned r);
void participant_decide(struct state *s, unsigned r, unsigned from, struct message m);
uint8_t participant_outcome(struct state *s, unsigned r, unsigned edit);
bool participant_lose_writer(struct state *s, unsigned r, unsigned edit);
void participant_resolve(struct state *s, unsigned r, unsigned edit, bool commit);
void participant_hear(struct state *s, unsigned r, unsigned edit, bool commit);
bool participant_pending(const struct state *s, unsigned r);
bool participant_look(struct state *s, unsigned r); /* false: the trainer may pass */
bool edits_report(struct state *s, unsigned r, unsigned edit);

/* Rank r as coordinator, and as participant of a coordinator that died. */
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
