/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/api/api.h"
#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/job/join.h"
#include "engine/rank/devices.h"
#include "engine/rank/registry-place.h"
#include "engine/rank/swapped-params.h"
#include "engine/rounds/rounds.h"
#include "engine/serve/checks.h"
#include "engine/serve/serve.h"
#include "engine/swap/swapper.h"

#include <errno.h>
#include <fcntl.h>
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

/* WAIT_MS: the longest wait at a boundary before participant_look is called again.  PLACE_MS:
 * states move for so long at one boundary.
 */
enum { WAIT_MS = 20, PLACE_MS = 100 };

/* At a boundary: waits for a decision, of the coordinator or by termination, or for the end of
 * a freeze.
 */
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

/* Begins to count the time that the trainer's thread spends for readers, edits and freezes.
 * Clocks are read only where there is work for these.  Returns false if the count has begun
 * already: the outer caller ends it.
 */
static bool stall_begin(struct engine *e)
{
	if (e->trainer->stall.since_ns)
		return false;
	phase_begin(PHASE_STALL, &e->trainer->stall);
	return true;
}

static void stall_end(struct engine *e, bool begun, int rc)
{
	struct control_page *c = e->registry.control;

	if (begun)
		control_page_put(&c->held_ns,
				 atomic_load_explicit(&c->held_ns, memory_order_relaxed) +
					 phase_end(PHASE_STALL, &e->trainer->stall, rc));
}

static void preserve_for_views(struct engine *e, bool states)
{
	bool begun;

	if (!view_owner_any(&e->view_owner))
		return;
	begun = stall_begin(e);
	view_owner_preserve(&e->view_owner, &e->registry, states);
	stall_end(e, begun, 0);
}

static void tell_views(struct engine *e)
{
	bool begun;

	if (!view_owner_any(&e->view_owner))
		return;
	begun = stall_begin(e);
	view_owner_arrive(&e->view_owner, &e->registry);
	stall_end(e, begun, 0);
}

/* Begins a change of state: first the page says so, then the bytes that views still need are
 * copied.
 */
static void change_begin(struct engine *e)
{
	/* view_owner_open counts a view, then looks at the page; this thread marks the page,
	 * then looks at the count: in the order of seq_cst one of them sees the other
	 */
	atomic_fetch_add_explicit(&e->registry.control->sequence, 1, memory_order_seq_cst);
	preserve_for_views(e, true);
}

/* Shows readers the trainer's writes since the last call: to slices and ranges of states on
 * NVMe, all of them or none, and by its streams to states on devices.
 */
static int publish(struct engine *e)
{
	int rc = e->trainer->swapped_params ? swapped_params_settle(e->trainer->swapped_params)
					    : 0;

	if (e->registry.devices)
		devices_mark(e->registry.devices);
	if (!rc && e->registry.swapper)
		rc = swapper_publish(e->registry.swapper);
	e->trainer->unpublished = rc != 0;
	return rc;
}

static void set_generation(struct control_page *c, uint64_t generation)
{
	if (generation != atomic_load_explicit(&c->generation, memory_order_relaxed))
		control_page_put(&c->generation_ns, clock_ns(CLOCK_REALTIME));
	atomic_store_explicit(&c->generation, generation, memory_order_release);
}

/* Ends a change.  Where publish() fails, readers go on with the generation before, and the new
 * one is owed until a later publish() succeeds.
 */
static int change_end(struct engine *e, uint64_t generation)
{
	struct control_page *c = e->registry.control;
	int rc = publish(e);

	e->trainer->owes_generation = rc != 0;
	e->trainer->owed_generation = generation;
	if (rc)
		return rc;
	set_generation(c, generation);
	atomic_fetch_add_explicit(&c->sequence, 1, memory_order_seq_cst);
	tell_views(e);
	return 0;
}

/* Publishes outside of a step, or after a step whose generation is owed. */
static int make_current(struct engine *e)
{
	if (e->trainer->owes_generation)
		return change_end(e, e->trainer->owed_generation);
	return is_changing(e->registry.control) ? 0 : publish(e);
}

/* Returns the generation of the next edit at boundary b.  Each edit is a generation of its own:
 * all ranks apply the same edits in the same order.
 */
