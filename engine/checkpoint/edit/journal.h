/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_EDIT_JOURNAL_H
#define ENGINE_CHECKPOINT_EDIT_JOURNAL_H

/* What an edit is about to replace, in a file of the checkpoint's folder, so that an edit that
 * was interrupted is undone.  The folder has it under its name from before the first byte is
 * changed until the disks have all the new ones; it is written under another name, which means
 * nothing to anybody.
 *
 *	header | files | ranges | old bytes | checksum
 *
 *	header		magic (8 bytes), version, files (32 bits each), ranges, old bytes (64 bits each)
 *	file		inode, size, seconds (64 bits each) and nanoseconds (32 bits) of its last change, length of its
 *			path (16 bits), path below the folder
 *	range		offset, size (64 bits each), file (32 bits); sorted, apart from each other
 *	checksum	the CRC-32 of all before it
 *
 * Numbers are little-endian.  Who reads one believes nothing of it.
 */

#include "engine/checkpoint/edit/patch.h"

#include <stdatomic.h>

#define JOURNAL_NAME ".fragfs-journal"
#define JOURNAL_NEW ".fragfs-journal.new"

/* One edit at a time in a folder: all of these are called with fd_lock of it. */
bool journal_is_there(int dir);

/* Reads what the patches replace, seals them, and has all of it on disk.  On error nothing has
 * changed. -ECANCELED: *cancelled became true.
 */
int journal_begin(int dir, struct patches *p, const _Atomic bool *cancelled);
/* The edit stays; after an error the journal is still there. */
int journal_end(int dir);

/* Writes the old bytes and times back and removes the journal; the folder is locked.  With a
 * table: through its open files; else through files that are opened by name, and locked
 * meanwhile.  -errno, with a line: it can be tried again.
 */
int journal_undo(int dir, const struct table *table, char *why, size_t whysize);

#endif
