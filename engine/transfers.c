/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/collecting.h"
#include "engine/grab.h"
#include "engine/peers.h"
#include "engine/plan.h"
#include "engine/tell.h"
#include "engine/transfers.h"
#include "engine/viewing.h"

#include <errno.h>
#include <string.h>

enum { WHOLE_MS = 20 };

struct transfer {
	struct transfer *next;
	struct engine_read *read;
	struct engine_address address;
	bool is_grad;
	bool nowait;
	bool cancelled;
	bool try_grab; /* the view is there now: memory may do, outside the lock */
	bool tried;
	bool asked;  /* the owners for the view, since this read began */
	bool again;  /* something moved: plan anew */
	bool awaits; /* a trainer: to have gradients, to come to the view's generation */
	unsigned outstanding;
	uint64_t offset;
	uint64_t size;
	uint64_t done;
	uint64_t progress_ms;
	uint64_t start_ns;
	int64_t result;
	struct plan plan;
	uint8_t *buffer;
	bool owned; /* buffer is not the reader's */
};

static void piece_failed(struct engine *e, struct transfer *t, uint32_t rank, int status)
{
	if ((status == -ESTALE && !t->read->file->viewed) || status == -EAGAIN) {
		if (status == -ESTALE)
			e->peers[rank].states_stale = true;
		t->again = true;
	} else if (!t->result) {
		t->result = status;
		if (status == -ESTALE)
			tell_evicted(e, t->read->file);
	}
}

static void take_data(struct engine *e, struct transfer *t, const struct piece *piece,
		      const struct answer *answer)
{
	struct wire_data data;

	memcpy(&data, answer->body, sizeof(data));
	peers_heard(e, piece->rank, &data.control);
	if (data.status == -EAGAIN && piece->view)
		t->awaits = true;
	else if (data.status)
		piece_failed(e, t, piece->rank, wire_status(data.status));
	else if (data.size != piece->size || answer->tail_size != piece->size)
		piece_failed(e, t, piece->rank, -EIO);
	else if (t->is_grad && !piece->view && !(data.control.grads & 1))
		t->awaits = true;
	else
		memcpy(t->buffer + t->done + piece->at, answer->tail, piece->size);
	atomic_fetch_add_explicit(&e->counters.owner_bytes_messages, piece->size,
				  memory_order_relaxed);
	atomic_fetch_add_explicit(&e->counters.owner_reads_messages, 1, memory_order_relaxed);
}

static bool on_data(struct engine *e, void *owner, uint64_t tag, const struct answer *answer)
{
	struct transfer *t = owner;
	const struct piece *piece = &t->plan.pieces[tag];

	t->outstanding--;
	if (answer->status)
		piece_failed(e, t, piece->rank, answer->status);
	else if (answer->type != WIRE_DATA)
		piece_failed(e, t, piece->rank, -EIO);
	else
		take_data(e, t, piece, answer);
	return false;
}

static void ask_piece(struct engine *e, struct transfer *t, unsigned i)
{
	const struct piece *piece = &t->plan.pieces[i];
	const struct peer *p = &e->peers[piece->rank];
	const struct viewing *v = &t->read->file->viewing;
	struct wire_read read = { p->states ? p->states->epoch : 0,
				  piece->row,
				  (uint32_t)piece->size,
				  piece->offset,
				  { 0, 0 } };
	int rc;

	if (piece->view) {
		memcpy(read.view, v->id, sizeof(read.view));
		read.offset = piece->inside;
	}
	rc = peers_call(e, piece->rank, WIRE_READ, &read, NULL, 0, on_data, t, i);
	if (rc)
		piece_failed(e, t, piece->rank, rc);
	else
		t->outstanding++;
}

/* In the engine thread even pieces in reach of memory go by message when grab_now could not. */
static void ask(struct engine *e, struct transfer *t)
{
	for (unsigned i = 0; i < t->plan.n; i++) {
		uint32_t rank = t->plan.pieces[i].rank;

		if (t->plan.pieces[i].lost)
			piece_failed(e, t, rank, plan_lost_status(e, &t->plan.pieces[i]));
		else
			ask_piece(e, t, i);
	}
}

static bool take_whole(struct transfer *t)
{
	const uint8_t *whole = atomic_load(&t->read->file->whole);

	if (whole) {
		memcpy(t->buffer, whole + t->offset, t->size);
		t->done = t->size;
	}
	return whole;
}

