/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/node/peers.h"
#include "engine/rounds/rounds-internal.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum { RESTARTS_MAX = 5 };

int rounds_init(struct engine *e)
{
	if (e->rounds.table)
		return 0;
	e->rounds.table = calloc(1, sizeof(*e->rounds.table));
	if (!e->rounds.table)
		return -ENOMEM;
	pthread_mutex_init(&e->rounds.table->lock, NULL);
	return 0;
}

void rounds_free(struct engine *e)
{
	if (!e->rounds.table)
		return;
	rounds_free_launched(e);
	pthread_mutex_destroy(&e->rounds.table->lock);
	free(e->rounds.table);
	e->rounds.table = NULL;
}

/* ---- planning ---- */

static int find_members(struct engine *e, struct round *round)
{
	for (unsigned i = 0; i < round->plan.n; i++) {
		int member = communicator_member(e, round->plan.pieces[i].rank);

		if (member < 0)
			return -EREMOTE;
		round->members[i] = (uint32_t)member;
	}
	return 0;
}

static int find_epochs(struct engine *e, struct round *round)
{
	for (unsigned i = 0; i < round->plan.n; i++) {
		const struct plan_piece *piece = &round->plan.pieces[i];

		if (piece->lost || !communicator_sends(e, piece->rank, piece->row))
			return -EREMOTE;
		round->epochs[i] = e->peers[piece->rank].states->epoch;
	}
	return 0;
}

static int plan_state(struct engine *e, struct round *round)
{
	const struct rounds_get *get = round->get;
	int rc = plan_read(e, &get->address, round->start_ns, get->offset, get->size,
			   &round->plan);

	if (rc)
		return rc;
	return round->plan.covered < get->size ? -EREMOTE : find_epochs(e, round);
}

/* The owners themselves check whether they can send the pieces of a view. */
static void plan_view(struct round *round)
{
	const struct rounds_view *view = round->get->view;

	round->plan = (struct plan){ .n = view->n };
	for (uint32_t i = 0; i < view->n; i++) {
		const struct wire_piece *piece = &view->pieces[i];

		round->plan.pieces[i] = (struct plan_piece){ .rank = piece->rank,
							     .row = piece->state,
							     .offset = piece->offset,
							     .at = round->plan.covered,
							     .size = piece->size };
		round->plan.covered += piece->size;
		round->epochs[i] = piece->epoch;
	}
}

/* Holders are the owners, and this rank, which receives. */
static int find_holders(struct engine *e, struct round *round)
{
	struct proposal *p = &round->proposal;

	if (!p->holders && !(p->holders = calloc(e->world, sizeof(*p->holders))))
		return -ENOMEM;
	memset(p->holders, 0, e->world * sizeof(*p->holders));
	p->holders[e->rank] = 1;
	for (unsigned i = 0; i < round->plan.n; i++)
		p->holders[round->plan.pieces[i].rank] = 1;
	return 0;
}

static int plan(struct engine *e, struct round *round)
{
	int rc = 0;

	if (round->get->view)
		plan_view(round);
	else
		rc = plan_state(e, round);
	if (!rc)
		rc = find_members(e, round);
	return rc ? rc : find_holders(e, round);
}

static void turn_plan(struct engine *e, struct round *round, uint64_t now)
{
	int rc = plan(e, round);

	round->communicator = communicator_number(e);
	if (!rc && !round->communicator)
		rc = -EREMOTE;
	if (rc == -EAGAIN && now < round->start_ms + e->timeout_ms)
		return;
	pthread_mutex_lock(&e->rounds.table->lock); /* the trainer's thread compares ids */
	round->proposal.commit.transaction[0] = e->job.engine_id;
	round->proposal.commit.transaction[1] = ++e->commit.newest;
	pthread_mutex_unlock(&e->rounds.table->lock);
	round->result = rc == -EAGAIN ? -ETIMEDOUT : rc;
	round->state = ROUND_STAGE;
}

/* ---- each owner, and this rank, is told its part ---- */

static bool on_promised(struct engine *e, void *owner, uint64_t rank,
			const struct answer *answer)
{
	struct round *round = owner;
	bool is_old = answer->status == -ESTALE && !round->get->view;

	round->outstanding--;
	if (is_old || answer->status == -EAGAIN) {
		if (is_old)
			peer_fetch_states(&e->peers[rank]);
		round->stale = true;
	} else if (answer->status && !round->result) {
		round->result = answer->status;
	}
	return false;
}

