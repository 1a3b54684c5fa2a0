/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/node/event-log.h"
#include "engine/node/peers.h"
#include "engine/node/plan.h"
#include "engine/read/onesided-read.h"
#include "engine/read/prefetch.h"
#include "engine/read/readahead.h"
#include "engine/read/remote-read.h"
#include "engine/read/view-reader.h"
#include "engine/read/waiting.h"

#include <errno.h>
#include <string.h>

/* WHOLE_MS: a small file's bytes are tried without a view for so long.  LONG_MS: reads that
 * have waited for trainers longer are turned more rarely.  OWN_MS: waits_for_itself.
 * NOWAIT_MS: of a rank's silence, after which a read that is not to wait ends.
 */
enum { WHOLE_MS = 20, LONG_MS = 100, OWN_MS = 200, NOWAIT_MS = 700 };
enum {
	AHEAD_MIN = 64 << 10,
	NO_AHEAD = -64, /* requests until read-ahead is tried again where memory was in reach */
};

/* In this order: of the answers to one plan the greatest state counts. */
enum remote_read_state {
	REMOTE_READ_PLANS,    /* at its next turn, for the bytes it lacks */
	REMOTE_READ_ASKED,    /* owners, for the pieces of its plan */
	REMOTE_READ_AWAITS,   /* trainers: gradients, or the view's generation */
	REMOTE_READ_IS_STALE, /* something moved: it plans anew, one turn later */
	REMOTE_READ_MAY_COPY, /* the bytes may be in reach of memory: outside the lock */
	REMOTE_READ_IS_THERE, /* a read ahead that has all bytes: in no list but its file's */
};

/* How far a read has got with the view of its file.  Only in this order. */
enum remote_read_stage {
	REMOTE_READ_NO_VIEW,
	REMOTE_READ_ASKED_VIEW,   /* view_reader_turn was called since this read began */
	REMOTE_READ_TRIED_MEMORY, /* it is there; memory was tried, or is not to be */
};

struct remote_read {
	LIST_ENTRY(remote_read) entry;
	struct engine_read *read;
	enum remote_read_state state;
	enum remote_read_stage stage;
	bool cancelled;         /* in any state, by any thread */
	struct waiting waiting; /* for trainers */
	struct pace pace;
	unsigned outstanding; /* answers */
	uint64_t offset;
	uint64_t size;
	uint64_t done;
	uint64_t alive_ms;    /* silence counts from here */
	uint64_t progress_ms; /* when bytes last came */
	uint64_t start_ns;
	int64_t result;
	struct plan plan;
	uint8_t *buffer;
	uint8_t *bytes;         /* in buffer: the bytes of the read */
	struct engine_read own; /* of a read ahead: `read` is `own` */
};

/* A read ahead has no asker, and its file lists it. */
static bool is_ahead(const struct remote_read *t)
{
	return t->read == &t->own;
}

/* Large buffers are used again: to touch a page for the first time costs more than to copy it.
 */
static uint8_t *get_buffer(struct engine *e, size_t size)
{
	return size >= AHEAD_MIN && e->read.ahead ? readahead_buffer(e)
						  : malloc(size ? size : 1);
}

static void put_buffer(struct engine *e, void *buffer, size_t size)
{
	if (size >= AHEAD_MIN)
		readahead_give(e, buffer);
	else
		free(buffer);
}

static void raise_state(struct remote_read *t, enum remote_read_state state)
{
	if (t->state < state)
		t->state = state;
}

static void piece_failed(struct engine *e, struct remote_read *t, uint32_t rank, int status)
{
	if ((status == -ESTALE && !t->read->file->view_is_ready) || status == -EAGAIN) {
		if (status == -ESTALE)
			peer_fetch_states(&e->peers[rank]);
		raise_state(t, REMOTE_READ_IS_STALE);
	} else if (!t->result) {
		t->result = status;
		if (status == -ESTALE && !is_ahead(t))
			event_log_evicted(e, t->read->file);
	}
}

/* Returns true if the rank has still to come to the content: to the generation of the view, or
 * to valid gradients.
 */
static bool is_to_come(const struct remote_read *t, const struct plan_piece *piece,
		       const struct wire_data *data)
{
	if (piece->view)
		return data->status == -EAGAIN && piece->coming;
	return !data->status && t->read->file->is_grad && !(data->control.grads & 1);
}

