/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/machine.h"
#include "engine/base/thread.h"
#include "engine/swap/swapper-internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- opening ---- */

static int refuse(char *why, size_t whysize, int rc, const char *what)
{
	if (what)
		snprintf(why, whysize, "%s: %s", what, strerror(-rc));
	return rc;
}

static int open_pinned(struct swapper *sw, const struct swapper_options *o)
{
	uint64_t count = sw->slice ? o->budget / sw->slice : 0;

	/* locking so much memory would have the kernel kill this process, or another */
	if (o->budget > machine_memory())
		return -ENOMEM;
	if (count < 2 || count > UINT32_MAX || sw->slice % SWAP_BLOCK)
		return -EINVAL;
	return pinned_open(&(struct pinned_options){ .size = sw->slice,
						     .count = (unsigned)count,
						     .on_node = o->on_node,
						     .unlocked = o->unlocked,
						     .node = o->node },
			   &sw->pinned);
}

static int open_slabs(struct swapper *sw)
{
	struct iovec *slabs;

	sw->setup.n = pinned_slabs(sw->pinned, NULL);
	slabs = calloc(sw->setup.n, sizeof(*slabs));
	if (!slabs)
		return -ENOMEM;
	pinned_slabs(sw->pinned, slabs);
	sw->setup.slabs = slabs;
	return sw->setup.n < DISK_NO_SLAB ? 0 : -EINVAL;
}

static int open_disk(struct swapper *sw, const struct disk_ops *ops)
{
	int rc;

	sw->disk_ops = ops ? ops : &disk_uring;
	rc = sw->disk_ops->open(&sw->disk, &sw->setup);
	if (!rc && sw->disk_ops == &disk_uring && sw->setup.threads > 1)
		log_warn("swap: aio.intra_op_parallelism: has no effect: io_uring needs no "
			 "threads");
	if (!rc || ops)
		return rc;
	log_info("swap: no io_uring: %s: by threads", strerror(-rc));
	sw->disk_ops = &disk_threads;
	return sw->disk_ops->open(&sw->disk, &sw->setup);
}

static int open_file(struct swapper *sw, const struct swapper_options *o, char *why,
		     size_t whysize)
{
	const struct swap_file_config config = { .dir = o->dir,
						 .name = o->name,
						 .disk_ops = sw->disk_ops,
						 .disk = sw->disk,
						 .no_direct = o->no_direct,
						 .chunk = sw->chunk };

	return swap_file_create(&sw->file, &config, why, whysize);
}

static int open_parts(struct swapper *sw, const struct swapper_options *o, char *why,
		      size_t whysize)
{
	int rc = open_pinned(sw, o);

	if (rc) {
		snprintf(why, whysize,
			 "pinned buffers of %llu bytes in all (FRAG_PINNED_MEM), of %llu that "
			 "this machine has: %s",
			 (unsigned long long)o->budget, (unsigned long long)machine_memory(),
			 strerror(-rc));
		return rc;
	}
	rc = open_slabs(sw);
	if (rc)
		return refuse(why, whysize, rc, "pinned buffers");
	rc = open_disk(sw, o->disk_ops);
	if (rc)
		return refuse(why, whysize, rc, "no thread for the disk");
	return open_file(sw, o, why, whysize);
}

/* on the disk at once: this generation, the next one, pinned versions */
enum { GENERATIONS = 3 };

/* Under the lock, or while the swapper is opened. */
static void limit_file(struct swapper *sw)
{
	swap_file_limit(sw->file,
			sw->capacity ? sw->capacity : GENERATIONS * sw->room + sw->slice);
}

static void swapper_free(struct swapper *sw)
{
	swap_file_close(sw->file);
	if (sw->disk)
		sw->disk_ops->close(sw->disk);
	free((void *)sw->setup.slabs);
	pinned_close(sw->pinned);
	pthread_cond_destroy(&sw->changed);
	pthread_mutex_destroy(&sw->lock);
	free(sw);
}

