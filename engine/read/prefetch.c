/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/memory/view-pool.h"
#include "engine/node/peers.h"
#include "engine/node/plan.h"
#include "engine/read/prefetch.h"
#include "engine/read/view-reader.h"
#include "engine/rounds/fallback.h"
#include "engine/rounds/landing.h"

#include <errno.h>
#include <string.h>

enum {
	MIN = 4 << 20,    /* PREFETCH_AUTO: the fewest bytes left to read */
	SLACK = 4 << 20,  /* how far off a sequential request may be: the kernel reads ahead */
	AUTO_MS = 250,    /* PREFETCH_AUTO: the longest wait for a boundary */
	ALWAYS_MS = 1500, /* PREFETCH_ALWAYS: the longest wait for a boundary */
	RETRY_MS = 250,
	RETRY_MAX_MS = 30000,
};

int prefetch_init(struct engine *e, const char *how)
{
	struct prefetch *c = e->read.prefetch;

	if (!how || !strcmp(how, "auto"))
		*c = (struct prefetch){ .how = PREFETCH_AUTO, .min = MIN, .wait_ms = AUTO_MS };
	else if (!strcmp(how, "nccl"))
		*c = (struct prefetch){ .how = PREFETCH_ALWAYS, .wait_ms = ALWAYS_MS };
	else if (!strcmp(how, "host"))
		*c = (struct prefetch){ .how = PREFETCH_NEVER };
	else
		return -EINVAL;
	c->wait_ms = (unsigned)u64_min(c->wait_ms, e->timeout_ms / 4);
	c->window = LANDING_SLOT;
	return 0;
}

/* ---- why not ---- */

static void count_fallback(struct engine *e, enum wire_fallback fallback)
{
	atomic_fetch_add_explicit(&e->counters.rounds_fallback[fallback], 1,
				  memory_order_relaxed);
}

/* Asks for no window of any file for some time, longer after each failure. */
static void hold_off(struct engine *e, enum wire_fallback fallback, uint64_t now)
{
	struct prefetch *c = e->read.prefetch;

	count_fallback(e, fallback);
	c->fallback = fallback;
	c->retry_ms =
		now + u64_min((uint64_t)RETRY_MS << u64_min(c->failures, 10), RETRY_MAX_MS);
	c->failures++;
}

/* Asks for no window of that file until it has another view. */
static void give_up(struct engine *e, struct engine_file *f, enum wire_fallback fallback)
{
	count_fallback(e, fallback);
	f->prefetch.fallback = fallback;
	f->prefetch.fallback_view = f->view.id[1];
}

/* ---- windows ---- */

static bool is_of_view(const struct engine_file *f, const struct prefetch_window *w)
{
	return !memcmp(w->view, f->view.id, sizeof(w->view));
}

static void end_window(struct engine *e, struct engine_file *f, struct prefetch_window *w)
{
	if (w->state != PREFETCH_WINDOW_NONE)
		view_reader_close_at(e, w->id, w->rank);
	w->state = PREFETCH_WINDOW_NONE;
	for (unsigned i = 0; i < PREFETCH_WINDOWS; i++)
		if (f->prefetch.windows[i].state != PREFETCH_WINDOW_NONE)
			return;
	atomic_store(&f->prefetch.any, false);
}

static void end_asked(struct engine *e, struct engine_file *f)
{
	for (unsigned i = 0; i < PREFETCH_WINDOWS; i++)
		if (f->prefetch.windows[i].state == PREFETCH_WINDOW_ASKED)
			end_window(e, f, &f->prefetch.windows[i]);
}

static void want_no_more(struct engine *e, struct engine_file *f)
{
	struct engine_file **at = &e->read.prefetch->wanting;

	while (*at && *at != f)
		at = &(*at)->prefetch.next_wanting;
	if (*at)
		*at = f->prefetch.next_wanting;
	f->prefetch.wanting = false;
}

void prefetch_close(struct engine *e, struct engine_file *f)
{
	if (f->prefetch.wanting)
		want_no_more(e, f);
	if (!atomic_load(&f->prefetch.any))
		return;
	for (unsigned i = 0; i < PREFETCH_WINDOWS; i++)
		end_window(e, f, &f->prefetch.windows[i]);
}

