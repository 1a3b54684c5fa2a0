/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_EDIT_FILE_LOCK_H
#define ENGINE_CHECKPOINT_EDIT_FILE_LOCK_H

/* A mount's right to a table's files: locks (flock) on each as long as it is open, shared by
 * those who read, of one alone who writes; and whether they are still the files that were
 * mounted.
 */

#include "engine/checkpoint/table/table.h"

/* Both wait some seconds for locks.  Where the machine has none, the log says so.  -EBUSY:
 * somebody edits them.
 */
int file_lock_to_read(struct table *t, char *why, size_t whysize);
/* Opens the files again, for writing too, by their names below dir.  -EBUSY: somebody has them
 * mounted; -EMLINK: a file has hard links; -ESTALE: it is another one; -EACCES, -EROFS,
 * -ENOTSUP and so on.
 */
int file_lock_to_write(struct table *t, int dir, char *why, size_t whysize);

void file_lock_drop(struct table *t);

/* -ESTALE: replaced, or changed by others than file_lock_renew knows of; the log says so, once.
 */
int file_lock_check(struct table_file *f);
/* The same, and whether its name still leads to it, and no other does. */
int file_lock_check_name(struct table_file *f, int dir);
/* What is there now is what it is checked against. */
int file_lock_renew(struct table_file *f);

#endif