int swapper_open(struct swapper **out, const struct swapper_options *o, char *why,
		 size_t whysize)
{
	struct swapper *sw = calloc(1, sizeof(*sw));
	int rc;

	if (!sw)
		return refuse(why, whysize, -ENOMEM, "swap");
	pthread_mutex_init(&sw->lock, NULL);
	thread_cond_init(&sw->changed);
	TAILQ_INIT(&sw->pins);
	sw->slice = o->slice;
	sw->capacity = o->capacity;
	sw->wait_ms = o->wait_ms ? o->wait_ms : SWAPPER_WAIT_MS;
	sw->least = o->least ? o->least : SWAPPER_LEAST;
	sw->spare_limit = o->spare;
	sw->setup.depth = o->depth;
	sw->setup.threads = o->threads;
	sw->no_ahead = o->no_ahead;
	sw->no_behind = o->no_behind;
	sw->debug = o->debug;
	sw->unlocked = o->unlocked;
	sw->chunk = o->chunk ? o->chunk : SWAP_CHUNK;
	sw->name_range = o->name_range;
	sw->owner = o->owner;
	rc = open_parts(sw, o, why, whysize);
	if (rc) {
		swapper_free(sw);
		return rc;
	}
	limit_file(sw);
	*out = sw;
	return 0;
}

/* Waits for writes, for reads of slices (returned ones too), and for readers' pins. */
static int wait_for_disk(struct swapper *sw)
{
	struct timespec end = thread_in_ms(u64_min(sw->wait_ms, SWAPPER_END_MS));
	int rc = 0;

	pthread_mutex_lock(&sw->lock);
	while ((sw->writing || sw->swapping_in || !TAILQ_EMPTY(&sw->pins)) && !rc)
		rc = swapper_wait_changed(sw, &end);
	pthread_mutex_unlock(&sw->lock);
	return rc;
}

void swapper_close(struct swapper *sw)
{
	if (!sw)
		return;
	while (!LIST_EMPTY(&sw->states))
		swapper_drop(sw, LIST_FIRST(&sw->states));
	swap_file_cancel_all(sw->file);
	if (wait_for_disk(sw)) {
		log_error("swap: the disk does not answer: what it has is left to it");
		return;
	}
	swapper_free(sw);
}

unsigned swapper_slabs(const struct swapper *sw, const struct iovec **slabs)
{
	*slabs = sw->setup.slabs;
	return sw->unlocked ? 0 : sw->setup.n;
}

/* ---- states ---- */

static uint64_t slice_bytes(const struct swapper *sw, enum swapper_kind kind, uint32_t element)
{
	if (kind == SWAPPER_PARAM && element == 1)
		return sw->slice;
	/* slices of as many elements, whether of 1, 2 or 4 bytes: a sweep visits such states
	 * together
	 */
	return sw->slice / u64_max(element, 4) * element;
}

static struct swapper_state *state_new(const char *name, uint64_t nslices)
{
	struct swapper_state *s;
	uint64_t size;

	if (!u64_mul(nslices, sizeof(s->slices[0]), &size) || !u64_add(size, sizeof(*s), &size))
		return NULL;
	s = calloc(1, size);
	if (!s)
		return NULL;
	s->name = strdup(name);
	if (s->name)
		return s;
	free(s);
	return NULL;
}

static uint64_t room_of(const struct swapper_state *s)
{
	return s->small ? 0 : s->nslices * swapper_whole_blocks(s->slice_bytes);
}

static bool is_element(uint32_t element)
{
	return element == 1 || element == 2 || element == 4 || element == 8;
}

int swapper_add(struct swapper *sw, const char *name, enum swapper_kind kind, uint32_t element,
		uint64_t numel, struct swapper_state **out)
{
	uint64_t bytes, slice;
	struct swapper_state *s;

	assert(thread_may_be_trainer());
	if (!is_element(element))
		return -EINVAL;
	if (!u64_mul(numel, element, &bytes))
		return -EOVERFLOW;
	slice = slice_bytes(sw, kind, element);
	s = state_new(name, u64_div_ceil(bytes, slice));
	if (!s)
		return -ENOMEM;
	s->refs = 1;
	s->kind = kind;
	s->element = element;
	s->bytes = bytes;
	s->slice_bytes = slice;
	s->nslices = u64_div_ceil(bytes, slice);
	s->small = bytes < sw->least;
	for (uint64_t i = 0; i < s->nslices; i++)
		s->slices[i].state = s;
	pthread_mutex_lock(&sw->lock);
	LIST_INSERT_HEAD(&sw->states, s, in_states);
	sw->room += room_of(s);
	limit_file(sw);
	pthread_mutex_unlock(&sw->lock);
	*out = s;
	return 0;
}