/* Takes the transport's buffer in which a message with all bytes of the read came, and gives it
 * the read's buffer in exchange.
 */
static bool exchange(struct engine *e, struct remote_read *t, const struct answer *answer)
{
	const struct node_port *port = node_port_of(e, answer->peer);
	void *room;

	_Static_assert((int)READAHEAD_BUFFER == (int)TRANSPORT_ROOM, "they are exchanged");
	if (answer->tail_size != t->size || t->size < AHEAD_MIN || t->read->into ||
	    !e->read.ahead || answer->peer == NODE_LOCAL || !port->ops->exchange)
		return false;
	room = port->ops->exchange(port->transport, t->buffer);
	if (!room)
		return false;
	t->buffer = room;
	t->bytes = (uint8_t *)(uintptr_t)answer->tail;
	return true;
}

static void take_bytes(struct engine *e, struct remote_read *t, const struct plan_piece *piece,
		       const struct answer *answer)
{
	if (!exchange(e, t, answer))
		memcpy(t->bytes + t->done + piece->at, answer->tail, piece->size);
	atomic_fetch_add_explicit(&e->counters.owner_bytes_messages, piece->size,
				  memory_order_relaxed);
	atomic_fetch_add_explicit(&e->counters.owner_reads_messages, 1, memory_order_relaxed);
}

static void take_data(struct engine *e, struct remote_read *t, struct plan_piece *piece,
		      const struct answer *answer)
{
	struct wire_data data;

	memcpy(&data, answer->body, sizeof(data));
	peers_heard(e, piece->rank, &data.control);
	piece->awaited = is_to_come(t, piece, &data);
	if (data.status == -EAGAIN && piece->view)
		t->alive_ms = monotonic_ms(); /* the rank is busy, not silent */
	if (piece->awaited)
		raise_state(t, REMOTE_READ_AWAITS);
	else if (data.status)
		piece_failed(e, t, piece->rank, wire_status(data.status));
	else if (data.size != piece->size || answer->tail_size != piece->size)
		piece_failed(e, t, piece->rank, -EIO);
	else
		take_bytes(e, t, piece, answer);
}

static bool on_data(struct engine *e, void *owner, uint64_t tag, const struct answer *answer)
{
	struct remote_read *t = owner;
	struct plan_piece *piece = &t->plan.pieces[tag];

	t->outstanding--;
	if (answer->status)
		piece_failed(e, t, piece->rank, answer->status);
	else if (answer->type != WIRE_DATA)
		piece_failed(e, t, piece->rank, -EIO);
	else
		take_data(e, t, piece, answer);
	return false;
}

static void ask_piece(struct engine *e, struct remote_read *t, unsigned i)
{
	const struct plan_piece *piece = &t->plan.pieces[i];
	const struct peer *p = &e->peers[piece->rank];
	struct wire_read read = { p->states ? p->states->epoch : 0,
				  piece->row,
				  (uint32_t)piece->size,
				  piece->offset,
				  { 0, 0 } };
	int rc;

	if (piece->view) {
		view_reader_id(t->read->file, piece->view, read.view);
		read.offset = piece->inside;
	}
	rc = peers_call_from(t->read->caller, e, piece->rank, WIRE_READ, &read, NULL, 0,
			     on_data, t, i);
	if (rc)
		piece_failed(e, t, piece->rank, rc);
	else
		t->outstanding++;
}

/* Returns true if the bytes of a piece can be copied out of the owner's memory. */
static bool is_in_memory(const struct engine *e, const struct plan_piece *piece)
{
	const struct peer *p = &e->peers[piece->rank];
	const struct state_row *row;

	if (piece->lost || p->way != PEER_WAY_MEMORY || !p->states ||
	    piece->row >= p->states->nrows)
		return false;
	row = &p->states->rows[piece->row];
	return row->tier == STATE_HOST && row->nextents;
}

/* Ends a read ahead, and returns false, if an owner is lost, or its memory is in reach; none is
 * then asked for ahead for a while.
 */
static bool is_worth_ahead(const struct engine *e, struct remote_read *t)
{
	for (unsigned i = 0; i < t->plan.n; i++) {
		const struct plan_piece *piece = &t->plan.pieces[i];

		if (!piece->lost && !is_in_memory(e, piece))
			continue;
		t->read->file->remote.sequence.streak = NO_AHEAD;
		t->result = -EAGAIN;
		return false;
	}
	return true;
}

