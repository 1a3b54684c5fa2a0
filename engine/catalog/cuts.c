/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/cuts.h"

#include <errno.h>
#include <string.h>

static bool all_fit(const struct frag_cut *cut, uint32_t n, uint32_t ndim)
{
	uint64_t parts = 1;

	for (uint32_t i = 0; i < n; i++) {
		parts *= cut[i].parts;
		if (cut[i].dim >= ndim || !parts || parts > FRAG_WORLD_MAX)
			return false;
	}
	return n <= FRAG_CUTS_MAX;
}

struct cuts *cuts_new(const struct frag_cut *cut, uint32_t n, uint32_t ndim,
		      const uint64_t *shape, uint64_t numel, int *rc)
{
	struct cuts *c;

	*rc = -EINVAL;
	if (!all_fit(cut, n, ndim))
		return NULL;
	*rc = -ENOMEM;
	c = malloc(sizeof(*c) + ndim * sizeof(*shape) + n * sizeof(*cut));
	if (!c)
		return NULL;
	*c = (struct cuts){ .ndim = ndim, .n = n, .numel = numel };
	c->cut = (struct frag_cut *)(c->shape + ndim);
	memcpy(c->shape, shape, ndim * sizeof(*shape));
	memcpy(c->cut, cut, n * sizeof(*cut));
	*rc = 0;
	return c;
}

bool cuts_are_equal(const struct cuts *a, const struct cuts *b)
{
	if (!a || !b)
		return a == b;
	return a->n == b->n && !memcmp(a->cut, b->cut, a->n * sizeof(*a->cut));
}

uint32_t cuts_parts(const struct cuts *c)
{
	uint32_t parts = 1;

	for (uint32_t i = 0; i < c->n; i++)
		parts *= c->cut[i].parts;
	return parts;
}

bool cuts_keep_order(const struct cuts *c)
{
	for (uint32_t i = 0; i < c->n; i++)
		for (uint32_t d = 0; d < c->cut[i].dim; d++)
			if (c->cut[i].parts > 1 && c->shape[d] > 1)
				return false;
	return true;
}

static void take_all(const struct cuts *c, struct cuts_box *box)
{
	*box = (struct cuts_box){ .numel = c->numel };
	memcpy(box->size, c->shape, c->ndim * sizeof(*c->shape));
}

static uint64_t chunk_of(const struct frag_cut *cut, const struct cuts_box *box)
{
	return u64_div_ceil(box->size[cut->dim], cut->parts);
}

/* Narrows the box to one part of a cut. */
static void narrow(struct cuts_box *box, const struct frag_cut *cut, uint64_t part)
{
	uint64_t size = box->size[cut->dim], chunk = chunk_of(cut, box);
	uint64_t from = u64_min(chunk * part, size), to = u64_min(from + chunk, size);
	uint64_t slice = size ? box->numel / size : 0;

	box->shard = box->shard * cut->parts + (uint32_t)part;
	box->start += slice * from;
	box->numel = slice * (to - from);
	box->from[cut->dim] += from;
	box->size[cut->dim] = to - from;
}

void cuts_box(const struct cuts *c, uint32_t shard, struct cuts_box *box)
{
	uint32_t parts = cuts_parts(c);

	take_all(c, box);
	for (uint32_t i = 0; i < c->n; i++) {
		parts /= c->cut[i].parts;
		narrow(box, &c->cut[i], shard / parts % c->cut[i].parts);
	}
}

uint64_t cuts_largest(const struct cuts *c)
{
	struct cuts_box first;

	cuts_box(c, 0, &first);
	return first.numel;
}

void cuts_find(const struct cuts *c, uint64_t at, struct cuts_box *box)
{
	take_all(c, box);
	for (uint32_t i = 0; i < c->n; i++) {
		const struct frag_cut *cut = &c->cut[i];
		uint64_t slice = box->numel / box->size[cut->dim];

		narrow(box, cut, (at - box->start) / slice / chunk_of(cut, box));
	}
}

