/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_TABLE_TABLE_INTERNAL_H
#define ENGINE_CHECKPOINT_TABLE_TABLE_INTERNAL_H

/* The inside of the table, for the files table*.c alone. */

#include "engine/checkpoint/table/box.h"
#include "engine/checkpoint/table/table.h"

/* The key of a state that table_add_copy() made; no state that is shown has it. */
#define TABLE_COPY_KEY "(copy)"

/* Adds a state fp32 with the pieces of the state `of`. */
int table_widen(struct table *t, const struct table_state *of);

static inline int table_compare_partition(const struct table_partition *p, uint32_t rank,
					  uint32_t group, uint32_t sub)
{
	if (p->rank != rank)
		return p->rank < rank ? -1 : 1;
	if (p->group != group)
		return p->group < group ? -1 : 1;
	return (p->sub > sub) - (p->sub < sub);
}

static inline struct box table_box(const struct table *t, const struct table_state *s,
				   const uint64_t *offsets)
{
	const struct table_tensor *x = &t->tensors[s->tensor];

	return (struct box){ x->ndim, table_shape(t, x), offsets, offsets + x->ndim };
}

static inline struct box table_piece_box(const struct table *t, const struct table_state *s,
					 const struct table_piece *p)
{
	return table_box(t, s, t->numbers + p->first);
}

/* The elements of an equal state that each rank has room for. */
static inline uint64_t table_share(const struct table *t, const struct table_state *s)
{
	return u64_div_ceil(t->tensors[s->tensor].numel, s->n);
}

#endif
