/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/vec.h"
#include "engine/node/peers.h"
#include "engine/node/plan.h"
#include "engine/read/owner-stats.h"
#include "engine/read/view-reader.h"
#include "engine/read/waiting.h"
#include "engine/stats/stats.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

struct piece_of {       /* of a state, on one rank */
	uint32_t state; /* index in the request */
	uint32_t rank;
	uint32_t next;  /* index + 1 of the rank's next piece; 0: none */
	uint64_t first; /* element of the state */
	struct wire_range range;
	struct wire_sums sums; /* once they have come */
};

struct question { /* a STATS: the pieces from `first` on, along `next` */
	uint32_t rank;
	uint32_t first, last, count;
	uint64_t id;
	struct pace pace;
	bool asked, over;
	bool refused; /* the rank, or the way to it, had no room for it */
};

struct owner_stats {
	LIST_ENTRY(owner_stats) entry;
	struct engine_sums *asked;
	bool cancelled;
	bool planned;
	uint32_t next;        /* the state to plan next */
	uint64_t deadline_ms; /* of planning, then of refused questions; an answer renews it */
	struct vec pieces;    /* struct piece_of, by state, in file order */
	struct vec questions; /* struct question */
	uint32_t open;        /* questions that are not over */
};

static struct piece_of *pieces_of(const struct owner_stats *t)
{
	return t->pieces.items;
}

/* ---- planning ---- */

/* Adds the piece to the rank's last question, or begins one.  last_question: of each rank, its
 * index + 1; 0: none.
 */
static int ask_rank(struct engine *e, struct owner_stats *t, uint32_t number,
		    uint32_t *last_question)
{
	struct piece_of *p = &pieces_of(t)[number];
	struct question *q = t->questions.items;
	uint32_t most = t->asked->with_bins ? 1 : WIRE_STATS_RANGES;
	uint32_t *last = &last_question[p->rank];

	q = *last ? q + *last - 1 : NULL;
	if (q && q->count < most) {
		pieces_of(t)[q->last].next = number + 1;
		q->last = number;
		q->count++;
		return 0;
	}
	q = vec_add(&t->questions, sizeof(*q));
	if (!q)
		return -ENOMEM;
	*q = (struct question){ .rank = p->rank,
				.first = number,
				.last = number,
				.count = 1,
				.id = ++e->read.stats_number };
	*last = t->questions.count;
	return 0;
}

static void ask_ranks(struct engine *e, struct owner_stats *t)
{
	CLEANUP(free) uint32_t *last_question = calloc(e->world, sizeof(*last_question));

	for (uint32_t i = 0; i < t->pieces.count; i++)
		if (!last_question || ask_rank(e, t, i, last_question))
			t->asked->states[pieces_of(t)[i].state].result = -ENOMEM;
}

static int add_piece(struct engine *e, struct owner_stats *t, enum frag_dtype dtype,
		     const struct plan_piece *piece, uint64_t at,
		     const struct engine_file *file)
{
	uint64_t element = frag_dtype_size(dtype);
	struct piece_of *p;

	if ((at + piece->at) % element || piece->size % element)
		return -EOPNOTSUPP;
	p = vec_add(&t->pieces, sizeof(*p));
	if (!p)
		return -ENOMEM;
	*p = (struct piece_of){ .state = t->next,
				.rank = piece->rank,
				.first = (at + piece->at) / element,
				.range = { .epoch = e->peers[piece->rank].states->epoch,
					   .offset = piece->offset,
					   .size = piece->size,
					   .state = piece->row,
					   .dtype = dtype } };
	if (file) {
		view_reader_id(file, piece->view, p->range.view);
		p->range.offset = piece->inside;
	}
	return 0;
}

/* Adds the pieces of the next state.
 * -EAGAIN: a table of states is on its way.
 * -EOPNOTSUPP: the owners cannot tell: the state is to be read instead.
 */
static int plan_state(struct engine *e, struct owner_stats *t)
{
	const struct engine_sum *sum = &t->asked->states[t->next];
	const struct engine_file *f = sum->file;
	uint32_t before = t->pieces.count;
	struct engine_state state;
	struct plan plan = { 0 };
	int rc;

	if (sum->address.kind != ENGINE_PARAM || sum->address.now ||
	    catalog_file_cuts(e->catalog, sum->address.param) ||
	    (f && f->view.state != VIEW_READER_READY))
		return -EOPNOTSUPP;
	rc = plan_describe(e, &sum->address, 0, &state);
	if (!rc && f && (sum->at > f->bytes || state.bytes > f->bytes - sum->at))
		rc = -EOPNOTSUPP; /* a longer one has replaced it since the file was opened */
	if (!rc && !stats_has(state.dtype))
		rc = -EOPNOTSUPP;
	for (uint64_t at = 0; !rc && at < state.bytes; at += plan.covered) {
		rc = f ? view_reader_plan(f, sum->at + at, state.bytes - at, &plan)
		       : plan_read(e, &sum->address, 0, at, state.bytes - at, &plan);
		for (unsigned i = 0; i < plan.n && !rc; i++) {
			const struct plan_piece *piece = &plan.pieces[i];

			rc = piece->lost ? plan_lost_status(e, piece)
					 : add_piece(e, t, state.dtype, piece, at, f);
		}
	}
	if (rc)
		t->pieces.count = before; /* -EAGAIN: the state is planned anew */
	return rc;
}