/* Returns the window of the file's view that has byte at; NULL: none. */
static struct prefetch_window *find_window(struct engine_file *f, uint64_t at)
{
	for (unsigned i = 0; i < PREFETCH_WINDOWS; i++) {
		struct prefetch_window *w = &f->prefetch.windows[i];

		if (w->state != PREFETCH_WINDOW_NONE && is_of_view(f, w) && at >= w->offset &&
		    at - w->offset < w->size)
			return w;
	}
	return NULL;
}

/* Ends windows of an earlier view, and those that the reader has left behind. */
static void end_old(struct engine *e, struct engine_file *f, uint64_t offset)
{
	for (unsigned i = 0; i < PREFETCH_WINDOWS; i++) {
		struct prefetch_window *w = &f->prefetch.windows[i];

		if (w->state != PREFETCH_WINDOW_NONE &&
		    (!is_of_view(f, w) || w->offset + w->size + SLACK < offset))
			end_window(e, f, w);
	}
}

static struct prefetch_window *find_free(struct engine_file *f)
{
	for (unsigned i = 0; i < PREFETCH_WINDOWS; i++)
		if (f->prefetch.windows[i].state == PREFETCH_WINDOW_NONE)
			return &f->prefetch.windows[i];
	return NULL;
}

/* ---- asking ---- */

static struct prefetch_window *find_number(struct engine_file *f, uint64_t number)
{
	for (unsigned i = 0; i < PREFETCH_WINDOWS; i++)
		if (f->prefetch.windows[i].state != PREFETCH_WINDOW_NONE &&
		    f->prefetch.windows[i].id[1] == number)
			return &f->prefetch.windows[i];
	return NULL;
}

static bool on_collected(struct engine *e, void *owner, uint64_t number,
			 const struct answer *answer);

static int ask(struct engine *e, struct engine_file *f, const struct prefetch_window *w,
	       const struct wire_prefetch *body, const struct wire_piece *pieces)
{
	return peers_call(e, w->rank, WIRE_PREFETCH, body, pieces,
			  body->count * sizeof(*pieces), on_collected, f, w->id[1]);
}

/* Repeats the request for a window: it got lost, or waits for its boundary. */
static bool ask_again(struct engine *e, struct engine_file *f, const struct prefetch_window *w)
{
	struct wire_prefetch body = { .id = { w->id[0], w->id[1] } };

	return !ask(e, f, w, &body, NULL);
}

/* Ends a window that does not come, and the others that were asked for, which would fail for
 * the same reason.  These stay if the rank has no landing memory while the reader has windows
 * to read.
 */
static void fail(struct engine *e, struct engine_file *f, struct prefetch_window *w,
		 enum wire_fallback fallback, uint64_t now)
{
	end_window(e, f, w);
	if (fallback == WIRE_FALLBACK_ROOM && atomic_load(&f->prefetch.any)) {
		count_fallback(e, fallback);
		return;
	}
	end_asked(e, f);
	if (fallback == WIRE_FALLBACK_VIEW || fallback == WIRE_FALLBACK_TIER)
		give_up(e, f, fallback);
	else
		hold_off(e, fallback, now);
}

static enum wire_fallback take_answer(struct engine *e, struct prefetch_window *w,
				      const struct answer *answer)
{
	struct wire_landed said;

	if (answer->status || answer->type != WIRE_LANDED)
		return WIRE_FALLBACK_BROKEN;
	memcpy(&said, answer->body, sizeof(said));
	if (said.status)
		return said.fallback && said.fallback < WIRE_FALLBACKS
			       ? (enum wire_fallback)said.fallback
			       : WIRE_FALLBACK_BROKEN;
	w->address = said.address;
	w->state = PREFETCH_WINDOW_THERE;
	e->read.prefetch->failures = 0;
	return WIRE_FALLBACK_NONE;
}

static bool on_collected(struct engine *e, void *owner, uint64_t number,
			 const struct answer *answer)
{
	struct engine_file *f = owner;
	struct prefetch_window *w = find_number(f, number);
	enum wire_fallback fallback;

	if (!w || w->state != PREFETCH_WINDOW_ASKED ||
	    (answer->status == -EAGAIN && ask_again(e, f, w)))
		return false;
	fallback = take_answer(e, w, answer);
	if (fallback)
		fail(e, f, w, fallback, monotonic_ms());
	return false;
}

/* ---- what is worth asking for ---- */

