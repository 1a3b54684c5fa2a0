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

/* The trainer neither reads nor writes state here: pending edits go in. */
static void boundary(struct engine *e)
{
	struct control_page *c = e->registry.control;

	grow(&c->boundary);
	if (edits_apply(&e->edits, &e->registry, grads_are_valid(c))) {
		grow(&c->generation);
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
	grow(&c->generation);
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
