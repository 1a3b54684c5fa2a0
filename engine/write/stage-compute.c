/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/dtype.h"
#include "engine/base/log.h"
#include "engine/catalog/operation.h"
#include "engine/base/slice.h"
#include "engine/catalog/cuts.h"
#include "engine/write/stage.h"

#include <errno.h>
#include <string.h>

/* An edit by an operation: each holder gets a COMPUTE for each of its fragments of each box
 * (engine/catalog/cuts.h) of the parameter, which says what part of the slice is in the box.
 */

static_assert((int)OPERATION_TEXT_MAX == (int)WIRE_OPERATION_MAX,
	      "an event shows the operation");

int stage_add_operation(struct engine *e, struct transaction *c)
{
	const struct engine_write *w = c->write;
	const struct file_part *part = w->file->parts;
	size_t element = frag_dtype_size(part->dtype);
	uint64_t numel = 1;
	bool fits = true;

	if (w->file->nparts != 1 || part->address.kind != ENGINE_PARAM ||
	    operation_apply(w->operation, part->dtype, NULL, 0))
		return -EOPNOTSUPP;
	for (uint32_t i = 0; i < w->slice->ndims; i++)
		fits = fits && u64_mul(numel, w->slice->dims[i].size, &numel);
	if (!fits || numel != part->bytes / element ||
	    (part->cuts && part->cuts->ndim != w->slice->ndims))
		return -EINVAL;
	c->bytes = w->slice->numel * element;
	c->lp_follows = stage_lp_follows(e, w->file, &c->lp);
	return 0;
}

/* The computes that are made for one box of the state, and sent to its holders. */
struct box_computes {
	struct engine *e;
	struct transaction *c;
	struct slice slice; /* of the box */
	uint64_t start;     /* of the box, in stored order */
	enum frag_dtype dtype;
	size_t masters;  /* index of the first of these computes, those of the master */
	size_t nmasters; /* how many computes are the master's */
	bool lp;         /* see is called for the low-precision copy */
};

static const struct wire_compute *computes(const struct box_computes *b)
{
	return b->c->computes.items;
}

/* Returns the number of the slice's elements that are in [start, end) of the box. */
static uint64_t count(const struct box_computes *b, uint64_t start, uint64_t end)
{
	return slice_count_before(&b->slice, end) - slice_count_before(&b->slice, start);
}

static void fill_operation(const struct box_computes *b, struct wire_compute *m)
{
	static const char signs[] = "=*/+-";
	const struct operation *o = b->c->write->operation;

	m->code = (uint32_t)(strchr(signs, o->sign) - signs);
	memcpy(&m->number, &o->number, sizeof(m->number));
	memcpy(m->value, o->value, sizeof(m->value));
}

/* Adds a message for elements [start, end) of the box, of which the piece has `start` as its
 * row's element `at`.
 */
static struct wire_compute *add(struct box_computes *b, const struct plan_piece *piece,
				uint64_t start, uint64_t end, uint64_t at)
{
	struct wire_compute *m = vec_add(&b->c->computes, sizeof(*m));
	struct stage_item *item = m ? stage_add_item(b->c, piece) : NULL;

	if (!item)
		return NULL;
	item->compute = b->c->computes.count;
	*m = (struct wire_compute){ .state = piece->row,
				    .dtype = b->dtype,
				    .start = start,
				    .end = end,
				    .at = at,
				    .first = b->slice.first,
				    .naxes = b->slice.naxes };
	for (uint32_t i = 0; i < b->slice.naxes; i++)
		m->axes[i] = (struct wire_axis){ b->slice.axes[i].count,
						 (uint64_t)b->slice.axes[i].stride };
	fill_operation(b, m);
	return m;
}

/* Returns the rank that a message goes to. */
static uint32_t rank_of(const struct box_computes *b, size_t compute)
{
	const struct stage_item *items = b->c->items.items;

	return items[compute].rank; /* items are in the order of computes until by_turn */
}

/* Has the copy in a piece follow those masters that the same rank has. */
static int add_followers(struct box_computes *b, const struct plan_piece *piece, uint64_t start,
			 uint64_t end, uint64_t at)
{
	uint64_t left = count(b, start, end);

	for (size_t i = b->masters; i < b->masters + b->nmasters; i++) {
		struct wire_compute master = computes(b)[i], *m;
		uint64_t from = u64_max(start, master.start), to = u64_min(end, master.end);
		uint64_t n = from < to && rank_of(b, i) == piece->rank ? count(b, from, to) : 0;

		if (!n)
			continue;
		m = add(b, piece, from, to, at + from - start);
		if (!m)
			return -ENOMEM;
		m->code = WIRE_FOLLOW;
		m->master = master.state;
		m->master_dtype = master.dtype;
		m->master_at = master.at + from - master.start;
		left -= u64_min(left, n);
	}
	if (!left)
		return 0;
	log_info("rank %u has a low-precision copy of elements whose masters other ranks have: "
		 "an operation cannot be carried out by the owners",
		 piece->rank);
	return -EOPNOTSUPP;
}

static int see(void *arg, const struct plan_piece *piece)
{
	struct box_computes *b = arg;
	size_t element = frag_dtype_size(b->dtype);
	uint64_t start = piece->at / element, end = start + piece->size / element;
	uint64_t at = piece->offset / element;
	struct wire_compute *m;

	if (!count(b, start, end))
		return 0;
	/* '=' gives the copy the converted value; else it follows its master */
	if (b->lp && b->c->write->operation->sign != '=')
		return add_followers(b, piece, start, end, at);
	m = add(b, piece, start, end, at);
	if (m && b->lp)
		dtype_convert(b->dtype, m->value, b->c->write->file->parts->dtype,
			      b->c->write->operation->value, 1);
	return m ? 0 : -ENOMEM;
}

static int plan_key(struct box_computes *b, const struct engine_address *address,
		    uint64_t numel)
{
	size_t element = frag_dtype_size(b->dtype);

	return plan_write(b->e, address, b->c->start_ns, b->start * element, numel * element,
			  see, b);
}

static int plan_box(struct engine *e, struct transaction *c, const struct slice *slice,
		    uint64_t start, uint64_t numel)
{
	const struct engine_file *f = c->write->file;
	struct engine_address address = f->parts->address;
	struct box_computes b = { .e = e,
				  .c = c,
				  .slice = *slice,
				  .start = start,
				  .dtype = f->parts->dtype,
				  .masters = c->computes.count };
	int rc;

	if (!slice->numel)
		return 0;
	rc = plan_key(&b, &address, numel);
	if (rc || !c->lp_follows)
		return rc;
	b.dtype = c->lp;
	b.nmasters = c->computes.count - b.masters;
	b.lp = true;
	strcpy(address.key, "lp");
	rc = plan_key(&b, &address, numel);
	return rc == -ENOENT ? 0 : rc; /* no rank keeps a copy */
}

int stage_plan_operation(struct engine *e, struct transaction *c)
{
	const struct cuts *cuts = c->write->file->parts->cuts;
	uint64_t numel = c->write->file->bytes / frag_dtype_size(c->write->file->parts->dtype);
	struct slice part;
	int rc = 0;

	if (!cuts) {
		slice_in_box(c->write->slice, NULL, NULL, &part);
		return plan_box(e, c, &part, 0, numel);
	}
	for (uint32_t shard = 0; shard < cuts_parts(cuts) && !rc; shard++) {
		struct cuts_box box;

		cuts_box(cuts, shard, &box);
		slice_in_box(c->write->slice, box.from, box.size, &part);
		rc = plan_box(e, c, &part, box.start, box.numel);
	}
	return rc;
}
