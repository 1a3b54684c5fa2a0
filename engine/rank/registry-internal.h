/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_RANK_REGISTRY_INTERNAL_H
#define ENGINE_RANK_REGISTRY_INTERNAL_H

/* Shared by the files registry*.c. */

#include "engine/rank/registry-fetch.h"

/* ---- under the lock ---- */

/* Publishes a new epoch in the control page; to be called after any change of the table. */
void registry_new_epoch(struct registry *r);
/* Adds bytes, which may be negative, to the control page's sum of the row's tier.
 * Hyper-parameters, and memory that a rank publishes, do not count.
 */
void registry_count(struct registry *r, const struct state_row *row, int64_t bytes);
/* Returns the row, or NULL if it was dropped or replaced since epoch.  Changes of other rows do
 * not matter: an edit that is decided must not fail for them.
 */
const struct state_row *registry_row_at(const struct registry *r, uint64_t epoch,
					uint32_t number);

/* Takes back that the row is to move. */
void registry_forget_move(struct registry *r, struct state_row *row);
/* Closes the memfd of the library's memory at that address. */
void registry_drop_share(struct states *s, uint64_t address);

/* ---- tiers ---- */

/* Makes a state of the swapper for a partition; without the lock.  Errors of swapper_add. */
int registry_swap_add(struct registry *r, uint32_t index, uint32_t sub, const char *key,
		      enum frag_dtype dtype, uint64_t numel, struct swapper_state **s);

typedef int make_version(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
			 uint64_t size, struct registry_version *v);

/* Operations on rows of one tier, in registry-host.c, registry-swap.c and registry-device.c.
 * From read to dropped: trainer's thread, without the lock.
 */
struct tier_ops {
	/* Arguments and errors of registry_read, _write, _put and _clear. */
	int (*read)(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
		    void *out, size_t size);
	int (*write)(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
		     const void *data, size_t size);
	/* NULL: write is used */
	int (*put)(struct registry *r, uint32_t row, uint64_t offset, const void *data,
		   size_t size);
	int (*clear)(struct registry *r, uint32_t row);
	/* Releases what the tier has of a row that was dropped; NULL: nothing. */
	void (*dropped)(struct registry *r, const struct state_row *old);

	/* Versions: the functions of registry-version.h, in the threads named there.  A
	 * make_version fills *v, and takes nothing on error.  A tier without versions has none
	 * of the members below.
	 */
	make_version *newest;
	make_version *hold;     /* preserves without a copy; NULL: the tier has `preserve` */
	make_version *preserve; /* preserves by a copy; NULL: the tier has `hold` */
	void (*release)(struct registry_version *v);
	bool (*same)(const struct registry_version *a, const struct registry_version *b);
	bool (*is_live)(const struct registry_version *v); /* NULL: never */
	int (*begin)(struct registry *r, struct registry_fetch *f);
	void (*cancel)(struct registry_fetch *f); /* NULL: the fetch ends by itself */
	void (*log)(struct registry_fetch *f);    /* NULL: the tier's port logs errors */
};

/* Returns NULL if the row was dropped or replaced since epoch.  Takes the lock. */
const struct tier_ops *registry_tier_ops(struct registry *r, uint64_t epoch, uint32_t row);

extern const struct tier_ops registry_tier_host, registry_tier_swap, registry_tier_device;
extern const struct tier_ops *const registry_tiers[STATE_TIERS];

/* Undoes registry_pin_buffers, before the swapper is closed.  Trainer's thread. */
void registry_unpin_buffers(struct registry *r);

/* ---- registry-device.c: trainer's thread, without the lock ---- */

struct registry_tier {
	enum state_tier tier;
	int device;
};

/* Finds the tier of memory that a row is about to be added for.  Readers of the row will see
 * the effects of everything that the trainer's stream was given before.
 * -EINVAL: the memory is on a device that is not in use.
 * -EIO
 */
int registry_where(struct registry *r, const void *memory, struct registry_tier *in);

/* Returns the number of the device whose memory the arena is, or DEVICE_NONE. */
int registry_arena_device(struct registry *r);
/* Copies size bytes of the host's memory to a device, and waits.  size 0: waits for what the
 * trainer's stream has been given.  Errors of devices_copy_now.
 */
int registry_put_on_device(struct registry *r, int number, void *to, const void *from,
			   uint64_t size);

#endif
