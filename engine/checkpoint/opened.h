/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_OPENED_H
#define ENGINE_CHECKPOINT_OPENED_H

/* An open checkpoint and its open files, shared by the modules of this folder: checkpoint.c
 * answers the calls of engine.h, fetch.c reads, editor.c edits.
 */

#include "engine/base/queue.h"
#include "engine/checkpoint/edit/rwgate.h"
#include "engine/checkpoint/table/table.h"
#include "engine/engine-ops.h"
#include "engine/swap/disk.h"

#include <pthread.h>
#include <stdatomic.h>

struct editor;
struct fetch;
struct overlay_map;

struct checkpoint {
	struct engine_base base;
	char *path;
	const char *format; /* the format's name */
	struct table *table;
	const struct disk_ops *disk_ops;
	struct disk *disk;
	_Atomic uint64_t reads, read_bytes, read_errors;
	_Atomic uint64_t from_cache, from_disk; /* reads */
	struct editor *editor;                  /* NULL: read-only */
	struct rwgate gate;                     /* with an editor, reads are inside */
	/* Change while the gate is shut: */
	const struct overlay_map *overlay; /* NULL: none */
	bool broken;                       /* an edit failed in the middle and was not undone */
	_Atomic uint64_t edits, edit_bytes, edit_errors;
	_Atomic uint64_t overlay_ns; /* time of the last edit in the overlay; 0: none */
	/* Guards all below, and the times of the table's files outside of the gate. */
	pthread_mutex_t lock;
	pthread_cond_t idle;      /* underway became empty */
	LIST_HEAD(, fetch) spare; /* kept for later reads */
	unsigned nspare;
	LIST_HEAD(, fetch) underway;
	LIST_HEAD(, checkpoint_file) files; /* open ones */
};

struct checkpoint_part {                 /* of an open file */
	const struct table_state *state; /* NULL: a hyper-parameter */
	double hyper;
	bool is_hyper;
	bool of_rank; /* only the elements that `rank` holds */
	uint32_t rank;
	uint64_t at, bytes; /* in the file */
};

/* An open file: one or more states, or what one rank holds of a state, or a hyper-parameter. */
struct checkpoint_file {
	struct engine_member base;
	uint64_t bytes;
	LIST_ENTRY(checkpoint_file) entry;
	bool stale; /* an edit changed a state; set while the gate is shut */
	uint32_t nparts;
	struct checkpoint_part parts[];
};

static inline struct checkpoint *opened_checkpoint(struct engine *e)
{
	return container_of((struct engine_base *)e, struct checkpoint, base);
}

/* Returns the number of the part that has the byte at offset, which is less than f->bytes. */
static inline uint32_t opened_part_at(const struct checkpoint_file *f, uint64_t offset)
{
	return (uint32_t)LOWER_BOUND(f->nparts, i,
				     f->parts[i].at + f->parts[i].bytes <= offset);
}

static inline struct checkpoint_file *opened_file(struct engine_file *f)
{
	return container_of((struct engine_member *)f, struct checkpoint_file, base);
}

#endif
