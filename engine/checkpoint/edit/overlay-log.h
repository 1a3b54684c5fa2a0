/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_EDIT_OVERLAY_LOG_H
#define ENGINE_CHECKPOINT_EDIT_OVERLAY_LOG_H

/* An overlay: a folder with one log of edits of a checkpoint, whose own files stay as they are.
 *
 *	head | commit | commit ...
 *
 *	head	magic (8 bytes), version, files (32 bits each), its size (64 bits), length of the path (16 bits), zeros
 *		(48); the path of the checkpoint's folder; files; zeros; checksum, the last 8 bytes
 *	file	identity, length of its name (16 bits), name below that folder
 *	commit	kind, ranges (32 bits each), bytes, number from 1 on, checksum of what follows (64 bits each), zeros
 *		(24 bytes), checksum of these 56 bytes; then
 *		an edit:	ranges: offset, size (64 bits each), file (32 bits), sorted; their new bytes
 *		written:	the identities of all files when the edits before it had been written to them
 *
 * A file is what it was when its size, the time of its last change and the XXH3-128 of its
 * first and last 16 KiB are (64, 64, 32, 128 bits): a copy that keeps times is.  Head and
 * commits begin at multiples of 64.  Checksums are XXH3-64, those in commits with the head's
 * for a seed; numbers are little-endian.
 *
 * What a commit has is on disk before its first 64 bytes are written, in one sector: where
 * these are zeros, or the file ends before, it never was one.  Anything else that is not right
 * is damage.  Who reads one believes nothing.
 */

#include "engine/checkpoint/edit/patch.h"

#include <stdatomic.h>

#define OVERLAY_LOG_NAME "fragfs-overlay"

enum { OVERLAY_LOG_IDENTITY = 36 };

struct overlay_log_file {
	char *name;
	uint8_t identity[OVERLAY_LOG_IDENTITY];
	uint8_t written[OVERLAY_LOG_IDENTITY]; /* where redo.written */
};

struct overlay_log {
	char *path; /* of the folder, for people */
	int dir;    /* locked */
	bool busy;  /* it is not: somebody else has it mounted */
	int fd;     /* the log; -1: there is none, and what follows is 0 */
	char *over; /* the checkpoint's folder */
	struct overlay_log_file *files;
	uint32_t nfiles;
	uint64_t edits;
	struct overlay_map map; /* what they made */
	bool written;           /* the last commit is of that kind */
	bool torn;              /* what may be behind the last commit is none */
	uint64_t end;           /* of the edits */
	uint64_t seed;
	/* Between overlay_log_begin and overlay_log_end: */
	struct vec next_map; /* ranges of the map with the new edit */
	uint64_t next_end;
	uint8_t commit[64];
};

enum overlay_log_use {
	OVERLAY_LOG_LOOK, /* also while others have it mounted */
	OVERLAY_LOG_CHANGE,
	OVERLAY_LOG_REMOVE, /* its log is not read */
};

/* -EBUSY: others have it mounted; -EBADMSG: it is damaged; -ENOTDIR ... */
int overlay_log_open(struct overlay_log **r, const char *path, enum overlay_log_use use,
		     char *why, size_t whysize);
void overlay_log_close(struct overlay_log *r);

/* What the log's files are, of which the table has those of the same names; the table's are
 * claimed.
 */
enum overlay_log_match { OVERLAY_LOG_SAME, OVERLAY_LOG_SAME_AS_WRITTEN, OVERLAY_LOG_OTHER };
/* -errno.  With a line where it is OVERLAY_LOG_OTHER. */
int overlay_log_match(struct overlay_log *r, const struct table *t, char *why, size_t whysize);

/* A log of these files, whose folder is `over`: the one there is, or a new one.  -ESTALE: it is
 * of others; -ENOTEMPTY: there are other things in its folder.
 */
int overlay_log_bind(struct overlay_log *r, const struct table *t, const char *over, char *why,
		     size_t whysize);
/* -ENOTEMPTY: other things are in its folder. */
int overlay_log_check_alone(const struct overlay_log *r);
/* Whether its folder is that one, or below it. */
bool overlay_log_is_in(const struct overlay_log *r, int folder);

/* Reads what the patches replace, seals them and has them on disk, as no commit yet.  On error
 * nothing has changed. -ECANCELED: *cancelled became true.
 */
int overlay_log_begin(struct overlay_log *r, struct patches *p, const _Atomic bool *cancelled);
/* They are a commit, and the layer has them: nobody looks at it now.  On error neither is so
 * after overlay_log_drop.
 */
int overlay_log_end(struct overlay_log *r);
int overlay_log_drop(struct overlay_log *r);

/* The table's files, the log's, have all edits.  As overlay_log_begin and overlay_log_end in
 * one.
 */
int overlay_log_note_written(struct overlay_log *r, const struct table *t);
/* There is no log any more.  -ENOENT: there was none. */
int overlay_log_remove(struct overlay_log *r);

/* ---- of overlay-log-read.c ---- */

/* Of the log that r->fd is. */
int overlay_log_read(struct overlay_log *r, char *why, size_t whysize);

#endif
