/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_CHECKPOINT_H
#define ENGINE_CHECKPOINT_CHECKPOINT_H

/* A checkpoint behind the door (engine/door.h): a table of what its files hold, and reading them.  Nothing
 * of it changes while it is open; it is not written.
 */

#include "engine/checkpoint/table.h"
#include "engine/disk.h"
#include "engine/door.h"

#include <pthread.h>
#include <stdatomic.h>

struct fetch;

struct checkpoint {
	struct door door; /* first, as door.h wants it */
	char *path;
	const char *format; /* of the source that knew it */
	struct table *table;
	const struct disk_ops *disk_ops;
	struct disk *disk;
	_Atomic uint64_t reads, read_bytes, read_errors;
	_Atomic uint64_t from_cache, from_disk; /* requests */
	pthread_mutex_t lock;                   /* of all below */
	pthread_cond_t idle;                    /* nothing is under way */
	struct fetch *free;
	unsigned nfree;
	struct fetch *underway;
};

struct engine_file {
	struct engine *engine; /* first, as door.h wants it */
	struct checkpoint *checkpoint;
	const struct table_state *state;
	double hyper;
	bool is_hyper;
	bool of_rank; /* what one rank holds of it */
	uint32_t rank;
	uint64_t bytes;
};

static inline struct checkpoint *checkpoint_of(struct engine *e)
{
	return (struct checkpoint *)e;
}

/* Opens a folder or a file.  source: the format, "auto" or NULL.  -EINVAL: it is none we know, or damaged;
 * -ENOENT and so on.
 */
int checkpoint_open(struct engine **e, const char *path, const char *source, char *why,
		    size_t whysize);
/* The same over a table, finished, that is taken.  disk: NULL: the best that the machine lets us. */
int checkpoint_new(struct engine **e, const char *path, const char *format, struct table *table,
		   const struct disk_ops *disk);

char *checkpoint_text(struct engine *e, const char *what);
void checkpoint_fragments(struct engine *e, uint32_t param, const char *key,
			  void (*see)(void *arg, const struct engine_fragment *f), void *arg);

#endif
