/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/node/peers.h"
#include "engine/rank/view-owner.h"
#include "engine/read/view-reader.h"
#include "engine/read/waiting.h"

#include <errno.h>
#include <string.h>

enum { RESTARTS_MAX = 1000, FAILED_MS = 1000 };

struct closed_view {
	SLIST_ENTRY(closed_view) next;
	uint64_t id[2];
	uint32_t n;
	uint32_t ranks[];
};

bool view_reader_wanted(const struct engine_file *f)
{
	return f->address.kind == ENGINE_PARAM && !f->live && !f->address.now;
}

/* ---- closing ---- */

static int alloc_closed(struct view_reader *v)
{
	v->closed = malloc(sizeof(*v->closed) + v->n * sizeof(v->closed->ranks[0]));
	return v->closed ? 0 : -ENOMEM;
}

static void close_at_owners(struct engine *e, struct view_reader *v)
{
	struct closed_view *c = v->closed;

	*c = (struct closed_view){ .id = { v->id[0], v->id[1] } };
	for (uint32_t i = 0; i < v->n; i++)
		if (v->pieces[i].opened)
			c->ranks[c->n++] = v->pieces[i].rank;
	SLIST_INSERT_HEAD(&e->read.closed, c, next);
	v->closed = NULL;
}

void view_reader_close_at(struct engine *e, const uint64_t id[2], uint32_t rank)
{
	struct closed_view *c = malloc(sizeof(*c) + sizeof(c->ranks[0]));

	if (!c)
		return;
	*c = (struct closed_view){ .id = { id[0], id[1] }, .n = 1 };
	c->ranks[0] = rank;
	SLIST_INSERT_HEAD(&e->read.closed, c, next);
}

static void forget(struct engine *e, struct engine_file *f)
{
	struct view_reader *v = &f->view;

	atomic_store(&f->view_is_ready, false);
	if (v->closed)
		close_at_owners(e, v);
	free(v->pieces);
	v->pieces = NULL;
	v->n = 0;
	waiting_end(&v->waiting);
	v->state = VIEW_READER_NONE;
}

void view_reader_close(struct engine *e, struct engine_file *f)
{
	rpc_forget(e, f);
	forget(e, f);
}

static bool on_closed(struct engine *e, void *owner, uint64_t tag, const struct answer *answer)
{
	return false;
}

/* False: there is no room for a message to one of them now. */
static bool tell_closed(struct engine *e, struct closed_view *c)
{
	struct wire_transaction body = { { c->id[0], c->id[1] } };

	for (int rc; c->n; c->n--) {
		rc = peers_call(e, c->ranks[c->n - 1], WIRE_VIEW_CLOSE, &body, NULL, 0,
				on_closed, NULL, 0);
		if (rc == -ENOMEM || rc == -EAGAIN)
			return false;
	}
	return true;
}

void view_reader_tell_closed(struct engine *e)
{
	struct closed_view *c;

	assert(node_is_engine_thread(e));
	while ((c = SLIST_FIRST(&e->read.closed)) && tell_closed(e, c)) {
		SLIST_REMOVE_HEAD(&e->read.closed, next);
		free(c);
	}
}

void view_reader_free(struct engine *e)
{
	struct closed_view *c;

	while ((c = SLIST_FIRST(&e->read.closed))) {
		SLIST_REMOVE_HEAD(&e->read.closed, next);
		free(c);
	}
}

/* ---- opening ---- */

static int add_pieces(struct engine *e, struct view_reader *v, const struct plan *plan,
		      uint64_t at)
{
	struct view_reader_piece *pieces =
		realloc(v->pieces, (v->n + plan->n) * sizeof(*pieces));

	if (!pieces)
		return -ENOMEM;
	v->pieces = pieces;
	for (unsigned i = 0; i < plan->n; i++) {
		const struct piece *p = &plan->pieces[i];

		pieces[v->n++] = (struct view_reader_piece){
			.rank = p->rank,
			.row = p->row,
			.epoch = p->lost ? 0 : e->peers[p->rank].states->epoch,
			.cookie = e->peers[p->rank].entry.cookie[0],
			.offset = p->offset,
			.at = at + p->at,
			.size = p->size,
			.lost = p->lost
		};
	}
	return 0;
}

