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

/* Bytes of a row as they are now; *version is the caller's to put, and NULL on error.
 * -ESTALE: the row has gone, or is in the host's memory.
 * -EINVAL: past the row's end.
 * -EAGAIN: the disk has no room for what readers hold, until the next generation.
 * -ENOMEM, -EIO, -EBUSY.
 */
int registry_version_newest(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
			    uint64_t size, struct registry_version **version);
/* Preserves them while they do not change, in a tier where that costs nothing until they do
 * (swap).  *version NULL: the trainer has to call registry_version_keep before they change.
 * Errors of registry_version_newest.
 */
int registry_version_hold(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
			  uint64_t size, struct registry_version **version);
/* Trainer's thread, which waits for nothing: preserves them before it changes them.
 * -ESTALE: the row has gone, or is not on a device.
 * -EINVAL, -ENODATA, -ENOMEM; errors of devices_keep.
 */
int registry_version_keep(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
			  uint64_t size, struct registry_version **version);

/* NULL: NULL. */
struct registry_version *registry_version_get(struct registry_version *v);
void registry_version_put(struct registry_version *v);

/* Do both show the same bytes, of the same range? */
bool registry_version_same(const struct registry_version *a, const struct registry_version *b);
/* May the trainer change its bytes while they are fetched?  Else they are preserved. */
bool registry_version_is_live(const struct registry_version *v);
/* Of bytes kept on a device: where byte offset of the row is once *written has passed.  NULL:
 * they are in several runs, or on the host.
 */
void *registry_version_on_device(const struct registry_version *v, uint64_t offset,
				 struct device_event **written);

/* A copy of a version's bytes into the host's memory; its struct is the caller's until done is
 * called.
 */
struct registry_fetch {
	struct registry_version *version; /* the caller's loan */
	uint64_t offset, size;            /* bytes of the row, in the version */
	void *memory;
	/* 0, or an errno of swapper_read or of the device's port.  From a thread of the disk's
	 * or the device's, or within registry_fetch_begin.
	 */
	void (*done)(struct registry_fetch *f, int status);
	union { /* the tier's */
		struct swapper_read swap;
		struct devices_copy device;
	};
};

/* On error done is not called.  -ESTALE, -EINVAL, -ENODATA, -ENOMEM. */
int registry_fetch_begin(struct registry *r, struct registry_fetch *f);
/* Ends it as soon as the disk lets it; done is called all the same.  False: a device ends it by
 * itself, and it has to be waited for before registry_fini.
 */
bool registry_fetch_cancel(struct registry_fetch *f);
/* After done: logs why it failed, unless that has been logged. */
void registry_fetch_log(struct registry_fetch *f);

#endif