/* Asks for the pieces of the plan by message, also for those in reach of memory, which
 * onesided_read could not copy.
 */
static void ask(struct engine *e, struct remote_read *t)
{
	if (is_ahead(t) && !is_worth_ahead(e, t))
		return;
	t->state = REMOTE_READ_ASKED;
	for (unsigned i = 0; i < t->plan.n; i++) {
		uint32_t rank = t->plan.pieces[i].rank;

		if (t->plan.pieces[i].lost)
			piece_failed(e, t, rank, plan_lost_status(e, &t->plan.pieces[i]));
		else
			ask_piece(e, t, i);
	}
}

static bool take_whole(struct remote_read *t)
{
	const uint8_t *whole = atomic_load(&t->read->file->whole);

	if (whole) {
		memcpy(t->bytes, whole + t->offset, t->size);
		t->done = t->size;
	}
	return whole;
}

static bool is_in_reach(struct engine *e, struct remote_read *t)
{
	if (!e->memory.transport ||
	    plan_file(e, t->read->file, UINT64_MAX, t->offset, t->size, &t->plan) ||
	    t->plan.covered < t->size)
		return false;
	for (unsigned i = 0; i < t->plan.n; i++)
		if (!is_in_memory(e, &t->plan.pieces[i]))
			return false;
	return true;
}

/* A small file's bytes are tried for some time first, between steps: then it needs no view, for
 * which its owners would have to answer and to keep them.
 */
static bool tries_whole(struct engine *e, struct remote_read *t, uint64_t now)
{
	const struct engine_file *f = t->read->file;

	return t->size == f->bytes && f->view.state == VIEW_READER_NONE && !t->read->nowait &&
	       now < t->start_ns / 1000000 + WHOLE_MS && is_in_reach(e, t);
}

/* Returns true if the view waits for a trainer, and the read is not to wait for one. */
static bool must_wait(const struct remote_read *t)
{
	return t->read->nowait && view_reader_waits(t->read->file);
}

static void refuse_to_wait(struct remote_read *t)
{
	t->result = t->read->file->is_grad ? -ENODATA : -EAGAIN;
}

/* Looks whether a round brings the bytes.
 * 0: they come by message.
 * -EAGAIN: a round brings them, or has brought them.
 */
static int plan_round(struct engine *e, struct remote_read *t, uint64_t now)
{
	switch (prefetch_turn(e, t->read->file, t->offset, t->size, now)) {
	case PREFETCH_WAIT:
		t->alive_ms = now; /* no silence: prefetch bounds this wait */
		return -EAGAIN;
	case PREFETCH_THERE:
		t->state = REMOTE_READ_MAY_COPY;
		return -EAGAIN;
	default:
		return 0;
	}
}

/* Plans the bytes that are missing.
 * -EAGAIN: there is no plan yet, or none is needed: t has another state, or its result.
 */
static int plan(struct engine *e, struct remote_read *t, uint64_t now)
{
	struct engine_file *f = t->read->file;
	uint64_t offset = t->offset + t->done, size = t->size - t->done;
	int rc;

	if (!view_reader_wanted(f))
		return plan_file(e, f, t->start_ns, offset, size, &t->plan);
	if (take_whole(t))
		return -EAGAIN;
	if (tries_whole(e, t, now)) {
		t->state = REMOTE_READ_MAY_COPY;
		return -EAGAIN;
	}
	if (t->stage >= REMOTE_READ_ASKED_VIEW &&
	    must_wait(t)) { /* without another VIEW_OPEN */
		refuse_to_wait(t);
		return -EAGAIN;
	}
	rc = view_reader_turn(e, f, now);
	if (t->stage < REMOTE_READ_ASKED_VIEW)
		t->stage = REMOTE_READ_ASKED_VIEW;
	t->plan.table_of = f->view.table_of;
	if (rc == -EAGAIN) {
		if (f->view.state == VIEW_READER_OPENING) /* a slow step is not silence */
			t->alive_ms = now;
		if (must_wait(t))
			refuse_to_wait(t);
		return rc;
	}
	if (!rc && t->stage < REMOTE_READ_TRIED_MEMORY && e->memory.transport) {
		t->stage = REMOTE_READ_TRIED_MEMORY;
		t->state = REMOTE_READ_MAY_COPY;
		return -EAGAIN;
	}
	if (!rc)
		rc = plan_round(e, t, now);
	return rc ? rc : view_reader_plan(f, offset, size, &t->plan);
}