/* Several runs on one rank would be several views of one number: the layouts have one. */
static int plan_pieces(struct engine *e, struct engine_file *f)
{
	struct view_reader *v = &f->view;
	struct plan plan = { .keep_lost = true };
	uint64_t at = 0;
	int rc = 0;

	while (at < f->bytes && !rc) {
		rc = plan_read(e, &f->address, f->opened_ns, at, f->bytes - at, &plan);
		if (!rc)
			rc = add_pieces(e, v, &plan, at);
		at += plan.covered;
	}
	v->table_of = rc == -EAGAIN ? plan.table_of : NULL;
	return rc;
}

static void set_status(struct view_reader_piece *p, int status, bool no_room)
{
	p->status = status;
	p->no_room = no_room;
	if (status != -EAGAIN)
		p->refused_ms = 0;
	else if (!p->refused_ms)
		p->refused_ms = monotonic_ms();
}

static bool on_view(struct engine *e, void *owner, uint64_t i, const struct answer *answer)
{
	struct engine_file *f = owner;
	struct view_reader_piece *p = &f->view.pieces[i];
	struct wire_view view;

	f->view.outstanding--;
	if (answer->status || answer->type != WIRE_VIEW) {
		set_status(p, answer->status ? answer->status : -EIO, false);
		if (p->status == -EIO || p->status == -ETIMEDOUT)
			p->lost = p->status; /* costs its own bytes alone */
		return false;
	}
	memcpy(&view, answer->body, sizeof(view));
	set_status(p, wire_status(view.status), true);
	p->lost = 0;
	p->state = (uint8_t)view.state;
	p->generation = view.generation;
	p->buffer = view.buffer;
	return false;
}

static void ask(struct engine *e, struct engine_file *f, uint32_t i, uint64_t want)
{
	struct view_reader *v = &f->view;
	struct view_reader_piece *p = &v->pieces[i];
	struct wire_view_open body = {
		{ v->id[0], v->id[1] }, p->epoch, p->offset, p->size, want, p->row, 0
	};
	int rc = peers_call(e, p->rank, WIRE_VIEW_OPEN, &body, NULL, 0, on_view, f, i);

	waiting_asks(&p->pace, e->peers[p->rank].moves, monotonic_ms());
	p->status = -EINPROGRESS;
	if (rc)
		set_status(p, rc, false);
	p->lost = rc == -EIO || rc == -ETIMEDOUT ? rc : 0;
	p->opened |= !rc;
	v->outstanding += !rc;
}

static int begin(struct engine *e, struct engine_file *f)
{
	struct view_reader *v = &f->view;
	int rc;

	v->id[0] = e->job.engine_id;
	v->id[1] = ++e->read.view_number;
	v->generation = 0;
	rc = plan_pieces(e, f);
	if (!rc)
		rc = alloc_closed(v);
	if (rc) {
		free(v->pieces);
		v->pieces = NULL;
		v->n = 0;
		return rc;
	}
	v->state = VIEW_READER_OPENING;
	for (uint32_t i = 0; i < v->n; i++)
		if (!v->pieces[i].lost)
			ask(e, f, i, 0);
	return -EAGAIN;
}

static uint64_t greatest(const struct view_reader *v)
{
	uint64_t generation = 0;

	for (uint32_t i = 0; i < v->n; i++)
		if (!v->pieces[i].lost && !v->pieces[i].status &&
		    v->pieces[i].state != VIEW_NEXT)
			generation = u64_max(generation, v->pieces[i].generation);
	return generation;
}

/* Returns true if the rank is changing the piece, or has no valid gradients. */
static bool awaits_trainer(const struct view_reader_piece *p)
{
	return !p->lost && !p->status && p->state == VIEW_NEXT;
}

static bool settled(const struct view_reader_piece *p, uint64_t generation)
{
	return p->lost || (!p->status && p->state != VIEW_NEXT && p->generation == generation);
}