static uint64_t generation_after(uint64_t before, uint64_t b)
{
	return u64_max(before, control_page_generation(b)) + 1;
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
	else if (e->trainer->owes_generation && applied)
		e->trainer->owed_generation = generation_after(e->trainer->owed_generation, b);
	node_wake(e);
	return rc;
}

/* Moves states that a mount has ordered to another tier, for PLACE_MS and one at the least; the
 * rest follows at later boundaries.  Their values and the generation stay: open views have kept
 * the bytes of the old tier, and later views read the new one.  No state moves while the
 * trainer has changed states that are not published, or while a sweep has addresses of slices.
 * A state stays that a staged operation computes: the operation was accepted for its tier.  A
 * state among several that a view awaits stays too: the view needs them in one tier.
 */
static int place(struct engine *e)
{
	struct frag *f = container_of(e->trainer, struct frag, trainer);
	struct control_page *c = e->registry.control;
	uint64_t now = atomic_load_explicit(&c->generation, memory_order_relaxed);
	struct registry_move move;
	uint64_t until;
	int rc = 0;
	bool begun;

	if (!registry_place_is_due(&e->registry) || is_changing(c) || e->trainer->unpublished ||
	    f->sweep)
		return 0;
	until = monotonic_ms() + PLACE_MS;
	begun = stall_begin(e);
	api_make_room(f);
	for (uint32_t row = 0; registry_place_next(&e->registry, &row); row++) {
		if (participant_computes(&e->participant, row) ||
		    view_owner_awaits(&e->view_owner, row))
			continue;
		/* a state that cannot be copied stays where it is: no error of the trainer's */
		if (!registry_place_copy(&e->registry, row, &move)) {
			change_begin(e);
			view_owner_move(&e->view_owner, &e->registry, &move);
			rc = change_end(e, now);
			registry_place_end(&e->registry, &move);
		}
		if (rc || monotonic_ms() >= until)
			break;
	}
	stall_end(e, begun, rc);
	return rc;
}

/* Launches the round decided for boundary b, which changes no state. */
static void launch_round(struct engine *e, uint64_t b)
{
	participant_apply_round(&e->participant, b, grads_word(e->registry.control),
				rounds_launch, e);
	node_wake(e);
}

/* Returns true outside of a step, and at the end of a step whose generation is owed. */
static bool is_whole(const struct engine *e)
{
	return !is_changing(e->registry.control) || e->trainer->owes_generation;
}

static void show_phase(struct control_page *c, uint32_t phase)
{
	atomic_store_explicit(&c->phase, phase, memory_order_release);
}

/* Ends the freeze on this rank alone if the trainer's function says so.  A rank may leave a
 * freeze before the others, as its bound is counted by each: edits of the boundary that it has
 * promised still hold it, and it refuses later ones, which then name the next boundary.
 */
static void ask_trainer(struct engine *e)
{
	static const uint64_t any[2];
	struct wire_origin by;

	if (!e->trainer->frozen || !e->trainer->frozen(e->trainer->frozen_arg))
		return;
	node_origin(e, &by);
	participant_thaw(&e->participant, any, &by);
}

/* Applies decided edits, and holds the trainer in a freeze.  The trainer's code neither reads
 * nor writes state meanwhile.
 */
static int look_at_edits(struct engine *e, uint64_t b)
{
	struct control_page *c = e->registry.control;
	uint32_t phase = atomic_load_explicit(&c->phase, memory_order_relaxed);
	enum participant_next next;
	bool begun = stall_begin(e);
	int rc = 0;

	while ((next = participant_look(&e->participant, b, is_whole(e))) != PARTICIPANT_GO) {
		if (next == PARTICIPANT_FROZEN)
			show_phase(c, CONTROL_FROZEN);
		else if (next == PARTICIPANT_CHECK) /* a check comes behind a freeze, too */
			show_phase(c, phase);
		if (next == PARTICIPANT_DECIDED)
			rc = first_errno(rc, apply_edits(e, b));
		else if (next == PARTICIPANT_ROUND)
			launch_round(e, b);
		else if (next == PARTICIPANT_CHECK)
			checks_make(e, is_whole(e));
		else if (next == PARTICIPANT_FROZEN)
			rc = first_errno(rc, place(e));
		if (next == PARTICIPANT_UNDECIDED || next == PARTICIPANT_FROZEN)
			wait_here(e);
		if (next == PARTICIPANT_FROZEN)
			ask_trainer(e);
	}
	show_phase(c, phase);
	stall_end(e, begun, rc);
	return rc;
}

