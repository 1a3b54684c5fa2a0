/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/dtype.h"
#include "engine/base/log.h"
#include "engine/node/writer-memory.h"
#include "engine/write/stage.h"
#include "engine/write/stored-write.h"
#include "engine/read/onesided-read.h"
#include "engine/read/remote-read.h"

#include <errno.h>
#include <string.h>

/* ---- sources: in the caller's thread ---- */

/* Returns true if x begins and ends with an element, and its memory is aligned for elements. */
static bool is_whole(const struct engine_extent *x, uint64_t element)
{
	return !(x->offset % element) && !(x->size % element) &&
	       !((uintptr_t)x->data % element);
}

static void take_edge(struct stage_edge *edge, const uint8_t *element)
{
	for (uint32_t i = 0; i < edge->read.size; i++)
		if (!edge->written[i])
			edge->bytes[i] = element[i];
	dtype_convert(edge->lp, edge->converted, edge->hp, edge->bytes, 1);
}

static void on_edge(struct engine_read *read, const void *data, int64_t result)
{
	struct stage_edge *edge = read->owner;
	struct transaction *c = edge->commit;

	assert(result < 0 || result == (int64_t)read->size); /* remote reads are whole */
	if (result >= 0)
		take_edge(edge, data);
	pthread_mutex_lock(&edge->file.engine->lock);
	edge->over = true;
	c->edges_waiting--;
	if (result < 0 && !c->result)
		c->result = (int)result;
	pthread_mutex_unlock(&edge->file.engine->lock);
}

static struct stage_edge *edge_new(struct transaction *c, const struct stage_edge *like,
				   const struct engine_file *f, uint64_t offset)
{
	struct stage_edge *edge = calloc(1, sizeof(*edge));

	if (!edge)
		return NULL;
	*edge = *like;
	edge->commit = c;
	edge->file = (struct engine_file){
		.engine = f->engine, .parts = f->parts, .nparts = f->nparts, .live = true
	};
	edge->read = (struct engine_read){ .file = &edge->file,
					   .offset = offset,
					   .size = frag_dtype_size(like->hp),
					   .nowait = true,
					   .caller = c->write->caller,
					   .done = on_edge,
					   .owner = edge };
	return edge;
}

/* Reads the element at once where memory can be copied; else keeps it for stage_read_edges. */
static int add_edge(struct engine *e, struct transaction *c, const struct stage_edge *like,
		    const struct engine_file *f, uint64_t offset)
{
	struct stage_edge *edge = edge_new(c, like, f, offset);
	uint8_t element[sizeof(edge->bytes)];
	int rc = edge ? onesided_read(e, &edge->file, offset, element, edge->read.size,
				      edge->read.caller)
		      : -ENOMEM;

	if (!rc)
		take_edge(edge, element);
	if (rc == -EAGAIN || rc == -EFAULT) { /* the owner is to be asked */
		edge->next = c->edges;
		c->edges = edge;
		c->edges_waiting++;
		return 0;
	}
	free(edge);
	return rc;
}

struct widened { /* an extent, widened to whole elements */
	const struct engine_write *write;
	size_t number;        /* of the extent in the write */
	uint64_t first, n;    /* elements */
	uint64_t before, end; /* bytes in them */
	uint8_t *converted;
	enum frag_dtype hp, lp;
};

/* Takes what the extent has of the element at offset.  False: it has nothing of it. */
static bool take_written(struct stage_edge *edge, uint64_t offset,
			 const struct engine_extent *x)
{
	uint64_t begin = u64_max(x->offset, offset);
	uint64_t end = u64_min(x->offset + x->size, offset + frag_dtype_size(edge->hp));

	for (uint64_t at = begin; at < end; at++) {
		edge->bytes[at - offset] = ((const uint8_t *)x->data)[at - x->offset];
		edge->written[at - offset] = true;
	}
	return begin < end;
}

/* The extent cuts element i.  The extents before and behind it may have other bytes of this
 * element: extents of one element follow each other, in stored order too.
 */
static int add_cut(struct engine *e, struct transaction *c, const struct widened *w, uint64_t i)
{
	uint64_t offset = (w->first + i) * frag_dtype_size(w->hp);
	const struct engine_extent *extents = w->write->extents;
	struct stage_edge like = { .converted = w->converted + i * frag_dtype_size(w->lp),
				   .hp = w->hp,
				   .lp = w->lp };
	size_t k = w->number + 1;

	while (k > 0 && take_written(&like, offset, &extents[k - 1]))
		k--;
	k = w->number + 1;
	while (k < w->write->nextents && take_written(&like, offset, &extents[k]))
		k++;
	return add_edge(e, c, &like, w->write->file, offset);
}

