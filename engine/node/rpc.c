/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/queue.h"
#include "engine/base/slot-map.h"
#include "engine/node/comms.h"
#include "engine/node/event-log.h"
#include "engine/node/rpc.h"

#include <errno.h>

enum { TELL_MS = 2000 }; /* of a rank's silence, before the log tells of it */

struct rpc {
	LIST_ENTRY(rpc) link;
	uint64_t number;
	uint32_t rank; /* WIRE_OBSERVER: sent to a peer without a rank */
	uint32_t peer;
	uint64_t sent_ms;
	bool ended; /* done was called for the last time */
	rpc_done done;
	void *owner;
	uint64_t tag;
	/* for comms */
	enum comms_op op;
	uint64_t began_ns; /* 0: not counted */
	uint64_t first_ns; /* of another rank's answer to the same question; 0: none yet */
	uint64_t bytes;
	const char *caller;
};

static const enum comms_op ops[WIRE_TYPES] = {
	[WIRE_READ] = COMMS_READ,     [WIRE_VIEW_OPEN] = COMMS_VIEW,
	[WIRE_STATS] = COMMS_STATS,   [WIRE_STAGE] = COMMS_STAGE,
	[WIRE_COMMIT] = COMMS_COMMIT, [WIRE_PREPARE] = COMMS_PREPARE,
	[WIRE_DECIDE] = COMMS_APPLY,
};

/* Bytes that the rank copies itself count as if the STAGE had them. */
static uint64_t bytes_of(enum wire_type type, const void *body, size_t tail_size)
{
	return type == WIRE_STAGE ? ((const struct wire_stage *)body)->size : tail_size;
}

int rpc_call_from(const char *caller, struct engine *e, uint32_t rank, uint32_t peer,
		  enum wire_type type, const void *body, const void *tail, size_t tail_size,
		  rpc_done done, void *owner, uint64_t tag)
{
	struct rpc *rpc = malloc(sizeof(*rpc));
	int rc;

	assert(node_is_engine_thread(e));
	if (!rpc)
		return -ENOMEM;
	*rpc = (struct rpc){ .number = ++e->rpc->number,
			     .rank = rank,
			     .peer = peer,
			     .sent_ms = monotonic_ms(),
			     .done = done,
			     .owner = owner,
			     .tag = tag,
			     .op = ops[type],
			     .began_ns = ops[type] ? comms_begin(e->comms) : 0,
			     .bytes = bytes_of(type, body, tail_size),
			     .caller = caller };
	rc = node_send(e, peer, type, rpc->number, body, tail, tail_size);
	if (rc) {
		free(rpc);
		return rc;
	}
	LIST_INSERT_HEAD(&e->rpc->list, rpc, link);
	return 0;
}

/* Frees the requests that have ended.  The other functions only mark them so, as `done` may run
 * while the list is walked.
 */
static void sweep(struct engine *e)
{
	struct rpc *rpc, *next;

	LIST_FOREACH_SAFE (rpc, &e->rpc->list, link, next) {
		if (!rpc->ended)
			continue;
		LIST_REMOVE(rpc, link);
		free(rpc);
	}
}

/* Returns true if each rank gets one such message for a question, as large as the others', so
 * that their latencies compare.  READ and STAGE are as many as a rank has bytes for.
 */
static bool is_asked_alike(enum comms_op op)
{
	return op == COMMS_VIEW || op == COMMS_PREPARE || op == COMMS_APPLY;
}

/* Notes, in the requests to other ranks that ask the same, when the first answer came. */
static void note_first(struct engine *e, struct rpc *rpc, uint64_t ns)
{
	struct rpc *other;

	LIST_FOREACH (other, &e->rpc->list, link) {
		if (other == rpc || other->ended || other->owner != rpc->owner ||
		    other->op != rpc->op || other->rank == rpc->rank || other->first_ns)
			continue;
		other->first_ns = ns;
		rpc->first_ns = ns;
	}
}

/* Counts an answer.  Where several ranks were asked the same, comms_behind counts how long each
 * answers after the first one.
 */
static void count(struct engine *e, struct rpc *rpc, const struct answer *answer)
{
	uint64_t ns = monotonic_ns() - rpc->began_ns;

	comms_count(e->comms, rpc->op, 0, rpc->bytes + answer->tail_size, ns, rpc->caller);
	if (!rpc->first_ns && is_asked_alike(rpc->op))
		note_first(e, rpc, ns);
	if (rpc->first_ns && rpc->rank < e->world)
		comms_behind(e->comms, rpc->rank, ns - u64_min(rpc->first_ns, ns));
}

static void end_rpc(struct engine *e, struct rpc *rpc, const struct answer *answer)
{
	if (rpc->ended)
		return;
	if (rpc->began_ns && !answer->status)
		count(e, rpc, answer);
	rpc->began_ns = 0;
	rpc->ended = true; /* before done, which may start and forget others */
	if (rpc->done && rpc->done(e, rpc->owner, rpc->tag, answer) && answer->status >= 0)
		rpc->ended = false;
}

