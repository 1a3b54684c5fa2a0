/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/operation.h"
#include "engine/base/slice.h"
#include "engine/write/stage.h"
#include "engine/write/transaction.h"
#include "engine/node/event-log.h"
#include "engine/node/file.h"
#include "engine/node/peers.h"
#include "engine/node/writer-memory.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* engine_write: every holder gets its bytes and keeps them aside; when all have, a proposal
 * asks the coordinator for a boundary; if a holder cannot, all are told to drop their bytes.
 */

#define DEADLOCK                                                                               \
	"its writer is the thread that trains a rank, and would wait for the boundary "        \
	"that it has to pass itself: write from another thread or process"

enum {
	RESTARTS_MAX = 20,
	SILENT_MS = 100, /* a rank that has not answered for so long is named */
};

/* ---- the protocol: engine thread ---- */

static void forget_everywhere(struct engine *e, struct transaction *c)
{
	rpc_forget(e, c);
	c->outstanding = 0;
	if (c->sent)
		proposal_withdraw(e, &c->proposal);
}

static bool on_staged(struct engine *e, void *owner, uint64_t rank, const struct answer *answer)
{
	struct transaction *c = owner;

	c->outstanding--;
	c->progress_ms = monotonic_ms();
	if (answer->status == -ESTALE || answer->status == -EAGAIN ||
	    answer->status == -ENOLINK) {
		if (answer->status == -ESTALE)
			peer_fetch_states(&e->peers[rank]);
		if (answer->status == -ENOLINK)
			writer_memory_refused(e, (uint32_t)rank);
		c->stale = true;
	} else if (answer->status && !c->result) {
		c->result = answer->status;
	}
	return false;
}

static int send_item(struct engine *e, struct transaction *c, struct stage_item *item)
{
	const struct states *states = e->peers[item->rank].states;
	const uint64_t *id = c->proposal.commit.transaction;
	struct wire_stage stage = { { id[0], id[1] },
				    states ? states->epoch : 0,
				    item->row,
				    item->size,
				    item->offset,
				    { 0 },
				    c->proposal.commit.origin };
	struct wire_compute compute;

	if (!states)
		return -EIO;
	if (!item->compute) {
		item->copied = writer_memory_name(e, item->rank, item->data, &stage.from);
		if (!item->copied && item->size > WIRE_CHUNK) {
			c->stale = true; /* planned to be copied, and too large to be sent */
			return -EAGAIN;
		}
		return peers_call_from(c->write->caller, e, item->rank, WIRE_STAGE, &stage,
				       item->data, item->copied ? 0 : item->size, on_staged, c,
				       item->rank);
	}
	compute = ((const struct wire_compute *)c->computes.items)[item->compute - 1];
	memcpy(compute.transaction, stage.transaction, sizeof(compute.transaction));
	compute.epoch = stage.epoch;
	compute.origin = stage.origin;
	return peers_call_from(c->write->caller, e, item->rank, WIRE_COMPUTE, &compute, NULL, 0,
			       on_staged, c, item->rank);
}

static bool has_window(const struct engine *e, const struct transaction *c)
{
	const struct stage_item *items = c->items.items;

	return c->sent < c->items.count &&
	       c->outstanding < (writer_memory_is_copied(e, items[c->sent].rank)
					 ? NODE_COPIED_WINDOW
					 : NODE_STAGE_WINDOW);
}

static void send_items(struct engine *e, struct transaction *c)
{
	struct stage_item *items = c->items.items;

	while (has_window(e, c) && !c->result && !c->stale) {
		int rc = send_item(e, c, &items[c->sent]);

		if (rc == -EAGAIN)
			return;
		if (rc) {
			c->result = rc;
			return;
		}
		c->sent++;
		c->outstanding++;
	}
}

static void count_staged(struct engine *e, const struct transaction *c)
{
	const struct stage_item *items = c->items.items;

	for (size_t i = 0; i < c->items.count; i++)
		atomic_fetch_add_explicit(items[i].copied ? &e->counters.staged_memory
							  : &e->counters.staged_messages,
					  items[i].size, memory_order_relaxed);
}

static void ask_commit(struct engine *e, struct transaction *c)
{
	int rc = proposal_ask(e, &c->proposal);

	if (!rc) {
		c->state = TRANSACTION_ASKED;
		count_staged(e, c);
	} else if (rc != -EAGAIN) {
		c->result = rc;
	}
}