static void plan_and_ask(struct engine *e, struct remote_read *t, uint64_t now)
{
	int rc = plan(e, t, now);

	if (rc == -EAGAIN) {
		t->plan.n = 0;
		t->plan.covered = 0;
		if (!t->result && now >= t->alive_ms + e->timeout_ms)
			t->result = -ETIMEDOUT;
	} else if (rc) {
		t->result = rc;
	} else {
		ask(e, t);
	}
}

/* Takes the outcome of a plan whose pieces have all been answered. */
static void settle(const struct engine *e, struct remote_read *t, uint64_t now)
{
	if (t->result)
		return;
	if (t->state == REMOTE_READ_IS_STALE) {
		t->result = now > t->alive_ms + e->timeout_ms ? -ETIMEDOUT : 0;
	} else {
		t->done += t->plan.covered;
		t->alive_ms = t->progress_ms = now;
		waiting_end(&t->waiting);
	}
	t->plan.n = 0;
	t->plan.covered = 0;
	t->state = REMOTE_READ_PLANS;
}

/* Returns the generation or window that the ranks must come to; 0: any window of gradients. */
static uint64_t awaited_content(const struct remote_read *t)
{
	const struct engine_file *f = t->read->file;

	return view_reader_wanted(f) ? f->view.generation : 0;
}

/* Returns false for gradients without a view that are not valid, as the rank's page says: the
 * answer would carry all their bytes in vain.
 */
static bool is_worth_asking(const struct engine *e, const struct plan_piece *piece)
{
	const struct peer *p = &e->peers[piece->rank];

	return piece->view || !peer_is_live(p) || p->control.grads & 1;
}

static void ask_awaited(struct engine *e, struct remote_read *t)
{
	t->state = REMOTE_READ_ASKED;
	for (unsigned i = 0; i < t->plan.n; i++) {
		struct plan_piece *piece = &t->plan.pieces[i];

		if (piece->awaited && is_worth_asking(e, piece))
			ask_piece(e, t, i);
		else if (piece->awaited)
			raise_state(t, REMOTE_READ_AWAITS);
	}
}

/* Waits for trainers, and asks again for the awaited pieces of the plan alone: the others have
 * come.
 */
static void await(struct engine *e, struct remote_read *t, uint64_t now)
{
	struct waiting *w = &t->waiting;
	uint64_t moves = 0;

	if (t->read->nowait) {
		refuse_to_wait(t);
		return;
	}
	waiting_begin(w, t->read->file->is_grad, awaited_content(t), now);
	w->lost = view_reader_lost(t->read->file);
	for (unsigned i = 0; i < t->plan.n; i++)
		if (t->plan.pieces[i].awaited) {
			waiting_add(e, w, t->plan.pieces[i].rank, now);
			moves += e->peers[t->plan.pieces[i].rank].moves;
		}
	t->alive_ms = now; /* a slow step is not silence */
	t->result = waiting_check(e, w, t->read->file, now);
	if (t->result || !waiting_is_due(&t->pace, moves, now))
		return;
	waiting_asks(&t->pace, moves, now);
	ask_awaited(e, t);
}

static bool is_finished(struct engine *e, struct remote_read *t)
{
	if (t->cancelled && !t->result)
		t->result = -ECANCELED;
	if (t->result < 0) {
		rpc_forget(e, t);
		return true;
	}
	if (t->done < t->size)
		return t->state == REMOTE_READ_MAY_COPY;
	t->result = (int64_t)t->size;
	return true;
}

static const struct waiting *waiting_of(const struct remote_read *t)
{
	const struct view_reader *v = &t->read->file->view;

	return v->state == VIEW_READER_OPENING ? &v->waiting : &t->waiting;
}

/* Returns the longest silence of a rank that the read or its view has asked, or whose table of
 * states they wait for; *rank: which.
 */
static uint64_t silence_of(const struct engine *e, const struct remote_read *t, uint32_t *rank)
{
	const struct peer *table_of = t->plan.n ? NULL : t->plan.table_of;
	const void *owners[] = { t, t->read->file, table_of };
	uint64_t longest = 0;

	*rank = WIRE_OBSERVER;
	for (unsigned i = 0; i < ARRAY_SIZE(owners); i++) {
		uint32_t other = WIRE_OBSERVER;
		uint64_t ms = owners[i] ? rpc_silence_ms(e, owners[i], &other) : 0;

		if (ms > longest)
			*rank = other;
		longest = u64_max(longest, ms);
	}
	return longest;
}

