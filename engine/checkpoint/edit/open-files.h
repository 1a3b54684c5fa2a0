/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_EDIT_OPEN_FILES_H
#define ENGINE_CHECKPOINT_EDIT_OPEN_FILES_H

/* Opens a checkpoint's files for a mount: finds the folder, undoes an edit that was
 * interrupted, and locks the files (file-lock.h).
 */

#include "engine/checkpoint/table/folder.h"
#include "engine/checkpoint/table/table.h"

/* Opens the folder or file at `path`, or the subfolder that a file `latest` in it names.
 * format: the user's choice; for "universal" the file is latest_universal; NULL: any.
 */
int open_files_folder(struct folder **f, const char *path, const char *format, char *why,
		      size_t whysize);
/* Opens the folder that the files are in, where an edit has its journal.  -1: it cannot be
 * opened.
 */
int open_files_dir(const struct folder *f);
/* Returns true if the folder has the journal of an interrupted edit.  dir is that of
 * open_files_dir().
 */
bool open_files_is_unfinished(const struct folder *f, int dir);
/* Returns the path of the folder that the files are in, the caller's to free.  NULL: there is
 * no such path, or no memory.
 */
char *open_files_path(const struct folder *f);
/* Gives a table of one file the name that the file has in its own folder: the user's path may
 * have been a symbolic link.
 */
int open_files_real_name(struct table *t, const struct folder *f);
/* Undoes an interrupted edit and locks the files, for reading or writing (file-lock.h, whose
 * errors it returns).
 * -EBUSY: another mount has the files locked, or edits them.
 */
int open_files_lock(struct table *t, const struct folder *f, int dir, bool writable, char *why,
		    size_t whysize);

#endif
