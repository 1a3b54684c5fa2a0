/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/swap/swapper-internal.h"

#include <inttypes.h>

static const char *const names[PLACE_KINDS][PLACE_TIMED] = {
	[PLACE_PARAM] = { [PLACE_IN] = "swap_in_param",
			  [PLACE_OUT] = "swap_out_param",
			  [PLACE_WAIT_IN] = "swap_wait_read_param",
			  [PLACE_SUBMIT_IN] = "swap_submit_read_param",
			  [PLACE_SUBMIT_OUT] = "swap_submit_write",
			  [PLACE_INIT] = "swap_init_write" },
	[PLACE_STATE] = { [PLACE_IN] = "swap_in_state",
			  [PLACE_OUT] = "swap_out_state",
			  [PLACE_WAIT_IN] = "optimizer_swap_in_state",
			  [PLACE_WAIT_OUT] = "optimizer_swap_out_state",
			  [PLACE_SUBMIT_IN] = "async_swap_in_state",
			  [PLACE_SUBMIT_OUT] = "async_swap_out_state" },
	[PLACE_GRADIENT] = { [PLACE_IN] = "swap_in_gradient",
			     [PLACE_OUT] = "swap_out_gradient",
			     [PLACE_WAIT_IN] = "swap_submit_wait_gradient",
			     [PLACE_WAIT_OUT] = "async_swap_gradient_wait",
			     [PLACE_SUBMIT_IN] = "swap_submit_read_gradient",
			     [PLACE_FROM_MEMORY] = "unswapped_read_gradients" },
};

void place_timed(struct place *p, const struct place_state *s, uint64_t slice,
		 enum place_timed timed, uint64_t bytes, uint64_t since)
{
	struct place_timer *t = &p->figures.timers[s->kind][timed];
	uint64_t ns = monotonic_ns() - since;

	t->count++;
	t->bytes += bytes;
	t->ns += ns;
	if (!p->debug || !names[s->kind][timed])
		return;
	if (slice == PLACE_NO_SLICE)
		log_warn("swap: %s: %s: %.3f ms", names[s->kind][timed], s->name,
			 (double)ns / 1e6);
	else
		log_warn("swap: %s: %s, slice %" PRIu64 ": %" PRIu64 " bytes, %.3f ms",
			 names[s->kind][timed], s->name, slice, bytes, (double)ns / 1e6);
}

void place_began(struct place *p, const struct place_state *s, uint64_t bytes, uint64_t since)
{
	pthread_mutex_lock(&p->lock);
	place_timed(p, s, 0, PLACE_INIT, bytes, since);
	pthread_mutex_unlock(&p->lock);
}

void place_debug(struct place *p, const struct place_state *s, const char *what,
		 uint64_t offset, uint64_t size)
{
	if (p->debug)
		log_warn("swap: %s: %s, bytes %" PRIu64 " to %" PRIu64, what, s->name, offset,
			 offset + size);
}

const char *place_timer_name(enum place_kind kind, enum place_timed timed)
{
	return names[kind][timed];
}

void place_busy(struct place *p, enum place_kind kind, enum place_timed timed)
{
	if (!p->busy[kind][timed].n++)
		p->busy[kind][timed].since = monotonic_ns();
}

void place_idle(struct place *p, enum place_kind kind, enum place_timed timed)
{
	if (!--p->busy[kind][timed].n)
		p->figures.timers[kind][timed].busy_ns +=
			monotonic_ns() - p->busy[kind][timed].since;
}

/* Under the lock: what is under way, until now. */
static void add_busy(const struct place *p, struct place_figures *f)
{
	uint64_t now = monotonic_ns();

	for (int kind = 0; kind < PLACE_KINDS; kind++)
		for (int timed = 0; timed < PLACE_TIMED; timed++)
			if (p->busy[kind][timed].n)
				f->timers[kind][timed].busy_ns +=
					now - p->busy[kind][timed].since;
}

/* Under the lock. */
static void sum_up(struct place *p, struct place_figures *f)
{
	for (struct place_state *s = p->states; s; s = s->next) {
		f->states++;
		f->bytes += s->bytes;
	}
	f->slice = p->slice;
	f->small = p->small;
	f->spare = p->spare;
	f->spare_max = p->spare_max;
	f->spare_limit = p->spare_limit;
	f->writing = p->writing;
	f->disk = p->disk_ops->name;
	f->registered = p->setup.registered;
	f->chunk = p->chunk;
	f->depth = p->setup.depth ? p->setup.depth : DISK_DEPTH;
	f->threads = p->disk_ops == &disk_uring ? 0 : p->setup.threads;
	f->least = p->least;
	f->ahead = !p->no_ahead;
	f->behind = !p->no_behind;
}

void place_figures(struct place *p, struct place_figures *f)
{
	pthread_mutex_lock(&p->lock);
	*f = p->figures;
	sum_up(p, f);
	add_busy(p, f);
	pthread_mutex_unlock(&p->lock);
	swap_file_counters(p->file, &f->file);
	pinned_figures(p->pinned, &f->pinned);
}

static void count_slice(const struct place_slice *slice, uint64_t bytes,
			struct place_state_figures *f)
{
	const struct place_version *v = slice->current;

	f->lent += slice->lent ? bytes : 0;
	for (unsigned i = 0; v && i < v->npatches; i++)
		f->patches += v->patches[i]->size;
	if (slice->lost)
		f->lost += bytes;
	else if (!v || !v->body)
		f->zeros += bytes;
	else if (v->body->written)
		f->disk += bytes;
	else
		f->memory += bytes;
}

void place_state_figures(struct place *p, struct place_state *s, struct place_state_figures *f)
{
	*f = (struct place_state_figures){ .bytes = s->bytes };
	pthread_mutex_lock(&p->lock);
	for (uint64_t i = 0; i < s->nslices; i++)
		count_slice(&s->slices[i], place_slice_bytes(s, i), f);
	f->reads = s->reads;
	f->writes = s->writes;
	f->errors = s->errors;
	f->error = s->error;
	pthread_mutex_unlock(&p->lock);
}