static bool is_in_reach(struct engine *e, struct transfer *t)
{
	if (!e->memory || plan_read(e, &t->address, UINT64_MAX, t->offset, t->size, &t->plan) ||
	    t->plan.covered < t->size)
		return false;
	for (unsigned i = 0; i < t->plan.n; i++) {
		const struct piece *piece = &t->plan.pieces[i];
		const struct peer *p = &e->peers[piece->rank];

		if (piece->lost || p->way != PEER_WAY_MEMORY ||
		    p->states->rows[piece->row].tier != STATE_HOST)
			return false;
	}
	return true;
}

/* A small file's bytes are tried for some time first, between steps: then it needs no view, for which its
 * owners would have to answer and to keep them.
 */
static bool tries_whole(struct engine *e, struct transfer *t, uint64_t now)
{
	const struct engine_file *f = t->read->file;

	return t->size == f->bytes && f->viewing.state == VIEWING_NONE &&
	       !(t->is_grad && t->nowait) && now < t->start_ns / 1000000 + WHOLE_MS &&
	       is_in_reach(e, t);
}

/* For gradients that are not there now, and is not to. */
static bool must_wait(const struct transfer *t)
{
	return t->nowait && t->is_grad && viewing_waits(t->read->file);
}

/* 0: by messages; -EAGAIN: by a round, if it comes. */
static int plan_round(struct engine *e, struct transfer *t, uint64_t now)
{
	switch (collecting_turn(e, t->read->file, t->offset, t->size, now)) {
	case COLLECTING_WAIT:
		t->progress_ms = now; /* for less long than silence is */
		return -EAGAIN;
	case COLLECTING_THERE:
		t->try_grab = true;
		return -EAGAIN;
	default:
		return 0;
	}
}

/* -EAGAIN: not yet. */
static int plan(struct engine *e, struct transfer *t, uint64_t now)
{
	struct engine_file *f = t->read->file;
	uint64_t offset = t->offset + t->done, size = t->size - t->done;
	int rc;

	if (!viewing_wanted(f))
		return plan_read(e, &t->address, t->start_ns, offset, size, &t->plan);
	if (take_whole(t))
		return -EAGAIN;
	if (tries_whole(e, t, now)) {
		t->try_grab = true;
		return -EAGAIN;
	}
	if (t->asked && must_wait(t)) /* before it asks again */
		return -ENODATA;
	rc = viewing_turn(e, f, now);
	t->asked = true;
	if (rc == -EAGAIN) {
		if (f->viewing.state == VIEWING_OPENING) /* a slow step is not silence */
			t->progress_ms = now;
		return must_wait(t) ? -ENODATA : rc;
	}
	if (!rc && !t->tried && e->memory) {
		t->tried = t->try_grab = true;
		return -EAGAIN;
	}
	if (!rc)
		rc = plan_round(e, t, now);
	return rc ? rc : viewing_plan(f, offset, size, &t->plan);
}

static void plan_and_ask(struct engine *e, struct transfer *t, uint64_t now)
{
	int rc = plan(e, t, now);

	if (rc == -EAGAIN) {
		t->plan.n = 0;
		t->plan.covered = 0;
		if (now >= t->progress_ms + e->timeout_ms)
			t->result = -ETIMEDOUT;
	} else if (rc) {
		t->result = rc;
	} else {
		ask(e, t);
	}
}

/* All pieces of the plan have been answered. */
static void settle(const struct engine *e, struct transfer *t, uint64_t now)
{
	if (t->result)
		return;
	if (t->awaits) {
		t->result = t->nowait && t->is_grad ? -ENODATA : 0;
		t->progress_ms = now; /* a slow step is not silence */
	} else if (t->again) {
		t->result = now > t->progress_ms + e->timeout_ms ? -ETIMEDOUT : 0;
	} else {
		t->done += t->plan.covered;
		t->progress_ms = now;
	}
	t->plan.n = 0;
	t->plan.covered = 0;
	t->again = t->awaits = false;
}

static bool is_finished(struct engine *e, struct transfer *t)
{
	if (t->cancelled && !t->result)
		t->result = -ECANCELED;
	if (t->result < 0) {
		rpc_forget(e, t);
		return true;
	}
	if (t->done < t->size)
		return t->try_grab;
	t->result = (int64_t)t->size;
	return true;
}

