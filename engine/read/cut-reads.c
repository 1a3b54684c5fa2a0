/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/vec.h"
#include "engine/node/plan.h"
#include "engine/read/cut-reads.h"
#include "engine/read/reads.h"

#include <errno.h>
#include <string.h>

/* A part of a user's read: bytes of one state whose parameter is cut, or of several states
 * that are stored in file order.
 */
struct cut_section {
	const struct cuts *cuts; /* NULL: stored order is file order */
	size_t element;          /* 1: without cuts */
	uint64_t first, end;     /* elements, file order, of which the user reads a byte */
	uint64_t base;           /* byte of the file at which element 0 is */
	uint8_t *bytes;          /* of elements [first, end) */
};

struct stored_read { /* one read of stored order */
	struct engine_read read;
	struct cut_read *of;
	const struct cut_section *section;
	uint64_t first, end; /* elements, stored order */
	bool over;
};

struct cut_read {
	struct engine_read *read; /* the user's */
	struct vec sections;
	struct vec parts;
	uint8_t *bytes;
	uint64_t skip; /* bytes of the first element that the user does not read */
	pthread_mutex_t lock;
	int result;     /* the first error */
	bool cancelled; /* parts that start from now on are cancelled, too */
	unsigned owing; /* parts that are not over, and 1 while they are started */
};

/* ---- laying out the parts ---- */

/* Adds elements [from, to) of stored order to the last part, if it ends there and stays short
 * enough for one read, or as further parts.
 */
static int add_elements(struct cut_read *c, const struct cut_section *s, uint64_t from,
			uint64_t to)
{
	uint64_t most = ENGINE_READ_MAX / s->element;
	struct stored_read *p = c->parts.items;

	if (c->parts.count) {
		p += c->parts.count - 1;
		if (p->section == s && p->end == from && p->end - p->first < most) {
			uint64_t n = u64_min(to - from, most - (p->end - p->first));

			p->end += n;
			from += n;
		}
	}
	for (uint64_t n; from < to; from += n) {
		n = u64_min(to - from, most);
		p = vec_add(&c->parts, sizeof(*p));
		if (!p)
			return -ENOMEM;
		*p = (struct stored_read){
			.of = c, .section = s, .first = from, .end = from + n
		};
	}
	return 0;
}

struct run_adder {
	struct cut_read *read;
	const struct cut_section *section;
};

/* Adds a run of a box.  Runs that follow each other in stored order are one part: in a read of
 * the whole state, all of its runs.
 */
static int add_run(void *arg, const struct cuts_box *box, uint64_t from, uint64_t to)
{
	const struct run_adder *a = arg;

	return add_elements(a->read, a->section, box->start + from, box->start + to);
}

/* Adds the bytes [from, to) of a state. */
static int add_section(struct cut_read *c, const struct file_part *p, uint64_t from,
		       uint64_t to)
{
	size_t element = p->cuts ? frag_dtype_size(p->dtype) : 1;
	struct cut_section *s = c->sections.items;

	if (c->sections.count && !p->cuts && !s[c->sections.count - 1].cuts) {
		s[c->sections.count - 1].end += to - from;
		return 0;
	}
	s = vec_add(&c->sections, sizeof(*s));
	if (!s)
		return -ENOMEM;
	*s = (struct cut_section){ .cuts = p->cuts,
				   .element = element,
				   .first = from / element,
				   .end = u64_div_ceil(to, element),
				   .base = p->at };
	return 0;
}

static int add_sections(struct cut_read *c)
{
	const struct engine_file *f = c->read->file;
	uint64_t begin = c->read->offset, end = begin + c->read->size;
	int rc = 0;

	for (uint32_t i = file_part_at(f, begin); i < f->nparts && f->parts[i].at < end && !rc;
	     i++) {
		const struct file_part *p = &f->parts[i];
		uint64_t from = begin > p->at ? begin - p->at : 0;

		if (p->bytes)
			rc = add_section(c, p, from, u64_min(end - p->at, p->bytes));
	}
	return rc;
}

/* Lays the sections' bytes one after the other in one buffer: only the first section may begin,
 * and only the last one end, within an element that the user reads in part.
 */
static int lay_out(struct cut_read *c)
{
	struct cut_section *s = c->sections.items, *end = s + c->sections.count;
	uint64_t size = 0, at = 0;
	int rc = 0;

	for (const struct cut_section *x = s; x < end; x++)
		size += (x->end - x->first) * x->element;
	c->bytes = malloc(size);
	if (!c->bytes)
		return -ENOMEM;
	c->skip = c->read->offset - (s->base + s->first * s->element);
	for (; s < end && !rc; s++) {
		struct run_adder adding = { c, s };

		s->bytes = c->bytes + at;
		at += (s->end - s->first) * s->element;
		rc = s->cuts ? cuts_walk(s->cuts, s->first, s->end, add_run, &adding)
			     : add_elements(c, s, s->first, s->end);
	}
	return rc;
}

static void cut_read_free(struct cut_read *c)
{
	pthread_mutex_destroy(&c->lock);
	free(c->sections.items);
	free(c->parts.items);
	free(c->bytes);
	free(c);
}

static struct cut_read *cut_read_new(struct engine_read *read)
{
	struct cut_read *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->read = read;
	pthread_mutex_init(&c->lock, NULL);
	if (add_sections(c) || lay_out(c)) {
		cut_read_free(c);
		return NULL;
	}
	c->owing = c->parts.count + 1;
	return c;
}

/* ---- the parts' ends ---- */

struct run_copier {
	const struct stored_read *part;
	const uint8_t *data;
};

