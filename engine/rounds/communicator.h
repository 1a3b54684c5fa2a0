/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_ROUNDS_COMMUNICATOR_H
#define ENGINE_ROUNDS_COMMUNICATOR_H

/* The communicator by which ranks send each other bytes of their devices, and its life.
 *
 *   NONE --the lowest live rank sends INVITE--> ASKING --FORM--> OPENING --all warmed up--> UP
 *     ^                                                             |                      |
 *     '-- nothing under way, all members know -- DISBANDING <-- rank lost, error, new rank --'
 *
 * The engine thread makes the communicator in the background, and after a failure makes another
 * one over the ranks that live; meanwhile bytes go by message.  The lowest live rank makes its
 * id and asks the others: if that rank has no device, there is no communicator.  It repeats
 * FORM as long as the communicator lives, since a member that has lost it unheard answers so.
 * A rank that sees the communicator fail sends DISBAND to the others and waits for their
 * answers; a rank that gets DISBAND does not.
 */

#include "engine/collective/collective.h"
#include "engine/node/node.h"

#include <stdio.h>

enum communicator_state {
	COMMUNICATOR_NONE,
	COMMUNICATOR_ASKING,
	COMMUNICATOR_OPENING,
	COMMUNICATOR_UP,
	COMMUNICATOR_DISBANDING,
};

/* Makes this rank take part.  Trainer's thread, with the lock, once.
 * -ENOMEM
 */
int communicator_use(struct engine *e, const struct collective_ops *ops,
		     const struct collective_options *options);
/* Waits for what is under way.  The engine thread has ended. */
void communicator_free(struct engine *e);

/* Answers INVITE, FORM and DISBAND.  Engine thread, with the lock. */
void communicator_serve(struct engine *e, uint32_t peer, const struct wire_header *header,
			const void *body, const void *tail, size_t tail_size);
void communicator_turn(struct engine *e, uint64_t now);
/* Disbands the communicator of that number, if it is open.  Engine thread, with the lock. */
void communicator_fail(struct engine *e, uint64_t number, const char *why);

/* With the lock: */

/* Returns the number of the communicator that is UP; 0: there is none. */
uint64_t communicator_number(const struct engine *e);
/* Returns the index of the rank among the communicator's members, or -ENOENT. */
int communicator_member(const struct engine *e, uint32_t rank);
/* Returns how many members the communicator has. */
uint32_t communicator_ranks(const struct engine *e);
/* Returns true if the communicator moves bytes of rows of that tier. */
bool communicator_reaches(const struct engine *e, enum state_tier tier);
/* Returns true if the communicator can send bytes of that row of the rank. */
bool communicator_sends(const struct engine *e, uint32_t rank, uint32_t row);
/* Returns true if the communicator can write to that memory of this rank. */
bool communicator_reaches_memory(const struct engine *e, const void *memory, uint64_t size);

struct communicator_io {
	struct collective_io io; /* done is set here */
	struct engine *engine;
	_Atomic int result; /* -EINPROGRESS: not over; else the struct is its owner's again */
};

/* Launches io by the communicator of that number.  Trainer's thread.
 * -EIO: that communicator is gone.
 * Errors of the collective's launch.
 */
int communicator_launch(struct engine *e, uint64_t number, struct communicator_io *io);
/* Waits until io is over, and returns its result; a collective always ends.  With the lock,
 * which is let go meanwhile.
 */
int communicator_wait(struct engine *e, const struct communicator_io *io);

/* Makes the communicator fail, because this rank could not launch a part for which the other
 * members wait.  Any thread.
 */
void communicator_break(struct engine *e, uint64_t number);

/* Returns true if the engine thread is to look again soon, without a message.  With the lock.
 */
bool communicator_ticks(const struct engine *e);

/* Describes the communicator's library; all zeroes: there is no communicator.  Engine thread,
 * or with the lock.
 */
void communicator_about(struct engine *e, struct collective_about *about);
/* Writes lines about the communicator, for people.  With the lock. */
void communicator_describe(struct engine *e, FILE *out);

#endif
