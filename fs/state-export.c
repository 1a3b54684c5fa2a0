/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/state-internal.h"

#include "fs/export.h"

#include <errno.h>
#include <string.h>

int state_export_open(struct handle *h)
{
	const struct export_file *f;
	int rc = tree_export(&h->fs->tree, h->node, &h->exported);

	if (rc)
		return rc;
	f = &h->exported->files[h->node.slot];
	h->text = malloc(f->head_bytes);
	if (!h->text)
		return -ENOMEM;
	memcpy(h->text, f->head, f->head_bytes);
	h->length = f->head_bytes;
	if (!f->bytes)
		return 0;
	rc = engine_file_open_many(h->fs->engine, f->addresses, f->n, &h->file, &h->bytes);
	if (rc)
		return rc;
	cells_init_raw(&h->cells, h->bytes);
	h->cells.head = h->length;
	h->cells.bytes = h->length + f->bytes;
	return h->bytes == f->source ? 0 : -ESTALE; /* a state was replaced since tree_export */
}

/* ---- reads of files whose elements are converted ---- */

/* The bytes of the data that a read needs, widened to whole elements, and the bytes of the
 * states that they are made of.
 */
struct export_span {
	uint64_t begin, end;
	uint64_t source, source_end;
};

/* Returns where in the states' bytes the element begins that has byte `at` of the data; *begin:
 * where it begins in the data.
 */
static uint64_t find_element(const struct export_file *f, uint64_t at, uint64_t *begin)
{
	const struct export_tensor *x = export_tensor_at(f, at);
	size_t to = frag_dtype_size(x->to);
	uint64_t element = (at - x->at) / to;

	*begin = x->at + element * to;
	return x->source + element * frag_dtype_size(x->from);
}

/* Returns the span of size > 0 bytes of the data. */
static struct export_span span_of(const struct export_file *f, uint64_t offset, uint64_t size)
{
	const struct export_tensor *last = export_tensor_at(f, offset + size - 1);
	struct export_span s;

	s.source = find_element(f, offset, &s.begin);
	s.source_end = find_element(f, offset + size - 1, &s.end);
	s.source_end += frag_dtype_size(last->from);
	s.end += frag_dtype_size(last->to);
	return s;
}

static const struct export_file *file_of(const struct handle *h)
{
	return &h->exported->files[h->node.slot];
}

bool state_export_converts(const struct handle *h)
{
	return h->file && h->exported && file_of(h)->converts;
}

void state_export_source(const struct handle *h, size_t size, uint64_t offset, uint64_t *first,
			 uint64_t *count)
{
	struct export_span s = span_of(file_of(h), offset, size);

	*first = s.source;
	*count = s.source_end - s.source;
}

char *state_export_convert(const struct handle *h, size_t size, uint64_t offset,
			   const char *source, uint64_t *before)
{
	const struct export_file *f = file_of(h);
	struct export_span s = span_of(f, offset, size);
	char *out = malloc(s.end - s.begin);

	for (uint64_t at = s.begin; at < s.end && out;) {
		const struct export_tensor *x = export_tensor_at(f, at);
		size_t from = frag_dtype_size(x->from), to = frag_dtype_size(x->to);
		uint64_t first = (at - x->at) / to;
		uint64_t end = u64_min((s.end - x->at) / to, x->numel);

		export_convert(x, out + (at - s.begin),
			       source + (x->source + first * from - s.source), end - first);
		at = x->at + end * to;
	}
	*before = offset - s.begin;
	return out;
}
