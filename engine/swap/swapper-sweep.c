/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/swap/swapper-internal.h"

#include <errno.h>

/* Slices are swapped in in the order of the sweep, so that what is prefetched is what is needed
 * next, and a wait for a buffer is a wait for one that is being written.
 */
struct swapper_sweep {
	struct swapper *swapper;
	unsigned n, depth;
	uint64_t slices, numel, total;
	uint64_t at; /* the slice that is lent, or was last */
	bool begun, in;
	bool half;      /* the sweep counts in swapper->half */
	uint64_t ahead; /* the next slice to bring in, of state number ahead_state */
	unsigned ahead_state;
	/* the sweep that is prefetched behind this one's last slices; NULL: none */
	struct swapper_sweep *next;
	struct swapper_lent **lent; /* [depth + 1][n] */
	struct swapper_swept states[];
};

static struct swapper_lent **lent_of(const struct swapper_sweep *w, uint64_t slice, unsigned i)
{
	return &w->lent[slice % (w->depth + 1) * w->n + i];
}

static int swap_in_one(struct swapper_sweep *w, uint64_t wait_ms)
{
	const struct swapper_swept *s = &w->states[w->ahead_state];
	int rc = swapper_swap_in(w->swapper, s->state, w->ahead, s->use, wait_ms,
				 lent_of(w, w->ahead, w->ahead_state));

	if (!rc && ++w->ahead_state == w->n) {
		w->ahead_state = 0;
		w->ahead++;
	}
	return rc;
}

/* Starts to swap in slices [0, n), as far as there are buffers. */
static bool swap_in_until(struct swapper_sweep *w, uint64_t n)
{
	while (w->ahead < u64_min(n, w->slices))
		if (swap_in_one(w, 0))
			return false;
	return true;
}

static void swap_in_ahead(struct swapper_sweep *w)
{
	uint64_t n = w->at + w->depth + 1;

	if (swap_in_until(w, n) && w->next && n > w->slices)
		swap_in_until(w->next, u64_min(n - w->slices, w->next->depth));
}

static unsigned depth_of(struct swapper *sw, unsigned n)
{
	struct pinned_figures f;

	if (sw->no_ahead)
		return 0;
	pinned_figures(sw->pinned, &f);
	/* of f.count / n sets of buffers one is lent, and one is being written */
	return f.count / n < 4 ? 1 : (unsigned)u64_min(f.count / n - 2, SWAPPER_AHEAD);
}

static int check(struct swapper *sw, const struct swapper_swept *states, unsigned n)
{
	const struct swapper_state *first = n ? states[0].state : NULL;
	struct pinned_figures f;

	for (unsigned i = 0; i < n; i++)
		if (states[i].state->bytes / states[i].state->element !=
			    first->bytes / first->element ||
		    swapper_slice_numel(states[i].state) != swapper_slice_numel(first))
			return -EINVAL;
	pinned_figures(sw->pinned, &f);
	if (!n)
		return -EINVAL;
	if (n > f.count)
		log_warn("%u states are swept at once in as many pinned buffers, and there are "
			 "%u: "
			 "FRAG_PINNED_MEM, or buffer_count",
			 n, f.count);
	return n > f.count ? -ENOBUFS : 0;
}

static struct swapper_sweep *sweep_new(struct swapper *sw, const struct swapper_swept *states,
				       unsigned n)
{
	struct swapper_sweep *w = calloc(1, sizeof(*w) + n * sizeof(w->states[0]));

	if (!w)
		return NULL;
	w->swapper = sw;
	w->n = n;
	w->depth = depth_of(sw, n);
	w->slices = states[0].state->nslices;
	w->numel = swapper_slice_numel(states[0].state);
	w->total = states[0].state->bytes / states[0].state->element;
	w->lent = calloc((size_t)(w->depth + 1) * n, sizeof(struct swapper_lent *));
	if (!w->lent) {
		free(w);
		return NULL;
	}
	for (unsigned i = 0; i < n; i++)
		w->states[i] = states[i];
	return w;
}

static int sweep_open(struct swapper *sw, const struct swapper_swept *states, unsigned n,
		      struct swapper_sweep **out)
{
	int rc = check(sw, states, n);