static int add_cuts(struct engine *e, struct transaction *c, const struct widened *w)
{
	uint64_t element = frag_dtype_size(w->hp), rest = w->end % element;
	bool one = w->n == 1;
	int rc = 0;

	if (w->before || (one && rest))
		rc = add_cut(e, c, w, 0);
	if (!rc && !one && rest)
		rc = add_cut(e, c, w, w->n - 1);
	return rc;
}

/* Fills w->converted, which the caller frees, also on error. */
static int convert(struct engine *e, struct transaction *c, const struct engine_extent *x,
		   struct widened *w)
{
	uint64_t element = frag_dtype_size(w->hp);
	CLEANUP(free) uint8_t *bytes = calloc(w->n, element);

	w->converted = malloc(w->n * frag_dtype_size(w->lp));
	if (!bytes || !w->converted)
		return -ENOMEM;
	memcpy(bytes + w->before, x->data, x->size);
	dtype_convert(w->lp, w->converted, w->hp, bytes, w->n);
	return add_cuts(e, c, w);
}

static int add_lp_source(struct engine *e, struct transaction *c,
			 const struct engine_write *write, size_t number, enum frag_dtype lp)
{
	const struct engine_file *f = write->file;
	const struct engine_extent *x = &write->extents[number];
	enum frag_dtype hp = f->parts->dtype;
	uint64_t element = frag_dtype_size(hp), first = x->offset / element;
	struct widened w = { .write = write,
			     .number = number,
			     .first = first,
			     .n = u64_div_ceil(x->offset + x->size, element) - first,
			     .before = x->offset % element,
			     .end = x->offset % element + x->size,
			     .hp = hp,
			     .lp = lp };
	int rc;

	if (is_whole(x, element) && lp == hp) {
		c->sources[c->nsources++] =
			(struct stage_source){ f, true, x->offset, x->size, x->data, NULL };
		return 0;
	}
	rc = convert(e, c, x, &w);
	c->sources[c->nsources++] = (struct stage_source){
		f,           true,       first * frag_dtype_size(lp), w.n * frag_dtype_size(lp),
		w.converted, w.converted
	};
	return rc;
}

void stage_read_edges(struct engine *e, struct stage_edge *edges)
{
	struct stage_edge *next;

	for (struct stage_edge *edge = edges; edge; edge = next) {
		next = edge->next; /* with the last read the transaction may be freed */
		remote_read_start(e, &edge->read);
	}
}

void stage_cancel_edges(struct transaction *c)
{
	for (struct stage_edge *edge = c->edges; edge; edge = edge->next)
		if (!edge->over)
			remote_read_end(&edge->read);
}

bool stage_lp_follows(struct engine *e, const struct engine_file *f, enum frag_dtype *lp)
{
	if (f->parts->address.kind != ENGINE_PARAM || strcmp(f->parts->address.key, "fp32"))
		return false;
	*lp = e->catalog->params[f->parts->address.param].dtype;
	if (!dtype_convert(*lp, NULL, f->parts->dtype, NULL, 0))
		return true;
	log_warn("no way from %s to %s: the low-precision copy keeps its old bytes",
		 frag_dtype_name(f->parts->dtype), frag_dtype_name(*lp));
	return false;
}

static int add_write(struct engine *e, struct transaction *c, const struct engine_write *w)
{
	enum frag_dtype lp = FRAG_F32;
	bool follows = stage_lp_follows(e, w->file, &lp);
	int rc = 0;

	for (size_t i = 0; i < w->nextents && !rc; i++) {
		const struct engine_extent *x = &w->extents[i];

		if (x->offset > w->file->bytes || x->size > w->file->bytes - x->offset)
			return -EFBIG;
		if (!x->size)
			continue;
		c->sources[c->nsources++] = (struct stage_source){ w->file, false,   x->offset,
								   x->size, x->data, NULL };
		c->bytes += x->size;
		if (follows)
			rc = add_lp_source(e, c, w, i, lp);
	}
	return rc;
}

