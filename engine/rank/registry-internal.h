/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_RANK_REGISTRY_INTERNAL_H
#define ENGINE_RANK_REGISTRY_INTERNAL_H

/* What the registry's files share. */

#include "engine/rank/devices.h"
#include "engine/rank/registry.h"

/* ---- under the lock ---- */

/* After any change. */
void registry_new_epoch(struct registry *r);
/* So many bytes of that tier came or, negative, went. */
void registry_count(struct registry *r, enum state_tier tier, int64_t bytes);
/* What else came or went since epoch does not matter: an edit, once decided, must not fail for
 * that.  NULL: it is not what it was.
 */
const struct state_row *registry_row_at(const struct registry *r, uint64_t epoch,
					uint32_t number);

/* ---- registry-swap.c: trainer's thread, without the lock ---- */

/* Where bytes of a row are; what there is none of is looked for in memory. */
struct registry_spot {
	enum state_tier tier;
	struct swapper_state *state; /* STATE_SWAP */
	uint64_t at;                 /* in the state */
	uint64_t element;            /* the state's */
};

/* -EINVAL: of a row on NVMe, past its end. */
int registry_find_spot(struct registry *r, uint64_t epoch, uint32_t number, uint64_t offset,
		       uint64_t size, struct registry_spot *spot);

/* ---- registry-device.c: trainer's thread, without the lock ---- */

struct registry_tier {
	enum state_tier tier;
	int device;
};

/* Where memory is that is about to be kept; what its stream was given before that is seen by
 * readers.  -EINVAL: on a device that is not in use; -EIO.
 */
int registry_where(struct registry *r, const void *memory, struct registry_tier *in);
int registry_device_read(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
			 void *out, size_t size);
int registry_device_write(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
			  const void *data, size_t size);
int registry_device_clear(struct registry *r, uint32_t row);

#endif
