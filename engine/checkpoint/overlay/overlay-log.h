/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_OVERLAY_OVERLAY_LOG_H
#define ENGINE_CHECKPOINT_OVERLAY_OVERLAY_LOG_H

/* The log of an overlay.  An overlay is a folder with one redo log of edits of a checkpoint,
 * whose own files are never written (copy on write).
 *
 *      head | commit | commit ...
 *
 *      head    magic (8 bytes), version, number of files (32 bits each), size of the head (64
 *              bits), length of the path (16 bits), zeros (48 bits); the path of the
 *              checkpoint's folder; files; zeros; checksum, the last 8 bytes
 *      file    identity, length of its name (16 bits), name below that folder
 *      commit  kind, number of ranges (32 bits each), number of bytes, number of the commit
 *              from 1 on, checksum of what follows the first 64 bytes (64 bits each), zeros
 *              (24 bytes), checksum of these 56 bytes; then
 *              edit:    ranges (offset, size, 64 bits each, file, 32 bits), sorted; new bytes
 *              written: the identities of all files after all edits were written to them
 *
 * A file's identity is its size, the time of its last change and the XXH3-128 of its first and
 * last 16 KiB (64, 64 and 32, 128 bits); a copy that keeps times has the same one.  Head and
 * commits begin at multiples of 64.  Checksums are XXH3-64; those in commits are seeded with
 * the head's.  Numbers are little-endian.
 *
 * A commit is on disk before its first 64 bytes are written, which lie in one sector.  A commit
 * whose first bytes are zeros, or cut off by the end of the log, never took place.  Any other
 * misfit is damage.  The reader trusts nothing: anybody may have written the log.
 */

#include "engine/checkpoint/edit/patches.h"

#include <stdatomic.h>

#define OVERLAY_LOG_NAME "fragfs-overlay"
#define OVERLAY_LOG_MAGIC "fragfs\x8b\n"
#define OVERLAY_LOG_NEW OVERLAY_LOG_NAME ".new"

enum { /* sizes are bytes */
       OVERLAY_LOG_IDENTITY = 36,
       OVERLAY_LOG_VERSION = 1,
       OVERLAY_LOG_ALIGN = 64,
       OVERLAY_LOG_HEAD = 32, /* the path and the files follow */
       OVERLAY_LOG_HEAD_MAX = 1 << 26,
       OVERLAY_LOG_FILE = 38, /* a file's row, its name follows */
       OVERLAY_LOG_COMMIT = 64,
       OVERLAY_LOG_COMMIT_SUMMED = 56,
       OVERLAY_LOG_RANGE = 20,
       OVERLAY_LOG_SUM = 8,
       OVERLAY_LOG_CHUNK = 1 << 20, /* bytes that are written or read at once */
};

enum overlay_log_kind { OVERLAY_LOG_EDIT = 1, OVERLAY_LOG_WRITTEN = 2 };

static inline uint64_t overlay_log_align(uint64_t at)
{
	return (at + OVERLAY_LOG_ALIGN - 1) / OVERLAY_LOG_ALIGN * OVERLAY_LOG_ALIGN;
}

struct overlay_log_file {
	char *name;
	uint8_t identity[OVERLAY_LOG_IDENTITY];
	uint8_t written[OVERLAY_LOG_IDENTITY]; /* after the edits were written to it */
};

struct overlay_log {
	char *path; /* of the folder, for people */
	int dir;    /* the folder; locked unless busy */
	bool busy;  /* OVERLAY_LOG_LOOK: another process has the overlay mounted */
	int fd;     /* the log; -1: there is none, and all below is 0 */
	char *over; /* the checkpoint's folder */
	struct overlay_log_file *files;
	uint32_t nfiles;
	uint64_t edits;
	struct overlay_map map; /* all edits, the newest above */
	bool is_new;            /* overlay_log_bind() made the log */
	bool written;           /* the last commit is of kind `written` */
	bool torn;              /* bytes behind the last commit are to be cut off */
	uint64_t end;           /* bytes up to the end of the last edit */
	uint64_t seed;          /* of checksums */
	/* Between overlay_log_begin() and overlay_log_end(): */
	struct vec next_map; /* ranges of the map with the new edit */
	uint64_t next_end;
	uint8_t commit[64]; /* the commit's first bytes, which are written last */
};

enum overlay_log_use {
	OVERLAY_LOG_LOOK,   /* read only, also while another process has the overlay mounted */
	OVERLAY_LOG_CHANGE, /* read and append; exclusive */
	OVERLAY_LOG_REMOVE, /* exclusive; the log is not read and may be damaged */
};

/* Opens the overlay in the folder at `path` and, but for OVERLAY_LOG_REMOVE, reads its log.
 * -EBUSY: another process has it mounted.
 * -EBADMSG: the log is damaged.
 * -ENOTDIR and others: the folder cannot be opened.
 */
int overlay_log_open(struct overlay_log **r, const char *path, enum overlay_log_use use,
		     char *why, size_t whysize);
/* Closes the overlay, and removes a log that overlay_log_bind() made and that has no edit. */
void overlay_log_close(struct overlay_log *r);

/* How the table's files, which are locked, compare with the files that the log is over. */
enum overlay_log_match {
	OVERLAY_LOG_SAME,
	OVERLAY_LOG_SAME_AS_WRITTEN, /* as the log's edits, written to them, left them */
	OVERLAY_LOG_OTHER,           /* `why` has a line */
};
/* Returns an enum overlay_log_match, or -errno. */
int overlay_log_match(struct overlay_log *r, const struct table *t, char *why, size_t whysize);

/* Binds the log to the table's files, whose folder is `over`: keeps a log that is over them,
 * and makes a new one if there is none or if all its edits were written to the files.
 * -ESTALE: the log is over other files.
 * -ENOTEMPTY: the overlay's folder has other files in it.
 */
int overlay_log_bind(struct overlay_log *r, const struct table *t, const char *over, char *why,
		     size_t whysize);
/* Checks that the overlay's folder has no file but the log.
 * -ENOTEMPTY: it has others.
 */
int overlay_log_check_alone(const struct overlay_log *r);
/* Returns true if the overlay's folder is `folder`, or below it. */
bool overlay_log_is_in(const struct overlay_log *r, int folder);

/* Reads the bytes that the patches replace, seals the patches, and puts them on disk behind the
 * log's end, not yet committed.  On error nothing has changed.
 * -ECANCELED: *cancelled became true.
 */
int overlay_log_begin(struct overlay_log *r, struct patches *p, const _Atomic bool *cancelled);
/* Commits these patches and replaces the map, which nobody may be reading.  On error the caller
 * calls overlay_log_drop(), after which the patches are not committed, unless that fails too.
 */
int overlay_log_end(struct overlay_log *r);
/* Cuts the log behind the last edit. */
int overlay_log_drop(struct overlay_log *r);

/* Commits that the table's files, which the log is over, have all its edits. */
int overlay_log_note_written(struct overlay_log *r, const struct table *t);
/* Removes the log from the folder.
 * -ENOENT: there was none.
 */
int overlay_log_remove(struct overlay_log *r);

#endif
