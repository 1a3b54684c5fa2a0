/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_RANK_REGISTRY_VERSION_H
#define ENGINE_RANK_REGISTRY_VERSION_H

/* Versions of rows that are not in the host's memory.  Readers copy them by fetches:
 * engine/rank/registry-fetch.h.  Any thread, but where said.
 *
 *   tier     a version is                                a fetch
 *   swap     a pin of the state, whose blocks stay       reads the disk
 *   device   live: a mark in the trainer's stream        copies behind the mark; look again
 *                                                        after it: they may have changed
 *            preserved before the bytes changed          copies these
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
			struct devices_preserved *preserved; /* NULL: live */
			uint64_t preserved_at; /* byte of the row at which `preserved` begins */
		} device;
	};
};

/* Returns true if rows of the tier have versions. */
bool registry_versions_exist(enum state_tier tier);

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
 * the trainer's thread calls registry_version_preserve before the bytes change.
 * Errors of registry_version_newest.
 */
int registry_version_hold(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
			  uint64_t size, struct registry_version **version);
/* Preserves the range before the trainer changes it.  Trainer's thread; waits for nothing.
 * -ESTALE: the row was dropped or replaced, or is not on a device.
 * -EINVAL: the range ends behind the row.
 * -ENODATA: the row has no segment there.
 * -ENOMEM
 * Errors of devices_preserve.
 */
int registry_version_preserve(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
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

#endif
