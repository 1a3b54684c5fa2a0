/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_EDIT_OPEN_FILES_H
#define ENGINE_CHECKPOINT_EDIT_OPEN_FILES_H

/* A folder's files for a mount: an edit that was interrupted is undone, then they are claimed
 * (file-lock.h).
 */

#include "engine/checkpoint/table/folder.h"
#include "engine/checkpoint/table/table.h"

/* The folder or file itself, or the folder in it that `latest` names.  format: NULL: any. */
int open_files_folder(struct folder **f, const char *path, const char *format, char *why,
		      size_t whysize);
/* The folder that the files are in: where an edit's journal is.  -1: it cannot be opened. */
int open_files_dir(const struct folder *f);
/* Whether an edit was interrupted.  dir: as open_files_dir has it. */
bool open_files_is_unfinished(const struct folder *f, int dir);
/* That folder's path, the caller's to free; NULL: there is none, or no memory. */
char *open_files_path(const struct folder *f);
/* A link may have led to the one file: in its own folder it has another name. */
int open_files_real_name(struct table *t, const struct folder *f);
/* -EBUSY: others have them, or edit them; as file_lock_to_read, file_lock_to_write. */
int open_files_lock(struct table *t, const struct folder *f, int dir, bool writable, char *why,
		    size_t whysize);

#endif
