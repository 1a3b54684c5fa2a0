/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/write/stored-write.h"

#include <errno.h>
#include <string.h>

struct storing {
	struct stored_write *s;
	size_t element;
	uint64_t first; /* element of the file, at data */
	const uint8_t *data;
	uint64_t used; /* bytes of s->bytes */
	/* of an element that is written in part: how many bytes, and how many before them */
	uint64_t cut, inside;
};

static int store_run(void *arg, const struct cuts_box *box, uint64_t from, uint64_t to)
{
	struct storing *g = arg;
	struct engine_extent *x = vec_add(&g->s->extents, sizeof(*x));

	if (!x)
		return -ENOMEM;
	x->offset = (box->start + from) * g->element + g->inside;
	x->data = g->data;
	x->size = g->cut;
	if (g->cut)
		return 0;
	x->size = (to - from) * g->element;
	x->data = g->s->bytes + g->used;
	cuts_from_file(g->s->write.file->parts->cuts, box, from, to, g->element,
		       g->s->bytes + g->used, g->data, g->first);
	g->used += x->size;
	return 0;
}

/* Adds elements [first, end) of the file, of which the first may be written in part. */
static int store(struct storing *g, uint64_t first, uint64_t end)
{
	g->first = first;
	return cuts_walk(g->s->write.file->parts->cuts, first, end, store_run, g);
}

/* Stores an extent: whole elements, before and behind which it may cut one. */
static int store_extent(struct storing *g, const struct engine_extent *x)
{
	uint64_t at = x->offset, end = x->offset + x->size, n;
	int rc = 0;

	for (; at < end && !rc; at += n) {
		uint64_t element = at / g->element;

		g->inside = at % g->element;
		n = (end - at) / g->element * g->element;
		g->cut = g->inside || !n ? u64_min(g->element - g->inside, end - at) : 0;
		n = g->cut ? g->cut : n;
		g->data = (const uint8_t *)x->data + (at - x->offset);
		rc = store(g, element, element + (g->cut ? 1 : n / g->element));
	}
	return rc;
}

int stored_write_init(struct stored_write *s, const struct engine_write *write)
{
	const struct engine_file *f = write->file;
	struct storing g = { .s = s, .element = frag_dtype_size(f->parts->dtype) };
	uint64_t bytes = 0;
	int rc = 0;

	*s = (struct stored_write){ .write = *write };
	for (size_t i = 0; i < write->nextents; i++) {
		const struct engine_extent *x = &write->extents[i];

		if (!f->parts->cuts || x->offset > f->bytes || x->size > f->bytes - x->offset)
			return 0; /* engine_write refuses the extent */
		bytes += x->size;
	}
	if (!bytes)
		return 0;
	s->bytes = malloc(bytes);
	if (!s->bytes)
		return -ENOMEM;
	for (size_t i = 0; i < write->nextents && !rc; i++)
		rc = store_extent(&g, &write->extents[i]);
	s->write.extents = s->extents.items;
	s->write.nextents = s->extents.count;
	return rc;
}

void stored_write_fini(struct stored_write *s)
{
	free(s->extents.items);
	free(s->bytes);
}
