/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/gather.h"

#include <errno.h>
#include <string.h>

enum part_state { PART_IDLE, PART_STARTING, PART_READING };

struct gather_part { /* one range of the state that is read */
	struct gather_run *run;
	struct engine_read read;
	uint64_t first, count; /* elements of the request that are in it */
	enum part_state state; /* under the lock, as what follows */
	bool is_cancelling;    /* engine_read_cancel has not returned: `came` waits for it */
	pthread_t canceller;   /* the thread in that call: there `came` does not wait */
};

struct gather_run {
	struct gather *request; /* not used after request->done */
	pthread_mutex_t lock;   /* of what follows */
	pthread_cond_t changed;
	uint64_t next;       /* element of the request that no part has yet */
	unsigned users;      /* calls that use the run, and parts that are read */
	unsigned parts_used; /* parts that are not idle */
	/* a thread is in go_on, and starts the reads that other threads want, too */
	bool is_starting;
	bool canceled, over;
	int error;
	struct gather_part parts[GATHER_READS];
};

/* ---- ranges ---- */

struct bytes_range {
	uint64_t start, end; /* bytes of the state */
};

/* Returns the bytes of n elements of a run. */
static struct bytes_range range_of(const struct gather *g, struct slice_run run, uint64_t n)
{
	uint64_t last = run.first + (n - 1) * (uint64_t)run.step;

	return (struct bytes_range){ u64_min(run.first, last) * g->element,
				     (u64_max(run.first, last) + 1) * g->element };
}

static struct bytes_range joined(struct bytes_range a, struct bytes_range b)
{
	return (struct bytes_range){ u64_min(a.start, b.start), u64_max(a.end, b.end) };
}

/* Returns how many elements of the run one read can have. */
static uint64_t elements_together(const struct gather *g, struct slice_run run)
{
	uint64_t step = (uint64_t)(run.step < 0 ? -run.step : run.step);

	if ((step - 1) * g->element > GATHER_GAP)
		return 1;
	return u64_min(run.count, ENGINE_READ_MAX / (step * g->element));
}

/* Gives a part the next elements: those of one run, and of the runs behind it that are near. */
static void plan(struct gather_part *p)
{
	struct gather_run *run = p->run;
	const struct gather *g = run->request;
	struct bytes_range all = { 0, 0 };
	unsigned runs = 0;
	int64_t step = 1;

	p->first = run->next;
	p->count = 0;
	while (p->first + p->count < g->count) {
		uint64_t k = p->first + p->count;
		struct slice_run elements = slice_run(g->slice, g->first + k);
		uint64_t n = u64_min(elements_together(g, elements), g->count - k);
		struct bytes_range more = range_of(g, elements, n), both = joined(all, more);

		if (!p->count)
			both = more;
		/* a read is full, or too many bytes lie between the two */
		else if (both.end - both.start > ENGINE_READ_MAX ||
			 both.end - both.start >
				 all.end - all.start + more.end - more.start + GATHER_GAP)
			break;
		all = both;
		p->count += n;
		step = elements.step;
		runs++;
	}
	run->next += p->count;
	p->read = (struct engine_read){ .file = g->file,
					.offset = all.start,
					.size = all.end - all.start,
					.nowait = g->nowait,
					.thread = g->thread,
					.done = p->read.done,
					.owner = p };
	if (runs == 1 && step == 1)
		p->read.into = (char *)g->out + p->first * g->element;
}

/* Copies a part's elements from the bytes that were read. */
static void pick(const struct gather_part *p, const char *data)
{
	const struct gather *g = p->run->request;
	char *out = (char *)g->out + p->first * g->element;

	if (p->read.into) {
		if (data != out)
			memcpy(out, data, p->read.size);
		return;
	}
	for (uint64_t k = 0; k < p->count;) {
		struct slice_run run = slice_run(g->slice, g->first + p->first + k);
		uint64_t n = u64_min(run.count, p->count - k);
		const char *from = data + run.first * g->element - p->read.offset;
		int64_t step = run.step * (int64_t)g->element;

		k += n;
		switch (g->element) {
#define PICK(size)                                                                             \
	case size:                                                                             \
		for (uint64_t i = 0; i < n; i++, out += size)                                  \
			memcpy(out, from + (int64_t)i * step, size);                           \
		break;
			PICK(1)
			PICK(2)
			PICK(4)
			PICK(8)
			PICK(16)
#undef PICK
		}
	}
}