static bool turn_transfer(struct engine *e, struct transfer *t, uint64_t now)
{
	bool paused = t->again || t->awaits; /* until the next tick */

	if (t->cancelled || t->outstanding)
		return is_finished(e, t);
	if (t->plan.n)
		settle(e, t, now);
	if (!is_finished(e, t) && !paused)
		plan_and_ask(e, t, now);
	return is_finished(e, t);
}

void transfers_turn(struct engine *e, uint64_t now, struct transfer **finished)
{
	for (struct transfer **at = &e->transfers; *at;) {
		struct transfer *t = *at;

		if (!turn_transfer(e, t, now)) {
			at = &t->next;
			continue;
		}
		*at = t->next;
		t->next = *finished;
		*finished = t;
	}
}

static void put_back(struct engine *e, struct transfer *t)
{
	pthread_mutex_lock(&e->lock);
	t->next = e->transfers;
	e->transfers = t;
	pthread_mutex_unlock(&e->lock);
}

/* 0: its bytes were in reach of memory, once it had its view, or it needs none. */
static int grab_all(struct transfer *t)
{
	struct engine_file *f = t->read->file;
	bool viewed = atomic_load(&f->viewed);
	int rc = grab_now(f->engine, f, t->offset, t->buffer, t->size);

	if (!rc && !viewed && !(rc = viewing_keep_whole(f, t->buffer)))
		take_whole(t);

	t->try_grab = false;
	atomic_store_explicit(&f->fast, !rc, memory_order_relaxed);
	t->result = rc ? t->result : (int64_t)t->size;
	return rc;
}

static void transfer_free(struct transfer *t)
{
	if (t->owned)
		free(t->buffer);
	free(t);
}

void transfers_finish(struct transfer *finished)
{
	struct transfer *next;

	for (struct transfer *t = finished; t; t = next) {
		next = t->next;
		if (t->try_grab && !t->result && grab_all(t)) {
			put_back(t->read->file->engine, t);
			continue;
		}
		node_count_read(t->read->file->engine, t->result);
		t->read->done(t->read, t->result < 0 ? NULL : t->buffer, t->result);
		transfer_free(t);
	}
}

void transfers_describe(struct engine *e, FILE *out)
{
	uint64_t now = monotonic_ms();

	for (const struct transfer *t = e->transfers; t; t = t->next)
		fprintf(out,
			"read %s %s bytes %llu of %llu, %u ranks asked, no progress for %llu "
			"ms\n",
			t->address.kind == ENGINE_PARAM
				? catalog_name(e->catalog, t->address.param)
				: "-",
			t->address.key, (unsigned long long)t->done,
			(unsigned long long)t->size, t->outstanding,
			(unsigned long long)(now - t->progress_ms));
}

void transfers_abandon(struct engine *e)
{
	for (struct transfer *t = e->transfers; t; t = t->next)
		t->result = -ECANCELED;
	transfers_finish(e->transfers);
	e->transfers = NULL;
}

static struct transfer *transfer_new(const struct engine_read *read)
{
	struct transfer *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->owned = !read->into;
	t->buffer = read->into ? read->into : malloc(read->size ? read->size : 1);
	if (t->buffer)
		return t;
	free(t);
	return NULL;
}

void transfers_start(struct engine *e, struct engine_read *read)
{
	struct transfer *t = transfer_new(read);

	if (!t) {
		read->done(read, NULL, -ENOMEM);
		return;
	}
	t->read = read;
	t->address = read->file->address;
	t->is_grad = read->file->is_grad;
	t->nowait = read->nowait;
	t->offset = read->offset;
	t->size = read->size;
	t->progress_ms = monotonic_ms();
	t->start_ns = monotonic_ns();
	pthread_mutex_lock(&e->lock);
	t->next = e->transfers;
	e->transfers = t;
	read->private = t;
	pthread_mutex_unlock(&e->lock);
	node_wake(e);
}

void transfers_end(struct engine_read *read)
{
	struct transfer *t = read->private;

	if (t) /* listed or not, it lives until done has returned */
		t->cancelled = true;
}

void transfers_cancel(struct engine *e, struct engine_read *read)
{
	pthread_mutex_lock(&e->lock);
	transfers_end(read);
	pthread_mutex_unlock(&e->lock);
	node_wake(e);
}
