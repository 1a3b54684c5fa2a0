/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_NODE_RPC_H
#define ENGINE_NODE_RPC_H

/* Requests that wait for an answer.  A request ends by the answer; by the rank's loss; by
 * silence, nothing heard from the rank for the timeout, however slow it is otherwise; or with
 * -EAGAIN, when the rank answers a PING sent after it: the request or its answer got lost, or
 * it waits.  The caller then asks again, so a rank may get every request twice.  Engine thread,
 * with the lock.
 */

#include "engine/base/log.h"
#include "engine/node/node.h"

struct rpc_table {
	LIST_HEAD(, rpc) list; /* newest first */
	uint64_t number;       /* of the newest request */
};

void rpc_free(struct engine *e);

/* The outcome of an answer: its type and parts, or a status < 0 and nothing else. */
struct answer {
	/* 0, or that of an ACK or REFUSE.
	 * -ETIMEDOUT: none came.
	 * -EAGAIN: rpc_ask_again has ended it.
	 * -EIO: the rank is lost.
	 */
	int status;
	enum wire_type type;
	const void *body;
	const void *tail;
	size_t tail_size;
	uint32_t peer;
};

/* Takes an answer.  Returns true if more answers will come: the request is kept for them. */
typedef bool (*rpc_done)(struct engine *e, void *owner, uint64_t tag,
			 const struct answer *answer);

/* Sends a request to a message peer, which is known as rank; WIRE_OBSERVER: as none yet.  done
 * is called for each answer, until it returns false or gets a status < 0; never from inside
 * rpc_call, and not if that fails.  NULL: the answer is not needed.
 * -EAGAIN: the transport's queue is full.
 * -ENOMEM
 */
#define rpc_call(...) rpc_call_from(LOG_PLACE, __VA_ARGS__)
int rpc_call_from(const char *caller, struct engine *e, uint32_t rank, uint32_t peer,
		  enum wire_type type, const void *body, const void *tail, size_t tail_size,
		  rpc_done done, void *owner, uint64_t tag);
/* Ends the request that is answered.  False: no request to that peer has this number. */
bool rpc_answer(struct engine *e, const struct wire_header *header,
		const struct answer *answer);
/* Ends with -ETIMEDOUT requests that nobody answers; peers_turn loses their ranks. */
void rpc_expire(struct engine *e, uint64_t now);
/* Returns the longest time in ms that a request has waited with nothing heard from its rank, of
 * the requests by owner (NULL: by any) to *rank.  0: no request waits.  If *rank is
 * WIRE_OBSERVER, requests to all ranks count, and *rank becomes that of the longest.
 */
uint64_t rpc_silence_ms(const struct engine *e, const void *owner, uint32_t *rank);
/* Ends all requests to the rank with status. */
void rpc_fail_rank(struct engine *e, uint32_t rank, int status);
/* Ends all requests to the message peer with status. */
void rpc_fail_peer(struct engine *e, uint32_t peer, int status);
/* Forgets all requests of owner. */
void rpc_forget(struct engine *e, const void *owner);
/* Ends with -EAGAIN the requests to the rank that are older than the last PING it answered.  A
 * rank takes messages in order, and answers a PING at once, on both ways where it has two: a
 * request that was sent before, and is not answered, was lost or waits for a boundary.
 */
void rpc_ask_again(struct engine *e, uint32_t rank);

#endif