/* Returns true if a read that is not to wait has waited long enough for a rank's answer. */
static bool is_unanswered(struct engine *e, const struct remote_read *t)
{
	uint32_t rank = WIRE_OBSERVER;
	uint64_t ms = t->read->nowait && !t->read->file->live ? silence_of(e, t, &rank) : 0;

	return peers_is_mute(e, rank, ms, NOWAIT_MS);
}

/* Returns true if the thread that reads trains a rank, for which the read waits.  In the first
 * OWN_MS what is known of the rank may be of a moment before the read; it is asked for anew.
 */
static bool waits_for_itself(struct engine *e, const struct remote_read *t, uint64_t now,
			     uint32_t *trainer)
{
	const struct engine_file *f = t->read->file;
	bool is_grad = f->is_grad;

	*trainer = peers_find_trainer(e, t->read->thread);
	if (*trainer == WIRE_OBSERVER || now < t->start_ns / 1000000 + OWN_MS)
		return false;
	peers_look(e, *trainer);
	/* a page from before the read may be of an earlier step or window */
	if (e->peers[*trainer].saw_ms <= t->start_ns / 1000000)
		return false;
	for (unsigned i = 0; i < t->plan.n && t->state == REMOTE_READ_AWAITS; i++)
		if (t->plan.pieces[i].awaited &&
		    waiting_needs(e, t->plan.pieces[i].rank, *trainer, is_grad))
			return true;
	return f->view.state == VIEW_READER_OPENING &&
	       view_reader_waits_for(f, *trainer, is_grad);
}

/* Returns true if the read leaves the list. */
static bool turn(struct engine *e, struct remote_read *t, uint64_t now)
{
	bool is_stale = t->state == REMOTE_READ_IS_STALE;
	uint32_t trainer;

	if (!t->result && waiting_of(t)->ranks && waits_for_itself(e, t, now, &trainer)) {
		waiting_tell_deadlock(e, t->read->file, trainer);
		t->result = -EDEADLK;
	}
	if (!t->result && is_unanswered(e, t))
		t->result = -EAGAIN;
	if (t->cancelled || t->outstanding)
		return is_finished(e, t);
	if (t->state == REMOTE_READ_AWAITS && !t->result) {
		await(e, t, now);
		return is_finished(e, t);
	}
	if (t->plan.n)
		settle(e, t, now);
	if (!is_finished(e, t) && !is_stale) /* planned at once it would find the same */
		plan_and_ask(e, t, now);
	return is_finished(e, t);
}

/* ---- ahead ---- */

static void drop_ahead(struct engine *e, struct remote_read *t)
{
	struct remote_ahead *a = &t->own.file->remote;

	for (unsigned i = 0; i < REMOTE_AHEAD; i++)
		if (a->reads[i] == t)
			a->reads[i] = NULL;
	if (t->state != REMOTE_READ_IS_THERE)
		LIST_REMOVE(t, entry);
	rpc_forget(e, t);
	put_buffer(e, t->buffer, t->size);
	free(t);
}

/* Ends a request ahead.  Its bytes stay with the file until a reader takes them.  A request
 * that failed, or whose bytes came by a round, is dropped: the reader's own request then
 * reports the error, or copies the bytes.
 */
static void end_ahead(struct engine *e, struct remote_read *t)
{
	if (t->result != (int64_t)t->size) {
		drop_ahead(e, t);
		return;
	}
	LIST_REMOVE(t, entry);
	t->state = REMOTE_READ_IS_THERE;
}

void remote_read_drop_ahead(struct engine *e, struct engine_file *f)
{
	for (unsigned i = 0; i < REMOTE_AHEAD; i++)
		if (f->remote.reads[i])
			drop_ahead(e, f->remote.reads[i]);
}

static struct remote_read **find_ahead(struct engine_file *f, uint64_t offset, size_t size)
{
	for (unsigned i = 0; i < REMOTE_AHEAD; i++) {
		const struct remote_read *t = f->remote.reads[i];

		if (t && t->offset == offset && t->size == size)
			return &f->remote.reads[i];
	}
	return NULL;
}