/* The first rank whose memory this process reads. */
static uint32_t find_rank(struct engine *e)
{
	for (uint32_t rank = 0; rank < e->world && e->memory.transport; rank++)
		if (peers_same_host(e, rank) && peer_is_live(&e->peers[rank]) &&
		    !peers_reach(e, rank) && e->peers[rank].way == PEER_WAY_MEMORY)
			return rank;
	return WIRE_OBSERVER;
}

/* Returns the tier of the piece's row.
 * -EAGAIN: the rank's table of states is not here.
 */
static int tier_of(const struct engine *e, const struct engine_file *f,
		   const struct plan_piece *piece)
{
	const struct states *s = e->peers[piece->rank].states;
	uint64_t epoch = f->view.pieces[piece->view - 1].epoch;

	if (!s || s->epoch < epoch || piece->row >= s->nrows)
		return -EAGAIN;
	return s->rows[piece->row].tier;
}

/* Looks at the pieces of one window.  *near: the memory of all of their ranks is in reach. */
static enum wire_fallback look_at(const struct engine *e, const struct engine_file *f,
				  const struct plan *plan, int *tier, bool *near)
{
	*near = true;
	*tier = tier_of(e, f, &plan->pieces[0]);
	for (unsigned i = 0; i < plan->n; i++) {
		const struct plan_piece *piece = &plan->pieces[i];
		int own = tier_of(e, f, piece);

		if (piece->lost || !peer_is_live(&e->peers[piece->rank]))
			return WIRE_FALLBACK_BROKEN;
		if (own < 0 || own != *tier || own == STATE_SWAP)
			return WIRE_FALLBACK_TIER;
		*near &= own == STATE_HOST && e->peers[piece->rank].way == PEER_WAY_MEMORY;
	}
	return WIRE_FALLBACK_NONE;
}

static void list_pieces(const struct engine_file *f, const struct plan *plan,
			struct wire_piece *pieces)
{
	for (unsigned i = 0; i < plan->n; i++) {
		const struct plan_piece *piece = &plan->pieces[i];

		pieces[i] = (struct wire_piece){ .epoch = f->view.pieces[piece->view - 1].epoch,
						 .offset = piece->offset,
						 .size = piece->size,
						 .state = piece->row,
						 .rank = piece->rank };
	}
}

static int ask_window(struct engine *e, struct engine_file *f, uint32_t rank,
		      const struct plan *plan, int tier, uint64_t offset, uint64_t now)
{
	const struct prefetch *c = e->read.prefetch;
	struct wire_piece pieces[NODE_PIECES_MAX];
	struct prefetch_window *w = find_free(f);
	struct wire_prefetch body = { .id = { e->job.engine_id, ++e->read.view_number },
				      .count = plan->n,
				      .tier = (uint32_t)tier,
				      .wait_ms = c->wait_ms,
				      .soon = c->how == PREFETCH_AUTO };
	int rc;

	*w = (struct prefetch_window){ .state = PREFETCH_WINDOW_ASKED,
				       .id = { body.id[0], body.id[1] },
				       .view = { f->view.id[0], f->view.id[1] },
				       .offset = offset,
				       .size = plan->covered,
				       .rank = rank,
				       .attached = e->peers[rank].attached,
				       .until_ms = now + 2 * c->wait_ms };
	list_pieces(f, plan, pieces);
	/* the pieces are in one tier (look_at): so their ids at their ranks are equal */
	view_reader_id(f, plan->pieces[0].view, body.view);
	rc = ask(e, f, w, &body, pieces);
	w->state = rc ? PREFETCH_WINDOW_NONE : PREFETCH_WINDOW_ASKED;
	if (!rc)
		atomic_store(&f->prefetch.any, true);
	return rc;
}

/* Asks for the window from *offset on, and sets *offset to its end. */
static enum wire_fallback ask_next(struct engine *e, struct engine_file *f, uint32_t rank,
				   uint64_t *offset, uint64_t now)
{
	struct plan plan;
	enum wire_fallback fallback;
	bool near;
	int tier, rc = view_reader_plan(f, *offset,
					u64_min(e->read.prefetch->window, f->bytes - *offset),
					&plan);

	if (rc)
		return WIRE_FALLBACK_VIEW;
	fallback = look_at(e, f, &plan, &tier, &near);
	if (!fallback && !near && ask_window(e, f, rank, &plan, tier, *offset, now))
		fallback = WIRE_FALLBACK_BROKEN;
	*offset += plan.covered;
	return fallback;
}

