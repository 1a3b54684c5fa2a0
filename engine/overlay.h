/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_OVERLAY_H
#define ENGINE_OVERLAY_H

/* Overlays: folders with edits of a checkpoint, made by a mount (engine_options.overlay), and
 * what becomes of them.
 */

#include "engine/base/base.h"

struct overlay_file {
	char *name;     /* below the checkpoint's folder */
	uint64_t bytes; /* that are not the file's own */
};

struct overlay {
	char *path;
	char *checkpoint; /* NULL: it has no edits, and what follows is 0 */
	bool mounted;
	uint64_t edits, bytes;
	struct overlay_file *files; /* those that have edits */
	uint32_t nfiles;
};

/* On error why has one line, and *o nothing to free.  -ENOENT, -EBADMSG: its log is damaged,
 * and so on.
 */
int overlay_look(struct overlay *o, const char *path, char *why, size_t whysize);
void overlay_fini(struct overlay *o);

/* Writes the edits into the checkpoint, NULL: where it was, all or nothing, and forgets them;
 * *o: what they were. -EBUSY: the overlay or the checkpoint is mounted; -ESTALE: the checkpoint
 * has changed; -ENODATA: no edits.
 */
int overlay_commit(struct overlay *o, const char *path, const char *checkpoint, char *why,
		   size_t whysize);
/* Forgets them, whatever they are.  -EBUSY: it is mounted; -ENODATA. */
int overlay_discard(const char *path, char *why, size_t whysize);

#endif
