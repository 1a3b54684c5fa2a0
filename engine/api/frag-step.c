/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/api/api.h"
#include "engine/job/join.h"
#include "engine/rank/devices.h"
#include "engine/rank/swapped-params.h"
#include "engine/rounds/rounds.h"
#include "engine/swap/swapper.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* The calls of a step.  The trainer's thread writes these words of the control page.  It adds
 * to counters and never stores them: in a rank that comes back the engine thread adds what the
 * others have counted (join_catch_up).  The release on the sequence orders them for readers.
 */

static void grow(_Atomic uint64_t *word)
{
	atomic_fetch_add_explicit(word, 1, memory_order_release);
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

/* Waits for a decision, by its coordinator or without it, or for the end of a freeze. */
static void wait_here(struct engine *e)
{
	node_wake(e);
	if (e->thread.started)
		participant_wait(&e->participant, WAIT_MS);
	else
		node_yield(e);
}

static int first_errno(int rc, int later)
{
	return rc ? rc : later;
}

static bool is_changing(const struct control_page *c)
{
	return atomic_load_explicit(&c->sequence, memory_order_relaxed) & 1;
}

/* Counts the time that the trainer's thread has spent for others.  Clocks are read only where
 * there is something to do for them.
 */
static void count_held(struct engine *e, uint64_t before, uint64_t begin_ns)
{
	atomic_store_explicit(&e->registry.control->held_ns, before + monotonic_ns() - begin_ns,
			      memory_order_relaxed);
}

static uint64_t held(const struct engine *e)
{
	return atomic_load_explicit(&e->registry.control->held_ns, memory_order_relaxed);
}

static void keep_for_views(struct engine *e, bool states)
{
	uint64_t begin;

	if (!view_owner_any(&e->view_owner))
		return;
	begin = monotonic_ns();
	view_owner_keep(&e->view_owner, &e->registry, states);
	count_held(e, held(e), begin);
}

static void tell_views(struct engine *e)
{
	uint64_t begin;

	if (!view_owner_any(&e->view_owner))
		return;
	begin = monotonic_ns();
	view_owner_arrive(&e->view_owner, &e->registry);
	count_held(e, held(e), begin);
}

/* Begins a change of state: first the page says so, then the bytes that views still need are
 * copied.
 */
static void change_begin(struct engine *e)
{
	atomic_fetch_add_explicit(&e->registry.control->sequence, 1, memory_order_seq_cst);
	keep_for_views(e, true);
}

/* Shows readers what the trainer has written since: to slices and ranges of states on NVMe, all
 * of it or none, and by its streams to states on devices.
 */
static int publish(struct engine *e)
{
	int rc = e->trainer->swapped_params ? swapped_params_settle(e->trainer->swapped_params)
					    : 0;

	if (e->registry.devices)
		devices_mark(e->registry.devices);
	if (rc || !e->registry.swapper)
		return rc;
	return swapper_publish(e->registry.swapper);
}

static void set_generation(struct control_page *c, uint64_t generation)
{
	if (generation != atomic_load_explicit(&c->generation, memory_order_relaxed))
		control_put(&c->generation_ns, clock_ns(CLOCK_REALTIME));
	atomic_store_explicit(&c->generation, generation, memory_order_release);
}

/* Ends a change.  Where publish() fails, readers go on with the generation before, and the new
 * one is owed until a later publish() succeeds.
 */
static int change_end(struct engine *e, uint64_t generation)
{
	struct control_page *c = e->registry.control;
	int rc = publish(e);

	e->trainer->owed_generation = rc ? generation : 0;
	if (rc)
		return rc;
	set_generation(c, generation);
	atomic_fetch_add_explicit(&c->sequence, 1, memory_order_seq_cst);
	tell_views(e);
	return 0;
}

/* Publishes outside of a step, or after one whose generation is owed. */
static int make_current(struct engine *e)
{
	if (e->trainer->owed_generation)
		return change_end(e, e->trainer->owed_generation);
	return is_changing(e->registry.control) ? 0 : publish(e);
}

/* Returns the generation of the next edit at boundary b.  Each edit is a generation of its own:
 * all ranks apply the same ones in the same order.
 */
static uint64_t generation_after(uint64_t before, uint64_t b)
{
	return u64_max(before, control_generation(b)) + 1;
}

/* Applies the edits decided for boundary b.  Inside a step they make no generation: the step's
 * end makes one.
 */
static int apply_edits(struct engine *e, uint64_t b)
{
	struct control_page *c = e->registry.control;
	uint64_t now = atomic_load_explicit(&c->generation, memory_order_relaxed);
	bool whole = !is_changing(c), applied;
	int rc = 0;

	if (whole)
		change_begin(e);
	applied = participant_apply(&e->participant, &e->registry, b, grads_word(c));
	if (whole)
		rc = change_end(e, applied ? generation_after(now, b) : now);
	else if (e->trainer->owed_generation && applied)
		e->trainer->owed_generation = generation_after(e->trainer->owed_generation, b);
	node_wake(e);
	return rc;
}

/* Launches the round decided for boundary b, which changes no state. */
static void launch_round(struct engine *e, uint64_t b)
{
	participant_apply_round(&e->participant, b, grads_word(e->registry.control),
				rounds_launch, e);
	node_wake(e);
}

static void show_phase(struct control_page *c, uint32_t phase)
{
	atomic_store_explicit(&c->phase, phase, memory_order_release);
}

/* Applies decided edits, and holds the trainer in a freeze: it neither reads nor writes state
 * here.
 */
static int look_at_edits(struct engine *e, uint64_t b)
{
	struct control_page *c = e->registry.control;
	uint32_t phase = atomic_load_explicit(&c->phase, memory_order_relaxed);
	uint64_t before = held(e), begin = monotonic_ns();
	enum participant_next next;
	int rc = 0;

	while ((next = participant_look(&e->participant, b,
					!is_changing(c) || e->trainer->owed_generation)) !=
	       PARTICIPANT_GO) {
		if (next == PARTICIPANT_FROZEN)
			show_phase(c, CONTROL_FROZEN);
		if (next == PARTICIPANT_DECIDED)
			rc = first_errno(rc, apply_edits(e, b));
		else if (next == PARTICIPANT_ROUND)
			launch_round(e, b);
		else
			wait_here(e);
	}
	show_phase(c, phase);
	count_held(e, before, begin);
	return rc;
}

/* Records when the rank came to this boundary and how long it takes between two, for those who
 * wait for it.
 */
static void time_boundary(struct engine *e)
{
	struct control_page *c = e->registry.control;
	uint64_t now = monotonic_ns();

	if (!e->trainer->step_end_ns)
		e->trainer->step_end_ns = now;
	if (e->trainer->boundary_ns)
		control_put(&c->interval_ns,
			    u64_max(now - e->trainer->boundary_ns, e->trainer->whole_step_ns));
	control_put(&c->boundary_ns, clock_ns(CLOCK_REALTIME));
	e->trainer->boundary_ns = now;
}

static _Thread_local uint32_t this_thread; /* 0: not asked for yet */

/* A forked child has its parent's number until it asks anew. */
void api_note_trainer(struct engine *e, bool anew)
{
	if (anew || !this_thread)
		this_thread = (uint32_t)gettid();
	if (atomic_load_explicit(&e->registry.control->trainer, memory_order_relaxed) !=
	    this_thread)
		atomic_store_explicit(&e->registry.control->trainer, this_thread,
				      memory_order_relaxed);
}

/* Enters the next boundary, and looks for edits only then: see participant_prepare(). */
static int pass(struct engine *e)
{
	uint64_t b = atomic_fetch_add_explicit(&e->registry.control->boundary, 1,
					       memory_order_seq_cst) +
		     1;

	time_boundary(e);
	api_note_trainer(e, false);
	return participant_pending(&e->participant, b) ? look_at_edits(e, b) : 0;
}

static int boundary(struct engine *e)
{
	int rc;

	api_hypers_get(e);
	rc = make_current(e);
	rc = first_errno(rc, pass(e));
	api_hypers_set(e);
	return rc;
}

int frag_grads_gone(struct frag *f)
{
	struct engine *e = api_engine(f);

	if (!e)
		return -EINVAL;
	if (!grads_are_valid(e->registry.control)) {
		control_raise(&e->registry.control->grads, atomic_load(&e->job.grads_elsewhere),
			      2);
		return 0;
	}
	atomic_fetch_add_explicit(&e->registry.control->grads, 1, memory_order_seq_cst);
	keep_for_views(e, false);
	return 0;
}

int frag_grads_valid(struct frag *f, double loss_scale)
{
	struct engine *e = api_engine(f);
	int rc;

	if (!e)
		return -EINVAL;
	atomic_store_explicit(&e->registry.control->loss_scale, loss_scale,
			      memory_order_relaxed);
	if (grads_are_valid(e->registry.control)) /* what they are was said, and read */
		return 0;
	rc = make_current(e);
	if (rc)
		return rc;
	atomic_fetch_add_explicit(&e->registry.control->grads, 1, memory_order_seq_cst);
	tell_views(e);
	return 0;
}

/* Measures a whole step: the times between its boundaries may be short and long by turns. */
static void time_step(struct engine *e)
{
	uint64_t now = monotonic_ns();

	if (e->trainer->step_end_ns)
		e->trainer->whole_step_ns = now - e->trainer->step_end_ns;
	e->trainer->step_end_ns = now;
}

int frag_step_begin(struct frag *f)
{
	struct engine *e = api_engine(f);
	int rc;

	if (!e)
		return -EINVAL;
	rc = boundary(e);
	e->trainer->owed_generation = 0; /* it comes with this step's */
	if (!is_changing(e->registry.control))
		change_begin(e);
	show_phase(e->registry.control, CONTROL_STEP);
	return rc;
}

int frag_step_end(struct frag *f)
{
	struct engine *e = api_engine(f);
	struct control_page *c;
	int rc;

	if (!e)
		return -EINVAL;
	c = e->registry.control;
	time_step(e);
	grow(&c->step);
	show_phase(c, CONTROL_STABLE);
	if (is_changing(c))
		rc = change_end(
			e,
			control_generation(
				atomic_load_explicit(&c->boundary, memory_order_relaxed) + 1));
	else
		rc = publish(e);
	rc = first_errno(rc, pass(e));
	api_hypers_set(e);
	return rc;
}

int frag_safe_point(struct frag *f)
{
	struct engine *e = api_engine(f);

	return e ? boundary(e) : -EINVAL;
}

void api_count_on(struct engine *e, const struct wire_barrier *at)
{
	struct control_page *c = e->registry.control;

	control_raise(&c->step, at->step, 1);
	control_raise(&c->boundary, at->boundary, 1);
	join_catch_up_grads(e, at->grads);
	if (is_changing(c) || atomic_load(&c->generation) >= at->generation)
		return;
	change_begin(e);
	change_end(e, at->generation);
}
