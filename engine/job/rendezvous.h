/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_JOB_RENDEZVOUS_H
#define ENGINE_JOB_RENDEZVOUS_H

/* A barrier of one group's ranks, by numbered stages: frag_gather and frag_scatter call it
 * before they move a state's bytes (stage 0) and after.  The counter, the group's lowest live
 * rank, counts the ranks that have come; its answer says for all whether the bytes go by the
 * communicator.
 */

#include "engine/base/queue.h"
#include "engine/node/node.h"

struct meeting;

/* How far the call of frag_gather or frag_scatter that the trainer makes now has got. */
enum rendezvous_state {
	RENDEZVOUS_NONE,   /* the trainer makes none */
	RENDEZVOUS_WANTED, /* the counter is yet to be told */
	RENDEZVOUS_ASKED,  /* the counter was told, and has not answered */
	RENDEZVOUS_ANSWERED
};

struct rendezvous {
	SLIST_HEAD(, meeting) meetings; /* of groups whose counter this rank is, or was */
	/* of the trainer's call */
	struct wire_rendezvous said;
	enum rendezvous_state state;
	uint32_t counter;
	struct wire_rendezvous_over met; /* the counter's answer; rank WIRE_OBSERVER: none */
	bool leaves;                     /* left is to be sent to left_at */
	struct wire_rendezvous left;
	uint32_t left_at;
};

int rendezvous_new(struct engine *e);
void rendezvous_free(struct engine *e);

/* Trainer's thread, with the lock, which is let go meanwhile.  Waits until all ranks of the
 * group have come to the stage in *said.
 * 0: all ranks said status 0, and at stage 0 the same communicator and boundary.
 * -EREMOTE: at stage 0: the ranks differ in communicator or boundary.
 * -ETIMEDOUT: a rank has not come in time, or gave its call up after an earlier stage.
 * -EIO: a rank is lost.
 * -EINVAL: the ranks called for different states or roots.
 * -errno: the status that a rank said.
 * With 0 and -EREMOTE, *transaction (or NULL) is the one that the root said.
 */
int rendezvous_wait(struct engine *e, const struct wire_rendezvous *said,
		    uint64_t transaction[2]);

/* Answers RENDEZVOUS.  Engine thread, with the lock. */
void rendezvous_serve(struct engine *e, uint32_t peer, const struct wire_header *header,
		      const void *body);
void rendezvous_turn(struct engine *e, uint64_t now);
bool rendezvous_tick(const struct engine *e);

#endif
