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
 * A file is what it was when its size, the time of its last change and the XXH3-128 of its first and last 16 KiB are
 * (64, 64, 32, 128 bits): a copy that keeps times is.  Head and commits begin at multiples of 64.  Checksums are
 * XXH3-64, those in commits with the head's for a seed; numbers are little-endian.
 *
 * What a commit has is on disk before its first 64 bytes are written, in one sector: where these are zeros, or the
 * file ends before, it never was one.  Anything else that is not right is damage.  Who reads one believes nothing.
 */

#include "engine/checkpoint/edit/patch.h"

#include <stdatomic.h>

#define REDO_NAME "fragfs-overlay"

enum { REDO_IDENTITY = 36 };

struct redo_file {
	char *name;
	uint8_t identity[REDO_IDENTITY];
	uint8_t written[REDO_IDENTITY]; /* where redo.written */
};

struct redo {
	char *path; /* of the folder, for people */
	int dir;    /* locked */
	bool busy;  /* it is not: somebody else has it mounted */
	int fd;     /* the log; -1: there is none, and what follows is 0 */
	char *over; /* the checkpoint's folder */
	struct redo_file *files;
	uint32_t nfiles;
	uint64_t edits;
	struct layer layer; /* what they made */
	bool written;       /* the last commit is of that kind */
	bool torn;          /* what may be behind the last commit is none */
	uint64_t end;       /* of the edits */
	uint64_t seed;
	/* Between redo_begin and redo_end: */
	struct list next; /* of the layer */
	uint64_t next_end;
	uint8_t commit[64];
};

enum redo_use {
	REDO_LOOK, /* also while others have it mounted */
	REDO_CHANGE,
	REDO_REMOVE, /* its log is not read */
};

/* -EBUSY: others have it mounted; -EBADMSG: it is damaged; -ENOTDIR ... */
int redo_open(struct redo **r, const char *path, enum redo_use use, char *why, size_t whysize);
void redo_close(struct redo *r);

/* What the log's files are, of which the table has those of the same names; the table's are claimed. */
enum redo_match { REDO_SAME, REDO_SAME_AS_WRITTEN, REDO_OTHER };
/* -errno.  With a line where it is REDO_OTHER. */
int redo_match(struct redo *r, const struct table *t, char *why, size_t whysize);

/* A log of these files, whose folder is `over`: the one there is, or a new one.  -ESTALE: it is of others;
 * -ENOTEMPTY: there are other things in its folder.
 */
int redo_bind(struct redo *r, const struct table *t, const char *over, char *why,
	      size_t whysize);
/* -ENOTEMPTY: other things are in its folder. */
int redo_check_alone(const struct redo *r);
/* Whether its folder is that one, or below it. */
bool redo_is_in(const struct redo *r, int folder);

/* Reads what the patches replace, seals them and has them on disk, as no commit yet.  On error nothing has changed.
 * -ECANCELED: *cancelled became true.
 */
int redo_begin(struct redo *r, struct patches *p, const _Atomic bool *cancelled);
/* They are a commit, and the layer has them: nobody looks at it now.  On error neither is so after redo_drop. */
int redo_end(struct redo *r);
int redo_drop(struct redo *r);

/* The table's files, the log's, have all edits.  As redo_begin and redo_end in one. */
int redo_note_written(struct redo *r, const struct table *t);
/* There is no log any more.  -ENOENT: there was none. */
int redo_remove(struct redo *r);

/* ---- of overlay-log-read.c ---- */

/* Of the log that r->fd is. */
int redo_read(struct redo *r, char *why, size_t whysize);

#endif
