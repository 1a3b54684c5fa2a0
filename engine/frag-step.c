/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/frag-internal.h"

#include <errno.h>
#include <string.h>

/* The hooks of a step.  Only the trainer's thread writes these words of the control page, so plain
 * loads and stores suffice; readers see them in order by the release on the sequence.
 */

static void grow(_Atomic uint64_t *word)
{
	atomic_store_explicit(word, atomic_load_explicit(word, memory_order_relaxed) + 1,
			      memory_order_release);
}

static uint64_t grads_word(const struct control_page *c)
{
	return atomic_load_explicit(&c->grads, memory_order_relaxed);
}

static bool grads_are_valid(const struct control_page *c)
{
	return grads_word(c) & 1;
}

enum { WAIT_MS = 20 };

/* An edit for this boundary is not decided yet: it will be, by its coordinator or without it. */
static void wait_for_decision(struct engine *e)
{
	node_wake(e);
	if (e->threaded)
		edits_wait(&e->edits, WAIT_MS);
	else
		node_yield(e);
}

static bool is_changing(const struct control_page *c)
{
	return atomic_load_explicit(&c->sequence, memory_order_relaxed) & 1;
}

/* State is about to change: first the page says so, then what views still need is copied. */
static void change_begin(struct engine *e)
{
	atomic_fetch_add_explicit(&e->registry.control->sequence, 1, memory_order_seq_cst);
	if (views_any(&e->views))
		views_keep(&e->views, &e->registry, true);
}

static void change_end(struct engine *e, uint64_t generation)
{
	struct control_page *c = e->registry.control;

	atomic_store_explicit(&c->generation, generation, memory_order_release);
	atomic_fetch_add_explicit(&c->sequence, 1, memory_order_seq_cst);
	if (views_any(&e->views))
		views_arrive(&e->views, &e->registry);
}

static void pass_edits(struct engine *e, uint64_t b)
{
	struct control_page *c = e->registry.control;
	uint64_t generation = atomic_load_explicit(&c->generation, memory_order_relaxed);
	int applied;

	while (edits_undecided(&e->edits, b))
		wait_for_decision(e);
	change_begin(e);
	applied = edits_pass(&e->edits, &e->registry, b, grads_word(c));
	change_end(e, applied ? b : generation);
	node_wake(e);
}

/* The trainer neither reads nor writes state here: decided edits go in.  The boundary is entered before
 * edits are looked for: see edits_prepare.
 */
static void boundary(struct engine *e)
{
	struct control_page *c = e->registry.control;
	uint64_t b = atomic_load_explicit(&c->boundary, memory_order_relaxed) + 1;

	atomic_store_explicit(&c->boundary, b, memory_order_seq_cst);
	if (edits_pending(&e->edits, b))
		pass_edits(e, b);
}

int frag_grads_gone(struct frag *f)
{
	struct engine *e = frag_engine(f);

	if (!e)
		return -EINVAL;
	if (!grads_are_valid(e->registry.control))
		return 0;
	atomic_fetch_add_explicit(&e->registry.control->grads, 1, memory_order_seq_cst);
	if (views_any(&e->views))
		views_keep(&e->views, &e->registry, false);
	return 0;
}

int frag_grads_valid(struct frag *f, double loss_scale)
{
	struct engine *e = frag_engine(f);

	if (!e)
		return -EINVAL;
	atomic_store_explicit(&e->registry.control->loss_scale, loss_scale,
			      memory_order_relaxed);
	if (grads_are_valid(e->registry.control))
		return 0;
	atomic_fetch_add_explicit(&e->registry.control->grads, 1, memory_order_seq_cst);
	if (views_any(&e->views))
		views_arrive(&e->views, &e->registry);
	return 0;
}

int frag_step_begin(struct frag *f)
{
	struct engine *e = frag_engine(f);

	if (!e)
		return -EINVAL;
	boundary(e);
	if (!is_changing(e->registry.control))
		change_begin(e);
	atomic_store_explicit(&e->registry.control->phase, CONTROL_STEP, memory_order_release);
	return 0;
}

int frag_step_end(struct frag *f)
{
	struct engine *e = frag_engine(f);
	struct control_page *c;

	if (!e)
		return -EINVAL;
	c = e->registry.control;
	grow(&c->step);
	atomic_store_explicit(&c->phase, CONTROL_STABLE, memory_order_release);
	if (is_changing(c))
		change_end(e, atomic_load_explicit(&c->boundary, memory_order_relaxed) + 1);
	boundary(e);
	return 0;
}

int frag_safe_point(struct frag *f)
{
	struct engine *e = frag_engine(f);

	if (!e)
		return -EINVAL;
	boundary(e);
	return 0;
}
