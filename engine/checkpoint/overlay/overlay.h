/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_OVERLAY_OVERLAY_H
#define ENGINE_CHECKPOINT_OVERLAY_OVERLAY_H

/* Overlays, for fragctl: folders with edits of a checkpoint that a mount made
 * (engine_options.overlay).  They can be looked at, committed to the checkpoint, or discarded.
 */

#include "engine/base/base.h"

struct overlay_file {
	char *name;     /* below the checkpoint's folder */
	uint64_t bytes; /* that the overlay replaces */
};

struct overlay {
	char *path;
	/* the checkpoint's folder; NULL: no edits, and the fields below are 0 */
	char *checkpoint;
	bool mounted;
	uint64_t edits, bytes;
	struct overlay_file *files; /* files with edits */
	uint32_t nfiles;
};

/* Describes the overlay in the folder `path`.  On error `why` has one line, and *o nothing to
 * free.
 * -ENOENT: no such folder.
 * -EBADMSG: the log is damaged.
 */
int overlay_look(struct overlay *o, const char *path, char *why, size_t whysize);
void overlay_fini(struct overlay *o);

/* Writes the edits to the checkpoint's files, all or nothing, and empties the overlay.  *o
 * describes the overlay as it was.  checkpoint NULL: the path that the log has.
 * -EBUSY: the overlay or the checkpoint is mounted.
 * -ESTALE: the checkpoint has changed.
 * -ENODATA: the overlay has no edits.
 */
int overlay_commit(struct overlay *o, const char *path, const char *checkpoint, char *why,
		   size_t whysize);
/* Removes the log, which may be damaged.
 * -EBUSY: the overlay is mounted.
 * -ENODATA: the overlay has no log.
 */
int overlay_discard(const char *path, char *why, size_t whysize);

#endif
