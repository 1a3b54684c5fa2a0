/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/one-line.h"
#include "engine/write/stage.h"
#include "engine/write/transaction.h"
#include "engine/node/event-log.h"
#include "engine/node/file.h"
#include "engine/node/peers.h"

#include <errno.h>
#include <string.h>

/* engine_write: every holder gets its bytes and keeps them aside; when all have, the
 * coordinator is asked to agree on one boundary with all ranks; if a holder cannot, all are
 * told to forget.
 */

enum { RESTARTS_MAX = 20 };

/* ---- the protocol: engine thread ---- */

static void forget_everywhere(struct engine *e, struct transaction *c)
{
	struct wire_decide decide = { { c->transaction[0], c->transaction[1] }, 0, 0 };

	rpc_forget(e, c);
	c->outstanding = 0;
	for (uint32_t rank = 0; rank < e->world && c->involved; rank++)
		if (c->involved[rank] && c->sent)
			peers_call(e, rank, WIRE_DECIDE, &decide, NULL, 0, NULL, NULL, 0);
}

static bool on_staged(struct engine *e, void *owner, uint64_t rank, const struct answer *answer)
{
	struct transaction *c = owner;

	c->outstanding--;
	c->progress_ms = monotonic_ms();
	if (answer->status == -ESTALE || answer->status == -EAGAIN) {
		e->peers[rank].states_stale |= answer->status == -ESTALE;
		c->stale = true;
	} else if (answer->status && !c->result) {
		c->result = answer->status;
	}
	return false;
}

