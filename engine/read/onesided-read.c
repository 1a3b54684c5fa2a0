/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/memory/view-pool.h"
#include "engine/node/comms.h"
#include "engine/node/peers.h"
#include "engine/node/plan.h"
#include "engine/read/onesided-read.h"
#include "engine/read/prefetch.h"
#include "engine/read/view-reader.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

enum { PARTS_MAX = 1024 };

/* A piece of the plan that is ready to be copied without the lock. */
struct ready_piece {
	uint32_t attached;
	uint32_t rank;
	uint64_t epoch;
	uint64_t at;
	uint64_t size;
	unsigned first, n; /* of the parts */
	bool look_before;  /* the rank may not have come to the generation yet */
	bool preserved;    /* the bytes are preserved in the view's buffer */
	uint32_t view;     /* as piece.view */
	uint64_t inside;
	uint64_t buffer;
};

struct ready_pieces {
	struct ready_piece pieces[NODE_PIECES_MAX];
	unsigned n;
	struct iovec parts[PARTS_MAX];
	unsigned nparts;
	struct plan plan;
};

/* Finds the addresses of the piece's bytes in the rank's process. */
static int find_parts(struct engine *e, struct ready_pieces *g, const struct plan_piece *piece,
		      struct ready_piece *ready)
{
	struct peer *p = &e->peers[piece->rank];
	bool readable = !piece->view && peers_is_readable(e, piece->rank);
	int n = readable ? 0 : peers_want_states(e, piece->rank);

	if (n)
		return n;
	if (piece->row >= p->states->nrows)
		return -EAGAIN;
	n = states_resolve(&p->states->rows[piece->row], piece->offset, piece->size,
			   g->parts + g->nparts, (int)(PARTS_MAX - g->nparts));
	if (n < 0) /* -ENODATA: perhaps only its owner knows where they are (state_row.moves) */
		return n == -EINVAL ? n : -EAGAIN;
	ready->epoch = p->states->epoch;
	ready->n = (unsigned)n;
	return 0;
}

/* Adds a piece of the plan to *g.  With the lock.
 * -EAGAIN: the memory of the piece's rank is not in reach.
 */
static int prepare_piece(struct engine *e, struct ready_pieces *g,
			 const struct plan_piece *piece)
{
	struct peer *p = &e->peers[piece->rank];
	struct ready_piece ready = { .attached = p->attached,
				     .rank = piece->rank,
				     .at = piece->at,
				     .size = piece->size,
				     .first = g->nparts,
				     .look_before = !piece->view || piece->coming,
				     .preserved = piece->preserved,
				     .view = piece->view,
				     .inside = piece->inside,
				     .buffer = piece->buffer };
	int rc;

	if (piece->lost || (piece->preserved && p->state == ENGINE_RANK_LOST))
		return plan_lost_status(e, piece);
	if (p->way != PEER_WAY_MEMORY)
		return -EAGAIN;
	rc = piece->preserved ? 0 : find_parts(e, g, piece, &ready);
	if (rc)
		return rc;
	g->nparts += ready.n;
	g->pieces[g->n++] = ready;
	return 0;
}

static int plan_pieces(struct engine *e, const struct engine_file *f, uint64_t offset,
		       size_t size, struct ready_pieces *g)
{
	int rc;

	g->n = g->nparts = 0;
	pthread_mutex_lock(&e->lock);
	if (f->view.state == VIEW_READER_READY)
		rc = view_reader_plan(f, offset, size, &g->plan);
	else /* a remote read finds out which bytes are missing, and why */
		rc = plan_file(e, f, UINT64_MAX, offset, size, &g->plan);
	for (unsigned i = 0; i < g->plan.n && !rc; i++)
		rc = prepare_piece(e, g, &g->plan.pieces[i]);
	pthread_mutex_unlock(&e->lock);
	return rc;
}

/* Notes that the rank's process is gone.
 * -EAGAIN: it is not known yet if the rank has left or is lost.
 */
static int vanished(struct engine *e, uint32_t rank, int why)
{
	int rc;

	pthread_mutex_lock(&e->lock);
	peers_vanished(e, rank, why);
	rc = e->peers[rank].state == ENGINE_RANK_LOST ? peers_lost_status(e, rank) : -EAGAIN;
	pthread_mutex_unlock(&e->lock);
	return rc;
}

static void mark_stale(struct engine *e, uint32_t rank)
{
	pthread_mutex_lock(&e->lock);
	peer_fetch_states(&e->peers[rank]);
	pthread_mutex_unlock(&e->lock);
}

/* Returns 0 if the copied bytes are of *generation.  *generation 0 stands for any, and becomes
 * that of the bytes.
 */
static int witness(struct engine *e, const struct engine_file *f,
		   const struct ready_piece *ready, const struct control_page *control,
		   uint64_t *generation)
{
	/* relaxed: control is this thread's own copy of the page */
	uint64_t epoch = atomic_load_explicit(&control->registry_epoch, memory_order_relaxed),
		 now;

	if (epoch != ready->epoch) {
		mark_stale(e, ready->rank);
		return -EAGAIN;
	}
	if (!view_reader_wanted(f) && !f->is_grad)
		return 0;
	if (!view_reader_wanted(f))
		return atomic_load_explicit(&control->grads, memory_order_relaxed) & 1
			       ? 0
			       : -EAGAIN;
	now = control_page_content(control, f->is_grad);
	if (!*generation)
		*generation = now;
	return now && now == *generation ? 0 : -EAGAIN;
}

