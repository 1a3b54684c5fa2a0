/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/log.h"
#include "engine/reads.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { PARTS_MAX = 1024, RESTARTS_MAX = 50 };

struct transfer {
	struct transfer *next;
	struct engine_read *read;
	struct engine_address address;
	bool is_grad;
	bool nowait;
	bool cancelled;
	bool again;	 /* something moved: plan anew */
	bool grads_gone; /* gradients were not valid: wait for them */
	unsigned outstanding;
	unsigned restarts;
	uint64_t offset;
	uint64_t size;
	uint64_t done;
	uint64_t progress_ms;
	int64_t result;
	struct plan plan;
	uint8_t *buffer;
};

/* ---- memory of this host ---- */

/* One piece ready to be copied without the lock. */
struct grab {
	uint32_t attached;
	uint32_t rank;
	uint64_t epoch;
	uint64_t at;
	uint64_t size;
	unsigned first, n; /* of the parts */
};

struct grabs {
	struct grab grabs[NODE_PIECES_MAX];
	unsigned n;
	struct iovec parts[PARTS_MAX];
	unsigned nparts;
	struct plan plan;
};

/* With the lock.  -EAGAIN: the piece's rank is not reached by memory. */
static int grab_piece(struct engine *e, struct grabs *g, const struct piece *piece)
{
	struct peer *p = &e->peers[piece->rank];
	struct grab *grab = &g->grabs[g->n];
	int n;

	if (p->way != PEER_WAY_MEMORY)
		return -EAGAIN;
	n = states_resolve(&p->states->rows[piece->row], piece->offset, piece->size,
			   g->parts + g->nparts, (int)(PARTS_MAX - g->nparts));
	if (n < 0)
		return n == -E2BIG ? -EAGAIN : n;
	*grab = (struct grab){ p->attached, piece->rank, p->states->epoch, piece->at, piece->size,
			       g->nparts, (unsigned)n };
	g->nparts += (unsigned)n;
	g->n++;
	return 0;
}

static int plan_grabs(struct engine *e, const struct engine_address *address, uint64_t offset, size_t size,
		      struct grabs *g)
{
	int rc;

	g->n = g->nparts = 0;
	pthread_mutex_lock(&e->lock);
	rc = plan_read(e, address, offset, size, &g->plan);
	for (unsigned i = 0; i < g->plan.n && !rc; i++)
		rc = grab_piece(e, g, &g->plan.pieces[i]);
	pthread_mutex_unlock(&e->lock);
	return rc;
}

static void lose(struct engine *e, uint32_t rank, const char *why)
{
	pthread_mutex_lock(&e->lock);
	peers_lose(e, rank, why);
	pthread_mutex_unlock(&e->lock);
	node_wake(e);
}

static void mark_stale(struct engine *e, uint32_t rank)
{
	pthread_mutex_lock(&e->lock);
	e->peers[rank].states_stale = true;
	pthread_mutex_unlock(&e->lock);
}

/* What the owner's control page said after the copy. */
static int witness(struct engine *e, const struct grab *grab, bool is_grad,
		   const struct control_page *control)
{
	uint64_t epoch = atomic_load_explicit(&control->registry_epoch, memory_order_relaxed);
	uint64_t grads = atomic_load_explicit(&control->grads, memory_order_relaxed);

	if (epoch != grab->epoch) {
		mark_stale(e, grab->rank);
		return -EAGAIN;
	}
	return is_grad && !(grads & 1) ? -EAGAIN : 0;
}

static int copy_grab(struct engine *e, const struct grabs *g, const struct grab *grab, bool is_grad,
		     uint8_t *out)
{
	struct iovec local = { out + grab->at, grab->size };
	struct control_page control;
	int rc = e->memory_ops->get(e->memory, grab->attached, &local, 1, g->parts + grab->first, grab->n,
				    &control, sizeof(control));

	atomic_fetch_add_explicit(&e->counters.owner_bytes_memory, grab->size, memory_order_relaxed);
	if (!rc)
		return witness(e, grab, is_grad, &control);
	if (rc == -ESRCH || rc == -ESTALE)
		lose(e, grab->rank, rc == -ESRCH ? "its process is gone" :
						   "another process has its number");
	if (rc == -EFAULT) { /* freed, or dropped while we read: ask again what it has */
		mark_stale(e, grab->rank);
		return -EFAULT;
	}
	return rc == -EPERM ? -EACCES : -EIO;
}

int reads_now(struct engine *e, const struct engine_address *address, bool is_grad, uint64_t offset,
	      void *out, size_t size)
{
	static _Thread_local struct grabs g;
	size_t done = 0;
	int rc = 0;

	while (done < size && !rc) {
		rc = plan_grabs(e, address, offset + done, size - done, &g);
		for (unsigned i = 0; i < g.n && !rc; i++)
			rc = copy_grab(e, &g, &g.grabs[i], is_grad, (uint8_t *)out + done);
		done += g.plan.covered;
	}
	return rc;
}

/* ---- transfers ---- */