void swapper_drop(struct swapper *sw, struct swapper_state *s)
{
	assert(thread_may_be_trainer());
	swapper_drop_puts(sw, s);
	pthread_mutex_lock(&sw->lock);
	LIST_REMOVE(s, in_states);
	sw->room -= room_of(s);
	limit_file(sw);
	swapper_publish_changed(sw, s);
	for (uint64_t i = 0; i < s->nslices; i++) {
		assert(!s->slices[i].lent);
		swapper_drop_current(sw, &s->slices[i]);
	}
	swapper_state_unref(s);
	pthread_mutex_unlock(&sw->lock);
}

uint64_t swapper_least(const struct swapper *sw)
{
	return sw->least;
}

uint64_t swapper_slice_numel(const struct swapper_state *s)
{
	return s->slice_bytes / s->element;
}

/* ---- generations ---- */

int swapper_publish(struct swapper *sw)
{
	int rc = sw->half ? -EBUSY : swapper_swap_out_puts(sw, NULL);

	assert(thread_may_be_trainer());
	if (rc)
		return rc;
	pthread_mutex_lock(&sw->lock);
	sw->figures.publishes += !LIST_EMPTY(&sw->changed_slices);
	swapper_publish_changed(sw, NULL);
	pthread_mutex_unlock(&sw->lock);
	return 0;
}

int swapper_publish_state(struct swapper *sw, struct swapper_state *s)
{
	int rc = swapper_swap_out_puts(sw, s);

	assert(thread_may_be_trainer());
	if (rc)
		return rc;
	pthread_mutex_lock(&sw->lock);
	swapper_publish_changed(sw, s);
	pthread_mutex_unlock(&sw->lock);
	return 0;
}

/* Under the lock. */
static bool is_in(const struct swapper_state *s)
{
	for (uint64_t i = 0; i < s->nslices; i++)
		if (s->slices[i].lent)
			return true;
	return false;
}

int swapper_clear(struct swapper *sw, struct swapper_state *s)
{
	bool busy;

	assert(thread_may_be_trainer());
	swapper_drop_puts(sw, s);
	pthread_mutex_lock(&sw->lock);
	busy = is_in(s);
	for (uint64_t i = 0; i < s->nslices && !busy; i++)
		if (swapper_newest(&s->slices[i]))
			swapper_set_next(sw, &s->slices[i], NULL);
	pthread_mutex_unlock(&sw->lock);
	return busy ? -EBUSY : 0;
}

/* ---- figures ---- */

/* The timers' names.  Those of states and gradients are the ones of DeepSpeed's partitioned
 * swapper, which waits for each read and write; pipelined_names are those of its pipelined one.
 * DeepSpeed's swapper of parameters has no timers: the names of SWAPPER_PARAM are ours.
 */
static const char *const names[SWAPPER_KINDS][SWAPPER_TIMED] = {
	[SWAPPER_PARAM] = { [SWAPPER_IN] = "lp_swap_in",
			    [SWAPPER_OUT] = "lp_swap_out",
			    [SWAPPER_WAIT_IN] = "lp_swap_wait_read",
			    [SWAPPER_SUBMIT_IN] = "lp_swap_submit_read",
			    [SWAPPER_SUBMIT_OUT] = "lp_swap_submit_write",
			    [SWAPPER_INIT] = "lp_swap_init_write" },
	[SWAPPER_STATE] = { [SWAPPER_IN] = "swap_in_param",
			    [SWAPPER_OUT] = "swap_out_param",
			    [SWAPPER_WAIT_IN] = "swap_wait_read_param",
			    [SWAPPER_WAIT_OUT] = "optimizer_swap_out_state",
			    [SWAPPER_SUBMIT_IN] = "swap_submit_read_param",
			    [SWAPPER_SUBMIT_OUT] = "swap_submit_write",
			    [SWAPPER_INIT] = "swap_init_write" },
	[SWAPPER_GRADIENT] = { [SWAPPER_IN] = "swap_in_gradient",
			       [SWAPPER_OUT] = "swap_out_gradient",
			       [SWAPPER_WAIT_IN] = "swap_submit_wait_gradient",
			       [SWAPPER_WAIT_OUT] = "async_swap_gradient_wait",
			       [SWAPPER_SUBMIT_IN] = "swap_submit_read_gradient",
			       [SWAPPER_FROM_MEMORY] = "unswapped_read_gradients" },
};

