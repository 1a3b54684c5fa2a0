/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_ROUNDS_LANDING_H
#define ENGINE_ROUNDS_LANDING_H

/* What a rank does for a mount of its host: has bytes of the mount's view sent to its memory by
 * a round, from where the mount copies them.
 *
 *   mount  PREFETCH{view, pieces} -> rank: a slot, a round of that view -> LANDED{address}
 *   mount  copies the bytes, and after them their label: they are still its own
 *   mount  VIEW_CLOSE -> rank: the slot is another's
 *
 * There are few slots, made before training begins, as memory that devices reach is made by
 * waiting for them.  Who does not come for his loses it, and nobody has all while another has
 * none.
 */

#include "engine/node/node.h"

struct landing;

#define LANDING_SLOT (UINT64_C(16) << 20)

/* Slots in so many bytes, rounded down, 32 at most, which the rank's devices reach, where it
 * has any.  0: there are none. Trainer's thread, with the lock.  Errors of pinned_open and of
 * the port's pin.
 */
int landing_init(struct engine *e, uint64_t bytes);
/* The communicator is gone. */
void landing_free(struct engine *e);

/* One of them for the trainer's own use, until it is put: LANDING_SLOT bytes.  NULL: none is
 * free.  Trainer's thread, with the lock.
 */
void *landing_slot_get(struct engine *e);
void landing_slot_put(struct engine *e, const void *memory);

/* PREFETCH; VIEW_CLOSE, of whatever number.  Engine thread, with the lock. */
void landing_serve(struct engine *e, uint32_t peer, const struct wire_header *header,
		   const void *body, const void *tail, size_t tail_size);
void landing_close(struct engine *e, const uint64_t id[2]);
void landing_turn(struct engine *e, uint64_t now);

/* What .frag/nccl says of this rank: rounds_report, and what was brought to mounts.  With the
 * lock; the caller's to free.  NULL: no memory.
 */
char *landing_text(struct engine *e);

#endif