static void ask_ahead(struct engine *e, struct engine_file *f, uint64_t offset, uint64_t now)
{
	uint32_t rank = find_rank(e);
	enum wire_fallback fallback =
		rank == WIRE_OBSERVER ? WIRE_FALLBACK_REACH : WIRE_FALLBACK_NONE;

	for (unsigned n = 0; n < PREFETCH_WINDOWS && !fallback && offset < f->bytes &&
			     find_free(f) && !find_window(f, offset);
	     n++) {
		fallback = ask_next(e, f, rank, &offset, now);
		if (fallback && n)
			return;
	}
	if (fallback == WIRE_FALLBACK_VIEW || fallback == WIRE_FALLBACK_TIER)
		give_up(e, f, fallback);
	else if (fallback)
		hold_off(e, fallback, now);
}

/* Returns true for a reader that reads forward.  For one that reads at random, a window would
 * bring far more than it reads.
 */
static bool is_in_sequence(struct engine_file *f, uint64_t offset, uint64_t size)
{
	uint64_t expected = f->prefetch.next;

	f->prefetch.next = offset + size;
	return !offset || (offset + SLACK >= expected && offset <= expected + SLACK);
}

static bool is_worth_it(struct engine *e, struct engine_file *f, uint64_t offset, uint64_t now)
{
	const struct prefetch *c = e->read.prefetch;

	if (f->prefetch.fallback && f->prefetch.fallback_view == f->view.id[1])
		return false;
	if (c->how == PREFETCH_NEVER)
		give_up(e, f, WIRE_FALLBACK_TOLD);
	else if (f->bytes < c->min)
		give_up(e, f, WIRE_FALLBACK_SIZE);
	else if (now < c->retry_ms)
		count_fallback(e, c->fallback);
	else
		return f->bytes - offset >= c->min;
	return false;
}

static enum prefetch_next look(struct engine *e, struct engine_file *f, uint64_t offset,
			       uint64_t size, uint64_t now)
{
	struct prefetch_window *first = find_window(f, offset),
			       *last = find_window(f, offset + size - 1);

	if (!first || !last)
		return PREFETCH_NONE;
	if (first->state == PREFETCH_WINDOW_THERE && last->state == PREFETCH_WINDOW_THERE)
		return PREFETCH_THERE;
	if (now < first->until_ms || now < last->until_ms)
		return PREFETCH_WAIT;
	fail(e, f, first->state == PREFETCH_WINDOW_ASKED ? first : last, WIRE_FALLBACK_BOUNDARY,
	     now);
	return PREFETCH_NONE;
}

/* Returns the offset behind the last window. */
static uint64_t end_of_all(struct engine_file *f)
{
	uint64_t end = 0;

	for (unsigned i = 0; i < PREFETCH_WINDOWS; i++) {
		const struct prefetch_window *w = &f->prefetch.windows[i];

		if (w->state != PREFETCH_WINDOW_NONE && is_of_view(f, w))
			end = u64_max(end, w->offset + w->size);
	}
	return end;
}

void prefetch_go_on(struct engine *e, uint64_t now)
{
	assert(node_is_engine_thread(e));
	while (e->read.prefetch->wanting) {
		struct engine_file *f = e->read.prefetch->wanting;
		uint64_t end = end_of_all(f);

		want_no_more(e, f);
		if (end && end < f->bytes && f->view.state == VIEW_READER_READY &&
		    now >= e->read.prefetch->retry_ms && is_worth_it(e, f, end, now))
			ask_ahead(e, f, end, now);
	}
}

enum prefetch_next prefetch_turn(struct engine *e, struct engine_file *f, uint64_t offset,
				 uint64_t size, uint64_t now)
{
	bool goes_on = is_in_sequence(f, offset, size);

	assert(node_is_engine_thread(e));
	if (e->read.prefetch->how == PREFETCH_NOT_ASKED)
		return PREFETCH_NONE;
	end_old(e, f, offset);
	if (goes_on && !find_window(f, offset) && is_worth_it(e, f, offset, now))
		ask_ahead(e, f, offset, now);
	return look(e, f, offset, size, now);
}

/* ---- copying ---- */