void remote_read_turn(struct engine *e, uint64_t now, struct remote_read_list *finished)
{
	struct remote_read *t, *next;

	assert(node_is_engine_thread(e));
	LIST_FOREACH_SAFE (t, &e->read.remote, entry, next) {
		if (!turn(e, t, now))
			continue;
		if (is_ahead(t)) {
			end_ahead(e, t);
			continue;
		}
		LIST_REMOVE(t, entry);
		LIST_INSERT_HEAD(finished, t, entry);
	}
}

/* Copies the bytes out of the owners' memory: of the view or, all of a small file, without one.
 * Other than 0: the read goes on in the engine thread.
 */
static int copy_all(struct remote_read *t)
{
	struct engine_file *f = t->read->file;
	bool viewed = atomic_load(&f->view_is_ready);
	int rc = onesided_read(f->engine, f, t->offset, t->bytes, t->size, t->read->caller);

	if (!rc && !viewed && !(rc = view_reader_keep_whole(f, t->bytes)))
		take_whole(t);
	t->state = REMOTE_READ_PLANS;
	atomic_store_explicit(&f->fast, !rc, memory_order_relaxed);
	t->result = rc ? t->result : (int64_t)t->size;
	return rc;
}

/* Ends the read.  done may free t->read: it is not looked at afterwards. */
static void end_read(struct engine *e, struct remote_read *t)
{
	uint8_t *own = t->read->into ? NULL : t->buffer;

	node_count_read(e, t->read, t->result);
	t->read->done(t->read, t->result < 0 ? NULL : t->bytes, t->result);
	if (own)
		put_buffer(e, own, t->size);
	free(t);
}

static void list_read(struct engine *e, struct remote_read *t)
{
	pthread_mutex_lock(&e->lock);
	LIST_INSERT_HEAD(&e->read.remote, t, entry);
	t->read->private = t;
	pthread_mutex_unlock(&e->lock);
}

void remote_read_finish(struct engine *e, struct remote_read_list *finished)
{
	struct remote_read *t;

	while ((t = LIST_FIRST(finished))) {
		LIST_REMOVE(t, entry);
		if (t->state == REMOTE_READ_MAY_COPY && !t->result && copy_all(t))
			list_read(e, t);
		else
			end_read(e, t);
	}
}

unsigned remote_read_tick_ms(const struct engine *e)
{
	uint64_t now = monotonic_ms();
	const struct remote_read *t;

	LIST_FOREACH (t, &e->read.remote, entry) {
		uint64_t since = waiting_of(t)->since_ms;

		if (!since || now < since + LONG_MS)
			return NODE_READ_TICK_MS;
	}
	return NODE_WAIT_TICK_MS;
}

static void describe(struct engine *e, const struct remote_read *t, FILE *out)
{
	const struct view_reader *view = &t->read->file->view;
	const struct waiting *w = waiting_of(t);
	uint32_t rank;
	uint64_t silence_ms = silence_of(e, t, &rank);

	fputs("read ", out);
	file_put_states(t->read->file, ' ', out);
	fprintf(out, " bytes %llu of %llu, %u ranks asked, no progress for %llu ms",
		(unsigned long long)t->done, (unsigned long long)t->size,
		t->outstanding + (view->state == VIEW_READER_OPENING ? view->outstanding : 0),
		(unsigned long long)(monotonic_ms() - u64_max(t->progress_ms, w->moved_ms)));
	if (silence_ms >= LONG_MS)
		fprintf(out, ", waits for rank %u, which has not answered for %llu ms", rank,
			(unsigned long long)silence_ms);
	if (w->ranks) {
		fputs(", ", out);
		waiting_describe(e, w, out);
	}
	fputc('\n', out);
}

void remote_read_describe(struct engine *e, FILE *out)
{
	const struct remote_read *t;

	LIST_FOREACH (t, &e->read.remote, entry)
		if (!is_ahead(t))
			describe(e, t, out);
}

void remote_read_abandon(struct engine *e)
{
	struct remote_read *t, *next;

	LIST_FOREACH_SAFE (t, &e->read.remote, entry, next)
		if (is_ahead(t))
			drop_ahead(e, t);
		else
			t->result = -ECANCELED;
	remote_read_finish(e, &e->read.remote);
}

static struct remote_read *new_read(struct engine *e, struct engine_read *read)
{
	struct remote_read *t = calloc(1, sizeof(*t));