static void turn_asked(struct engine *e, struct transaction *c)
{
	struct proposal *p = &c->proposal;
	bool enough = p->state == PROPOSAL_ACCEPTED && !c->wait_applied;

	if (!enough)
		proposal_turn(e, p, c->cancelled);
	if (p->state == PROPOSAL_LOST && c->wait_applied) {
		c->state = TRANSACTION_LOST;
		c->termination = (struct termination){ .holders = p->holders };
		memcpy(c->termination.transaction, p->commit.transaction,
		       sizeof(c->termination.transaction));
	} else if (enough || proposal_is_over(p)) {
		c->state = TRANSACTION_OVER;
		c->result = p->status;
	}
}

static void turn_lost(struct engine *e, struct transaction *c, uint64_t now)
{
	int rc = termination_turn(e, &c->termination, now);

	if (rc == -EAGAIN)
		return;
	c->state = TRANSACTION_OVER;
	c->result = rc ? c->proposal.status : 0;
}

/* Returns false while edges are being read. */
static bool turn_edges(struct transaction *c, uint64_t now)
{
	if (c->edges_waiting && (c->cancelled || c->result))
		stage_cancel_edges(c);
	if (c->edges_waiting)
		return false;
	c->state = TRANSACTION_PLAN;
	c->progress_ms = now;
	return true;
}

static void turn_plan(struct engine *e, struct transaction *c, uint64_t now)
{
	int rc = stage_plan(e, c);

	if (rc == -EAGAIN)
		c->result = now >= c->progress_ms + e->timeout_ms ? -ETIMEDOUT : 0;
	else if (rc)
		c->result = rc;
	else
		c->state = TRANSACTION_STAGE;
}

static void plan_again(struct engine *e, struct transaction *c)
{
	forget_everywhere(e, c);
	c->stale = false;
	c->state = TRANSACTION_PLAN;
	if (++c->restarts > RESTARTS_MAX)
		c->result = -EIO;
}

static void turn_stage(struct engine *e, struct transaction *c)
{
	if (c->stale && !c->result) {
		plan_again(e, c);
		return;
	}
	send_items(e, c);
	if (!c->result && !c->stale && c->sent == c->items.count && !c->outstanding)
		ask_commit(e, c);
}

/* Returns true if the holders could not carry out an operation, of which nothing was staged:
 * the writer does without it.
 */
static bool is_refused(const struct transaction *c)
{
	return c->write->operation && c->result == -EOPNOTSUPP;
}

/* Keeps the edit for this observer's history, and adds its event if it was not proposed: else
 * ranks add the event.
 */
static void tell(struct engine *e, const struct transaction *c)
{
	const struct proposal *p = &c->proposal;
	struct event_settled told = { .id = { p->commit.transaction[0],
					      p->commit.transaction[1] },
				      .origin = p->commit.origin,
				      .boundary = p->boundary,
				      .status = c->result,
				      .why = c->deadlocked ? DEADLOCK : NULL };

	if (is_refused(c))
		return;
	if (p->state == PROPOSAL_NEW)
		event_log_edit(e, &told);
	if (p->state == PROPOSAL_LOST && c->result) /* some ranks may have applied it */
		return;
	event_log_store(e, &told);
	c->write->logged = true;
}

/* Returns true if the transaction is over.  From ASKED on only the coordinator ends it, which
 * alone knows whether a cancel came in time.
 */
static bool turn_commit(struct engine *e, struct transaction *c, uint64_t now)
{
	if (c->state == TRANSACTION_EDGES && !turn_edges(c, now))
		return false;
	if (c->state <= TRANSACTION_STAGE && !c->result && file_is_stale(c->write->file))
		c->result = -ESTALE;
	if (c->state == TRANSACTION_PLAN && !c->cancelled && !c->result)
		turn_plan(e, c, now);
	if (c->state == TRANSACTION_STAGE && !c->cancelled && !c->result)
		turn_stage(e, c);
	if (c->state <= TRANSACTION_STAGE && (c->cancelled || c->result)) {
		forget_everywhere(e, c);
		c->result = c->result ? c->result : -ECANCELED;
		return true;
	}
	if (c->state == TRANSACTION_ASKED)
		turn_asked(e, c);
	if (c->state == TRANSACTION_LOST)
		turn_lost(e, c, now);
	return c->state == TRANSACTION_OVER;
}

