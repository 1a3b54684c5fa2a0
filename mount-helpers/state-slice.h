/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_STATE_SLICE_H
#define MOUNT_HELPERS_STATE_SLICE_H

/* A state of a parameter, or a slice of it, as fragctl get and set take it:
 * PARAM[/STATE][SLICE], such as layers.0.weight/fp32[0:4,:8].
 */

#include "engine/base/slice.h"
#include "mount-helpers/state-file.h"

struct state_slice {
	struct params params;
	const struct param *param; /* one of params */
	char state[FRAG_KEY_MAX + 1];
	char slice_text[256]; /* without blanks; "": the whole state */
	struct slice slice;
	struct state_file file;
	/* the mount's file of the slice, in place of `file`; -1: not open */
	int gathered;
};

/* Finds and opens the state or slice `text`, with flags of open(2).  Without a STATE it opens
 * the parameter's main state, but only to read.  Returns the exit status; errors were printed.
 */
int state_slice_open(struct state_slice *p, const char *mountpoint, const char *text,
		     int flags);
void state_slice_close(struct state_slice *p);

/* Returns the descriptor by which elements are written: fsync(2) commits them. */
int state_slice_fd(const struct state_slice *p);

/* Opens the slice as the mount shows it to numpy, STATE[SLICE].npy.  Returns a descriptor, or
 * -errno.
 */
int state_slice_open_npy(const struct state_slice *p, const char *mountpoint);

/* Reads or writes n elements from number k of the slice on.
 * -errno: errors of read(2) and write(2).
 */
int state_slice_read(const struct state_slice *p, uint64_t k, void *into, uint64_t n);
int state_slice_write(const struct state_slice *p, uint64_t k, const void *from, uint64_t n);

#endif
