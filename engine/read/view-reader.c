/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/text.h"
#include "engine/node/peers.h"
#include "engine/rank/view-owner.h"
#include "engine/read/view-reader.h"
#include "engine/read/waiting.h"

#include <errno.h>
#include <string.h>

/* FAILED_MS: until a view that failed, but may come, is opened anew. */
enum { RESTARTS_MAX = 1000, FAILED_MS = 1000 };

struct closed_view {
	SLIST_ENTRY(closed_view) next;
	uint32_t n;
	struct closed_piece {
		uint64_t id[2];
		uint32_t rank;
	} pieces[];
};

bool view_reader_wanted(const struct engine_file *f)
{
	return f->parts->address.kind == ENGINE_PARAM && !f->live && !f->parts->address.now;
}

void view_reader_id(const struct engine_file *f, uint32_t view, uint64_t id[2])
{
	id[0] = f->view.id[0];
	id[1] = f->view.id[1] + f->view.pieces[view - 1].number;
}

/* ---- closing ---- */

static int alloc_closed(struct view_reader *v)
{
	v->closed = malloc(sizeof(*v->closed) + v->n * sizeof(v->closed->pieces[0]));
	return v->closed ? 0 : -ENOMEM;
}

static void close_at_owners(struct engine *e, struct engine_file *f)
{
	struct view_reader *v = &f->view;
	struct closed_view *c = v->closed;

	c->n = 0;
	for (uint32_t i = 0; i < v->n; i++) {
		if (!v->pieces[i].opened)
			continue;
		view_reader_id(f, i + 1, c->pieces[c->n].id);
		c->pieces[c->n++].rank = v->pieces[i].rank;
	}
	SLIST_INSERT_HEAD(&e->read.closed, c, next);
	v->closed = NULL;
}

void view_reader_close_at(struct engine *e, const uint64_t id[2], uint32_t rank)
{
	struct closed_view *c = malloc(sizeof(*c) + sizeof(c->pieces[0]));

	if (!c)
		return;
	c->n = 1;
	c->pieces[0] = (struct closed_piece){ { id[0], id[1] }, rank };
	SLIST_INSERT_HEAD(&e->read.closed, c, next);
}

static void free_pieces(struct view_reader *v)
{
	for (uint32_t i = 0; i < v->n; i++)
		free(v->pieces[i].runs.items);
	free(v->pieces);
	v->pieces = NULL;
	v->n = 0;
	free(v->runs.items);
	v->runs = (struct vec){ .items = NULL };
}

static void forget(struct engine *e, struct engine_file *f)
{
	struct view_reader *v = &f->view;

	atomic_store(&f->view_is_ready, false);
	if (v->closed)
		close_at_owners(e, f);
	free_pieces(v);
	waiting_end(&v->waiting);
	v->state = VIEW_READER_NONE;
}

void view_reader_close(struct engine *e, struct engine_file *f)
{
	rpc_forget(e, f);
	forget(e, f);
	phase_end(PHASE_VIEW, &f->view.span, -ECANCELED);
}

static bool on_closed(struct engine *e, void *owner, uint64_t tag, const struct answer *answer)
{
	return false;
}

