/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/commit.h"
#include "engine/dtype.h"
#include "engine/file.h"
#include "engine/log.h"
#include "engine/plan.h"
#include "engine/reads.h"

#include <errno.h>
#include <string.h>

/* ---- sources: in the caller's thread ---- */

/* The extent widened to whole elements: what the edges lack is read. */
static int whole_elements(struct engine *e, const struct engine_file *f,
			  const struct engine_extent *x, uint64_t element, uint64_t first,
			  uint64_t bytes, uint8_t **out)
{
	uint8_t *whole = malloc(bytes ? bytes : 1);
	uint64_t before = x->offset - first * element;
	int rc = 0;

	if (!whole)
		return -ENOMEM;
	if (before)
		rc = reads_get(e, &f->address, first * element, whole, element);
	if (!rc && (before + x->size) % element)
		rc = reads_get(e, &f->address, first * element + bytes - element,
			       whole + bytes - element, element);
	if (rc) {
		free(whole);
		return rc;
	}
	memcpy(whole + before, x->data, x->size);
	*out = whole;
	return 0;
}

/* Whether x begins and ends with an element, and lies as a pointer to them may. */
static bool is_whole(const struct engine_extent *x, uint64_t element)
{
	return !(x->offset % element) && !(x->size % element) &&
	       !((uintptr_t)x->data % element);
}

static int add_lp_source(struct engine *e, struct commit *c, const struct engine_file *f,
			 const struct engine_extent *x, enum frag_dtype hp, enum frag_dtype lp)
{
	uint64_t element = frag_dtype_size(hp), first = x->offset / element;
	uint64_t n = u64_div_ceil(x->offset + x->size, element) - first;
	CLEANUP(free) uint8_t *whole = NULL;
	uint8_t *converted;
	int rc = 0;

	if (is_whole(x, element) && lp == hp) {
		c->sources[c->nsources++] =
			(struct commit_source){ f, true, x->offset, x->size, x->data, NULL };
		return 0;
	}
	if (!is_whole(x, element))
		rc = whole_elements(e, f, x, element, first, n * element, &whole);
	if (rc)
		return rc;
	converted = malloc(n * frag_dtype_size(lp));
	if (!converted)
		return -ENOMEM;
	dtype_convert(lp, converted, hp, whole ? whole : x->data, n);
	c->sources[c->nsources++] = (struct commit_source){
		f,         true,     first * frag_dtype_size(lp), n * frag_dtype_size(lp),
		converted, converted
	};
	return 0;
}

/* Whether, and in what dtype, the low-precision copies follow. */
static bool lp_follows(struct engine *e, const struct engine_file *f, enum frag_dtype *lp)
{
	if (f->address.kind != ENGINE_PARAM || strcmp(f->address.key, "fp32"))
		return false;
	*lp = e->catalog->params[f->address.param].dtype;
	if (!dtype_convert(*lp, NULL, f->dtype, NULL, 0))
		return true;
	log_warn("no way from %s to %s: the low-precision copy keeps its old bytes",
		 frag_dtype_name(f->dtype), frag_dtype_name(*lp));
	return false;
}

static int add_write(struct engine *e, struct commit *c, const struct engine_write *w)
{
	enum frag_dtype lp = FRAG_F32;
	bool follows = lp_follows(e, w->file, &lp);
	int rc = 0;

	for (size_t i = 0; i < w->nextents && !rc; i++) {
		const struct engine_extent *x = &w->extents[i];

		if (x->offset > w->file->bytes || x->size > w->file->bytes - x->offset)
			return -EFBIG;
		if (!x->size)
			continue;
		c->sources[c->nsources++] = (struct commit_source){ w->file, false,   x->offset,
								    x->size, x->data, NULL };
		c->bytes += x->size;
		if (follows)
			rc = add_lp_source(e, c, w->file, x, w->file->dtype, lp);
	}
	return rc;
}

int commit_add_writes(struct engine *e, struct commit *c, const struct engine_write *writes,
		      size_t n)
{
	size_t room = 1;
	int rc = 0;

	for (size_t i = 0; i < n; i++)
		room += writes[i].nextents * 2;
	c->sources = calloc(room, sizeof(*c->sources));
	if (!c->sources)
		return -ENOMEM;
	for (size_t i = 0; i < n && !rc; i++)
		rc = add_write(e, c, &writes[i]);
	return rc;
}

void commit_free(struct commit *c)
{
	for (size_t i = 0; i < c->nsources; i++)
		free(c->sources[i].owned);
	free(c->sources);
	free(c->items);
	free(c->involved);
	free(c);
}

/* ---- items: with the lock ---- */

struct see {
	struct engine *e;
	struct commit *c;
	const struct commit_source *source;
};

static int add_item(struct commit *c, struct commit_item item)
{
	if (c->nitems == c->items_room) {
		size_t room = c->items_room ? c->items_room * 2 : 64;
		struct commit_item *items = realloc(c->items, room * sizeof(*items));

		if (!items)
			return -ENOMEM;
		c->items = items;
		c->items_room = room;
	}
	c->items[c->nitems++] = item;
	return 0;
}

static int see_piece(void *arg, const struct piece *piece)
{
	struct see *s = arg;
	int rc = 0;

	if (!s->c->involved[piece->rank] && piece->size)
		s->c->nranks++;
	for (uint64_t done = 0; done < piece->size && !rc; done += WIRE_CHUNK)
		rc = add_item(s->c,
			      (struct commit_item){
				      .rank = piece->rank,
				      .row = piece->row,
				      .size = (uint32_t)u64_min(WIRE_CHUNK, piece->size - done),
				      .turn = s->c->involved[piece->rank]++,
				      .offset = piece->offset + done,
				      .data = s->source->data + piece->at + done,
			      });
	return rc;
}

static int plan_source(struct engine *e, struct commit *c, const struct commit_source *source)
{
	struct engine_address address = source->file->address;
	struct see see = { e, c, source };
	int rc;

	if (source->lp)
		strcpy(address.key, "lp");
	rc = plan_write(e, &address, c->start_ns, source->offset, source->size, see_piece,
			&see);
	return source->lp && rc == -ENOENT ? 0 : rc; /* nobody keeps a copy */
}

/* Ranks take theirs in turn: they unpack and check at the same time. */
static int by_turn(const void *a, const void *b)
{
	const struct commit_item *x = a, *y = b;

	if (x->turn != y->turn)
		return x->turn < y->turn ? -1 : 1;
	return x->rank < y->rank ? -1 : x->rank > y->rank;
}

int commit_plan(struct engine *e, struct commit *c)
{
	int rc = 0;

	c->nitems = c->sent = 0;
	c->nranks = 0;
	if (!c->involved && !(c->involved = calloc(e->world, sizeof(*c->involved))))
		return -ENOMEM;
	memset(c->involved, 0, e->world * sizeof(*c->involved));
	for (size_t i = 0; i < c->nsources && !rc; i++)
		rc = plan_source(e, c, &c->sources[i]);
	if (!rc && c->nitems)
		qsort(c->items, c->nitems, sizeof(*c->items), by_turn);
	c->transaction[1] = ++e->transaction;
	return rc;
}