static void send_items(struct engine *e, struct transaction *c)
{
	while (c->sent < c->nitems && c->outstanding < NODE_STAGE_WINDOW && !c->result &&
	       !c->stale) {
		const struct stage_item *item = &c->items[c->sent];
		const struct states *states = e->peers[item->rank].states;
		struct wire_stage stage = { { c->transaction[0], c->transaction[1] },
					    states ? states->epoch : 0,
					    item->row,
					    item->size,
					    item->offset,
					    c->origin };
		int rc = states ? peers_call(e, item->rank, WIRE_STAGE, &stage, item->data,
					     item->size, on_staged, c, item->rank)
				: -EIO;

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

static void take_verdict(struct transaction *c, const struct answer *answer)
{
	struct wire_applied applied = { .status = answer->status };

	if (answer->type == WIRE_APPLIED && !answer->status)
		memcpy(&applied, answer->body, sizeof(applied));
	c->phase = TRANSACTION_OVER;
	if (!c->result)
		c->result = wire_status(applied.status);
}

static bool is_lost(const struct answer *answer)
{
	return !answer->type && (answer->status == -EIO || answer->status == -ETIMEDOUT);
}

/* A rank's own trainer may be waited for: it gets the error. */
static void ask_others(struct transaction *c, int why)
{
	if (!c->wait_applied) {
		take_verdict(c, &(struct answer){ .status = why });
		return;
	}
	c->phase = TRANSACTION_LOST;
	c->lost = why;
	c->outcome = (struct outcome){ .transaction = { c->transaction[0], c->transaction[1] },
				       .holders = c->involved };
}

static void turn_lost(struct engine *e, struct transaction *c, uint64_t now)
{
	int rc = outcome_turn(e, &c->outcome, now);

	if (rc == -EAGAIN)
		return;
	c->phase = TRANSACTION_OVER;
	c->result = rc ? c->lost : 0;
}

static bool on_verdict(struct engine *e, void *owner, uint64_t coordinator,
		       const struct answer *answer)
{
	struct transaction *c = owner;

	c->progress_ms = monotonic_ms();
	if (answer->type == WIRE_ACCEPTED && !answer->status) {
		c->phase = c->wait_applied ? TRANSACTION_ACCEPTED : TRANSACTION_OVER;
		return c->wait_applied;
	}
	if (answer->status == -EAGAIN) {
		c->repeat = true;
		return false;
	}
	if (is_lost(answer))
		ask_others(c, answer->status);
	else
		take_verdict(c, answer);
	return false;
}

static int send_commit(struct engine *e, struct transaction *c)
{
	struct wire_commit body = { .transaction = { c->transaction[0], c->transaction[1] },
				    .count = c->nranks,
				    .grads = c->grads,
				    .window = c->window,
				    .origin = c->origin };
	CLEANUP(free) uint32_t *ranks = malloc((c->nranks + 1) * sizeof(*ranks));
	uint32_t n = 0;

	for (uint32_t rank = 0; ranks && rank < e->world; rank++)
		if (c->involved[rank])
			ranks[n++] = rank;
	if (!ranks)
		return -ENOMEM;
	return peers_call(e, c->coordinator, WIRE_COMMIT, &body, ranks, n * sizeof(*ranks),
			  on_verdict, c, c->coordinator);
}

/* Every holder has its bytes: now they are asked for one boundary. */
static void ask_commit(struct engine *e, struct transaction *c)
{
	int rc;

	c->coordinator = peers_first_live(e); /* never a mount */
	rc = c->coordinator == WIRE_OBSERVER ? -EIO : send_commit(e, c);
	if (rc && rc != -EAGAIN)
		c->result = rc;
	else if (!rc)
		c->phase = TRANSACTION_ASKED;
}

/* The same coordinator: another one would decide the same edit once more. */
static void ask_commit_again(struct engine *e, struct transaction *c)
{
	int rc = send_commit(e, c);

	c->repeat = rc == -EAGAIN || rc == -ENOMEM;
	c->cancel_sent &= c->repeat;
	if (rc && !c->repeat)
		ask_others(c, rc);
}

static void ask_cancel(struct engine *e, struct transaction *c)
{
	struct wire_transaction body = { { c->transaction[0], c->transaction[1] } };

	if (!c->cancel_sent)
		peers_call(e, c->coordinator, WIRE_CANCEL, &body, NULL, 0, NULL, NULL, 0);
	c->cancel_sent = true;
}

/* Whether none is under way. */
static bool turn_edges(struct transaction *c, uint64_t now)
{
	if (c->edges_waiting && (c->cancelled || c->result))
		stage_cancel_edges(c);
	if (c->edges_waiting)
		return false;
	c->phase = TRANSACTION_PLAN;
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
		c->phase = TRANSACTION_STAGE;
}

static void plan_again(struct engine *e, struct transaction *c)
{
	forget_everywhere(e, c);
	c->stale = false;
	c->phase = TRANSACTION_PLAN;
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
	if (!c->result && !c->stale && c->sent == c->nitems && !c->outstanding)
		ask_commit(e, c);
}

/* The ranks know nothing of it. */
static void tell_failed(struct engine *e, const struct transaction *c)
{
	struct event_settled told = { .id = { c->transaction[0], c->transaction[1] },
				      .origin = c->origin,
				      .status = c->result };

	event_log_edit(e, &told);
}

/* True: it is over.  Once asked for, only the coordinator's word ends it: it alone knows
 * whether a cancel came in time.
 */
static bool turn_commit(struct engine *e, struct transaction *c, uint64_t now)
{
	if (c->phase == TRANSACTION_EDGES && !turn_edges(c, now))
		return false;
	if (c->phase <= TRANSACTION_STAGE && !c->result && file_is_stale(c->write->file))
		c->result = -ESTALE;
	if (c->phase == TRANSACTION_PLAN && !c->cancelled && !c->result)
		turn_plan(e, c, now);
	if (c->phase == TRANSACTION_STAGE && !c->cancelled && !c->result)
		turn_stage(e, c);
	if (c->phase <= TRANSACTION_STAGE && (c->cancelled || c->result)) {
		forget_everywhere(e, c);
		c->result = c->result ? c->result : -ECANCELED;
		tell_failed(e, c);
		return true;
	}
	if (c->phase < TRANSACTION_LOST && c->repeat)
		ask_commit_again(e, c);
	if (c->phase > TRANSACTION_STAGE && c->phase < TRANSACTION_LOST && c->cancelled)
		ask_cancel(e, c);
	if (c->phase == TRANSACTION_LOST)
		turn_lost(e, c, now);
	return c->phase == TRANSACTION_OVER;
}

void transaction_turn(struct engine *e, uint64_t now, struct transaction **finished)
{
	for (struct transaction **at = &e->commits; *at;) {
		struct transaction *c = *at;

		if (!turn_commit(e, c, now)) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		c->next = *finished;
		*finished = c;
		atomic_fetch_add(&e->edit_count, 1);
		atomic_fetch_add_explicit(c->result ? &e->counters.write_errors
						    : &e->counters.writes,
					  1, memory_order_relaxed);
		atomic_fetch_add_explicit(&e->counters.write_bytes, c->result ? 0 : c->bytes,
					  memory_order_relaxed);
	}
}

void transaction_finish(struct transaction *finished)
{
	struct transaction *next;

	for (struct transaction *c = finished; c; c = next) {
		next = c->next;
		c->write->done(c->write, c->result);
		stage_free(c);
	}
}

void transaction_describe(struct engine *e, FILE *out)
{
	static const char *const phases[] = { "reading what its edges lack",
					      "finding holders",
					      "staging",
					      "asking for a boundary",
					      "waiting for its boundary",
					      "asking what its coordinator decided",
					      "over" };

	for (const struct transaction *c = e->commits; c; c = c->next) {
		const struct engine_address *a = &c->write->file->address;

		fputs("commit ", out);
		one_line_put(out, a->kind == ENGINE_PARAM ? catalog_name(e->catalog, a->param)
							  : "-");
		fprintf(out, " %s bytes %llu, %u ranks: %s", a->key,
			(unsigned long long)c->bytes, c->nranks, phases[c->phase]);
		if (c->phase == TRANSACTION_STAGE)
			fprintf(out, ", %zu of %zu messages taken", c->sent - c->outstanding,
				c->nitems);
		fputc('\n', out);
	}
}

void transaction_abandon(struct engine *e)
{
	for (struct transaction *c = e->commits; c; c = c->next)
		c->result = -ECANCELED;
	transaction_finish(e->commits);
	e->commits = NULL;
}

/* ---- the door ---- */

/* A rank's edit of gradients is for those that it sees. */
static int take_window(struct engine *e, struct transaction *c,
		       const struct engine_write *writes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		c->grads |= writes[i].file->is_grad;
	if (!c->grads || !e->is_rank)
		return 0;
	c->window = atomic_load(&e->registry.control->grads);
	return c->window & 1 ? 0 : -ENODATA;
}

void transaction_origin(struct engine *e, const struct engine_file *file, size_t n,
			uint64_t bytes, struct wire_origin *origin)
{
	const struct engine_address *a = &file->address;

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
	rc = take_window(e, c, writes, n);
	if (!rc)
		rc = stage_add_writes(e, c, writes, n);
	if (rc) {
		stage_free(c);
		return rc;
	}
	transaction_origin(e, writes->file, n, c->bytes, &c->origin);
	c->write = writes;
	c->wait_applied = wait_applied;
	c->transaction[0] = e->writer_id;
	c->progress_ms = monotonic_ms();
	c->start_ns = monotonic_ns();
	*out = c;
	return 0;
}

/* With the lock: from here on it is the engine thread's. */
static void add(struct engine *e, struct transaction *c)
{
	c->next = e->commits;
	e->commits = c;
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
	c->transaction[1] = ++e->transaction; /* also of one that fails before it is planned */
	add(e, c);
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
	memcpy(c->transaction, transaction, sizeof(c->transaction));
	c->involved = holders;
	for (uint32_t rank = 0; rank < e->world; rank++)
		c->nranks += holders[rank] != 0;
	c->bytes = c->origin.bytes = write->file->bytes;
	c->phase = TRANSACTION_STAGE; /* of nothing */
	pthread_mutex_lock(&e->lock);
	add(e, c);
	pthread_mutex_unlock(&e->lock);
	node_wake(e);
}

void transaction_ask(struct engine *e, struct engine_write *write)
{
	if (!e->writable)
		write->done(write, -EROFS);
	else if (engine_is_local(write->file->address.kind) && !e->local)
		write->done(write, -EACCES);
	else
		transaction_start(e, write, 1, true);
}

void transaction_cancel(struct engine *e, struct engine_write *write)
{
	pthread_mutex_lock(&e->lock);
	for (struct transaction *c = e->commits; c; c = c->next)
		if (c->write == write)
			c->cancelled = true;
	pthread_mutex_unlock(&e->lock);
	node_wake(e);
}
