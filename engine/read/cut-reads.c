/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/node/plan.h"
#include "engine/read/cut-reads.h"
#include "engine/read/reads.h"

#include <errno.h>
#include <string.h>

struct part { /* one read of stored order */
	struct engine_read read;
	struct cut_read *of;
	uint64_t first, end; /* elements, stored order */
	bool over;
};

struct cut_read {
	struct engine_read *read; /* the user's */
	const struct cuts *cuts;
	size_t element;
	uint64_t first, end; /* elements, file order: those of which the user reads a byte */
	uint8_t *bytes;
	pthread_mutex_t lock;
	int result;     /* the first error */
	unsigned owing; /* parts that are not over, and 1 while they are started */
	bool cancelled;
	size_t n;
	struct part parts[];
};

/* ---- laying out the parts ---- */

struct layout_parts {
	struct part *parts; /* NULL: they are counted */
	size_t n;
	uint64_t end; /* of the last one */
};

/* Runs of boxes that follow each other are one part: of a read of the whole, all of them. */
static int add_run(void *arg, const struct cuts_box *box, uint64_t from, uint64_t to)
{
	struct layout_parts *l = arg;

	if (!l->n || l->end != box->start + from) {
		if (l->parts)
			l->parts[l->n].first = box->start + from;
		l->n++;
	}
	l->end = box->start + to;
	if (l->parts)
		l->parts[l->n - 1].end = l->end;
	return 0;
}

static struct cut_read *cut_read_new(struct engine_read *read)
{
	const struct cuts *cuts = read->file->cuts;
	size_t element = frag_dtype_size(read->file->dtype);
	uint64_t first = read->offset / element;
	uint64_t end = u64_div_ceil(read->offset + read->size, element);
	struct layout_parts l = { 0 };
	struct cut_read *c;

	cuts_walk(cuts, first, end, add_run, &l);
	c = calloc(1, sizeof(*c) + l.n * sizeof(*c->parts));
	if (!c || !(c->bytes = malloc((end - first) * element))) {
		free(c);
		return NULL;
	}
	l = (struct layout_parts){ .parts = c->parts };
	cuts_walk(cuts, first, end, add_run, &l);
	c->read = read;
	c->cuts = cuts;
	c->element = element;
	c->first = first;
	c->end = end;
	c->n = l.n;
	c->owing = (unsigned)l.n + 1;
	pthread_mutex_init(&c->lock, NULL);
	return c;
}

static void cut_read_free(struct cut_read *c)
{
	pthread_mutex_destroy(&c->lock);
	free(c->bytes);
	free(c);
}

/* ---- the parts' ends ---- */

struct arrival {
	const struct part *part;
	const uint8_t *data;
};

static int put_run(void *arg, const struct cuts_box *box, uint64_t from, uint64_t to)
{
	const struct arrival *a = arg;
	const struct cut_read *c = a->part->of;
	uint64_t at = box->start + from;

	if (at >= a->part->first && at < a->part->end)
		cuts_to_file(c->cuts, box, from, to, c->element,
			     a->data + (at - a->part->first) * c->element, c->bytes, c->first);
	return 0;
}

/* With the last one, the user's read ends. */
static void end_one(struct cut_read *c, int result)
{
	struct engine_read *read = c->read;
	bool last;

	pthread_mutex_lock(&c->lock);
	if (result < 0 && !c->result)
		c->result = result;
	last = !--c->owing;
	result = c->result;
	pthread_mutex_unlock(&c->lock);
	if (!last)
		return;
	read->done(read, result ? NULL : c->bytes + (read->offset - c->first * c->element),
		   result ? result : (int64_t)read->size);
	cut_read_free(c);
}

static void on_part(struct engine_read *read, const void *data, int64_t result)
{
	struct part *p = read->owner;
	struct cut_read *c = p->of;
	struct arrival arrival = { p, data };

	if (result >= 0 && (uint64_t)result != (p->end - p->first) * c->element)
		result = -EIO;
	if (result >= 0)
		cuts_walk(c->cuts, c->first, c->end, put_run, &arrival);
	pthread_mutex_lock(&c->lock);
	p->over = true;
	pthread_mutex_unlock(&c->lock);
	end_one(c, result < 0 ? (int)result : 0);
}

/* ---- the doors ---- */

