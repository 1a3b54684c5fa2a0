/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_OPENED_H
#define ENGINE_CHECKPOINT_OPENED_H

/* An open checkpoint and its open files, as its modules share them: checkpoint.c answers the
 * door, fetch.c reads, editor.c edits.
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
	const char *format; /* of the source that knew it */
	struct table *table;
	const struct disk_ops *disk_ops;
	struct disk *disk;
	_Atomic uint64_t reads, read_bytes, read_errors;
	_Atomic uint64_t from_cache, from_disk; /* requests */
	struct editor *editor;                  /* NULL: read-only */
	const struct overlay_map
		*overlay;   /* edits beside the files; changes while the gate is shut; NULL */
	struct rwgate gate; /* reads are inside where there is an editor */
	bool broken; /* half of an edit is in the files; changes while the gate is shut */
	_Atomic uint64_t edits, edit_bytes, edit_errors;
	_Atomic uint64_t overlay_ns; /* time of the last edit beside the files; 0: none */
	pthread_mutex_t
		lock; /* of all below, and of times of files for who is outside of the gate */
	pthread_cond_t idle;      /* nothing is under way */
	LIST_HEAD(, fetch) spare; /* kept for later requests */
	unsigned nspare;
	LIST_HEAD(, fetch) underway;
	LIST_HEAD(, checkpoint_file) files; /* open ones */
};

struct checkpoint_file {
	struct engine_member base;
	const struct table_state *state;
	double hyper;
	bool is_hyper;
	bool of_rank; /* what one rank holds of it */
	uint32_t rank;
	uint64_t bytes;
	LIST_ENTRY(checkpoint_file) entry;
	bool stale; /* an edit changed it; changes while the gate is shut */
};

static inline struct checkpoint *checkpoint_of(struct engine *e)
{
	return container_of((struct engine_base *)e, struct checkpoint, base);
}

static inline struct checkpoint_file *checkpoint_file_of(struct engine_file *f)
{
	return container_of((struct engine_member *)f, struct checkpoint_file, base);
}

#endif
