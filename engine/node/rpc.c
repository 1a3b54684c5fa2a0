/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/node/event-log.h"
#include "engine/node/rpc.h"

#include <errno.h>

enum { TELL_MS = 2000 };

struct rpc {
	struct rpc *next;
	uint64_t number;
	uint32_t rank; /* WIRE_OBSERVER: sent to a peer without a rank */
	uint32_t peer;
	uint64_t sent_ms;
	bool ended; /* done was called for the last time */
	rpc_done done;
	void *owner;
	uint64_t tag;
};

int rpc_call(struct engine *e, uint32_t rank, uint32_t peer, enum wire_type type,
	     const void *body, const void *tail, size_t tail_size, rpc_done done, void *owner,
	     uint64_t tag)
{
	struct rpc *rpc = malloc(sizeof(*rpc));
	int rc;

	assert(node_is_engine_thread(e));
	if (!rpc)
		return -ENOMEM;
	*rpc = (struct rpc){ .next = e->rpc->list,
			     .number = ++e->rpc->number,
			     .rank = rank,
			     .peer = peer,
			     .sent_ms = monotonic_ms(),
			     .done = done,
			     .owner = owner,
			     .tag = tag };
	rc = node_send(e, peer, type, rpc->number, body, tail, tail_size);
	if (rc) {
		free(rpc);
		return rc;
	}
	e->rpc->list = rpc;
	return 0;
}

static void sweep(struct engine *e)
{
	for (struct rpc **at = &e->rpc->list; *at;) {
		struct rpc *rpc = *at;

		if (!rpc->ended) {
			at = &rpc->next;
			continue;
		}
		*at = rpc->next;
		free(rpc);
	}
}

static void end(struct engine *e, struct rpc *rpc, const struct answer *answer)
{
	if (rpc->ended)
		return;
	rpc->ended = true; /* before done, which may start and forget others */
	if (rpc->done && rpc->done(e, rpc->owner, rpc->tag, answer) && answer->status >= 0)
		rpc->ended = false;
}

void rpc_ask_again(struct engine *e, uint32_t rank)
{
	const struct peer *p = &e->peers[rank];
	uint64_t pong = p->fabric ? u64_min(p->pong, p->fabric_pong) : p->pong;

	for (struct rpc *rpc = e->rpc->list; rpc; rpc = rpc->next)
		if (rpc->rank == rank && rpc->number < pong)
			end(e, rpc, &(struct answer){ .status = -EAGAIN });
}

static bool is_of(const struct engine *e, uint32_t rank, const struct wire_header *header)
{
	return header->rank == rank && header->life == node_life(e->peers[rank].entry.cookie);
}

bool rpc_answer(struct engine *e, const struct wire_header *header, const struct answer *answer)
{
	struct rpc *rpc = e->rpc->list;

	assert(node_is_engine_thread(e));
	while (rpc && (rpc->number != header->request || rpc->peer != answer->peer))
		rpc = rpc->next;
	if (!rpc)
		return false;
	if (rpc->rank < e->world && !is_of(e, rpc->rank, header)) {
		e->peers[rpc->rank].replaced = true;
		end(e, rpc, &(struct answer){ .status = -EIO });
		sweep(e);
		return true;
	}
	end(e, rpc, answer);
	if (answer->type == WIRE_PONG && rpc->rank < e->world) {
		e->peers[rpc->rank].pong = rpc->number;
		rpc_ask_again(e, rpc->rank);
	}
	sweep(e);
	return true;
}

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

	for (const struct rpc *rpc = e->rpc->list; rpc; rpc = rpc->next) {
		uint64_t ms = now - u64_min(last_sign(e, rpc), now);

		if (rpc->ended || rpc->rank >= e->world || (owner && rpc->owner != owner) ||
		    (of != WIRE_OBSERVER && rpc->rank != of) || ms <= longest)
			continue;
		longest = ms;
		*rank = rpc->rank;
	}
	return longest;
}

/* The log tells once of a rank that is asked and not heard. */
static void tell_silence(struct engine *e, uint32_t rank, uint64_t ms)
{
	struct peer *p = &e->peers[rank];

	if (e->is_rank || p->silence_told || ms < u64_min(TELL_MS, e->timeout_ms / 2))
		return;
	p->silence_told = true;
	log_warn("rank %u has not answered for %llu ms; it is lost after %u", rank,
		 (unsigned long long)ms, e->timeout_ms);
	/* who waits for its table of states may ask another rank */
	atomic_fetch_add(&e->event_log->epoch, 1);
	pthread_cond_broadcast(&e->changed);
}

void rpc_expire(struct engine *e, uint64_t now)
{
	assert(node_is_engine_thread(e));
	for (struct rpc *rpc = e->rpc->list; rpc; rpc = rpc->next) {
		uint64_t sign = last_sign(e, rpc);

		if (!rpc->ended && rpc->rank < e->world && now > sign)
			tell_silence(e, rpc->rank, now - sign);
		if (rpc->ended || now < sign + e->timeout_ms)
			continue;
		if (rpc->rank < e->world)
			e->peers[rpc->rank].silent = true;
		end(e, rpc, &(struct answer){ .status = -ETIMEDOUT });
	}
	sweep(e);
}

void rpc_fail_rank(struct engine *e, uint32_t rank, int status)
{
	for (struct rpc *rpc = e->rpc->list; rpc; rpc = rpc->next)
		if (rpc->rank == rank)
			end(e, rpc, &(struct answer){ .status = status });
}

void rpc_forget(struct engine *e, const void *owner)
{
	for (struct rpc *rpc = e->rpc->list; rpc; rpc = rpc->next)
		if (rpc->owner == owner)
			rpc->ended = true;
}

void rpc_free(struct engine *e)
{
	for (struct rpc *rpc = e->rpc->list; rpc; rpc = rpc->next)
		rpc->ended = true;
	sweep(e);
}