static const char *const pipelined_names[SWAPPER_TIMED] = {
	[SWAPPER_IN] = "swap_in_state",
	[SWAPPER_OUT] = "swap_out_state",
	[SWAPPER_WAIT_IN] = "optimizer_swap_in_state",
	[SWAPPER_SUBMIT_IN] = "async_swap_in_state",
	[SWAPPER_SUBMIT_OUT] = "async_swap_out_state",
};

const char *swapper_timer_name(enum swapper_kind kind, enum swapper_timed timed, bool pipelined)
{
	if (kind == SWAPPER_STATE && pipelined && pipelined_names[timed])
		return pipelined_names[timed];
	return names[kind][timed];
}

static const char *name_of(const struct swapper *sw, enum swapper_kind kind,
			   enum swapper_timed timed)
{
	return swapper_timer_name(kind, timed, !sw->no_ahead || !sw->no_behind);
}

void swapper_timer_add(struct swapper *sw, const struct swapper_state *s, uint64_t slice,
		       enum swapper_timed timed, uint64_t bytes, uint64_t ns)
{
	struct swapper_timer *t = &sw->figures.timers[s->kind][timed];
	const char *name = name_of(sw, s->kind, timed);

	t->count++;
	t->bytes += bytes;
	t->ns += ns;
	if (!sw->debug || !name)
		return;
	if (slice == SWAPPER_NO_SLICE)
		log_warn("swap: %s: %s: %.3f ms", name, s->name, (double)ns / 1e6);
	else
		log_warn("swap: %s: %s, slice %" PRIu64 ": %" PRIu64 " bytes, %.3f ms", name,
			 s->name, slice, bytes, (double)ns / 1e6);
}

void swapper_count_init(struct swapper *sw, const struct swapper_state *s, uint64_t bytes,
			uint64_t since)
{
	pthread_mutex_lock(&sw->lock);
	swapper_timer_add(sw, s, 0, SWAPPER_INIT, bytes, monotonic_ns() - since);
	pthread_mutex_unlock(&sw->lock);
}

void swapper_log_debug(struct swapper *sw, const struct swapper_state *s, const char *what,
		       uint64_t offset, uint64_t size)
{
	if (sw->debug)
		log_warn("swap: %s: %s, bytes %" PRIu64 " to %" PRIu64, what, s->name, offset,
			 offset + size);
}

void swapper_timer_begin(struct swapper *sw, enum swapper_kind kind, enum swapper_timed timed)
{
	if (!sw->busy[kind][timed].n++)
		sw->busy[kind][timed].since = monotonic_ns();
}

void swapper_timer_end(struct swapper *sw, enum swapper_kind kind, enum swapper_timed timed)
{
	if (!--sw->busy[kind][timed].n)
		sw->figures.timers[kind][timed].busy_ns +=
			monotonic_ns() - sw->busy[kind][timed].since;
}

/* Under the lock: sets the timers of the last step, and what the next ones count from. */
static void end_step(struct swapper *sw)
{
	for (int kind = 0; kind < SWAPPER_KINDS; kind++)
		for (int timed = 0; timed < SWAPPER_TIMED; timed++) {
			const struct swapper_timer *now = &sw->figures.timers[kind][timed];
			struct swapper_timer *before = &sw->step_began[kind][timed];

			sw->figures.last_step[kind][timed] =
				(struct swapper_timer){ .count = now->count - before->count,
							.bytes = now->bytes - before->bytes,
							.ns = now->ns - before->ns };
			*before = *now;
		}
}

