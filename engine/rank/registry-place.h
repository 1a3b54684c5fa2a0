/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_RANK_REGISTRY_PLACE_H
#define ENGINE_RANK_REGISTRY_PLACE_H

/* Moves of rows between the host's memory, NVMe and a device's memory, asked for by a mount.
 *
 *   registry_place_want     engine thread: rows are to move
 *   registry_place_copy     trainer's thread: a row's bytes are in both tiers, and readers see
 *                           the old ones
 *   registry_place_switch   trainer's thread: readers see the new ones
 *   registry_place_end      trainer's thread: the bytes in the tier that readers do not see are
 *                           freed
 *
 * A row can move if the trainer has no address of it: one of registry_swap, or of
 * registry_alloc with memory NULL.  The row keeps its number, and epochs before the move name
 * it still: an edit that is staged with this rank, or a request on its way, finds it in the
 * new tier.
 */

#include "engine/rank/registry.h"

#include <stdio.h>

/* Returns true for a state that shall be in the tier. */
typedef bool (*registry_place_names)(void *arg, enum state_kind kind, uint32_t group,
				     uint32_t sub, const char *key);

/* Any thread.  Has the states that `names` returns true for, which is called under the
 * registry's lock, move to the tier, and no longer to one that was wanted before.  A state that
 * is smaller than any on NVMe stays where it is.
 * On an error none of them moves:
 * -ENOENT: there are none.
 * -EOPNOTSUPP: one of them cannot; `why` has the reason.
 */
int registry_place_want(struct registry *r, registry_place_names names, void *arg,
			enum state_tier to, char *why, size_t whysize);
/* Any thread.  Returns 0 if these states are in the tier, or as near to it as their size
 * allows.
 * -ENOENT: there are none.
 * -EBUSY: one of them is on its way there.
 * -ECANCELED: one of them is not.
 */
int registry_place_check(struct registry *r, registry_place_names names, void *arg,
			 enum state_tier to);

/* Memory, or a state on NVMe, that has or is to have a row's bytes. */
struct registry_spot {
	enum state_tier tier;
	void *memory;                     /* STATE_HOST, STATE_DEVICE; NULL: nothing there */
	int fd;                           /* STATE_HOST: of that memory, or -1 */
	int device;                       /* STATE_DEVICE: its number */
	struct swapper_state *swap_state; /* STATE_SWAP; NULL: nothing there */
};

struct registry_move {
	uint32_t row;
	uint64_t bytes;
	enum state_tier to;
	struct registry_spot other; /* the new place, and, once it is the row's, the old one */
};

static inline bool registry_place_is_due(struct registry *r)
{
	return atomic_load_explicit(&r->placing.waiting, memory_order_relaxed) != 0;
}

/* Returns true if the row can move: the trainer has no address of it.  Any thread. */
bool registry_place_can(struct registry *r, uint32_t row);
/* Returns true if the row is in the host's memory and is not to leave it.  Any thread. */
bool registry_place_stays_in_host(struct registry *r, uint32_t row);

/* Trainer's thread.  Sets *row to the first row from *row on that is to move.  Returns false if
 * there is none.
 */
bool registry_place_next(struct registry *r, uint32_t *row);
/* Trainer's thread, whose states do not change meanwhile.  Copies a row that is to move, for
 * registry_place_switch; then registry_place_end is called, switched or not.  On an error there
 * is nothing to end: the row stays where it is, with a line in the log.
 * -ENOENT: the row is no longer to move.
 * -ENOMEM
 * -ETIMEDOUT: the disk or the device is silent; all other rows that are to move stay, too.
 * The disk's error, or the device's.
 */
int registry_place_copy(struct registry *r, uint32_t row, struct registry_move *m);
/* Trainer's thread, while the control page says that states change and all views of the row are
 * preserved.
 */
void registry_place_switch(struct registry *r, struct registry_move *m);
/* Trainer's thread.  Ends what registry_place_copy began, switched or not. */
void registry_place_end(struct registry *r, struct registry_move *m);

/* Any thread.  Writes "EPOCH\tWAITING\tBYTES\tMOVED\tBYTES\tFAILED\tERROR\n": the registry's
 * epoch; what is to move; what has moved, and what could not, since nothing waited.
 */
void registry_place_print(struct registry *r, FILE *out);

#endif