/* Plans the states that are left, then the questions.
 * -EAGAIN: not all states are planned yet.
 */
static int plan_all(struct engine *e, struct owner_stats *t, uint64_t now)
{
	for (; t->next < t->asked->n; t->next++) {
		int rc = plan_state(e, t);

		if (rc == -EAGAIN && now < t->deadline_ms)
			return rc;
		t->asked->states[t->next].result = rc == -EAGAIN ? -ETIMEDOUT : rc;
	}
	ask_ranks(e, t);
	t->planned = true;
	t->open = t->questions.count;
	t->deadline_ms = now + e->timeout_ms;
	return 0;
}

/* ---- asking ---- */

static void end_question(struct owner_stats *t, struct question *q, int status)
{
	const struct piece_of *p;

	for (uint32_t at = q->first + 1; at && status; at = p->next) {
		p = &pieces_of(t)[at - 1];
		t->asked->states[p->state].result = status;
	}
	q->over = true;
	t->open--;
}

/* Returns the result of a state for which a rank answers with that status. */
static int judge(struct engine *e, uint32_t rank, int status)
{
	if (status == -EREMOTE)
		return -EOPNOTSUPP;
	if (status != -ESTALE)
		return status;
	peer_fetch_states(&e->peers[rank]);
	return -EAGAIN;
}

static void take_bins(struct owner_stats *t, const void *bins)
{
	uint64_t more[STATS_BINS];

	memcpy(more, bins, sizeof(more));
	for (unsigned i = 0; i < STATS_BINS; i++)
		t->asked->states[0].values->bins[i] += more[i];
}

static int take_sums(struct owner_stats *t, const struct question *q,
		     const struct answer *answer)
{
	const uint8_t *at = answer->tail;
	struct wire_summed summed;
	struct piece_of *p;
	size_t bins;

	if (answer->type != WIRE_SUMS)
		return -EIO;
	memcpy(&summed, answer->body, sizeof(summed));
	bins = t->asked->with_bins ? sizeof(uint64_t) * STATS_BINS : 0;
	if (summed.count != q->count ||
	    answer->tail_size != q->count * (sizeof(p->sums) + bins))
		return -EIO;
	for (uint32_t i = q->first + 1; i; i = p->next, at += sizeof(p->sums)) {
		p = &pieces_of(t)[i - 1];
		memcpy(&p->sums, at, sizeof(p->sums));
		if (!p->sums.status &&
		    p->sums.count * frag_dtype_size((enum frag_dtype)p->range.dtype) !=
			    p->range.size)
			return -EIO;
	}
	if (bins)
		take_bins(t, at);
	return 0;
}

static bool on_sums(struct engine *e, void *owner, uint64_t number, const struct answer *answer)
{
	struct owner_stats *t = owner;
	struct question *q = (struct question *)t->questions.items + number;
	int status = answer->status;

	q->asked = false;
	/* -EAGAIN: the question is asked again, with its id */
	q->refused = status == -EAGAIN && answer->type == WIRE_ACK;
	if (status == -EAGAIN)
		return false;
	t->deadline_ms = monotonic_ms() + e->timeout_ms;
	end_question(t, q, status ? judge(e, q->rank, status) : take_sums(t, q, answer));
	return false;
}

static void ask(struct engine *e, struct owner_stats *t, uint32_t number, uint64_t now)
{
	struct question *q = (struct question *)t->questions.items + number;
	struct wire_stats body = { q->id, q->count, t->asked->with_bins };
	struct wire_range *ranges = malloc(q->count * sizeof(*ranges));
	const struct piece_of *p;
	uint32_t n = 0;
	int rc = -ENOMEM;

	for (uint32_t i = q->first + 1; i && ranges; i = p->next) {
		p = &pieces_of(t)[i - 1];
		ranges[n++] = p->range;
	}
	if (ranges)
		rc = peers_call(e, q->rank, WIRE_STATS, &body, ranges, n * sizeof(*ranges),
				on_sums, t, number);
	free(ranges);
	q->asked = !rc;
	waiting_asks(&q->pace, e->peers[q->rank].moves, now);
	if (rc == -EAGAIN)
		q->refused = true;
	else if (rc)
		end_question(t, q, rc);
}