static const char step_head[] = "swap: time (ms)";

/* Adds a timer of the last step to the line, which is logged first where it is full. */
static void log_timer(const struct swapper *sw, enum swapper_kind kind,
		      enum swapper_timed timed, char line[LOG_TEXT])
{
	const struct swapper_timer *t = &sw->figures.last_step[kind][timed];
	const char *name = name_of(sw, kind, timed);
	char one[80];

	if (!t->count || !name)
		return;
	snprintf(one, sizeof(one), " | %s: %.2f", name, (double)t->ns / 1e6);
	if (strlen(step_head) + strlen(line) + strlen(one) >= LOG_TEXT) {
		log_debug("%s%s", step_head, line);
		*line = '\0';
	}
	strcat(line, one);
}

/* Lines as DeepSpeed's log_timers has one. */
static void log_step(struct swapper *sw)
{
	char line[LOG_TEXT] = "";

	for (int kind = 0; kind < SWAPPER_KINDS; kind++)
		for (int timed = 0; timed < SWAPPER_TIMED; timed++)
			log_timer(sw, (enum swapper_kind)kind, (enum swapper_timed)timed, line);
	if (*line)
		log_debug("%s%s", step_head, line);
}

void swapper_step(struct swapper *sw)
{
	pthread_mutex_lock(&sw->lock);
	end_step(sw);
	pthread_mutex_unlock(&sw->lock);
	if (log_wants(LOG_DEBUG))
		log_step(sw);
}

/* Under the lock: adds the time until now of what is under way. */
static void add_busy(const struct swapper *sw, struct swapper_figures *f)
{
	uint64_t now = monotonic_ns();

	for (int kind = 0; kind < SWAPPER_KINDS; kind++)
		for (int timed = 0; timed < SWAPPER_TIMED; timed++)
			if (sw->busy[kind][timed].n)
				f->timers[kind][timed].busy_ns +=
					now - sw->busy[kind][timed].since;
}

/* Under the lock. */
static void sum_up(struct swapper *sw, struct swapper_figures *f)
{
	const struct swapper_state *s;

	LIST_FOREACH (s, &sw->states, in_states) {
		f->states++;
		f->bytes += s->bytes;
	}
	f->slice = sw->slice;
	f->small = sw->small;
	f->spare = sw->spare;
	f->spare_max = sw->spare_max;
	f->spare_limit = sw->spare_limit;
	f->writing = sw->writing;
	f->disk = sw->disk_ops->name;
	f->registered = sw->setup.registered;
	f->chunk = sw->chunk;
	f->depth = sw->setup.depth ? sw->setup.depth : DISK_DEPTH;
	f->threads = sw->disk_ops == &disk_uring ? 0 : sw->setup.threads;
	f->least = sw->least;
	f->ahead = !sw->no_ahead;
	f->behind = !sw->no_behind;
}

void swapper_figures(struct swapper *sw, struct swapper_figures *f)
{
	pthread_mutex_lock(&sw->lock);
	*f = sw->figures;
	sum_up(sw, f);
	add_busy(sw, f);
	pthread_mutex_unlock(&sw->lock);
	swap_file_counters(sw->file, &f->file);
	pinned_figures(sw->pinned, &f->pinned);
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
	else if (!v || !v->block)
		f->zeros += bytes;
	else if (v->block->written)
		f->disk += bytes;
	else
		f->memory += bytes;
}

void swapper_state_figures(struct swapper *sw, struct swapper_state *s,
			   struct swapper_state_figures *f)
{
	*f = (struct swapper_state_figures){ .bytes = s->bytes };
	pthread_mutex_lock(&sw->lock);
	for (uint64_t i = 0; i < s->nslices; i++)
		count_slice(&s->slices[i], swapper_slice_bytes(s, i), f);
	f->reads = s->reads;
	f->writes = s->writes;
	f->errors = s->errors;
	f->damaged = s->damaged;
	f->error = s->error;
	pthread_mutex_unlock(&sw->lock);
}