/* Tells the owners that the view has ended.  False: a message could not be sent now. */
static bool tell_closed(struct engine *e, struct closed_view *c)
{
	for (int rc; c->n; c->n--) {
		const struct closed_piece *p = &c->pieces[c->n - 1];
		struct wire_transaction body = { { p->id[0], p->id[1] } };

		rc = peers_call(e, p->rank, WIRE_VIEW_CLOSE, &body, NULL, 0, on_closed, NULL,
				0);
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

/* The rows of a rank that are in one tier are one piece; so are all bytes of a lost rank, of
 * whose rows nothing is known.
 */
enum { LOST = STATE_TIERS, NUMBERS };

struct planning {
	struct engine *e;
	struct vec pieces;  /* of struct view_reader_piece */
	uint32_t *piece_of; /* [rank * NUMBERS + number]: a piece + 1; 0: none yet */
};

/* Returns the number of the piece that the bytes belong to.  -ENOMEM. */
static int64_t find_piece(struct planning *g, const struct plan_piece *p)
{
	const struct peer *peer = &g->e->peers[p->rank];
	uint32_t number = p->lost ? LOST : peer->states->rows[p->row].tier;
	uint32_t *of = &g->piece_of[p->rank * NUMBERS + number];
	struct view_reader_piece *piece;

	if (*of)
		return *of - 1;
	piece = vec_add(&g->pieces, sizeof(*piece));
	if (!piece)
		return -ENOMEM;
	*piece = (struct view_reader_piece){ .rank = p->rank,
					     .number = number,
					     .epoch = p->lost ? 0 : peer->states->epoch,
					     .cookie = peer->entry.cookie[0],
					     .lost = p->lost };
	*of = g->pieces.count;
	return *of - 1;
}

/* Adds the bytes to the runs of their piece, as a part of the last run where they follow it in
 * its row.
 */
static int add_to_piece(struct view_reader_piece *piece, const struct plan_piece *p)
{
	struct wire_view_run *runs = piece->runs.items, *run = NULL;

	if (piece->runs.count)
		run = &runs[piece->runs.count - 1];
	if (!run || run->state != p->row || run->offset + run->size != p->offset) {
		if (piece->runs.count == VIEW_OWNER_RUNS_MAX)
			return -EFBIG;
		run = vec_add(&piece->runs, sizeof(*run));
		if (!run)
			return -ENOMEM;
		*run = (struct wire_view_run){ .offset = p->offset, .state = p->row };
	}
	run->size += p->size;
	piece->size += p->size;
	return 0;
}

static bool follows(const struct view_reader_run *run, uint32_t piece,
		    const struct plan_piece *p)
{
	return run->piece == piece && run->row == p->row &&
	       run->offset + run->size == p->offset;
}

static int add_run(struct planning *g, struct vec *runs, const struct plan_piece *p,
		   uint64_t at)
{
	int64_t number = find_piece(g, p);
	struct view_reader_run *run = runs->items;
	struct view_reader_piece *piece = g->pieces.items;

	if (number < 0)
		return (int)number;
	piece += number;
	if (runs->count && follows(&run[runs->count - 1], (uint32_t)number, p)) {
		run[runs->count - 1].size += p->size;
	} else {
		run = vec_add(runs, sizeof(*run));
		if (!run)
			return -ENOMEM;
		*run = (struct view_reader_run){ .at = at,
						 .size = p->size,
						 .piece = (uint32_t)number,
						 .row = p->row,
						 .offset = p->offset,
						 .inside = piece->size };
	}
	return p->lost ? 0 : add_to_piece(piece, p);
}

static int plan_pieces(struct engine *e, struct engine_file *f)
{
	struct view_reader *v = &f->view;
	struct plan plan = { .keep_lost = true };
	CLEANUP(free) uint32_t *piece_of = calloc(e->world, NUMBERS * sizeof(*piece_of));
	struct planning g = { .e = e, .piece_of = piece_of };
	int rc = piece_of ? 0 : -ENOMEM;

	for (uint64_t at = 0; at < f->bytes && !rc; at += plan.covered) {
		rc = plan_file(e, f, f->opened_ns, at, f->bytes - at, &plan);
		for (unsigned i = 0; i < plan.n && !rc; i++)
			rc = add_run(&g, &v->runs, &plan.pieces[i], at + plan.pieces[i].at);
	}
	v->pieces = g.pieces.items;
	v->n = g.pieces.count;
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
			p->lost = p->status; /* the file's other bytes can be read */
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
	struct wire_view_open body = { .epoch = p->epoch,
				       .want = want,
				       .count = p->runs.count };
	int rc;

	view_reader_id(f, i + 1, body.view);
	rc = peers_call(e, p->rank, WIRE_VIEW_OPEN, &body, p->runs.items,
			p->runs.count * sizeof(struct wire_view_run), on_view, f, i);
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
	v->id[1] = e->read.view_number + 1;
	e->read.view_number += NUMBERS;
	v->generation = 0;
	rc = plan_pieces(e, f);
	if (!rc)
		rc = alloc_closed(v);
	if (rc) {
		free_pieces(v);
		return rc;
	}
	v->state = VIEW_READER_OPENING;
	if (!v->span.since_ns)
		phase_begin(PHASE_VIEW, &v->span);
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

/* Logs, once for a file, why a rank does not keep its bytes. */
static void tell_refusal(struct engine_file *f, const struct view_reader_piece *p)
{
	char *states = NULL;
	size_t size;
	FILE *out = f->view.told_room ? NULL : open_memstream(&states, &size);

	if (!out)
		return;
	f->view.told_room = p->no_room;
	file_put_states(f, '/', out);
	if (!text_end(out, &states))
		return;
	if (p->no_room)
		log_warn("%s cannot be read: rank %u has no room to keep its %llu bytes while "
			 "the job trains; start the job with a larger FRAG_VIEW_MEM",
			 states, p->rank, (unsigned long long)p->size);
	else
		log_warn("%s cannot be read: what rank %u was asked got lost for %u ms", states,
			 p->rank, f->engine->timeout_ms);
	free(states);
}

/* Bounds the wait of a view that waits for ranks' engines, not for trainers.
 * -ENOMEM: a rank has no memory for the view.
 * -ETIMEDOUT
 */
static int waited_enough(struct engine *e, struct engine_file *f, uint64_t now)
{
	for (uint32_t i = 0; i < f->view.n; i++) {
		const struct view_reader_piece *p = &f->view.pieces[i];

		bool is_refused = p->no_room && p->status == -ENOMEM;
		bool is_late = p->refused_ms && now >= p->refused_ms + e->timeout_ms;

		if (p->lost || (!is_refused && !is_late))
			continue;
		tell_refusal(f, p);
		return p->no_room ? -ENOMEM : -ETIMEDOUT;
	}
	return 0;
}

/* Returns true if the view is to be opened anew.
 * -ESTALE: memory was registered anew.
 * -EEXIST: the generation has passed.
 */
static bool is_moved(int status)
{
	return status == -ESTALE || status == -EEXIST;
}

/* Returns the worst status of a piece: one of is_moved, or another error; 0: all wait, or are
 * there.
 */
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
			peer_fetch_states(&e->peers[f->view.pieces[i].rank]);
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

		/* the rank that was silent when its piece was asked for may have ended */
		if (f->engine->peers[p->rank].state == ENGINE_RANK_LOST)
			return peers_lost_status(f->engine, p->rank);
		if (p->lost)
			return p->lost;
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

	if (is_moved(rc))
		return again(e, f);
	rc = waited_enough(e, f, now) ?: rc;
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
	if (rc != -EAGAIN)
		phase_end(PHASE_VIEW, &v->span, rc);
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

int view_reader_take_whole(struct engine_file *f, void *bytes)
{
	int rc = 0;

	pthread_mutex_lock(&f->engine->lock);
	if (f->view.state != VIEW_READER_NONE)
		rc = -EAGAIN;
	else if (atomic_load(&f->whole))
		rc = -EEXIST;
	else
		atomic_store(&f->whole, bytes);
	pthread_mutex_unlock(&f->engine->lock);
	return rc;
}

int view_reader_keep_whole(struct engine_file *f, const void *bytes)
{
	uint8_t *whole = malloc(f->bytes);
	int rc;

	if (!whole)
		return -ENOMEM;
	memcpy(whole, bytes, f->bytes);
	rc = view_reader_take_whole(f, whole);
	if (rc)
		free(whole);
	return rc == -EEXIST ? 0 : rc;
}

/* ---- reading ---- */

int view_reader_plan(const struct engine_file *f, uint64_t offset, uint64_t size,
		     struct plan *plan)
{
	const struct view_reader *v = &f->view;
	const struct view_reader_run *runs = v->runs.items;

	plan->n = 0;
	plan->covered = 0;
	for (uint64_t i = LOWER_BOUND(v->runs.count, j, runs[j].at <= offset) - 1;
	     plan->covered < size && plan->n < NODE_PIECES_MAX; i++) {
		const struct view_reader_run *run = &runs[i];
		const struct view_reader_piece *p = &v->pieces[run->piece];
		uint64_t inside = offset + plan->covered - run->at;
		uint64_t bytes = u64_min(run->size - inside, size - plan->covered);

		if (p->cookie != f->engine->peers[p->rank].entry.cookie[0])
			return -ESTALE;
		plan->pieces[plan->n++] =
			(struct plan_piece){ .rank = p->rank,
					     .row = run->row,
					     .offset = run->offset + inside,
					     .at = plan->covered,
					     .size = bytes,
					     .view = run->piece + 1,
					     .inside = run->inside + inside,
					     .lost = p->lost,
					     .coming = p->state == VIEW_FUTURE,
					     .buffer = p->buffer,
					     .preserved = p->preserved };
		plan->covered += bytes;
	}
	return 0;
}
