/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/edit/edit.h"

#include "engine/base/dtype.h"
#include "engine/checkpoint/table/box.h"

#include <errno.h>
#include <string.h>

enum { CHUNK = 4096 }; /* elements that are converted at once */

static bool has_key(const struct table *t, const struct table_state *s, const char *key)
{
	return !strcmp(t->keys[s->key], key);
}

static const char *own_key(const struct table *t, const struct table_state *s)
{
	return dtype_lp_key(t->tensors[s->tensor].dtype);
}

/* Returns the master: the stored fp32, or the state "master" of which a widened fp32 is made.
 */
static const struct table_state *find_master(const struct table *t, uint32_t tensor)
{
	const struct table_state *s = table_find_state(t, tensor, "fp32");

	return s && s->shown == s->stored ? s : table_find_state(t, tensor, "master");
}

bool edit_is_possible(const struct table *t, const struct table_state *s, bool coherent)
{
	if (s->shown != s->stored)
		return false;
	if (!coherent || !has_key(t, s, own_key(t, s)) || has_key(t, s, "fp32"))
		return true;
	return !find_master(t, s->tensor);
}

/* ---- values to patches ---- */

struct values { /* elements [first, first + count) of a state */
	struct patches *patches;
	const struct table_state *state;
	size_t size; /* of an element */
	uint64_t first, count;
	const uint8_t *bytes;
};

/* Adds the patch of a box, whose elements are adjacent in the file: puts them in its order. */
static int gather(const struct values *v, const struct table_run *run)
{
	const struct table *t = v->patches->table;
	const struct table_tensor *x = &t->tensors[v->state->tensor];
	struct box b = { x->ndim, table_shape(t, x), run->box, run->box + x->ndim };
	uint8_t *bytes = patches_lend(v->patches, run->count * v->size);
	uint64_t n;

	if (!bytes)
		return -ENOMEM;
	for (uint64_t i = 0; i < run->count; i += n) {
		uint64_t element = box_element(&b, run->first + i, &n);

		n = u64_min(n, run->count - i);
		memcpy(bytes + i * v->size, v->bytes + (element - v->first) * v->size,
		       n * v->size);
	}
	return patches_add(v->patches, run->file, run->base, run->count * v->size, bytes);
}

static int see_run(void *arg, const struct table_run *run)
{
	const struct values *v = arg;

	if (run->box)
		return gather(v, run);
	return patches_add(v->patches, run->file, run->base, run->count * v->size,
			   v->bytes + (run->first - v->first) * v->size);
}

static int add_values(struct values *v)
{
	return table_walk(v->patches->table, v->state, v->first, v->count, see_run, v);
}

/* Adds the values, converted, to another state of the tensor. */
static int add_converted(const struct values *of, const struct table_state *to)
{
	_Alignas(16) uint8_t from[CHUNK * 16];
	size_t size = frag_dtype_size(to->stored);
	uint8_t *bytes = patches_lend(of->patches, of->count * size);
	struct values v = { of->patches, to, size, of->first, of->count, bytes };
	int rc = bytes ? 0 : -ENOMEM;

	for (uint64_t i = 0; i < v.count && !rc; i += CHUNK) {
		uint64_t n = u64_min(CHUNK, v.count - i);

		memcpy(from, of->bytes + i * of->size, n * of->size);
		rc = dtype_convert(to->stored, bytes + i * v.size, of->state->stored, from, n);
		if (rc == -EOPNOTSUPP && to->stored == FRAG_F32)
			rc = dtype_round_to_f32((float *)(bytes + i * v.size),
						of->state->stored, from, n);
	}
	return rc ? rc : add_values(&v);
}

/* ---- coherence ---- */

static int add_copies(const struct values *v)
{
	const struct table *t = v->patches->table;
	const struct table_state *own =
		table_find_state(t, v->state->tensor, own_key(t, v->state));
	uint32_t n;
	const struct table_state *copies = table_copies(t, v->state->tensor, &n);
	int rc = 0;

	if (v->state->scalar ||
	    (v->state != own && v->state != find_master(t, v->state->tensor)))
		return 0;
	if (own && own != v->state)
		rc = add_converted(v, own);
	for (uint32_t i = 0; i < n && !rc; i++)
		rc = add_converted(v, &copies[i]);
	return rc;
}

/* ---- extents to whole elements ---- */

struct element_edit {
	struct patches *patches;
	const struct table_state *state;
	const struct engine_extent *extents;
	size_t n, size; /* of an element */
	bool coherent;
};

static int add_span(const struct element_edit *e, uint64_t first, uint64_t count,
		    const uint8_t *bytes)
{
	struct values v = { e->patches, e->state, e->size, first, count, bytes };
	int rc = add_values(&v);

	return rc || !e->coherent ? rc : add_copies(&v);
}

struct patched_read {
	const struct patches *patches;
	uint8_t *to;
	size_t size;
};

static int read_run(void *arg, const struct table_run *run)
{
	const struct patched_read *r = arg;

	return patches_read_old(r->patches, run->file, run->base, r->to, r->size);
}

/* Adds an element that extents cover in part: the file's bytes with those of the extents over
 * them.  The i-th extent is the first that touches the element.
 */
static int add_partial(const struct element_edit *e, size_t i, uint64_t element)
{
	uint64_t begin = element * e->size, end = begin + e->size;
	struct patched_read r = { e->patches, patches_lend(e->patches, e->size), e->size };
	int rc = r.to ? table_walk(e->patches->table, e->state, element, 1, read_run, &r)
		      : -ENOMEM;

	for (; i < e->n && e->extents[i].offset < end && !rc; i++) {
		const struct engine_extent *x = &e->extents[i];
		uint64_t from = u64_max(begin, x->offset),
			 to = u64_min(end, x->offset + x->size);

		memcpy(r.to + (from - begin), (const uint8_t *)x->data + (from - x->offset),
		       to - from);
	}
	return rc ? rc : add_span(e, element, 1, r.to);
}

/* Adds the elements of the i-th extent that are not before *next, which becomes the first
 * element behind them.
 */
static int add_extent(const struct element_edit *e, size_t i, uint64_t *next)
{
	const struct engine_extent *x = &e->extents[i];
	uint64_t first = x->offset / e->size, end = x->offset + x->size;
	uint64_t whole = u64_div_ceil(x->offset, e->size), last = end / e->size;
	int rc = 0;

	if (first < whole && first >= *next) {
		rc = add_partial(e, i, first);
		*next = first + 1;
	}
	if (!rc && whole < last) {
		rc = add_span(e, whole, last - whole,
			      (const uint8_t *)x->data + (whole * e->size - x->offset));
		*next = last;
	}
	if (!rc && end % e->size && last >= *next) {
		rc = add_partial(e, i, last);
		*next = last + 1;
	}
	return rc;
}

int edit_translate(struct patches *p, const struct table_state *s,
		   const struct engine_extent *extents, size_t n, bool coherent)
{
	struct element_edit e = { p, s, extents, n, frag_dtype_size(s->stored), coherent };
	uint64_t next = 0;
	int rc = 0;

	for (size_t i = 0; i < n && !rc; i++)
		rc = extents[i].size ? add_extent(&e, i, &next) : 0;
	return rc;
}
