/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_CHECKPOINT_H
#define ENGINE_CHECKPOINT_CHECKPOINT_H

/* A checkpoint behind the door (engine/engine-ops.h): a table of what its files hold, and reading them.  With an
 * editor, edits change bytes in the files; nothing else of it changes while it is open.
 */

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
	struct engine_base door; /* first, as engine-ops.h wants it */
	char *path;
	const char *format; /* of the source that knew it */
	struct table *table;
	const struct disk_ops *disk_ops;
	struct disk *disk;
	_Atomic uint64_t reads, read_bytes, read_errors;
	_Atomic uint64_t from_cache, from_disk; /* requests */
	struct editor *editor;                  /* NULL: read-only */
	const struct overlay_map
		*layer;     /* edits beside the files; changes while the gate is shut; NULL */
	struct rwgate gate; /* reads are inside where there is an editor */
	bool broken; /* half of an edit is in the files; changes while the gate is shut */
	_Atomic uint64_t edits, edit_bytes, edit_errors;
	_Atomic uint64_t laid_ns; /* time of the last edit beside the files; 0: none */
	pthread_mutex_t
		lock; /* of all below, and of times of files for who is outside of the gate */
	pthread_cond_t idle; /* nothing is under way */
	struct fetch *free;
	unsigned nfree;
	struct fetch *underway;
	struct engine_file *files; /* open ones */
};

struct engine_file {
	struct engine *engine; /* first, as engine-ops.h wants it */
	const struct table_state *state;
	double hyper;
	bool is_hyper;
	bool of_rank; /* what one rank holds of it */
	uint32_t rank;
	uint64_t bytes;
	struct engine_file *next, **link;
	bool stale; /* an edit changed it; changes while the gate is shut */
};

static inline struct checkpoint *checkpoint_of(struct engine *e)
{
	return (struct checkpoint *)e;
}

/* options->source is a folder or a file.  An edit of it that was interrupted is undone first.  -EINVAL: it is
 * none we know, or damaged; -EBUSY: others have it mounted, or edit it; -ENOENT and so on.
 */
int checkpoint_open(struct engine **e, const struct engine_options *options, char *why,
		    size_t whysize);
/* The same with a finished table, which is taken, of files in the folder options->source. */
int checkpoint_open_table(struct engine **e, const struct engine_options *options,
			  struct table *table, char *why, size_t whysize);
/* Whether an edit was interrupted, which opening undoes: that needs the right to write, in any case. */
bool checkpoint_is_unfinished(const char *path, const char *format);
/* The same over a table, finished, that is taken.  disk: NULL: the best that the machine lets us. */
int checkpoint_new(struct engine **e, const char *path, const char *format, struct table *table,
		   const struct disk_ops *disk);

void checkpoint_close(struct engine *e);

char *checkpoint_text(struct engine *e, const char *what);
void checkpoint_fragments(struct engine *e, uint32_t param, const char *key,
			  void (*see)(void *arg, const struct engine_fragment *f), void *arg);

#endif