static int put_run(void *arg, const struct cuts_box *box, uint64_t from, uint64_t to)
{
	const struct run_copier *a = arg;
	const struct stored_read *p = a->part;
	const struct cut_section *s = p->section;
	uint64_t begin = u64_max(box->start + from, p->first);
	uint64_t end = u64_min(box->start + to, p->end);

	if (begin < end)
		cuts_to_file(s->cuts, box, begin - box->start, end - box->start, s->element,
			     a->data + (begin - p->first) * s->element, s->bytes, s->first);
	return 0;
}

static void put_part(const struct stored_read *p, const void *data)
{
	const struct cut_section *s = p->section;
	struct run_copier arrival = { p, data };

	if (s->cuts)
		cuts_walk(s->cuts, s->first, s->end, put_run, &arrival);
	else
		memcpy(s->bytes + (p->first - s->first), data, p->end - p->first);
}

/* Counts the end of a part; the user's read ends with the last one. */
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
	result = result ? result : (int)read->size;
	node_count_read(read->file->engine, read, result);
	read->done(read, result < 0 ? NULL : c->bytes + c->skip, result);
	cut_read_free(c);
}

static void on_part(struct engine_read *read, const void *data, int64_t result)
{
	struct stored_read *p = read->owner;
	struct cut_read *c = p->of;

	if (result >= 0 && (uint64_t)result != (p->end - p->first) * p->section->element)
		result = -EIO;
	if (result >= 0)
		put_part(p, data);
	pthread_mutex_lock(&c->lock);
	p->over = true;
	pthread_mutex_unlock(&c->lock);
	end_one(c, result < 0 ? (int)result : 0);
}

/* ---- the doors ---- */

static void start_part(struct engine *e, struct cut_read *c, struct stored_read *p)
{
	const struct cut_section *s = p->section;

	pthread_mutex_lock(&c->lock);
	p->read = (struct engine_read){ .file = c->read->file,
					.offset = s->base + p->first * s->element,
					.size = (p->end - p->first) * s->element,
					.nowait = c->read->nowait,
					.thread = c->read->thread,
					.caller = c->read->caller,
					.is_part = true,
					.done = on_part,
					.owner = p };
	pthread_mutex_unlock(&c->lock);
	reads_start(e, &p->read);
	/* a cancel since the parts before may have come too early for this one */
	pthread_mutex_lock(&c->lock);
	if (c->cancelled && !p->over)
		reads_cancel(e, &p->read);
	pthread_mutex_unlock(&c->lock);
}

static bool is_cut(const struct engine_read *read)
{
	const struct engine_file *f = read->file;
	uint64_t end = read->offset + read->size;
	bool cut = false;

	for (uint32_t i = file_part_at(f, read->offset);
	     i < f->nparts && f->parts[i].at < end && !cut; i++)
		cut = f->parts[i].cuts;
	return cut;
}

void cut_reads_start(struct engine *e, struct engine_read *read)
{
	struct engine_file *f = read->file;
	struct cut_read *c;
	struct stored_read *p;

	if (read->size && read->offset < f->bytes)
		read->size =
			u64_min(u64_min(read->size, ENGINE_READ_MAX), f->bytes - read->offset);
	if (!read->size || read->offset >= f->bytes || !is_cut(read)) {
		reads_start(e, read);
		return;
	}
	c = cut_read_new(read);
	read->private = c;
	if (!c) {
		read->done(read, NULL, -ENOMEM);
		return;
	}
	p = c->parts.items;
	for (uint32_t i = 0; i < c->parts.count; i++)
		start_part(e, c, &p[i]);
	end_one(c, 0);
}

void cut_reads_cancel(struct engine *e, struct engine_read *read)
{
	struct cut_read *c;
	struct stored_read *p;

	if (!read->size || read->offset >= read->file->bytes || !is_cut(read)) {
		reads_cancel(e, read);
		return;
	}
	c = read->private; /* lives until the user's done has returned */
	if (!c)
		return;
	p = c->parts.items;
	/* on_part takes the lock: a part that is not over stays so until the unlock */
	pthread_mutex_lock(&c->lock);
	c->cancelled = true;
	for (uint32_t i = 0; i < c->parts.count; i++)
		if (!p[i].over)
			reads_cancel(e, &p[i].read);
	pthread_mutex_unlock(&c->lock);
}

/* ---- for callers that wait ---- */

enum { AT_ONCE = 16 << 20 }; /* bytes of one shard's run that are in memory twice */

struct getting {
	const char *caller;
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
			       n * g->element, g->caller);
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

int cut_reads_get_from(const char *caller, struct engine *e,
		       const struct engine_address *address, uint64_t offset, void *out,
		       uint64_t size)
{
	CLEANUP(free) uint8_t *widened = NULL;
	struct getting g = { .e = e, .address = address, .out = out, .caller = caller };
	struct engine_state state;
	uint64_t end;
	int rc;

	if (address->kind == ENGINE_PARAM)
		g.cuts = catalog_file_cuts(e->catalog, address->param);
	if (!g.cuts || !size)
		return reads_get(e, address, offset, out, size, caller);
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

int cut_reads_get_file_from(const char *caller, const struct engine_file *f, void *out)
{
	uint32_t end;
	int rc = 0;

	for (uint32_t i = 0; i < f->nparts && !rc; i = end) {
		struct file_part *p = &f->parts[i];
		uint64_t size = p->bytes;

		for (end = i + 1; !p->cuts && end < f->nparts && !f->parts[end].cuts; end++)
			size += f->parts[end].bytes;
		rc = p->cuts ? cut_reads_get_from(caller, f->engine, &p->address, 0,
						  (uint8_t *)out + p->at, size)
			     : reads_get_parts(f->engine, p, end - i, p->at,
					       (uint8_t *)out + p->at, size, caller);
	}
	return rc;
}
