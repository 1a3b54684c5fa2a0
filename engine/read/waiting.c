/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/node/peers.h"
#include "engine/read/waiting.h"

#include <errno.h>

enum {
	LOOK_MS =
		NODE_WAIT_TICK_MS, /* at most between two looks at a page in reach of memory */
	PING_MS = 200,             /* at most between two looks by message */
	LIVE_MS = 20,              /* at gradients without a view, which nothing preserves */
	ASK_MS = 500,              /* at most between two requests */
	SHARE = 8,                 /* between two looks is 1/SHARE of the time waited so far */
	TELL_MS = 1000,            /* the log tells of longer waits */
	GRACE_MS = 1000, /* the shortest wait for ranks that have stood for long already */
	TOLD_MS = 5000,  /* between two lines of one rank */
	WORDS_MAX = 256,
};

void waiting_begin(struct waiting *w, bool is_grad, uint64_t content, uint64_t now)
{
	if (!w->since_ms)
		w->since_ms = now;
	w->is_grad = is_grad;
	w->content = content;
	w->ranks = 0;
	w->limit_ms = 0;
	w->unseen = false;
	w->lost = 0;
}

void waiting_end(struct waiting *w)
{
	*w = (struct waiting){ 0 };
}

static uint64_t follow_ms(const struct waiting *w, const struct peer *p, uint64_t now)
{
	uint64_t most = p->way == PEER_WAY_MEMORY   ? LOOK_MS
			: w->is_grad && !w->content ? LIVE_MS
						    : PING_MS;

	return u64_min(u64_max((now - w->since_ms) / SHARE, NODE_READ_TICK_MS), most);
}

void waiting_add(struct engine *e, struct waiting *w, uint32_t rank, uint64_t now)
{
	const struct peer *p = &e->peers[rank];

	peers_follow(e, rank, follow_ms(w, p, now), now);
	if (!w->ranks++ || p->control.boundary < e->peers[w->rank].control.boundary)
		w->rank = rank;
	w->moved_ms = u64_max(w->moved_ms, p->moved_ms);
	w->unseen |= p->saw_ms < w->since_ms;
	w->limit_ms = u64_max(w->limit_ms, u64_max(w->lost ? GRACE_MS : e->timeout_ms,
						   p->control.interval_ns / 1000000 * 2));
}

/* ---- when to ask again ---- */

bool waiting_is_due(const struct pace *pace, uint64_t moves, uint64_t now)
{
	return moves != pace->moves || now >= pace->next_ms;
}

void waiting_asks(struct pace *pace, uint64_t moves, uint64_t now)
{
	bool moved = moves != pace->moves || !pace->interval_ms;

	pace->interval_ms =
		moved ? NODE_READ_TICK_MS : (unsigned)u64_min(pace->interval_ms * 2, ASK_MS);
	pace->moves = moves;
	pace->next_ms = now + pace->interval_ms;
}

/* ---- for people ---- */

static void put_goal(const struct waiting *w, FILE *out)
{
	/* control_page_content: a window's beginning and its end are counted, 2n - 1 and 2n */
	if (w->is_grad && w->content)
		fprintf(out, "must come to its window of gradients %llu",
			(unsigned long long)((w->content >> 40) + 1) / 2);
	else if (w->is_grad)
		fputs("must have valid gradients", out);
	else if (w->content)
		fprintf(out, "must come to boundary %llu",
			(unsigned long long)((w->content - 1) / CONTROL_GENERATIONS));
	else
		fputs("must end what it is changing", out);
}

void waiting_describe(struct engine *e, const struct waiting *w, FILE *out)
{
	const struct peer *p = &e->peers[w->rank];

	fprintf(out,
		"waits %llu ms for rank %u, at boundary %llu (step %llu, phase %s) for %llu "
		"ms, which ",
		(unsigned long long)(monotonic_ms() - w->since_ms), w->rank,
		(unsigned long long)p->control.boundary, (unsigned long long)p->control.step,
		control_page_phase_name(p->control.phase),
		(unsigned long long)peers_stood_ms(p));
	put_goal(w, out);
	if (w->ranks > 1)
		fprintf(out, ", and for %u more rank%s", w->ranks - 1,
			w->ranks == 2 ? "" : "s");
}

static void warn(struct engine *e, const struct waiting *w, const struct engine_file *f,
		 const char *before, const char *after)
{
	char words[FRAG_NAME_MAX + WORDS_MAX] = "";
	FILE *out = fmemopen(words, sizeof(words), "w");

	if (!out)
		return;
	file_put_states(f, '/', out);
	fprintf(out, " %s", before);
	waiting_describe(e, w, out);
	fclose(out);
	log_warn("%s%s", words, after);
}

/* Logs a wait for a rank that takes longer than it did the last time: once for a wait, and once
 * in TOLD_MS for all waits for one rank.
 */
static void tell(struct engine *e, struct waiting *w, const struct engine_file *f, uint64_t now)
{
	struct peer *p = &e->peers[w->rank];

	if (w->told || now < w->since_ms + TELL_MS || p->told_moves == p->moves ||
	    peers_stood_ms(p) < p->control.interval_ns / 1000000)
		return;
	w->told = true;
	if (p->told_ms && now < p->told_ms + TOLD_MS)
		return;
	p->told_moves = p->moves;
	p->told_ms = now;
	warn(e, w, f, "", "");
}

/* Returns true if the rank of this page is changing its state, or has no valid gradients. */
static bool is_absent(const struct wire_control *own, bool is_grad)
{
	return (own->sequence & 1) || (is_grad && !(own->grads & 1));
}

bool waiting_needs(const struct engine *e, uint32_t rank, uint32_t trainer, bool is_grad)
{
	const struct wire_control *own = &e->peers[trainer].control;

	if (rank == trainer)
		return is_absent(own, is_grad);
	return is_grad && !(own->grads & 1) && e->peers[rank].control.grads >= own->grads;
}

void waiting_tell_deadlock(struct engine *e, const struct engine_file *f, uint32_t trainer)
{
	struct peer *p = &e->peers[trainer];
	char words[FRAG_NAME_MAX + WORDS_MAX] = "";
	FILE *out = fmemopen(words, sizeof(words), "w");

	if (out) {
		file_put_states(f, '/', out);
		fclose(out);
	}
	if (p->ended_moves != p->moves)
		log_warn("%s cannot be read by the thread that trains rank %u now: it would "
			 "wait for its own next %s; read it %s, or from another thread; now/ "
			 "shows it as it stands",
			 words, trainer, f->is_grad ? "gradients" : "boundary",
			 f->is_grad ? "while they are valid" : "outside of a step");
	p->ended_moves = p->moves;
}

int waiting_check(struct engine *e, struct waiting *w, const struct engine_file *f,
		  uint64_t now)
{
	struct peer *p = &e->peers[w->rank];
	uint64_t moved_ms = w->unseen ? u64_max(w->moved_ms, w->since_ms) : w->moved_ms;
	bool has_ended_one = p->ended_moves == p->moves;

	assert(node_is_engine_thread(e));
	tell(e, w, f, now);
	if (now < moved_ms + w->limit_ms || (!has_ended_one && now < w->since_ms + GRACE_MS))
		return 0;
	if (!has_ended_one)
		warn(e, w, f, "cannot be read: ", "; now/ shows it as it stands");
	p->ended_moves = p->moves;
	return w->lost ? w->lost : -ETIME;
}
