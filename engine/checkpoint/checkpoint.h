/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_CHECKPOINT_H
#define ENGINE_CHECKPOINT_CHECKPOINT_H

/* A checkpoint as an engine (engine/engine-ops.h): a table of the states in its files, reads of
 * these files and, with an editor, edits of them.  The table does not change while the
 * checkpoint is open.
 */

#include "engine/checkpoint/opened.h"

struct folder;

/* Opens the checkpoint at options->source, a folder or a file.  Undoes an interrupted edit
 * first.
 * -EINVAL: no format knows the checkpoint, or a file is damaged.
 * -EBUSY: another process has the checkpoint mounted, or edits it.
 * -ENOENT and others: a file cannot be opened.
 */
int checkpoint_open(struct engine **e, const struct engine_options *options, char *why,
		    size_t whysize);
/* Does checkpoint_open() for a finished table of the folder's files, as tests make them without
 * a format.  Takes the table, also on error.
 */
int checkpoint_open_table(struct engine **e, const struct engine_options *options,
			  const struct folder *f, const char *format, struct table *table,
			  char *why, size_t whysize);
/* Returns true if an edit of the checkpoint was interrupted.  checkpoint_open() undoes such an
 * edit, for which it needs the right to write, even for a mount that only reads.
 */
bool checkpoint_is_unfinished(const char *path, const char *format);
/* Makes an engine of a finished table, without an editor and without locks.  Takes the table,
 * also on error.  disk NULL: io_uring, or threads where there is none.
 */
int checkpoint_new(struct engine **e, const char *path, const char *format, struct table *table,
		   const struct disk_ops *disk);

#endif