static int add_writes(struct engine *e, struct transaction *c, struct stored_write *writes,
		      size_t n)
{
	size_t room = 1;
	int rc = 0;

	for (size_t i = 0; i < n; i++)
		room += writes[i].write.nextents * 2;
	c->sources = calloc(room, sizeof(*c->sources));
	if (!c->sources)
		return -ENOMEM;
	for (size_t i = 0; i < n && !rc; i++) {
		size_t first = c->nsources;

		rc = add_write(e, c, &writes[i].write);
		if (c->nsources > first) { /* the write's first source owns the bytes of all */
			c->sources[first].owned = writes[i].bytes;
			writes[i].bytes = NULL;
		}
	}
	return rc;
}

int stage_add_writes(struct engine *e, struct transaction *c, const struct engine_write *writes,
		     size_t n)
{
	struct stored_write *stored = calloc(n, sizeof(*stored));
	int rc = stored ? 0 : -ENOMEM;

	for (size_t i = 0; i < n && !rc; i++)
		rc = stored_write_init(&stored[i], &writes[i]);
	if (!rc)
		rc = add_writes(e, c, stored, n);
	for (size_t i = 0; i < n && stored; i++)
		stored_write_fini(&stored[i]);
	free(stored);
	return rc;
}

void stage_free(struct transaction *c)
{
	struct stage_edge *edge;

	while ((edge = c->edges)) {
		c->edges = edge->next;
		free(edge);
	}
	for (size_t i = 0; i < c->nsources; i++)
		free(c->sources[i].owned);
	free(c->sources);
	free(c->items.items);
	free(c->computes.items);
	free(c->proposal.holders);
	free(c);
}

/* ---- items: with the lock ---- */

struct see {
	struct engine *e;
	struct transaction *c;
	const struct stage_source *source;
};

struct stage_item *stage_add_item(struct transaction *c, const struct plan_piece *piece)
{
	struct stage_item *item = vec_add(&c->items, sizeof(*item));
	uint32_t *holder = &c->proposal.holders[piece->rank];

	if (!item)
		return NULL;
	if (!*holder)
		c->proposal.commit.count++;
	*item = (struct stage_item){ .rank = piece->rank,
				     .row = piece->row,
				     .turn = (*holder)++ };
	return item;
}

static int see_piece(void *arg, const struct plan_piece *piece)
{
	struct see *s = arg;
	uint64_t most =
		writer_memory_is_copied(s->e, piece->rank) ? WIRE_COPIED_MAX : WIRE_CHUNK;

	for (uint64_t done = 0; done < piece->size; done += most) {
		struct stage_item *item = stage_add_item(s->c, piece);

		if (!item)
			return -ENOMEM;
		item->size = (uint32_t)u64_min(most, piece->size - done);
		item->offset = piece->offset + done;
		item->data = s->source->data + piece->at + done;
	}
	return 0;
}

static int plan_source(struct engine *e, struct transaction *c,
		       const struct stage_source *source)
{
	struct engine_address address = source->file->parts->address;
	struct see see = { e, c, source };
	int rc;

	if (source->lp)
		strcpy(address.key, "lp");
	rc = plan_write(e, &address, c->start_ns, source->offset, source->size, see_piece,
			&see);
	return source->lp && rc == -ENOENT ? 0 : rc; /* no rank keeps a copy */
}

/* Ranks get their items in turns, so that they unpack and check at the same time. */
static int by_turn(const void *a, const void *b)
{
	const struct stage_item *x = a, *y = b;

	if (x->turn != y->turn)
		return x->turn < y->turn ? -1 : 1;
	return x->rank < y->rank ? -1 : x->rank > y->rank;
}

int stage_plan(struct engine *e, struct transaction *c)
{
	struct proposal *p = &c->proposal;
	int rc = 0;

	c->items.count = c->computes.count = c->sent = 0;
	p->commit.count = 0;
	if (!p->holders && !(p->holders = calloc(e->world, sizeof(*p->holders))))
		return -ENOMEM;
	memset(p->holders, 0, e->world * sizeof(*p->holders));
	for (size_t i = 0; i < c->nsources && !rc; i++)
		rc = plan_source(e, c, &c->sources[i]);
	if (!rc && c->write->operation)
		rc = stage_plan_operation(e, c);
	if (!rc && c->items.count)
		qsort(c->items.items, c->items.count, sizeof(struct stage_item), by_turn);
	p->commit.transaction[1] = ++e->commit.newest;
	return rc;
}
