/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_EDIT_FILE_LOCK_H
#define ENGINE_CHECKPOINT_EDIT_FILE_LOCK_H

/* Locks (flock) on the files of a checkpoint and on the folder of an overlay.  Those on a
 * table's files are held while the files are open: shared by mounts that read, exclusive for
 * one that writes in place.  Also checks that the files are those that were mounted.
 */

#include "engine/checkpoint/table/table.h"

enum { FILE_LOCK_MS = 3000 }; /* how long a mount waits for its locks */

/* A process that holds a lock on a file. */
struct file_lock_holder {
	int pid;       /* 0: not known */
	char name[64]; /* "process 4711", "another process" */
};

struct file_lock_holder file_lock_holder(int fd);

/* Locks a file (how: LOCK_SH or LOCK_EX).  While another process holds the lock, waits until
 * until_ms (monotonic_ms), since the process of a mount outlives its umount(8) a little.  The
 * log says which file (`name`) is waited for.
 * -EBUSY: the file is still locked, or this process has it locked.
 * -ENOTSUP and others: the file system cannot lock.
 */
int file_lock_wait(int fd, int how, uint64_t until_ms, const char *name);

/* Takes shared locks on a table's files.  A file system without locks is logged, and no error.
 * -EBUSY: another mount edits the files.
 * -ESTALE: a file was replaced meanwhile.
 */
int file_lock_to_read(struct table *t, char *why, size_t whysize);
/* Opens the files for reading and writing, by their names below dir, and takes exclusive locks,
 * as file_lock_to_read() does.
 * -EBUSY: another process has them mounted.
 * -EMLINK: a file has hard links.
 * -ESTALE: a name leads to another file than before.
 * -ENOTSUP: the file system has no locks.
 * Other errors of open(2) and flock(2): a file cannot be opened or locked.
 */
int file_lock_to_write(struct table *t, int dir, char *why, size_t whysize);

void file_lock_drop(struct table *t);

/* Compares the file's size and time with those in *f.
 * -ESTALE: the file has been replaced or changed; the log says so, once.
 */
int file_lock_check(struct table_file *f);
/* Does file_lock_check(), and checks that the name below dir leads to the file and no other
 * link does.
 */
int file_lock_check_name(struct table_file *f, int dir);
/* Stores the file's present size and time in *f, after a change of our own. */
int file_lock_renew(struct table_file *f);

#endif
