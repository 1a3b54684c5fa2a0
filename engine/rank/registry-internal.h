/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_RANK_REGISTRY_INTERNAL_H
#define ENGINE_RANK_REGISTRY_INTERNAL_H

/* What the registry's files share. */

#include "engine/rank/registry-version.h"

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

/* ---- tiers ---- */

/* What can be done with rows of one tier, in registry-host.c, registry-swap.c and
 * registry-device.c.  Trainer's thread, without the lock.
 */
typedef int make_version(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
			 uint64_t size, struct registry_version *v);

struct tier_ops {
	/* Arguments and errors of registry_read, _write, _put and _clear. */
	int (*read)(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
		    void *out, size_t size);
	int (*write)(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
		     const void *data, size_t size);
	/* NULL: write does as well */
	int (*put)(struct registry *r, uint32_t row, uint64_t offset, const void *data,
		   size_t size);
	int (*clear)(struct registry *r, uint32_t row);
	/* A row has been dropped; NULL: nothing is left to do. */
	void (*dropped)(struct registry *r, const struct state_row *old);

	/* Versions: as in registry-version.h, and by which thread.  make_version fills *v, and
	 * takes nothing on error.  A tier that has no newest has none of these.
	 */
	make_version *newest;
	make_version *hold; /* NULL: a version that is held is kept */
	make_version *keep; /* NULL: one that is kept has been held */
	void (*release)(struct registry_version *v);
	bool (*same)(const struct registry_version *a, const struct registry_version *b);
	bool (*is_live)(const struct registry_version *v); /* NULL: never */
	int (*begin)(struct registry *r, struct registry_fetch *f);
	void (*cancel)(struct registry_fetch *f); /* NULL: it ends by itself */
	void (*log)(struct registry_fetch *f);    /* NULL: its port has done so */
};

/* NULL: the row is not what it was at epoch.  Takes the lock. */
const struct tier_ops *registry_tier_ops(struct registry *r, uint64_t epoch, uint32_t row);

extern const struct tier_ops registry_tier_host, registry_tier_swap, registry_tier_device;

/* ---- registry-device.c: trainer's thread, without the lock ---- */

struct registry_tier {
	enum state_tier tier;
	int device;
};

/* Where memory is that is about to be kept; what its stream was given before that is seen by
 * readers.  -EINVAL: on a device that is not in use; -EIO.
 */
int registry_where(struct registry *r, const void *memory, struct registry_tier *in);

#endif