/* Returns how many of the box's elements come before element `at` in file order. */
static uint64_t count_before(const struct cuts *c, const struct cuts_box *box, uint64_t at)
{
	uint64_t count = 0, slice = c->numel, own = box->numel;

	if (!own || at >= c->numel)
		return own;
	for (uint32_t d = 0; d < c->ndim; d++) {
		uint64_t index;

		slice /= c->shape[d];
		own /= box->size[d];
		index = at / slice;
		at %= slice;
		if (index < box->from[d])
			return count;
		if (index - box->from[d] >= box->size[d])
			return count + box->size[d] * own;
		count += (index - box->from[d]) * own;
	}
	return count;
}

struct cuts_walk {
	const struct cuts *cuts;
	uint64_t first, end;
	cuts_see see;
	void *arg;
};

/* Narrows a box by the cuts from number i on, as long as it has elements of the range. */
static int walk(const struct cuts_walk *w, const struct cuts_box *box, uint32_t i)
{
	uint64_t from = count_before(w->cuts, box, w->first);
	uint64_t to = count_before(w->cuts, box, w->end);
	int rc = 0;

	if (from >= to)
		return 0;
	if (i == w->cuts->n)
		return w->see(w->arg, box, from, to);
	for (uint32_t part = 0; part < w->cuts->cut[i].parts && !rc; part++) {
		struct cuts_box inner = *box;

		narrow(&inner, &w->cuts->cut[i], part);
		rc = walk(w, &inner, i + 1);
	}
	return rc;
}

int cuts_walk(const struct cuts *c, uint64_t first, uint64_t end, cuts_see see, void *arg)
{
	struct cuts_walk w = { c, first, end, see, arg };
	struct cuts_box all;

	take_all(c, &all);
	return walk(&w, &all, 0);
}

/* ---- copying ---- */

/* Returns how many elements of the box lie side by side in file order. */
static uint64_t run_of(const struct cuts *c, const struct cuts_box *box)
{
	uint64_t run = 1;

	for (uint32_t d = c->ndim; d--;) {
		run *= box->size[d];
		if (box->size[d] != c->shape[d])
			break;
	}
	return run;
}

/* Returns the number in file order of element `at` of the box. */
static uint64_t file_order(const struct cuts *c, const struct cuts_box *box, uint64_t at)
{
	uint64_t slice = 1, position = 0;

	for (uint32_t d = c->ndim; d--;) {
		position += (box->from[d] + at % box->size[d]) * slice;
		at /= box->size[d];
		slice *= c->shape[d];
	}
	return position;
}

struct copy {
	const struct cuts *cuts;
	const struct cuts_box *box;
	size_t element;
	uint8_t *stored, *file;
	uint64_t first;
	bool to_file;
};

static void copy(const struct copy *c, uint64_t from, uint64_t to)
{
	uint64_t run = run_of(c->cuts, c->box), n;

	for (uint64_t at = from; at < to; at += n) {
		uint64_t position = file_order(c->cuts, c->box, at) - c->first;
		uint8_t *stored = c->stored + (at - from) * c->element;
		uint8_t *file = c->file + position * c->element;

		n = u64_min(run - at % run, to - at);
		if (c->to_file)
			memcpy(file, stored, n * c->element);
		else
			memcpy(stored, file, n * c->element);
	}
}

void cuts_to_file(const struct cuts *c, const struct cuts_box *box, uint64_t from, uint64_t to,
		  size_t element, const void *stored, void *file, uint64_t first)
{
	struct copy all = { .cuts = c,
			    .box = box,
			    .element = element,
			    /* only read: to_file is set */
			    .stored = (uint8_t *)(uintptr_t)stored,
			    .file = file,
			    .first = first,
			    .to_file = true };

	copy(&all, from, to);
}

void cuts_from_file(const struct cuts *c, const struct cuts_box *box, uint64_t from,
		    uint64_t to, size_t element, void *stored, const void *file, uint64_t first)
{
	struct copy all = { .cuts = c,
			    .box = box,
			    .element = element,
			    .stored = stored,
			    /* only read: to_file is not set */
			    .file = (uint8_t *)(uintptr_t)file,
			    .first = first };

	copy(&all, from, to);
}