/* A training thread that waits for its own edit never comes to the boundary. */
static void stop_deadlock(struct engine *e, struct transaction *c)
{
	if (!c->cancelled && peers_find_trainer(e, c->write->thread) != WIRE_OBSERVER)
		c->cancelled = c->deadlocked = true;
}

void transaction_turn(struct engine *e, uint64_t now, struct transaction_list *finished)
{
	struct transaction *c, *next;

	assert(node_is_engine_thread(e));
	LIST_FOREACH_SAFE (c, &e->write.transactions, link, next) {
		stop_deadlock(e, c);
		if (!turn_commit(e, c, now))
			continue;
		c->deadlocked &= c->result == -ECANCELED;
		if (c->deadlocked)
			c->result = -EDEADLK;
		LIST_REMOVE(c, link);
		LIST_INSERT_HEAD(finished, c, link);
		tell(e, c);
		rpc_forget(e, &c->proposal); /* APPLIED may come, and nothing waits for it */
		atomic_fetch_add(&e->write.edits, 1);
		if (!is_refused(c))
			atomic_fetch_add_explicit(c->result ? &e->counters.write_errors
							    : &e->counters.writes,
						  1, memory_order_relaxed);
		if (!c->result && !c->write->operation) /* an operation moves no bytes */
			atomic_fetch_add_explicit(&e->counters.write_bytes, c->bytes,
						  memory_order_relaxed);
	}
}

void transaction_finish(struct transaction_list *finished)
{
	struct transaction *c;

	while ((c = LIST_FIRST(finished))) {
		LIST_REMOVE(c, link);
		phase_end(PHASE_COMMIT, &c->span, c->result);
		c->write->done(c->write, c->result);
		stage_free(c);
	}
}

/* Names the rank that is the furthest from the boundary that all ranks must come to. */
static void put_late(struct engine *e, uint64_t boundary, FILE *out)
{
	uint32_t last = 0, n = 0;

	for (uint32_t rank = 0; rank < e->world; rank++) {
		const struct wire_control *page = &e->peers[rank].control;

		peers_look(e, rank);
		if (!peer_is_live(&e->peers[rank]) || !page->cookie[0] ||
		    page->boundary >= boundary)
			continue;
		if (!n++ || page->boundary < e->peers[last].control.boundary)
			last = rank;
	}
	fprintf(out, " %llu", (unsigned long long)boundary);
	if (n)
		fprintf(out, "; rank %u stands at boundary %llu for %llu ms", last,
			(unsigned long long)e->peers[last].control.boundary,
			(unsigned long long)peers_stood_ms(&e->peers[last]));
	if (n > 1)
		fprintf(out, ", and %u more are not there", n - 1);
}

/* Names the rank that has not answered for the longest time: a holder of the bytes, or, before
 * and after they are staged, any rank.
 */
static void put_silent(const struct engine *e, const struct transaction *c, FILE *out)
{
	uint32_t rank = WIRE_OBSERVER;
	uint64_t ms = rpc_silence_ms(e, c->state == TRANSACTION_STAGE ? c : NULL, &rank);

	if (ms >= SILENT_MS)
		fprintf(out, ", waits for rank %u, which has not answered for %llu ms", rank,
			(unsigned long long)ms);
}

void transaction_describe(struct engine *e, FILE *out)
{
	static const char *const states[] = { "reading what its edges lack",
					      "finding holders",
					      "staging",
					      "asking for a boundary",
					      "asking what its coordinator decided",
					      "over" };
	const struct transaction *c;

	LIST_FOREACH (c, &e->write.transactions, link) {
		const struct engine_address *a = &c->write->file->parts->address;
		bool accepted =
			c->state == TRANSACTION_ASKED && c->proposal.state == PROPOSAL_ACCEPTED;

		fputs("commit ", out);
		file_put_folder(e, a, out);
		fprintf(out, " %s bytes %llu, %u ranks: %s", a->key,
			(unsigned long long)c->bytes, c->proposal.commit.count,
			accepted ? "waiting for its boundary" : states[c->state]);
		if (accepted)
			put_late(e, c->proposal.agreed, out);
		if (c->state == TRANSACTION_STAGE)
			fprintf(out, ", %u of %u messages taken", c->sent - c->outstanding,
				c->items.count);
		if (!accepted)
			put_silent(e, c, out);
		fputc('\n', out);
	}
}

void transaction_abandon(struct engine *e)
{
	struct transaction *c;

	LIST_FOREACH (c, &e->write.transactions, link)
		c->result = -ECANCELED;
	transaction_finish(&e->write.transactions);
}