	if (rc)
		return rc;
	*out = sweep_new(sw, states, n);
	return *out ? 0 : -ENOMEM;
}

int swapper_sweep_begin(struct swapper *sw, const struct swapper_swept *states, unsigned n,
			struct swapper_sweep **w)
{
	int rc = sweep_open(sw, states, n, w);

	assert(thread_may_be_trainer());
	if (!rc)
		swap_in_ahead(*w);
	return rc;
}

int swapper_sweep_then(struct swapper_sweep *w, const struct swapper_swept *states, unsigned n,
		       struct swapper_sweep **next)
{
	int rc = sweep_open(w->swapper, states, n, next);

	if (rc)
		return rc;
	w->next = *next;
	swap_in_ahead(w);
	return 0;
}

void swapper_sweep_alone(struct swapper_sweep *w)
{
	w->next = NULL;
}

/* A slice that is swapped out is not lent any more, so that a second try leaves it alone. */
static int swap_out_changed(struct swapper_sweep *w)
{
	for (unsigned i = 0; i < w->n; i++) {
		struct swapper_lent **l = lent_of(w, w->at, i);
		int rc = *l && w->states[i].use & SWAPPER_WRITE
				 ? swapper_swap_out(w->swapper, *l)
				 : 0;

		if (rc)
			return rc;
		if (w->states[i].use & SWAPPER_WRITE)
			*l = NULL;
	}
	return 0;
}

static int swap_out_current(struct swapper_sweep *w)
{
	int rc = swap_out_changed(w);

	for (unsigned i = 0; i < w->n && !rc; i++) {
		struct swapper_lent **l = lent_of(w, w->at, i);

		if (*l)
			swapper_return(w->swapper, *l);
		*l = NULL;
	}
	return rc;
}

static bool changes(const struct swapper_sweep *w)
{
	for (unsigned i = 0; i < w->n; i++)
		if (w->states[i].use & SWAPPER_WRITE)
			return true;
	return false;
}

/* While a sweep that writes is half way, swapper_publish is refused. */
static void set_half(struct swapper_sweep *w, bool half)
{
	w->swapper->half += half;
	w->swapper->half -= w->half;
	w->half = half;
}

static int swap_in_next(struct swapper_sweep *w)
{
	void *memory;

	while (w->ahead <= w->at) {
		int rc = swap_in_one(w, swapper_time_left_ms(w->swapper));

		if (rc)
			return rc;
	}
	swap_in_ahead(w);
	for (unsigned i = 0; i < w->n; i++) {
		int rc = swapper_wait(w->swapper, *lent_of(w, w->at, i), &memory);

		if (rc)
			return rc;
	}
	swap_in_ahead(w); /* buffers have come back while swapper_wait waited */
	return 0;
}

int swapper_sweep_next(struct swapper_sweep *w, uint64_t *first, uint64_t *numel)
{
	int rc = w->in ? swap_out_current(w) : 0;

	assert(thread_may_be_trainer());
	if (rc)
		return rc;
	if (w->in && w->swapper->no_behind)
		/* blocks that cannot be written stay in memory */
		swapper_flush(w->swapper, w->swapper->wait_ms);
	if (w->in || !w->begun)
		w->at = w->begun ? w->at + 1 : 0;
	w->begun = true;
	w->in = false;
	set_half(w, w->at < w->slices && changes(w));
	if (w->at >= w->slices) {
		swap_in_ahead(w);
		return 0;
	}
	rc = swap_in_next(w);
	if (rc)
		return rc;
	w->in = true;
	*first = w->at * w->numel;
	*numel = u64_min(w->numel, w->total - *first);
	return 1;
}

void *swapper_sweep_memory(const struct swapper_sweep *w, unsigned i)
{
	const struct swapper_lent *l = w->in ? *lent_of(w, w->at, i) : NULL;

	return l ? l->buffer : NULL;
}

void swapper_sweep_end(struct swapper_sweep *w)
{
	assert(thread_may_be_trainer());
	set_half(w, false);
	for (unsigned i = 0; i < (w->depth + 1) * w->n; i++)
		if (w->lent[i])
			swapper_return(w->swapper, w->lent[i]);
	free(w->lent);
	free(w);
}