static int tell_part(struct engine *e, struct round *round, uint32_t rank)
{
	const uint64_t *id = round->proposal.commit.transaction;
	struct wire_round body = { .transaction = { id[0], id[1] },
				   .communicator = round->communicator };
	struct wire_piece pieces[NODE_PIECES_MAX];

	if (round->get->view)
		memcpy(body.view, round->get->view->id, sizeof(body.view));
	for (unsigned i = 0; i < round->plan.n; i++) {
		const struct plan_piece *piece = &round->plan.pieces[i];

		if (piece->rank == rank)
			pieces[body.count++] = (struct wire_piece){ .epoch = round->epochs[i],
								    .offset = piece->offset,
								    .size = piece->size,
								    .state = piece->row };
	}
	return peers_call(e, rank, WIRE_ROUND, &body, pieces, body.count * sizeof(pieces[0]),
			  on_promised, round, rank);
}

static void tell_parts(struct engine *e, struct round *round)
{
	for (uint32_t rank = 0; rank < e->world && !round->result; rank++) {
		int rc = round->proposal.holders[rank] ? tell_part(e, round, rank) : -ENOENT;

		round->outstanding += !rc;
		if (rc == -EAGAIN)
			round->stale = true;
		else if (rc && rc != -ENOENT)
			round->result = rc;
	}
}

static void forget_everywhere(struct engine *e, struct round *round)
{
	rpc_forget(e, round);
	round->outstanding = 0;
	proposal_withdraw(e, &round->proposal);
}

/* ---- turns ---- */

static void turn_stage(struct engine *e, struct round *round)
{
	if (round->outstanding)
		return;
	if (!round->stale) {
		int rc = proposal_ask(e, &round->proposal);

		if (!rc)
			round->state = ROUND_ASKED;
		else if (rc != -EAGAIN)
			round->result = rc;
		return;
	}
	forget_everywhere(e, round);
	round->stale = false;
	round->state = ROUND_PLAN;
	if (++round->restarts > RESTARTS_MAX)
		round->result = -EIO;
}

/* Only the coordinator ends the round: it alone knows whether a cancel came in time. */
static void turn_asked(struct engine *e, struct round *round, uint64_t now)
{
	struct proposal *p = &round->proposal;

	if (round->get->wait_ms && now >= round->start_ms + round->get->wait_ms)
		round->cancelled = true;
	proposal_turn(e, p, round->cancelled);
	if (proposal_is_over(p) && !round->result)
		round->result = p->status;
}

/* A round that failed in this rank's own part does not wait for the coordinator. */
static bool is_over(struct rounds *r, struct round *round)
{
	LOCKED(&r->lock);
	if (round->launched ||
	    !(proposal_is_over(&round->proposal) ||
	      (round->result && (round->state < ROUND_ASKED || round->was_launched))))
		return false;
	if (!round->result && !round->was_launched)
		round->result = -EIO;
	round->state = ROUND_OVER;
	return true;
}

static bool turn_round(struct engine *e, struct round *round, uint64_t now)
{
	if (round->state < ROUND_ASKED && round->cancelled && !round->result)
		round->result = -ECANCELED;
	if (round->state == ROUND_PLAN && !round->result) {
		turn_plan(e, round, now);
		if (round->state == ROUND_STAGE && !round->result)
			tell_parts(e, round);
	}
	if (round->state == ROUND_STAGE && !round->result)
		turn_stage(e, round);
	if (round->state < ROUND_ASKED && round->result) {
		forget_everywhere(e, round);
		return is_over(e->rounds.table, round);
	}
	if (round->state == ROUND_ASKED)
		turn_asked(e, round, now);
	return is_over(e->rounds.table, round);
}

static void take_out(struct rounds *r, struct round *round)
{
	LOCKED(&r->lock);
	LIST_REMOVE(round, link);
	r->n--;
	r->figures.rounds++;
	if (round->result)
		r->figures.failed++;
	else
		r->figures.bytes += round->get->size;
}

