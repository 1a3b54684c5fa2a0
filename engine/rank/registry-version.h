/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_RANK_REGISTRY_VERSION_H
#define ENGINE_RANK_REGISTRY_VERSION_H

/* Versions of rows that are not in the host's memory, and asynchronous copies of them for
 * readers.  Any thread, but where said.
 *
 *   tier     a version is                                a fetch
 *   swap     a pin of the state, whose blocks stay       reads the disk
 *   device   live: a mark in the trainer's stream        copies behind the mark; look again
 *                                                        after it: they may have changed
 *            kept: bytes preserved before they changed   copies these
 *
 * A row in the host's memory has no versions: readers copy it at once, and views have buffers
 * of their own (engine/rank/view-owner.h).
 */

#include "engine/rank/devices.h"
#include "engine/rank/registry.h"
#include "engine/swap/swapper.h"

struct tier_ops;

struct registry_version {
	const struct tier_ops *tier;
	_Atomic unsigned users;
	union {
		struct {
			struct swapper *swapper;
			struct swapper_state *state;
			struct swapper_pin *pin;
			uint64_t row_at; /* byte of the state at which the row begins */
		} swap;
		struct {
			struct devices *devices;
			uint64_t epoch; /* of the registry */
			uint32_t row;
			struct devices_mark *mark; /* live; NULL: its stream had none yet */
			struct devices_kept *kept; /* NULL: live */
			uint64_t kept_at;          /* byte of the row at which kept begins */
		} device;
	};
};

/* Makes a version of a range of a row as it is now.  The caller puts *version, which is NULL on
 * error.
 * -ESTALE: the row was dropped or replaced, or is in the host's memory.
 * -EINVAL: the range ends behind the row.
 * -EAGAIN: the disk has no room for what readers hold, until the next generation.
 * -ENOMEM
 * -EIO
 * -EBUSY
 */
int registry_version_newest(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
			    uint64_t size, struct registry_version **version);
/* Preserves the range without a copy, where the tier can (swap).  *version NULL: it cannot, and
 * the trainer's thread calls registry_version_keep before the bytes change.
 * Errors of registry_version_newest.
 */
int registry_version_hold(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
			  uint64_t size, struct registry_version **version);
/* Preserves the range before the trainer changes it.  Trainer's thread; waits for nothing.
 * -ESTALE: the row was dropped or replaced, or is not on a device.
 * -EINVAL: the range ends behind the row.
 * -ENODATA: the row has no segment there.
 * -ENOMEM
 * Errors of devices_keep.
 */
int registry_version_keep(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
			  uint64_t size, struct registry_version **version);

/* Takes another reference.  v may be NULL. */
struct registry_version *registry_version_get(struct registry_version *v);
void registry_version_put(struct registry_version *v);

/* Returns true if both are versions of the same range, with the same bytes. */
bool registry_version_same(const struct registry_version *a, const struct registry_version *b);
/* Returns true if the trainer may change the bytes during a fetch, false if they are preserved.
 */
bool registry_version_is_live(const struct registry_version *v);
/* Returns the address of byte `offset` of the row in bytes that are preserved on a device;
 * they are there once the event *written has passed.  NULL: they are in several runs, or on
 * the host.
 */
void *registry_version_on_device(const struct registry_version *v, uint64_t offset,
				 struct device_event **written);

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
 * Errors of registry_version_keep.
 */
int registry_fetch_begin(struct registry *r, struct registry_fetch *f);
/* Ends a fetch as soon as the disk permits; `done` is called all the same.  False: a device
 * ends the fetch by itself, and registry_fini must wait for it.
 */
bool registry_fetch_cancel(struct registry_fetch *f);
/* After `done`: logs why the fetch failed, unless the tier's port has logged it. */
void registry_fetch_log(struct registry_fetch *f);

#endif