/* Bounds the wait of a view that waits for ranks' engines, not for trainers.
 * -ENOMEM: a rank has no memory for the view.
 * -ETIMEDOUT
 */
static int waited_enough(struct engine *e, const struct engine_file *f, uint64_t now)
{
	const struct engine_address *a = &f->address;

	for (uint32_t i = 0; i < f->view.n; i++) {
		const struct view_reader_piece *p = &f->view.pieces[i];

		if (p->lost || !p->refused_ms || now < p->refused_ms + e->timeout_ms)
			continue;
		log_warn("%s/%s cannot be read: %s for %u ms",
			 catalog_name(e->catalog, a->param), a->key,
			 p->no_room ? "a rank has had no room to keep it (FRAG_VIEW_MEM)"
				    : "what a rank was asked got lost",
			 e->timeout_ms);
		return p->no_room ? -ENOMEM : -ETIMEDOUT;
	}
	return 0;
}

/* Memory was registered anew, or the generation has gone by. */
static bool is_moved(int status)
{
	return status == -ESTALE || status == -EEXIST;
}

/* The worst that a piece says; -ESTALE, -EEXIST: begin anew. */
static int worst(const struct view_reader *v)
{
	int rc = 0;

	for (uint32_t i = 0; i < v->n; i++) {
		int status = v->pieces[i].lost ? 0 : v->pieces[i].status;

		if (is_moved(status) || (status && status != -EAGAIN && !is_moved(rc)))
			rc = status;
	}
	return rc;
}

static int again(struct engine *e, struct engine_file *f)
{
	for (uint32_t i = 0; i < f->view.n; i++)
		if (f->view.pieces[i].status == -ESTALE)
			e->peers[f->view.pieces[i].rank].states_stale = true;
	forget(e, f);
	return ++f->view.restarts > RESTARTS_MAX ? -EIO : -EAGAIN;
}

/* Asks for pieces that are not settled: at once for those that have another generation than the
 * view's, else when they are due.
 */
static void ask_unsettled(struct engine *e, struct engine_file *f, uint64_t generation,
			  uint64_t now)
{
	for (uint32_t i = 0; i < f->view.n; i++) {
		const struct view_reader_piece *p = &f->view.pieces[i];
		bool again = p->status || p->state == VIEW_NEXT;

		if (!settled(p, generation) &&
		    (!again || waiting_is_due(&p->pace, e->peers[p->rank].moves, now)))
			ask(e, f, i, again ? 0 : generation);
	}
}

int view_reader_lost(const struct engine_file *f)
{
	for (uint32_t i = 0; i < f->view.n; i++) {
		const struct view_reader_piece *p = &f->view.pieces[i];

		if (p->lost)
			return p->lost;
		if (f->engine->peers[p->rank].state == ENGINE_RANK_LOST) /* since it answered */
			return peers_lost_status(f->engine, p->rank);
	}
	return 0;
}

static int wait_for_trainers(struct engine *e, struct engine_file *f, uint64_t now)
{
	struct view_reader *v = &f->view;

	waiting_begin(&v->waiting, f->is_grad, 0, now);
	v->waiting.lost = view_reader_lost(f);
	for (uint32_t i = 0; i < v->n; i++)
		if (awaits_trainer(&v->pieces[i]))
			waiting_add(e, &v->waiting, v->pieces[i].rank, now);
	if (v->waiting.ranks)
		return waiting_check(e, &v->waiting, f, now);
	waiting_end(&v->waiting);
	return 0;
}

static bool all_settled(const struct view_reader *v, uint64_t generation)
{
	for (uint32_t i = 0; i < v->n; i++)
		if (!settled(&v->pieces[i], generation))
			return false;
	return true;
}

static int judge(struct engine *e, struct engine_file *f, uint64_t now)
{
	struct view_reader *v = &f->view;
	uint64_t generation = greatest(v);
	int rc = worst(v);

	if (rc)
		return is_moved(rc) ? again(e, f) : rc;
	rc = waited_enough(e, f, now);
	if (!rc)
		rc = wait_for_trainers(e, f, now);
	if (rc)
		return rc;
	v->retry_ms = now + NODE_READ_TICK_MS;
	if (!all_settled(v, generation)) {
		ask_unsettled(e, f, generation, now);
		return -EAGAIN;
	}
	v->generation = generation;
	v->state = VIEW_READER_READY;
	atomic_store(&f->view_is_ready, true);
	return 0;
}