static void piece_failed(struct engine *e, struct transfer *t, uint32_t rank, int status)
{
	if (status == -ESTALE || status == -EAGAIN) {
		if (status == -ESTALE)
			e->peers[rank].states_stale = true;
		t->again = true;
	} else if (!t->result) {
		t->result = status;
	}
}

static void take_data(struct engine *e, struct transfer *t, const struct piece *piece,
		      const struct answer *answer)
{
	struct wire_data data;

	memcpy(&data, answer->body, sizeof(data));
	peers_heard(e, piece->rank, &data.control);
	if (data.status)
		piece_failed(e, t, piece->rank, data.status > 0 || data.status < -4095 ? -EIO : data.status);
	else if (data.size != piece->size || answer->tail_size != piece->size)
		piece_failed(e, t, piece->rank, -EIO);
	else if (t->is_grad && !(data.control.grads & 1))
		t->grads_gone = true;
	else
		memcpy(t->buffer + t->done + piece->at, answer->tail, piece->size);
	atomic_fetch_add_explicit(&e->counters.owner_bytes_messages, piece->size, memory_order_relaxed);
}

static bool on_data(struct engine *e, void *owner, uint64_t tag, const struct answer *answer)
{
	struct transfer *t = owner;
	const struct piece *piece = &t->plan.pieces[tag];

	t->outstanding--;
	if (answer->status == -ETIMEDOUT)
		peers_lose(e, piece->rank, "no answer");
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
	struct wire_read read = { p->states->epoch, piece->row, (uint32_t)piece->size, piece->offset };
	int rc = rpc_call(e, piece->rank, WIRE_READ, &read, NULL, 0, on_data, t, i);

	if (rc)
		piece_failed(e, t, piece->rank, rc);
	else
		t->outstanding++;
}

/* In the engine thread even pieces in reach of memory go by message when reads_now could not. */
static void ask(struct engine *e, struct transfer *t)
{
	for (unsigned i = 0; i < t->plan.n; i++) {
		int rc = peers_reach(e, t->plan.pieces[i].rank);

		if (rc)
			piece_failed(e, t, t->plan.pieces[i].rank, rc);
		else
			ask_piece(e, t, i);
	}
}

static void plan_and_ask(struct engine *e, struct transfer *t, uint64_t now)
{
	int rc = plan_read(e, &t->address, t->offset + t->done, t->size - t->done, &t->plan);

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
static void settle(struct transfer *t, uint64_t now)
{
	if (t->result)
		return;
	if (t->grads_gone) {
		t->result = t->nowait ? -ENODATA : 0;
		t->progress_ms = now; /* a slow step is not silence */
	} else if (t->again) {
		t->result = ++t->restarts > RESTARTS_MAX ? -EIO : 0;
	} else {
		t->done += t->plan.covered;
		t->progress_ms = now;
		t->restarts = 0;
	}
	t->plan.n = 0;
	t->plan.covered = 0;
	t->again = t->grads_gone = false;
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
		return false;
	t->result = (int64_t)t->size;
	return true;
}

static bool turn_transfer(struct engine *e, struct transfer *t, uint64_t now)
{
	bool paused = t->again || t->grads_gone; /* until the next tick */

	if (t->cancelled)
		return is_finished(e, t);
	if (t->outstanding)
		return is_finished(e, t);
	if (t->plan.n)
		settle(t, now);
	if (!is_finished(e, t) && !paused)
		plan_and_ask(e, t, now);
	return is_finished(e, t);
}

void reads_turn(struct engine *e, uint64_t now, struct transfer **finished)
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

void reads_finish(struct transfer *finished)
{
	struct transfer *next;

	for (struct transfer *t = finished; t; t = next) {
		next = t->next;
		t->read->done(t->read, t->result < 0 ? NULL : t->buffer, t->result);
		free(t->buffer);
		free(t);
	}
}

void reads_describe(struct engine *e, FILE *out)
{
	uint64_t now = monotonic_ms();

	for (const struct transfer *t = e->transfers; t; t = t->next)
		fprintf(out, "read %s %s bytes %llu of %llu, %u ranks asked, no progress for %llu ms\n",
			t->address.kind == ENGINE_PARAM ? catalog_name(e->catalog, t->address.param) : "-",
			t->address.key, (unsigned long long)t->done, (unsigned long long)t->size,
			t->outstanding, (unsigned long long)(now - t->progress_ms));
}

void reads_abandon(struct engine *e)
{
	for (struct transfer *t = e->transfers; t; t = t->next)
		t->result = -ECANCELED;
	reads_finish(e->transfers);
	e->transfers = NULL;
}

static struct transfer *transfer_new(const struct engine_read *read)
{
	struct transfer *t = calloc(1, sizeof(*t));

	if (t && !(t->buffer = malloc(read->size ? read->size : 1))) {
		free(t);
		return NULL;
	}
	return t;
}

static void start_transfer(struct engine *e, struct engine_read *read)
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
	pthread_mutex_lock(&e->lock);
	t->next = e->transfers;
	e->transfers = t;
	read->private = t;
	pthread_mutex_unlock(&e->lock);
	node_wake(e);
}

/* ---- the door ---- */

