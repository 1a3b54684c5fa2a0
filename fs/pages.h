/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_PAGES_H
#define FS_PAGES_H

/* Pages of the kernel.  sendfile(2), splice(2) and private mappings read a file through pages
 * that all open files of an inode share, even if they are opened with direct_io; but each open
 * file shows a generation of its own.  So the open files that use an inode's pages read from
 * one engine's file, and a file that is opened meanwhile gets another inode: OPEN fails with
 * ESTALE, for which the kernel looks the name up again, and LOOKUP gives another of the inodes
 * of that file (struct node, alias).
 */

#include "fs/handle.h"

/* Chooses, for a LOOKUP by thread `opener`, an inode of the file whose pages are not in use. */
void pages_choose_inode(struct fs *fs, struct node *n, pid_t opener);

/* Admits an opened file to fs->handles.  With fs->lock.
 * -ESTALE: the pages of its inode are in use.  A thread is refused once: if its next open(2)
 * finds an inode in use again, as by /proc/self/fd, the file is admitted, and reads from the
 * engine's file of the inode's users.
 */
int pages_admit(struct handle *h, pid_t opener);

/* Prepares a READ that fills a page.  The first such READ of an inode chooses the engine's file
 * for all: that of the newest open file, for every open file that has read nothing yet.
 * -EINVAL: h may write, or has read another generation; programs then use read(2).
 */
int pages_use(struct handle *h);

#endif
