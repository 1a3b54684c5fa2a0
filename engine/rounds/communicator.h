/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_ROUNDS_COMMUNICATOR_H
#define ENGINE_ROUNDS_COMMUNICATOR_H

/* The communicator by which ranks send each other bytes of their devices, and its life.
 *
 *   NONE --the lowest live rank sends INVITE--> ASKING --> OPENING --all have warmed up--> UP
 *     ^                                                      |                          |
 *     '-- nothing under way, all members know -- PARTING <-- a rank lost, an error, a new rank
 *
 * It is made in the background, and made anew over those that live; meanwhile bytes go by the
 * host.  The lowest live rank asks, and makes its id; so without a device there, there is none.
 * It tells the id again and again, also when all have it: who has it no more, and was not
 * heard, says so.  Who saw it fail tells the others, and waits until they know; who was told
 * does not.
 */

#include "engine/collective/collective.h"
#include "engine/node/node.h"

#include <stdio.h>

enum communicator_state {
	COMMUNICATOR_NONE,
	COMMUNICATOR_ASKING,
	COMMUNICATOR_OPENING,
	COMMUNICATOR_UP,
	COMMUNICATOR_PARTING,
};

/* From here on this rank takes part.  Trainer's thread, with the lock, once.  -ENOMEM. */
int communicator_use(struct engine *e, const struct collective_ops *ops,
		     const struct collective_options *options);
/* Waits for what is under way.  The engine thread is gone. */
void communicator_free(struct engine *e);

/* INVITE, FORM, DISBAND; life.  Engine thread, with the lock. */
void communicator_serve(struct engine *e, uint32_t peer, const struct wire_header *header,
			const void *body, const void *tail, size_t tail_size);
void communicator_turn(struct engine *e, uint64_t now);
/* It has failed: all members are told.  Engine thread, with the lock. */
void communicator_fail(struct engine *e, uint64_t number, const char *why);

/* With the lock: */

/* Its number, when bytes can go by it; 0: they cannot. */
uint64_t communicator_number(const struct engine *e);
/* The rank's place in it, or -ENOENT; how many there are. */
int communicator_member(const struct engine *e, uint32_t rank);
uint32_t communicator_ranks(const struct engine *e);
/* Whether it moves bytes of such rows. */
bool communicator_reaches(const struct engine *e, enum state_tier tier);
/* Whether that rank can send bytes of its row by it; whether this one can receive them into
 * that memory.
 */
bool communicator_sends(const struct engine *e, uint32_t rank, uint32_t row);
bool communicator_reaches_memory(const struct engine *e, const void *memory, uint64_t size);

struct communicator_io {
	struct collective_io io; /* done is set here */
	struct engine *engine;
	_Atomic int result; /* -EINPROGRESS: not over; else it is its owner's again */
};

/* Trainer's thread: by the one of that number; -EIO: it is there no more; what launch says. */
int communicator_launch(struct engine *e, uint64_t number, struct communicator_io *io);
/* With the lock, which is let go meanwhile: until it is over.  The collective ends what it has
 * begun.
 */
int communicator_wait(struct engine *e, const struct communicator_io *io);

/* A part could not be launched, for which others wait: it is to fail.  Any thread. */
void communicator_break(struct engine *e, uint64_t number);

/* Whether it is waiting for something that no message announces.  With the lock. */
bool communicator_ticks(const struct engine *e);

/* What its library says; zero: there is none.  Engine thread, or with the lock. */
void communicator_about(struct engine *e, struct collective_about *about);
/* Lines about it, for people.  With the lock. */
void communicator_describe(struct engine *e, FILE *out);

#endif
