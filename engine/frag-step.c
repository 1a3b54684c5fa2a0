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

static bool grads_are_valid(const struct control_page *c)
{
	return atomic_load_explicit(&c->grads, memory_order_relaxed) & 1;
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

/* The trainer neither reads nor writes state here: decided edits go in.  The boundary is entered before
 * edits are looked for: see edits_prepare.
 */
static void boundary(struct engine *e)
{
	struct control_page *c = e->registry.control;
	uint64_t b = atomic_load_explicit(&c->boundary, memory_order_relaxed) + 1;
	int applied;

	atomic_store_explicit(&c->boundary, b, memory_order_seq_cst);
	if (!edits_pending(&e->edits, b))
		return;
	while ((applied = edits_pass(&e->edits, &e->registry, b, grads_are_valid(c))) == EDITS_WAIT)
		wait_for_decision(e);
	if (applied) {
		atomic_store_explicit(&c->generation, b, memory_order_release);
		node_wake(e);
	}
}

int frag_grads_gone(struct frag *f)
{
	struct engine *e = frag_engine(f);

	if (!e)
		return -EINVAL;
	if (grads_are_valid(e->registry.control))
		grow(&e->registry.control->grads);
	return 0;
}

int frag_grads_valid(struct frag *f, double loss_scale)
{
	struct engine *e = frag_engine(f);

	if (!e)
		return -EINVAL;
	atomic_store_explicit(&e->registry.control->loss_scale, loss_scale, memory_order_relaxed);
	if (!grads_are_valid(e->registry.control))
		grow(&e->registry.control->grads);
	return 0;
}

int frag_step_begin(struct frag *f)
{
	struct engine *e = frag_engine(f);

	if (!e)
		return -EINVAL;
	boundary(e);
	if (!(atomic_load_explicit(&e->registry.control->sequence, memory_order_relaxed) & 1))
		grow(&e->registry.control->sequence);
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
	atomic_store_explicit(&c->generation, atomic_load_explicit(&c->boundary, memory_order_relaxed) + 1,
			      memory_order_release);
	if (atomic_load_explicit(&c->sequence, memory_order_relaxed) & 1)
		grow(&c->sequence);
	atomic_store_explicit(&c->phase, CONTROL_STABLE, memory_order_release);
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