static _Thread_local void *hot; /* the caller's bounce buffer, in one huge page */
static pthread_key_t hot_key;
static pthread_once_t hot_once = PTHREAD_ONCE_INIT;

static void make_hot_key(void)
{
	pthread_key_create(&hot_key, free);
}

static void *hot_buffer(void)
{
	pthread_once(&hot_once, make_hot_key);
	if (!hot && (hot = aligned_alloc(2 << 20, 2 << 20))) {
		madvise(hot, 2 << 20, MADV_HUGEPAGE);
		pthread_setspecific(hot_key, hot);
	}
	return hot;
}

static void count_read(struct engine *e, int64_t result)
{
	atomic_fetch_add_explicit(&e->counters.reads, 1, memory_order_relaxed);
	if (result < 0)
		atomic_fetch_add_explicit(&e->counters.read_errors, 1, memory_order_relaxed);
	else
		atomic_fetch_add_explicit(&e->counters.read_bytes, (uint64_t)result, memory_order_relaxed);
}

static void read_in_this_thread(struct engine *e, struct engine_read *read)
{
	struct engine_file *f = read->file;
	void *buffer = hot_buffer();
	int rc = buffer ? reads_now(e, &f->address, f->is_grad, read->offset, buffer, read->size) :
			  -ENOMEM;

	atomic_store_explicit(&f->fast, !rc, memory_order_relaxed);
	if (rc == -EAGAIN || rc == -EFAULT) { /* the owner itself will say what is true */
		start_transfer(e, read);
		return;
	}
	count_read(e, rc ? rc : (int64_t)read->size);
	read->done(read, rc ? NULL : buffer, rc ? rc : (int64_t)read->size);
}

void engine_read(struct engine *e, struct engine_read *read)
{
	struct engine_file *f = read->file;
	struct ahead *ahead;

	read->private = NULL;
	if (read->size > ENGINE_READ_MAX)
		read->size = ENGINE_READ_MAX;
	if (read->offset >= f->bytes || !read->size) {
		read->done(read, "", 0);
		return;
	}
	read->size = u64_min(read->size, f->bytes - read->offset);
	ahead = readahead_take(f, read->offset, read->size);
	readahead_note(f, read->offset, read->size);
	if (ahead) {
		count_read(e, (int64_t)read->size);
		read->done(read, ahead->buffer, (int64_t)read->size);
		readahead_served(ahead);
		return;
	}
	read_in_this_thread(e, read);
}

void engine_read_cancel(struct engine *e, struct engine_read *read)
{
	pthread_mutex_lock(&e->lock);
	for (struct transfer *t = e->transfers; t; t = t->next)
		if (t->read == read)
			t->cancelled = true;
	pthread_mutex_unlock(&e->lock);
	node_wake(e);
}

/* ---- for callers that wait ---- */

struct waiter {
	pthread_mutex_t lock;
	pthread_cond_t done;
	bool ended;
	void *out;
	int64_t result;
};

static void on_waited(struct engine_read *read, const void *data, int64_t result)
{
	struct waiter *w = read->owner;

	pthread_mutex_lock(&w->lock);
	if (result > 0)
		memcpy(w->out, data, (size_t)result);
	w->result = result;
	w->ended = true;
	pthread_cond_signal(&w->done);
	pthread_mutex_unlock(&w->lock);
}

/* A transfer ends by itself: its waits are bounded by the timeout of silence. */
static int get_by_transfer(struct engine *e, struct engine_file *f, uint64_t offset, void *out, size_t size)
{
	struct waiter w = { .out = out };
	struct engine_read read = { .file = f, .offset = offset, .size = size, .nowait = true,
				    .done = on_waited, .owner = &w };

	pthread_mutex_init(&w.lock, NULL);
	pthread_cond_init(&w.done, NULL);
	start_transfer(e, &read);
	pthread_mutex_lock(&w.lock);
	while (!w.ended) {
		if (e->threaded) {
			pthread_cond_wait(&w.done, &w.lock);
			continue;
		}
		pthread_mutex_unlock(&w.lock);
		engine_turn(e, 0); /* turned by hand: nobody else will */
		node_yield(e);
		pthread_mutex_lock(&w.lock);
	}
	pthread_mutex_unlock(&w.lock);
	pthread_cond_destroy(&w.done);
	pthread_mutex_destroy(&w.lock);
	return w.result < 0 ? (int)w.result : 0;
}

int engine_get(struct engine *e, const struct engine_address *address, uint64_t offset, void *out,
	       uint64_t size)
{
	struct engine_file f = { .engine = e, .address = *address,
				 .is_grad = !strcmp(address->key, "grad") };
	int rc = 0;

	for (uint64_t done = 0; done < size && !rc; done += ENGINE_READ_MAX) {
		size_t chunk = u64_min(ENGINE_READ_MAX, size - done);

		rc = reads_now(e, address, f.is_grad, offset + done, (uint8_t *)out + done, chunk);
		if (rc == -EAGAIN || rc == -EFAULT)
			rc = get_by_transfer(e, &f, offset + done, (uint8_t *)out + done, chunk);
	}
	return rc;
}