/* ---- the door ---- */

/* An edit of gradients by a rank is for the window that the rank itself is in. */
static int take_window(struct engine *e, struct wire_commit *commit,
		       const struct engine_write *writes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		commit->grads |= writes[i].file->is_grad;
	if (!commit->grads || !e->is_rank)
		return 0;
	commit->window = atomic_load(&e->registry.control->grads);
	return commit->window & 1 ? 0 : -ENODATA;
}

void transaction_origin(struct engine *e, const struct engine_file *file, size_t n,
			uint64_t bytes, struct wire_origin *origin)
{
	const struct engine_address *a = &file->parts->address;

	node_origin(e, origin);
	origin->bytes = bytes;
	origin->kind = a->kind;
	origin->param = a->param;
	origin->group = a->group;
	origin->files = (uint32_t)n;
	origin->rank = a->rank;
	origin->sub = a->sub;
	memcpy(origin->key, a->key, sizeof(origin->key));
}

static int commit_new(struct engine *e, struct engine_write *writes, size_t n,
		      bool wait_applied, struct transaction **out)
{
	struct transaction *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return -ENOMEM;
	c->write = writes;
	rc = take_window(e, &c->proposal.commit, writes, n);
	if (!rc && writes->operation)
		rc = stage_add_operation(e, c);
	else if (!rc)
		rc = stage_add_writes(e, c, writes, n);
	if (rc) {
		stage_free(c);
		return rc;
	}
	transaction_origin(e, writes->file, n, c->bytes, &c->proposal.commit.origin);
	if (writes->operation)
		operation_format(writes->operation, writes->file->parts->dtype,
				 c->proposal.commit.origin.operation);
	c->wait_applied = wait_applied;
	c->proposal.commit.transaction[0] = e->job.engine_id;
	c->progress_ms = monotonic_ms();
	c->start_ns = monotonic_ns();
	phase_begin(PHASE_COMMIT, &c->span);
	*out = c;
	return 0;
}

void transaction_start(struct engine *e, struct engine_write *writes, size_t n,
		       bool wait_applied)
{
	struct stage_edge *edges;
	struct transaction *c;
	int rc = commit_new(e, writes, n, wait_applied, &c);

	if (rc) {
		writes->done(writes, rc);
		return;
	}
	edges = c->edges;
	pthread_mutex_lock(&e->lock);
	/* stage_plan gives it another; a write that fails before has one for its event */
	c->proposal.commit.transaction[1] = ++e->commit.newest;
	/* from here on c is the engine thread's: edges was read before */
	LIST_INSERT_HEAD(&e->write.transactions, c, link);
	pthread_mutex_unlock(&e->lock);
	stage_read_edges(e, edges);
	node_wake(e);
}

void transaction_start_staged(struct engine *e, struct engine_write *write,
			      const uint64_t transaction[2], uint32_t *holders)
{
	struct transaction *c;
	int rc = commit_new(e, write, 1, false, &c);

	if (rc) {
		free(holders);
		write->done(write, rc);
		return;
	}
	memcpy(c->proposal.commit.transaction, transaction,
	       sizeof(c->proposal.commit.transaction));
	c->proposal.holders = holders;
	for (uint32_t rank = 0; rank < e->world; rank++)
		c->proposal.commit.count += holders[rank] != 0;
	c->bytes = c->proposal.commit.origin.bytes = write->file->bytes;
	c->state = TRANSACTION_STAGE; /* with no items: the holders have the bytes */
	pthread_mutex_lock(&e->lock);
	LIST_INSERT_HEAD(&e->write.transactions, c, link);
	pthread_mutex_unlock(&e->lock);
	node_wake(e);
}

void transaction_ask(struct engine *e, struct engine_write *write)
{
	if (!e->write.allowed)
		write->done(write, -EROFS);
	else if (write->file->nparts > 1 ||
		 (engine_is_local(write->file->parts->address.kind) && !e->write.local_allowed))
		write->done(write, -EACCES);
	else if (write->operation && !write->slice->numel)
		write->done(write, 0);
	else
		transaction_start(e, write, 1, true);
}

void transaction_cancel(struct engine *e, struct engine_write *write)
{
	struct transaction *c;

	pthread_mutex_lock(&e->lock);
	LIST_FOREACH (c, &e->write.transactions, link)
		if (c->write == write)
			c->cancelled = true;
	pthread_mutex_unlock(&e->lock);
	node_wake(e);
}
