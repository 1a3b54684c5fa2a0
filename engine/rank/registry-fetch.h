/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_RANK_REGISTRY_FETCH_H
#define ENGINE_RANK_REGISTRY_FETCH_H

/* Fetches: asynchronous copies of versions of rows, for readers.  Any thread. */

#include "engine/rank/registry-version.h"

/* A copy of a version's bytes into the host's memory, or sums of them, which a device makes.
 * The struct stays where it is until `done` is called.
 */
struct registry_fetch {
	struct registry_version *version; /* the caller holds a reference */
	uint64_t offset, size;            /* bytes of the row, in the version */
	enum device_what what;            /* DEVICE_COPY, or a kind of sums */
	void *memory;                     /* of size bytes, or a struct device_sums */
	/* status: 0, or -errno of swapper_read or of the device's port.  Called by a thread of
	 * the disk or the device, or within registry_fetch_begin.
	 * -ENOSYS: the device has no kernels for sums.
	 */
	void (*done)(struct registry_fetch *f, int status);
	union { /* private to the tier */
		struct swapper_read swap;
		struct devices_copy device;
	};
};

/* Begins the fetch.  Does not call `done` on error.
 * -EOPNOTSUPP: sums of bytes that are not on a device, or are no whole elements there.
 * Errors of registry_version_preserve.
 */
int registry_fetch_begin(struct registry *r, struct registry_fetch *f);
/* Ends a fetch as soon as the disk permits; `done` is called all the same.  False: a device
 * ends the fetch by itself, and registry_fini must wait for it.
 */
bool registry_fetch_cancel(struct registry_fetch *f);
/* After `done`: logs why the fetch failed, unless the tier's port has logged it. */
void registry_fetch_log(struct registry_fetch *f);

#endif