void rounds_turn(struct engine *e, uint64_t now, struct round_list *finished)
{
	struct rounds *r = e->rounds.table;
	struct round *round, *next;

	assert(node_is_engine_thread(e));
	if (!r)
		return;
	rounds_turn_launched(e);
	LIST_FOREACH_SAFE (round, &r->list, link, next) {
		if (!turn_round(e, round, now))
			continue;
		take_out(r, round);
		rpc_forget(e, round);
		rpc_forget(e, &round->proposal);
		LIST_INSERT_HEAD(finished, round, link);
	}
}

void rounds_finish(struct round_list *finished)
{
	struct round *round;

	while ((round = LIST_FIRST(finished))) {
		LIST_REMOVE(round, link);
		phase_end(PHASE_ROUND, &round->span, round->result);
		round->get->done(round->get, round->result);
		free(round->proposal.holders);
		free(round);
	}
}

void rounds_abandon(struct engine *e)
{
	struct round *round;

	if (!e->rounds.table)
		return;
	LIST_FOREACH (round, &e->rounds.table->list, link)
		round->result = -ECANCELED;
	rounds_finish(&e->rounds.table->list);
}

/* ---- the door ---- */

int rounds_begin(struct engine *e, struct rounds_get *get)
{
	struct rounds *r = e->rounds.table;
	struct round *round;

	if (!r || !communicator_number(e))
		return -EREMOTE;
	if (get->size > ROUNDS_BYTES_MAX)
		return -E2BIG;
	if (r->n >= ROUNDS_UNDER_WAY_MAX)
		return -EAGAIN;
	round = calloc(1, sizeof(*round));
	if (!round)
		return -ENOMEM;
	round->get = get;
	round->start_ns = monotonic_ns();
	round->start_ms = monotonic_ms();
	phase_begin(PHASE_ROUND, &round->span);
	node_origin(e, &round->proposal.commit.origin);
	round->proposal.commit.grads = !get->view && !strcmp(get->address.key, "grad");
	round->proposal.commit.round = 1;
	LOCKED(&r->lock);
	LIST_INSERT_HEAD(&r->list, round, link);
	r->n++;
	return 0;
}

int rounds_start(struct engine *e, struct rounds_get *get)
{
	int rc;

	pthread_mutex_lock(&e->lock);
	rc = rounds_begin(e, get);
	pthread_mutex_unlock(&e->lock);
	if (!rc)
		node_wake(e);
	return rc;
}

void rounds_end(struct engine *e, struct rounds_get *get)
{
	struct round *round;

	if (!e->rounds.table)
		return;
	LIST_FOREACH (round, &e->rounds.table->list, link)
		if (round->get == get)
			round->cancelled = true;
}

/* ---- figures ---- */

bool rounds_tick(const struct engine *e)
{
	return e->rounds.table && (!LIST_EMPTY(&e->rounds.table->list) ||
				   atomic_load(&e->rounds.table->under_way));
}

void rounds_figures(const struct engine *e, struct rounds_figures *f)
{
	memset(f, 0, sizeof(*f));
	if (!e->rounds.table)
		return;
	LOCKED(&e->rounds.table->lock);
	*f = e->rounds.table->figures;
}

/* Writes a line for each round that waits. */
static void describe(const struct engine *e, FILE *out)
{
	static const char *const states[] = { "finding owners", "telling owners",
					      "waiting for its boundary", "over" };
	const struct round *round;

	if (!e->rounds.table)
		return;
	LIST_FOREACH (round, &e->rounds.table->list, link)
		fprintf(out, "round %s %s bytes %llu: %s\n",
			round->get->address.kind == ENGINE_PARAM && !round->get->view
				? catalog_name(e->catalog, round->get->address.param)
				: "-",
			round->get->view ? "of a view" : round->get->address.key,
			(unsigned long long)round->get->size, states[round->state]);
}

void rounds_report(struct engine *e, FILE *out)
{
	struct rounds_figures f;

	communicator_describe(e, out);
	rounds_figures(e, &f);
	if (e->rounds.table)
		fprintf(out,
			"rounds asked for %llu, failed %llu, brought %llu bytes; had a part in "
			"%llu\n",
			(unsigned long long)f.rounds, (unsigned long long)f.failed,
			(unsigned long long)f.bytes, (unsigned long long)f.launched);
	describe(e, out);
}
