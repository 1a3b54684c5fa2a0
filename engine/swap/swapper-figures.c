/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/swap/swapper-internal.h"

#include <inttypes.h>

static const char *const names[SWAPPER_KINDS][SWAPPER_TIMED] = {
	[SWAPPER_PARAM] = { [SWAPPER_IN] = "swap_in_param",
			    [SWAPPER_OUT] = "swap_out_param",
			    [SWAPPER_WAIT_IN] = "swap_wait_read_param",
			    [SWAPPER_SUBMIT_IN] = "swap_submit_read_param",
			    [SWAPPER_SUBMIT_OUT] = "swap_submit_write",
			    [SWAPPER_INIT] = "swap_init_write" },
	[SWAPPER_STATE] = { [SWAPPER_IN] = "swap_in_state",
			    [SWAPPER_OUT] = "swap_out_state",
			    [SWAPPER_WAIT_IN] = "optimizer_swap_in_state",
			    [SWAPPER_WAIT_OUT] = "optimizer_swap_out_state",
			    [SWAPPER_SUBMIT_IN] = "async_swap_in_state",
			    [SWAPPER_SUBMIT_OUT] = "async_swap_out_state" },
	[SWAPPER_GRADIENT] = { [SWAPPER_IN] = "swap_in_gradient",
			       [SWAPPER_OUT] = "swap_out_gradient",
			       [SWAPPER_WAIT_IN] = "swap_submit_wait_gradient",
			       [SWAPPER_WAIT_OUT] = "async_swap_gradient_wait",
			       [SWAPPER_SUBMIT_IN] = "swap_submit_read_gradient",
			       [SWAPPER_FROM_MEMORY] = "unswapped_read_gradients" },
};

void swapper_timed(struct swapper *p, const struct swapper_state *s, uint64_t slice,
		   enum swapper_timed timed, uint64_t bytes, uint64_t since)
{
	struct swapper_timer *t = &p->figures.timers[s->kind][timed];
	uint64_t ns = monotonic_ns() - since;

	t->count++;
	t->bytes += bytes;
	t->ns += ns;
	if (!p->debug || !names[s->kind][timed])
		return;
	if (slice == SWAPPER_NO_SLICE)
		log_warn("swap: %s: %s: %.3f ms", names[s->kind][timed], s->name,
			 (double)ns / 1e6);
	else
		log_warn("swap: %s: %s, slice %" PRIu64 ": %" PRIu64 " bytes, %.3f ms",
			 names[s->kind][timed], s->name, slice, bytes, (double)ns / 1e6);
}

void swapper_began(struct swapper *p, const struct swapper_state *s, uint64_t bytes,
		   uint64_t since)
{
	pthread_mutex_lock(&p->lock);
	swapper_timed(p, s, 0, SWAPPER_INIT, bytes, since);
	pthread_mutex_unlock(&p->lock);
}

void swapper_debug(struct swapper *p, const struct swapper_state *s, const char *what,
		   uint64_t offset, uint64_t size)
{
	if (p->debug)
		log_warn("swap: %s: %s, bytes %" PRIu64 " to %" PRIu64, what, s->name, offset,
			 offset + size);
}

const char *swapper_timer_name(enum swapper_kind kind, enum swapper_timed timed)
{
	return names[kind][timed];
}

void swapper_busy(struct swapper *p, enum swapper_kind kind, enum swapper_timed timed)
{
	if (!p->busy[kind][timed].n++)
		p->busy[kind][timed].since = monotonic_ns();
}

void swapper_idle(struct swapper *p, enum swapper_kind kind, enum swapper_timed timed)
{
	if (!--p->busy[kind][timed].n)
		p->figures.timers[kind][timed].busy_ns +=
			monotonic_ns() - p->busy[kind][timed].since;
}

/* Under the lock: what is under way, until now. */
static void add_busy(const struct swapper *p, struct swapper_figures *f)
{
	uint64_t now = monotonic_ns();

	for (int kind = 0; kind < SWAPPER_KINDS; kind++)
		for (int timed = 0; timed < SWAPPER_TIMED; timed++)
			if (p->busy[kind][timed].n)
				f->timers[kind][timed].busy_ns +=
					now - p->busy[kind][timed].since;
}

/* Under the lock. */
static void sum_up(struct swapper *p, struct swapper_figures *f)
{
	for (struct swapper_state *s = p->states; s; s = s->next) {
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

void swapper_figures(struct swapper *p, struct swapper_figures *f)
{
	pthread_mutex_lock(&p->lock);
	*f = p->figures;
	sum_up(p, f);
	add_busy(p, f);
	pthread_mutex_unlock(&p->lock);
	swap_file_counters(p->file, &f->file);
	pinned_figures(p->pinned, &f->pinned);
}

static void count_slice(const struct swapper_slice *slice, uint64_t bytes,
			struct swapper_state_figures *f)
{
	const struct swapper_version *v = slice->current;

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

void swapper_state_figures(struct swapper *p, struct swapper_state *s,
			   struct swapper_state_figures *f)
{
	*f = (struct swapper_state_figures){ .bytes = s->bytes };
	pthread_mutex_lock(&p->lock);
	for (uint64_t i = 0; i < s->nslices; i++)
		count_slice(&s->slices[i], swapper_slice_bytes(s, i), f);
	f->reads = s->reads;
	f->writes = s->writes;
	f->errors = s->errors;
	f->error = s->error;
	pthread_mutex_unlock(&p->lock);
}