	if (t)
		t->buffer = read->into ? read->into : get_buffer(e, read->size);
	if (!t || !t->buffer) {
		free(t);
		return NULL;
	}
	t->read = read;
	t->bytes = t->buffer;
	t->offset = read->offset;
	t->size = read->size;
	t->alive_ms = t->progress_ms = monotonic_ms();
	t->start_ns = monotonic_ns();
	return t;
}

static void begin_ahead(struct engine *e, const struct engine_read *read, uint64_t offset,
			struct remote_read **slot)
{
	struct engine_read own = { .file = read->file,
				   .offset = offset,
				   .size = u64_min(read->size, read->file->bytes - offset),
				   .nowait = true,
				   .caller = read->caller,
				   .is_part = true };
	struct remote_read *t = new_read(e, &own);

	if (!t)
		return;
	t->own = own;
	t->read = &t->own;
	t->stage = REMOTE_READ_TRIED_MEMORY; /* not ahead of the reader */
	LIST_INSERT_HEAD(&e->read.remote, t, entry);
	*slot = t;
}

static void drop_passed(struct engine *e, const struct engine_read *read)
{
	struct remote_ahead *a = &read->file->remote;

	for (unsigned i = 0; i < REMOTE_AHEAD; i++)
		if (a->reads[i] &&
		    (a->reads[i]->offset <= read->offset ||
		     a->reads[i]->offset > read->offset + REMOTE_AHEAD * read->size))
			drop_ahead(e, a->reads[i]);
}

/* Asks for the requests that follow, the farthest first: the list is asked from its head.
 * Returns true if one more is under way.
 */
static bool go_ahead(struct engine *e, const struct engine_read *read)
{
	struct engine_file *f = read->file;
	struct remote_ahead *a = &f->remote;
	bool began = false;

	drop_passed(e, read);
	for (unsigned i = REMOTE_AHEAD; i > 0; i--) {
		uint64_t at = read->offset + i * read->size;
		struct remote_read **slot = a->reads;

		if (at >= f->bytes || find_ahead(f, at, u64_min(read->size, f->bytes - at)))
			continue;
		while (slot < a->reads + REMOTE_AHEAD - 1 && *slot)
			slot++;
		if (!*slot)
			begin_ahead(e, read, at, slot);
		began |= *slot != NULL;
	}
	return began;
}

static bool is_sequential(const struct engine_read *read)
{
	struct engine_file *f = read->file;

	return sequence_goes_on(&f->remote.sequence, read->offset, read->size) &&
	       f->engine->read.asks_ahead && read->size >= AHEAD_MIN && !f->live &&
	       !f->is_grad && f->view.state == VIEW_READER_READY;
}

/* Makes a read ahead the reader's own. */
static void adopt(struct remote_read *t, struct engine_read *read)
{
	t->read = read;
	t->read->private = t;
	t->alive_ms = t->progress_ms = monotonic_ms();
	t->start_ns = monotonic_ns();
}

static bool take_ahead(struct engine *e, struct engine_read *read)
{
	struct remote_read **slot, *t = NULL;
	bool over = false, began = false;

	pthread_mutex_lock(&e->lock);
	slot = find_ahead(read->file, read->offset, read->size);
	if (slot) {
		t = *slot;
		*slot = NULL;
		over = t->state == REMOTE_READ_IS_THERE;
		adopt(t, read);
	}
	if (is_sequential(read))
		began = go_ahead(e, read);
	pthread_mutex_unlock(&e->lock);
	if (t && began)
		node_wake(e);
	if (over)
		end_read(e, t);
	return t != NULL;
}

void remote_read_start(struct engine *e, struct engine_read *read)
{
	struct remote_read *t;

	if (!read->into && take_ahead(e, read))
		return;
	t = new_read(e, read);
	if (!t) {
		read->done(read, NULL, -ENOMEM);
		return;
	}
	list_read(e, t);
	node_wake(e);
}

void remote_read_end(struct engine_read *read)
{
	struct remote_read *t = read->private;

	if (t) /* listed or not, it lives until done has returned */
		t->cancelled = true;
}

void remote_read_cancel(struct engine *e, struct engine_read *read)
{
	pthread_mutex_lock(&e->lock);
	remote_read_end(read);
	pthread_mutex_unlock(&e->lock);
	node_wake(e);
}