static void start_part(struct engine *e, struct cut_read *c, struct part *p)
{
	p->of = c;
	p->read = (struct engine_read){ .file = c->read->file,
					.offset = p->first * c->element,
					.size = (p->end - p->first) * c->element,
					.nowait = c->read->nowait,
					.done = on_part,
					.owner = p };
	reads_start(e, &p->read);
}

/* With the read's lock: no part ends meanwhile that is not over. */
static void cancel_parts(struct engine *e, struct cut_read *c)
{
	for (size_t i = 0; i < c->n; i++)
		if (c->parts[i].of && !c->parts[i].over)
			reads_cancel(e, &c->parts[i].read);
}

void cut_reads_start(struct engine *e, struct engine_read *read)
{
	struct engine_file *f = read->file;
	struct cut_read *c;

	if (!f->cuts || !read->size || read->offset >= f->bytes) {
		reads_start(e, read);
		return;
	}
	read->size = u64_min(u64_min(read->size, ENGINE_READ_MAX), f->bytes - read->offset);
	c = cut_read_new(read);
	pthread_mutex_lock(&e->lock);
	read->private = c;
	pthread_mutex_unlock(&e->lock);
	if (!c) {
		read->done(read, NULL, -ENOMEM);
		return;
	}
	for (size_t i = 0; i < c->n; i++)
		start_part(e, c, &c->parts[i]);
	pthread_mutex_lock(&c->lock);
	if (c->cancelled) /* while parts were started: some may have missed it */
		cancel_parts(e, c);
	pthread_mutex_unlock(&c->lock);
	end_one(c, 0);
}

void cut_reads_cancel(struct engine *e, struct engine_read *read)
{
	struct cut_read *c;

	if (!read->file->cuts) {
		reads_cancel(e, read);
		return;
	}
	pthread_mutex_lock(&e->lock);
	c = read->private; /* it lives until the user's done has returned */
	pthread_mutex_unlock(&e->lock);
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	c->cancelled = true;
	cancel_parts(e, c);
	pthread_mutex_unlock(&c->lock);
}

/* ---- for callers that wait ---- */

enum { AT_ONCE = 16 << 20 }; /* bytes of one shard's run that are in memory twice */

struct getting {
	struct engine *e;
	const struct engine_address *address;
	const struct cuts *cuts;
	size_t element;
	uint64_t first;
	uint8_t *out;
};

static int get_run(void *arg, const struct cuts_box *box, uint64_t from, uint64_t to)
{
	const struct getting *g = arg;
	uint64_t most = AT_ONCE / g->element, n;
	CLEANUP(free) uint8_t *bytes = malloc(u64_min(most, to - from) * g->element);
	int rc = bytes ? 0 : -ENOMEM;

	for (uint64_t at = from; at < to && !rc; at += n) {
		n = u64_min(most, to - at);
		rc = reads_get(g->e, g->address, (box->start + at) * g->element, bytes,
			       n * g->element);
		if (!rc)
			cuts_to_file(g->cuts, box, at, at + n, g->element, bytes, g->out,
				     g->first);
	}
	return rc;
}

static int find_dtype(struct engine *e, const struct engine_address *address,
		      struct engine_state *state)
{
	uint64_t deadline = monotonic_ms() + e->timeout_ms;
	int rc;

	pthread_mutex_lock(&e->lock);
	do
		rc = plan_describe(e, address, 0, state);
	while (node_ask_again(e, rc, deadline));
	pthread_mutex_unlock(&e->lock);
	return rc;
}

int cut_reads_get(struct engine *e, const struct engine_address *address, uint64_t offset,
		  void *out, uint64_t size)
{
	CLEANUP(free) uint8_t *widened = NULL;
	struct getting g = { .e = e, .address = address, .out = out };
	struct engine_state state;
	uint64_t end;
	int rc;

	if (address->kind == ENGINE_PARAM)
		g.cuts = catalog_file_cuts(e->catalog, address->param);
	if (!g.cuts || !size)
		return reads_get(e, address, offset, out, size);
	rc = find_dtype(e, address, &state);
	if (rc)
		return rc;
	g.element = frag_dtype_size(state.dtype);
	g.first = offset / g.element;
	end = u64_div_ceil(offset + size, g.element);
	if (offset % g.element || size % g.element) {
		g.out = widened = malloc((end - g.first) * g.element);
		if (!widened)
			return -ENOMEM;
	}
	rc = cuts_walk(g.cuts, g.first, end, get_run, &g);
	if (!rc && widened)
		memcpy(out, widened + offset % g.element, size);
	return rc;
}