/* Turns the error of a failed get of the rank's memory into that of the read. */
static int get_failed(struct engine *e, uint32_t rank, int rc)
{
	if (rc == -ESRCH || rc == -ESTALE)
		return vanished(e, rank, rc);
	if (rc == -EFAULT) { /* freed, or dropped meanwhile: the table is fetched anew */
		mark_stale(e, rank);
		return -EFAULT;
	}
	return rc == -EPERM ? -EACCES : -EIO;
}

static _Thread_local const char *reader; /* the caller of the onesided_read that is under way */

static int get(struct engine *e, const struct ready_piece *ready, const struct iovec *local,
	       unsigned nlocal, const struct iovec *remote, unsigned nremote,
	       struct control_page *control)
{
	uint64_t began = comms_begin(e->comms);
	int rc = e->memory.ops->get(e->memory.transport, ready->attached, local, nlocal, remote,
				    nremote, control, sizeof(*control));

	if (began && !rc && nlocal)
		comms_count(e->comms, COMMS_ONESIDED, 0, local->iov_len, monotonic_ns() - began,
			    reader);
	return rc;
}

/* Copies the parts, then the control page, which tells if the parts are valid.  Without parts
 * it copies the page alone.
 */
static int copy_parts(struct engine *e, const struct engine_file *f,
		      const struct ready_pieces *g, const struct ready_piece *ready,
		      const struct iovec *local, uint64_t *generation)
{
	struct control_page control;
	int rc = get(e, ready, local, local ? 1 : 0, local ? g->parts + ready->first : NULL,
		     local ? ready->n : 0, &control);

	return rc ? get_failed(e, ready->rank, rc) : witness(e, f, ready, &control, generation);
}

static void count_copied(struct engine *e, const struct ready_piece *ready)
{
	atomic_fetch_add_explicit(&e->counters.owner_bytes_memory, ready->size,
				  memory_order_relaxed);
	atomic_fetch_add_explicit(&e->counters.owner_reads_memory, 1, memory_order_relaxed);
}

static int copy_live(struct engine *e, const struct engine_file *f,
		     const struct ready_pieces *g, const struct ready_piece *ready,
		     uint8_t *out, uint64_t *generation)
{
	struct iovec local = { out + ready->at, ready->size };
	int rc = 0;

	/* a copy begun before the rank came to the generation would pass the check behind it */
	if (ready->look_before && view_reader_wanted(f))
		rc = copy_parts(e, f, g, ready, NULL, generation);
	if (rc)
		return rc;
	rc = copy_parts(e, f, g, ready, &local, generation);
	if (!rc)
		count_copied(e, ready);
	return rc;
}

static void note_preserved(struct engine *e, struct engine_file *f, uint32_t view)
{
	pthread_mutex_lock(&e->lock);
	f->view.pieces[view - 1].preserved = true;
	pthread_mutex_unlock(&e->lock);
}

/* Copies the piece's bytes out of the view's buffer, or none if out is NULL, then the buffer's
 * label.
 * -EAGAIN: the buffer is another view's by now, or not all bytes are there.
 */
static int copy_buffer(struct engine *e, const struct engine_file *f,
		       const struct ready_piece *ready, uint8_t *out)
{
	struct view_label label;
	struct control_page control;
	uint64_t id[2], at = ready->buffer + ready->inside,
			label_at = ready->buffer - sizeof(label);
	struct iovec local[] = { { out, ready->size }, { &label, sizeof(label) } };
	struct iovec remote[] = { { (void *)(uintptr_t)at, ready->size },
				  { (void *)(uintptr_t)label_at, sizeof(label) } };
	unsigned first = out ? 0 : 1;
	int rc = get(e, ready, local + first, 2 - first, remote + first, 2 - first, &control);

	if (rc)
		return rc == -EFAULT ? -EAGAIN : get_failed(e, ready->rank, rc);
	view_reader_id(f, ready->view, id);
	return !memcmp(label.view, id, sizeof(label.view)) && atomic_load(&label.complete)
		       ? 0
		       : -EAGAIN;
}

/* Copies preserved bytes.  A copy begun before the buffer was complete would pass the look at
 * the label behind it: so the label is looked at before the first copy, too.
 */
static int copy_preserved(struct engine *e, struct engine_file *f,
			  const struct ready_piece *ready, uint8_t *out)
{
	int rc = ready->preserved ? 0 : copy_buffer(e, f, ready, NULL);

	if (rc)
		return rc;
	if (!ready->preserved)
		note_preserved(e, f, ready->view);
	rc = copy_buffer(e, f, ready, out + ready->at);
	if (!rc)
		count_copied(e, ready);
	return rc;
}

static int copy_piece(struct engine *e, struct engine_file *f, const struct ready_pieces *g,
		      const struct ready_piece *ready, uint8_t *out, uint64_t *generation)
{
	int rc = ready->preserved ? -EAGAIN : copy_live(e, f, g, ready, out, generation);

	return rc == -EAGAIN && ready->buffer ? copy_preserved(e, f, ready, out) : rc;
}

int onesided_read(struct engine *e, struct engine_file *f, uint64_t offset, void *out,
		  size_t size, const char *caller)
{
	struct ready_pieces g;
	/* without the lock: a view that is ready keeps its generation until the file closes */
	uint64_t generation = atomic_load(&f->view_is_ready) ? f->view.generation : 0;
	size_t done = 0;
	int rc = 0;

	reader = caller;
	g.plan.keep_lost = false;
	while (done < size && !rc) {
		uint64_t here =
			prefetch_copy(e, f, offset + done, (uint8_t *)out + done, size - done);

		done += here;
		if (here)
			continue;
		rc = plan_pieces(e, f, offset + done, size - done, &g);
		for (unsigned i = 0; i < g.n && !rc; i++)
			rc = copy_piece(e, f, &g, &g.pieces[i], (uint8_t *)out + done,
					&generation);
		done += g.plan.covered;
	}
	return rc;
}
