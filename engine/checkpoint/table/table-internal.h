/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_TABLE_TABLE_INTERNAL_H
#define ENGINE_CHECKPOINT_TABLE_TABLE_INTERNAL_H

/* What the files of table share. */

#include "engine/checkpoint/table/box.h"
#include "engine/checkpoint/table/table.h"

/* No state that is shown has such a name. */
#define TABLE_COPY_KEY "(copy)"

/* Makes room for one more in an array of n. */
int table_room(void *array, uint32_t n, size_t size);

/* The number of a key of states, a new one if it has none.  -EINVAL; -ENOMEM. */
int table_key(struct table *t, const char *key);

/* Sorts the entries, drops what is there twice.  -EINVAL: some overlap. */
int table_finish_entries(struct table *t);

/* The state fp32, of the same elements as another. */
int table_widen(struct table *t, const struct table_state *of);

/* As strcmp. */
int table_compare_names(const struct table *t, const struct table_tensor *x, const char *name,
			const char *coordinate);

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

/* Of an equal state: what every rank has room for. */
static inline uint64_t table_share(const struct table *t, const struct table_state *s)
{
	return u64_div_ceil(t->tensors[s->tensor].numel, s->n);
}

#endif