/* Records when the rank came to this boundary and how long it takes between two, for readers
 * that wait for it.
 */
static void time_boundary(struct engine *e)
{
	struct control_page *c = e->registry.control;
	uint64_t now = monotonic_ns();

	if (!e->trainer->step_end_ns)
		e->trainer->step_end_ns = now;
	if (e->trainer->boundary_ns)
		control_page_put(&c->interval_ns, u64_max(now - e->trainer->boundary_ns,
							  e->trainer->whole_step_ns));
	control_page_put(&c->boundary_ns, clock_ns(CLOCK_REALTIME));
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
	int rc;

	log_trace("boundary %llu, step %llu", (unsigned long long)b,
		  (unsigned long long)atomic_load_explicit(&e->registry.control->step,
							   memory_order_relaxed));
	time_boundary(e);
	api_note_trainer(e, false);
	rc = participant_pending(&e->participant, b) ? look_at_edits(e, b) : 0;
	return first_errno(rc, place(e));
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
		/* a rank that came back counts on from the others' windows
		 * (join_catch_up_grads)
		 */
		control_page_raise(&e->registry.control->grads,
				   atomic_load(&e->job.grads_elsewhere), 2);
		return 0;
	}
	atomic_fetch_add_explicit(&e->registry.control->grads, 1, memory_order_seq_cst);
	preserve_for_views(e, false);
	return 0;
}

int frag_grads_skip(struct frag *f)
{
	struct engine *e = api_engine(f);

	if (!e)
		return -EINVAL;
	if (grads_are_valid(e->registry.control))
		return frag_grads_gone(f);
	control_page_raise(&e->registry.control->grads, atomic_load(&e->job.grads_elsewhere),
			   2);
	/* 2: a window that opens and is gone */
	atomic_fetch_add_explicit(&e->registry.control->grads, 2, memory_order_seq_cst);
	return 0;
}

int frag_asked(struct frag *f, int fd)
{
	struct engine *e = api_engine(f);
	int copy, asked;

	if (!e)
		return -EINVAL;
	if (fd < 0)
		return atomic_load_explicit(&e->serve.asked, memory_order_relaxed);
	/* no number below 3: it stands for one of the standard streams, or for none */
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (copy < 0)
		return -errno;
	LOCKED(&e->lock);
	asked = atomic_load_explicit(&e->serve.asked, memory_order_relaxed);
	serve_tell_asked(e);
	e->serve.asked_fd = copy;
	if (asked)
		serve_tell_asked(e);
	return asked;
}

int frag_grads_valid(struct frag *f, double loss_scale)
{
	struct engine *e = api_engine(f);
	int rc;

	if (!e)
		return -EINVAL;
	atomic_store_explicit(&e->registry.control->loss_scale, loss_scale,
			      memory_order_relaxed);
	if (grads_are_valid(e->registry.control)) /* the window is open, and may be read */
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
	e->trainer->owes_generation = false; /* the step's end makes a newer one */
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
	api_hypers_get(e);
	c = e->registry.control;
	time_step(e);
	grow(&c->step);
	phase_step();
	if (e->registry.swapper)
		swapper_step(e->registry.swapper);
	show_phase(c, CONTROL_STABLE);
	/* the step's generation is that of the boundary that pass() will enter */
	if (is_changing(c))
		rc = change_end(
			e,
			control_page_generation(
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

int frag_frozen_call(struct frag *f, frag_frozen frozen, void *arg)
{
	struct engine *e = api_engine(f);

	if (!e)
		return -EINVAL;
	e->trainer->frozen = frozen;
	e->trainer->frozen_arg = arg;
	return 0;
}

void api_count_on(struct engine *e, const struct wire_barrier *at)
{
	struct control_page *c = e->registry.control;

	control_page_raise(&c->step, at->step, 1);
	control_page_raise(&c->boundary, at->boundary, 1);
	join_catch_up_grads(e, at->grads);
	if (is_changing(c) || atomic_load(&c->generation) >= at->generation)
		return;
	change_begin(e);
	change_end(e, at->generation);
}