/* Copies the bytes, then the label of the slot, which may be another window's by now. */
static enum wire_fallback copy(struct engine *e, const struct prefetch_window *w,
			       uint64_t inside, void *out, uint64_t size)
{
	struct view_label label;
	struct control_page control;
	struct iovec local[] = { { out, size }, { &label, sizeof(label) } };
	struct iovec remote[] = { { (void *)(uintptr_t)(w->address + inside), size },
				  { (void *)(uintptr_t)(w->address - sizeof(label)),
				    sizeof(label) } };
	int rc = e->memory.ops->get(e->memory.transport, w->attached, local, 2, remote, 2,
				    &control, sizeof(control));

	if (rc)
		return WIRE_FALLBACK_BROKEN;
	return !memcmp(label.view, w->id, sizeof(label.view)) && atomic_load(&label.complete)
		       ? WIRE_FALLBACK_NONE
		       : WIRE_FALLBACK_LATE;
}

static bool find_there(struct engine *e, struct engine_file *f, uint64_t offset,
		       struct prefetch_window *out)
{
	const struct prefetch_window *w;
	bool there;

	pthread_mutex_lock(&e->lock);
	w = f->view.state == VIEW_READER_READY ? find_window(f, offset) : NULL;
	there = w && w->state == PREFETCH_WINDOW_THERE;
	if (there)
		*out = *w;
	pthread_mutex_unlock(&e->lock);
	return there;
}

/* Asks for as many bytes behind the last window as the reader has read since. */
static void want_more(struct engine *e, struct engine_file *f)
{
	if (f->prefetch.wanting)
		return;
	f->prefetch.wanting = true;
	f->prefetch.next_wanting = e->read.prefetch->wanting;
	e->read.prefetch->wanting = f;
}

static void note_copied(struct engine *e, struct engine_file *f,
			const struct prefetch_window *seen, uint64_t size,
			enum wire_fallback fallback)
{
	struct prefetch_window *w;
	bool over;

	pthread_mutex_lock(&e->lock);
	w = find_number(f, seen->id[1]);
	if (w)
		w->taken += size;
	over = w && (fallback || w->taken >= w->size);
	if (over) {
		end_window(e, f, w);
		want_more(e, f);
	}
	/* w NULL: another thread that reads the file has ended the window */
	if (w && fallback == WIRE_FALLBACK_LATE)
		give_up(e, f, fallback);
	else if (w && fallback)
		hold_off(e, fallback, monotonic_ms());
	pthread_mutex_unlock(&e->lock);
	if (over)
		node_wake(e);
}

uint64_t prefetch_copy(struct engine *e, struct engine_file *f, uint64_t offset, void *out,
		       uint64_t size)
{
	struct prefetch_window w;
	enum wire_fallback fallback;
	uint64_t inside;

	if (!atomic_load_explicit(&f->prefetch.any, memory_order_relaxed) ||
	    !find_there(e, f, offset, &w))
		return 0;
	inside = offset - w.offset;
	size = u64_min(size, w.size - inside);
	fallback = copy(e, &w, inside, out, size);
	note_copied(e, f, &w, size, fallback);
	if (fallback)
		return 0;
	atomic_fetch_add_explicit(&e->counters.owner_bytes_rounds, size, memory_order_relaxed);
	atomic_fetch_add_explicit(&e->counters.owner_reads_rounds, 1, memory_order_relaxed);
	return size;
}

/* ---- words ---- */

void prefetch_describe(struct engine *e, FILE *out)
{
	static const char *const hows[] = {
		[PREFETCH_AUTO] = "auto",
		[PREFETCH_ALWAYS] = "nccl",
		[PREFETCH_NEVER] = "host",
	};
	struct engine_counters *c = &e->counters;
	uint64_t fallback[WIRE_FALLBACKS];

	for (unsigned i = 0; i < WIRE_FALLBACKS; i++)
		fallback[i] =
			atomic_load_explicit(&c->rounds_fallback[i], memory_order_relaxed);
	fprintf(out,
		"this mount: gather %s, by rounds %llu bytes, by messages %llu bytes, from "
		"memory "
		"%llu bytes",
		hows[e->read.prefetch->how],
		(unsigned long long)atomic_load(&c->owner_bytes_rounds),
		(unsigned long long)atomic_load(&c->owner_bytes_messages),
		(unsigned long long)atomic_load(&c->owner_bytes_memory));
	fallback_describe(fallback, out);
}