/* Returns true if a view that failed with rc may be opened later. */
static bool may_come(int rc)
{
	return rc == -ENOMEM || rc == -ETIMEDOUT || rc == -ETIME;
}

int view_reader_turn(struct engine *e, struct engine_file *f, uint64_t now)
{
	struct view_reader *v = &f->view;
	int rc = -EAGAIN;

	assert(node_is_engine_thread(e));
	if (v->state == VIEW_READER_READY)
		return 0;
	if (v->state == VIEW_READER_FAILED && now >= v->retry_ms)
		v->state = VIEW_READER_NONE;
	if (v->state == VIEW_READER_FAILED)
		return v->status;
	if (v->outstanding || now < v->retry_ms)
		return -EAGAIN;
	rc = v->state == VIEW_READER_NONE ? begin(e, f) : judge(e, f, now);
	if (rc && rc != -EAGAIN) {
		bool again = may_come(rc) || v->waiting.lost;

		forget(e, f);
		v->state = VIEW_READER_FAILED;
		v->status = rc;
		v->retry_ms = again ? now + FAILED_MS : UINT64_MAX;
	}
	return rc;
}

bool view_reader_waits(const struct engine_file *f)
{
	for (uint32_t i = 0; i < f->view.n && !f->view.outstanding; i++)
		if (awaits_trainer(&f->view.pieces[i]))
			return true;
	return false;
}

bool view_reader_waits_for(const struct engine_file *f, uint32_t trainer, bool is_grad)
{
	for (uint32_t i = 0; i < f->view.n && !f->view.outstanding; i++)
		if (awaits_trainer(&f->view.pieces[i]) &&
		    waiting_needs(f->engine, f->view.pieces[i].rank, trainer, is_grad))
			return true;
	return false;
}

/* ---- without a view ---- */

int view_reader_keep_whole(struct engine_file *f, const void *bytes)
{
	uint8_t *whole = malloc(f->bytes);
	int rc = whole ? 0 : -ENOMEM;

	pthread_mutex_lock(&f->engine->lock);
	if (f->view.state != VIEW_READER_NONE)
		rc = -EAGAIN;
	if (!rc && !atomic_load(&f->whole)) {
		memcpy(whole, bytes, f->bytes);
		atomic_store(&f->whole, whole);
		whole = NULL;
	}
	pthread_mutex_unlock(&f->engine->lock);
	free(whole);
	return rc;
}

/* ---- reading ---- */

/* The piece that has byte at. */
static uint32_t piece_at(const struct view_reader *v, uint64_t at)
{
	uint32_t low = 0, high = v->n - 1;

	while (low < high) {
		uint32_t middle = low + (high - low + 1) / 2;

		if (v->pieces[middle].at <= at)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

int view_reader_plan(const struct engine_file *f, uint64_t offset, uint64_t size,
		     struct plan *plan)
{
	const struct view_reader *v = &f->view;

	plan->n = 0;
	plan->covered = 0;
	for (uint32_t i = piece_at(v, offset);
	     plan->covered < size && plan->n < NODE_PIECES_MAX; i++) {
		const struct view_reader_piece *p = &v->pieces[i];
		uint64_t inside = offset + plan->covered - p->at;
		uint64_t bytes = u64_min(p->size - inside, size - plan->covered);

		if (p->cookie != f->engine->peers[p->rank].entry.cookie[0])
			return -ESTALE;
		plan->pieces[plan->n++] = (struct piece){ .rank = p->rank,
							  .row = p->row,
							  .offset = p->offset + inside,
							  .at = plan->covered,
							  .size = bytes,
							  .view = i + 1,
							  .inside = inside,
							  .lost = p->lost,
							  .coming = p->state == VIEW_FUTURE,
							  .buffer = p->buffer,
							  .kept = p->kept };
		plan->covered += bytes;
	}
	return 0;
}
