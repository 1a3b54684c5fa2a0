/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_PAGES_H
#define FS_PAGES_H

/* Pages of the kernel.  sendfile(2), splice(2) and private mappings read a file through pages
 * that all open files of an inode share, also where the file is opened with direct_io; but each
 * open file shows a generation of its own.  So the open files that use an inode's pages read
 * from one engine's file, and a file that is opened while they do gets another inode: OPEN is
 * ESTALE, for which the kernel looks the name up again, and LOOKUP finds another of the inodes
 * of that file (struct node, alias).
 */

#include "fs/handle.h"

/* Chooses, for a LOOKUP by thread `opener`, an inode of the file whose pages are not in use. */
void pages_choose_inode(struct fs *fs, struct node *n, pid_t opener);

/* Admits an opened file to fs->handles.  With fs->lock.
 * -ESTALE: the pages of its inode are in use.  Not if the same thread has been refused, and
 * comes to an inode in use once more, as by /proc/self/fd: then the file reads what those read
 * that use the pages.
 */
int pages_admit(struct handle *h, pid_t opener);

/* Prepares a READ that fills a page.  The first one of an inode settles from which engine's
 * file all reads go: that of the newest of its open files, for each that has read nothing yet.
 * -EINVAL: h may write, or has read another generation; programs then use read(2).
 */
int pages_use(struct handle *h);

#endif
