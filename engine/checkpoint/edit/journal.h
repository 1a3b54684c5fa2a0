/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_EDIT_JOURNAL_H
#define ENGINE_CHECKPOINT_EDIT_JOURNAL_H

/* The undo journal of an edit in place: a file in the checkpoint's folder with the bytes that
 * the edit replaces.  Whoever finds a journal undoes the edit, which was interrupted.
 *
 * The journal is written and synced as JOURNAL_NEW, which recovery ignores, and renamed to
 * JOURNAL_NAME before the first byte changes.  It is removed when all new bytes are on disk.
 *
 *      header | files | ranges | old bytes | checksum
 *
 *      header          magic (8 bytes), version, number of files (32 bits each),
 *                      number of ranges, of old bytes (64 bits each)
 *      file            inode, size (64 bits each), time of its last change (seconds, 64 bits,
 *                      and nanoseconds, 32 bits), length of its path (16 bits), path below
 *                      the folder
 *      range           offset, size (64 bits each), file (32 bits); sorted, disjoint
 *      checksum        the CRC-32 of all before it
 *
 * Numbers are little-endian.  The reader checks everything: anybody may have written the file.
 */

#include "engine/checkpoint/edit/patches.h"

#include <stdatomic.h>

#define JOURNAL_NAME ".fragfs-journal"
#define JOURNAL_NEW ".fragfs-journal.new"
#define JOURNAL_MAGIC "fragfs\x8a\n"

enum { /* sizes are bytes */
       JOURNAL_VERSION = 2,
       JOURNAL_HEADER = 32,
       JOURNAL_FILE = 30, /* a file's row, without its path */
       JOURNAL_RANGE = 20,
       JOURNAL_CHECKSUM = 4,
};

/* A folder has one edit at a time: the caller of each function holds fd_lock() of the folder.
 */
bool journal_is_there(int dir);

/* Reads the bytes that the patches replace, seals the patches, and puts the journal on disk.
 * On error nothing has changed.
 * -ECANCELED: *cancelled became true.
 */
int journal_begin(int dir, struct patches *p, const _Atomic bool *cancelled);
/* Removes the journal: the edit is committed.  On error the journal is still there. */
int journal_end(int dir);

/* Writes the old bytes and times back and removes the journal.  With a table, the bytes go
 * through its open files; without (NULL), files are opened by name and locked meanwhile.  On
 * error `why` has a line and the undo can be tried again.
 */
int journal_undo(int dir, const struct table *table, char *why, size_t whysize);

#endif
