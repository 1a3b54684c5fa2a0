/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_MODEL_VIEW_H
#define TESTS_MODEL_VIEW_H

/* An open file's view, as engine/rank/view-owner.c, engine/read/view-reader.c,
 * engine/read/onesided-read.c and engine/api/frag-step.c make it: three ranks with a piece each
 * that go through generations, a reader that takes the pieces by memory or by message, twice,
 * and a rank that dies.  The end of a step and an edit are the same here; commit.c shows that
 * all ranks go through the same generations.  A piece has two halves: a copy takes them one
 * after the other.
 */

#include "tests/model/explore.h"

enum { RANKS = 3, TORN = 15 };

/* The steps of a trainer's thread. */
enum swapper { STABLE, SAID, KEPT_FOR_VIEWS, WRITING, WRITTEN, NEW, STABLE_AGAIN };

enum view_state { VIEW_NONE, VIEW_NEXT, VIEW_FUTURE, VIEW_LIVE, VIEW_PRESERVED };

struct rank {
	uint8_t place;
	uint8_t odd;        /* the control page's sequence is odd */
	uint8_t generation; /* the control page's, from 1 */
	uint8_t bytes[2];
	uint8_t any_view; /* any_view, at which the trainer looks */
	uint8_t locked;   /* the engine thread is opening a view */
	uint8_t state;
	uint8_t shows; /* generation of the view */
	uint8_t copied;
	uint8_t room[2];
	uint8_t complete; /* label of the room: its bytes are complete */
	uint8_t stale;
	uint8_t reading; /* 1 + halves that the engine thread has copied for a READ */
	uint8_t read[2];
};

enum asked { ASKED_NOTHING, ASKED_OPEN, OPEN_ANSWERED, ASKED_READ, READ_ANSWERED };
enum status { STATUS_OK, STATUS_AGAIN, STATUS_GONE_BY, STATUS_STALE };

struct piece {
	uint8_t asked;
	uint8_t fresh; /* the rank has opened the view anew */
	uint8_t want;
	uint8_t status;
	uint8_t state;
	uint8_t generation;
	uint8_t lost;
	uint8_t kept;
	uint8_t read[2]; /* bytes that a READ brought */
};

/* The steps of the reader's thread at a piece. */
enum reading {
	BEGIN,
	LOOK,
	COPY_FIRST,
	COPY_SECOND,
	WITNESS,
	LABEL,
	ROOM_FIRST,
	ROOM_SECOND,
	ROOM_WITNESS,
	BY_MESSAGE
};
enum reader_state { WHOLE, OPENING, READY, DONE };

struct state {
	uint8_t dead, crashes;
	uint8_t state;
	uint8_t generation; /* generation of the view; WHOLE: of the first piece, or 0 */
	uint8_t at;         /* number of the piece, counted on in the second pass */
	uint8_t reading;
	uint8_t got[2];
	uint8_t mixed;
	uint8_t evicted;
	struct rank ranks[RANKS];
	struct piece pieces[RANKS];
};

struct bounds {
	uint8_t ranks, generations, crashes;
	uint8_t by_message; /* pieces that are read by message, a bit each */
	uint8_t whole;      /* the reader tries to do without a view */
};

enum mutation {
	MUTATION_NONE,
	MUTATION_NO_LOOK,
	MUTATION_NO_LOOK_WHOLE,
	MUTATION_NO_WITNESS,
	MUTATION_KEEPS_BEFORE_SAYING,
	MUTATION_PLACED_BEFORE_COUNTED,
	MUTATION_ANY_GENERATION,
	MUTATION_NO_LABEL,
	MUTATION_NO_SECOND_LOOK,
	MUTATION_COPIES_AHEAD_UNLOCKED,
	MUTATIONS
};

extern struct bounds bounds;
extern enum mutation mutation;

/* Returns the generation that the control page shows; 0: the bytes are being changed. */
static inline uint8_t content(const struct rank *rank)
{
	return rank->odd ? 0 : rank->generation;
}

void trainer_step(struct explore *x, const struct state *s, unsigned r);
/* Makes a step of rank r's engine thread. */
void rank_step(struct explore *x, const struct state *s, unsigned r);

void reader_begin(struct state *s); /* begins to open the reader's view */
void reader_step(struct explore *x, const struct state *s);

#endif