/* Asks a question that is not under way: at once if it was under way, since an answer that
 * comes before it is asked again is thrown away; when it is due if it was refused.  A question
 * that is refused for too long, while no other is answered either, ends: its states are read
 * instead.
 */
static void ask_again(struct engine *e, struct owner_stats *t, uint32_t number, uint64_t now)
{
	struct question *q = (struct question *)t->questions.items + number;

	if (q->refused && now >= t->deadline_ms)
		end_question(t, q, -EOPNOTSUPP);
	else if (!q->refused || waiting_is_due(&q->pace, e->peers[q->rank].moves, now))
		ask(e, t, number, now);
}

/* ---- the end ---- */

/* Adds a piece's sums to those of its state. */
static void join_piece(struct engine *e, struct engine_sum *sum, const struct piece_of *p,
		       bool is_first)
{
	int status = judge(e, p->rank, wire_status(p->sums.status));
	struct stats some;

	if (!status && !is_first && p->sums.content != sum->content)
		status = -EAGAIN; /* the ranks have not got to the same generation */
	if (status)
		sum->result = status;
	if (sum->result)
		return;
	sum->content = p->sums.content;
	stats_from_wire(&some, &p->sums, p->first);
	stats_join(sum->values, &some);
}

static void join_all(struct engine *e, struct owner_stats *t)
{
	const struct piece_of *p = pieces_of(t);

	for (uint32_t i = 0; i < t->pieces.count; i++) {
		struct engine_sum *sum = &t->asked->states[p[i].state];

		if (!sum->result)
			join_piece(e, sum, &p[i], !i || p[i - 1].state != p[i].state);
	}
}

/* Ends the questions on their ranks, by a STATS without pieces.  If that gets lost, the rank
 * adds up in vain.
 */
static void cancel(struct engine *e, struct owner_stats *t)
{
	const struct question *q = t->questions.items;

	rpc_forget(e, t);
	for (uint32_t i = 0; i < t->questions.count; i++) {
		struct wire_stats body = { .id = q[i].id };

		if (!q[i].over && !q[i].refused)
			peers_call(e, q[i].rank, WIRE_STATS, &body, NULL, 0, NULL, NULL, 0);
	}
	for (uint32_t i = 0; i < t->asked->n; i++)
		t->asked->states[i].result = -ECANCELED;
}

static bool turn(struct engine *e, struct owner_stats *t, uint64_t now)
{
	const struct question *q;

	if (t->cancelled) {
		cancel(e, t);
		return true;
	}
	if (!t->planned && plan_all(e, t, now))
		return false;
	q = t->questions.items;
	for (uint32_t i = 0; i < t->questions.count; i++)
		if (!q[i].over && !q[i].asked)
			ask_again(e, t, i, now);
	if (t->open)
		return false;
	join_all(e, t);
	return true;
}

void owner_stats_turn(struct engine *e, uint64_t now, struct owner_stats_list *finished)
{
	struct owner_stats *t, *next;

	assert(node_is_engine_thread(e));
	LIST_FOREACH_SAFE (t, &e->read.stats, entry, next)
		if (turn(e, t, now)) {
			LIST_REMOVE(t, entry);
			LIST_INSERT_HEAD(finished, t, entry);
		}
}

void owner_stats_finish(struct owner_stats_list *finished)
{
	struct owner_stats *t;

	while ((t = LIST_FIRST(finished))) {
		LIST_REMOVE(t, entry);
		t->asked->done(t->asked);
		free(t->pieces.items);
		free(t->questions.items);
		free(t);
	}
}

void owner_stats_abandon(struct engine *e)
{
	struct owner_stats *t;

	LIST_FOREACH (t, &e->read.stats, entry)
		for (uint32_t i = 0; i < t->asked->n; i++)
			t->asked->states[i].result = -ECANCELED;
	owner_stats_finish(&e->read.stats);
}

/* ---- any thread ---- */

int owner_stats_start(struct engine *e, struct engine_sums *sums)
{
	struct owner_stats *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->asked = sums;
	t->deadline_ms = monotonic_ms() + e->timeout_ms;
	sums->private = t;
	for (uint32_t i = 0; i < sums->n; i++)
		sums->states[i].result = 0;
	pthread_mutex_lock(&e->lock);
	LIST_INSERT_HEAD(&e->read.stats, t, entry);
	pthread_mutex_unlock(&e->lock);
	node_wake(e);
	return 0;
}

void owner_stats_cancel(struct engine *e, struct engine_sums *sums)
{
	struct owner_stats *t = sums->private;

	pthread_mutex_lock(&e->lock);
	t->cancelled = true;
	pthread_mutex_unlock(&e->lock);
	node_wake(e);
}
