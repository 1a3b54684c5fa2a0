/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_CHECKPOINT_H
#define ENGINE_CHECKPOINT_CHECKPOINT_H

/* A checkpoint behind the door (engine/engine-ops.h): a table of what its files hold, and
 * reading them.  With an editor, edits change bytes in the files; nothing else of it changes
 * while it is open.
 */

#include "engine/checkpoint/opened.h"

/* options->source is a folder or a file.  An edit of it that was interrupted is undone first.
 * -EINVAL: it is none we know, or damaged; -EBUSY: others have it mounted, or edit it; -ENOENT
 * and so on.
 */
int checkpoint_open(struct engine **e, const struct engine_options *options, char *why,
		    size_t whysize);
/* The same with a finished table, which is taken, of files in the folder options->source. */
int checkpoint_open_table(struct engine **e, const struct engine_options *options,
			  struct table *table, char *why, size_t whysize);
/* Whether an edit was interrupted, which opening undoes: that needs the right to write, in any
 * case.
 */
bool checkpoint_is_unfinished(const char *path, const char *format);
/* The same over a table, finished, that is taken.  disk: NULL: the best that the machine lets
 * us.
 */
int checkpoint_new(struct engine **e, const char *path, const char *format, struct table *table,
		   const struct disk_ops *disk);

void checkpoint_close(struct engine *e);

char *checkpoint_text(struct engine *e, const char *what);
void checkpoint_fragments(struct engine *e, uint32_t param, const char *key,
			  void (*see)(void *arg, const struct engine_fragment *f), void *arg);

#endif