/* ---- reading ---- */

/* Gives back a use of the run, with the lock, which it lets go. */
static void unuse(struct gather_run *run)
{
	bool is_last = !--run->users;

	pthread_mutex_unlock(&run->lock);
	if (!is_last)
		return;
	pthread_cond_destroy(&run->changed);
	pthread_mutex_destroy(&run->lock);
	free(run);
}

/* Called with the lock, and lets it go meanwhile: engine_read_cancel may call done. */
static void cancel(struct gather_part *p)
{
	p->canceller = pthread_self();
	p->is_cancelling = true;
	pthread_mutex_unlock(&p->run->lock);
	engine_read_cancel(p->run->request->engine, &p->read);
	pthread_mutex_lock(&p->run->lock);
	p->is_cancelling = false;
	pthread_cond_broadcast(&p->run->changed);
}

static struct gather_part *idle_part(struct gather_run *run)
{
	for (struct gather_part *p = run->parts; p < run->parts + GATHER_READS; p++)
		if (p->state == PART_IDLE && !p->is_cancelling)
			return p;
	return NULL;
}

static bool wants_more(const struct gather_run *run)
{
	return !run->error && !run->canceled && run->next < run->request->count;
}

/* Starts reads while there are parts for them, and ends the request behind its last one.
 * Called with the lock and a use of the run, both of which it gives back.
 */
static void go_on(struct gather_run *run)
{
	struct gather_part *p;

	if (run->is_starting || run->over) {
		unuse(run);
		return;
	}
	run->is_starting = true;
	while (wants_more(run) && (p = idle_part(run))) {
		plan(p);
		p->state = PART_STARTING;
		run->parts_used++;
		run->users++;
		pthread_mutex_unlock(&run->lock);
		engine_read(run->request->engine, &p->read);
		pthread_mutex_lock(&run->lock);
		if (p->state == PART_STARTING)
			p->state = PART_READING;
		if (p->state == PART_READING && run->canceled && !p->is_cancelling)
			cancel(p);
	}
	run->is_starting = false;
	run->over = !run->parts_used && !wants_more(run);
	if (run->over) {
		struct gather *g = run->request;
		int result = run->error ? run->error : run->canceled ? -ECANCELED : 0;

		pthread_mutex_unlock(&run->lock);
		g->done(g, result);
		pthread_mutex_lock(&run->lock);
	}
	unuse(run);
}

static void came(struct engine_read *read, const void *data, int64_t result)
{
	struct gather_part *p = read->owner;
	struct gather_run *run = p->run;

	if (result >= 0 && (size_t)result < read->size)
		result = -ESTALE; /* the state was replaced by a shorter one */
	if (result > 0)
		pick(p, data);
	pthread_mutex_lock(&run->lock);
	while (p->is_cancelling && !pthread_equal(p->canceller, pthread_self()))
		pthread_cond_wait(&run->changed, &run->lock);
	if (result < 0 && !run->error)
		run->error = (int)result;
	p->state = PART_IDLE;
	run->parts_used--;
	go_on(run);
}

int gather_start(struct gather *g)
{
	struct gather_run *run = calloc(1, sizeof(*run));

	if (!run)
		return -ENOMEM;
	*run = (struct gather_run){ .request = g, .users = 1 };
	pthread_mutex_init(&run->lock, NULL);
	pthread_cond_init(&run->changed, NULL);
	for (struct gather_part *p = run->parts; p < run->parts + GATHER_READS; p++) {
		p->run = run;
		p->read.done = came;
	}
	g->run = run;
	pthread_mutex_lock(&run->lock);
	go_on(run);
	return 0;
}

void gather_cancel(struct gather *g)
{
	struct gather_run *run = g->run;

	pthread_mutex_lock(&run->lock);
	run->users++;
	if (!run->canceled) {
		run->canceled = true;
		for (struct gather_part *p = run->parts; p < run->parts + GATHER_READS; p++)
			if (p->state == PART_READING && !p->is_cancelling)
				cancel(p);
	}
	go_on(run);
}