void rpc_ask_again(struct engine *e, uint32_t rank)
{
	const struct peer *p = &e->peers[rank];
	uint64_t pong = p->fabric ? u64_min(p->pong, p->fabric_pong) : p->pong;
	struct rpc *rpc;

	LIST_FOREACH (rpc, &e->rpc->list, link)
		if (rpc->rank == rank &&
		    rpc->number < (slot_map_is_second(rpc->peer) ? p->bulk_pong : pong))
			end_rpc(e, rpc, &(struct answer){ .status = -EAGAIN });
}

/* Returns true if the message is of the rank's process that this engine knows. */
static bool is_of(const struct engine *e, uint32_t rank, const struct wire_header *header)
{
	return header->rank == rank && header->life == node_life(e->peers[rank].entry.cookie);
}

bool rpc_answer(struct engine *e, const struct wire_header *header, const struct answer *answer)
{
	struct rpc *rpc;

	assert(node_is_engine_thread(e));
	LIST_FOREACH (rpc, &e->rpc->list, link)
		if (rpc->number == header->request && rpc->peer == answer->peer)
			break;
	if (!rpc)
		return false;
	/* another process answers at the rank's address: peers_turn loses the rank */
	if (rpc->rank < e->world && !is_of(e, rpc->rank, header)) {
		e->peers[rpc->rank].replaced = true;
		end_rpc(e, rpc, &(struct answer){ .status = -EIO });
		sweep(e);
		return true;
	}
	end_rpc(e, rpc, answer);
	if (answer->type == WIRE_PONG && rpc->rank < e->world) {
		if (slot_map_is_second(rpc->peer))
			e->peers[rpc->rank].bulk_pong = rpc->number;
		else
			e->peers[rpc->rank].pong = rpc->number;
		rpc_ask_again(e, rpc->rank);
	}
	sweep(e);
	return true;
}

/* Returns the time from which the silence of a request's rank counts. */
static uint64_t last_sign(const struct engine *e, const struct rpc *rpc)
{
	if (rpc->rank >= e->world)
		return rpc->sent_ms;
	return u64_max(rpc->sent_ms, e->peers[rpc->rank].heard_ms);
}

uint64_t rpc_silence_ms(const struct engine *e, const void *owner, uint32_t *rank)
{
	uint64_t now = monotonic_ms(), longest = 0;
	uint32_t of = *rank;
	const struct rpc *rpc;

	LIST_FOREACH (rpc, &e->rpc->list, link) {
		uint64_t ms = now - u64_min(last_sign(e, rpc), now);

		if (rpc->ended || rpc->rank >= e->world || (owner && rpc->owner != owner) ||
		    (of != WIRE_OBSERVER && rpc->rank != of) || ms <= longest)
			continue;
		longest = ms;
		*rank = rpc->rank;
	}
	return longest;
}

/* Logs, once until the rank is heard again, that it does not answer. */
static void tell_silence(struct engine *e, uint32_t rank, uint64_t ms)
{
	struct peer *p = &e->peers[rank];

	if (e->is_rank || p->silence_told || ms < u64_min(TELL_MS, e->timeout_ms / 2))
		return;
	p->silence_told = true;
	log_warn("rank %u has not answered for %llu ms; it is lost after %u", rank,
		 (unsigned long long)ms, e->timeout_ms);
	/* a read that waits for its table of states may ask another rank */
	atomic_fetch_add(&e->event_log->epoch, 1);
	pthread_cond_broadcast(&e->changed);
}

void rpc_expire(struct engine *e, uint64_t now)
{
	struct rpc *rpc;

	assert(node_is_engine_thread(e));
	LIST_FOREACH (rpc, &e->rpc->list, link) {
		uint64_t sign = last_sign(e, rpc);

		if (!rpc->ended && rpc->rank < e->world && now > sign)
			tell_silence(e, rpc->rank, now - sign);
		if (rpc->ended || now < sign + e->timeout_ms)
			continue;
		if (rpc->rank < e->world)
			e->peers[rpc->rank].silent = true;
		end_rpc(e, rpc, &(struct answer){ .status = -ETIMEDOUT });
	}
	sweep(e);
}

void rpc_fail_rank(struct engine *e, uint32_t rank, int status)
{
	struct rpc *rpc;

	LIST_FOREACH (rpc, &e->rpc->list, link)
		if (rpc->rank == rank)
			end_rpc(e, rpc, &(struct answer){ .status = status });
}

void rpc_fail_peer(struct engine *e, uint32_t peer, int status)
{
	struct rpc *rpc;

	LIST_FOREACH (rpc, &e->rpc->list, link)
		if (rpc->peer == peer)
			end_rpc(e, rpc, &(struct answer){ .status = status });
}

void rpc_forget(struct engine *e, const void *owner)
{
	struct rpc *rpc;

	LIST_FOREACH (rpc, &e->rpc->list, link)
		if (rpc->owner == owner)
			rpc->ended = true;
}

void rpc_free(struct engine *e)
{
	struct rpc *rpc;

	LIST_FOREACH (rpc, &e->rpc->list, link)
		rpc->ended = true;
	sweep(e);
}
