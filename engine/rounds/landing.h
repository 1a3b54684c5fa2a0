/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_ROUNDS_LANDING_H
#define ENGINE_ROUNDS_LANDING_H

/* Landing: a rank has bytes of a mount's view sent into its own memory by a round, from where
 * the mount, on the same host, copies them.
 *
 *   mount  PREFETCH{view, pieces} -> rank: a slot, a round of that view -> LANDED{address}
 *   mount  copies the bytes, and after them their label: are they still its own?
 *   mount  VIEW_CLOSE -> rank: the slot is free
 *
 * There are few slots, made before training begins, since pinning memory for devices makes them
 * wait.  A slot that is not fetched in time is reclaimed.  With several mounts, the last free
 * slot is reserved for a mount that holds none.
 */

#include "engine/node/node.h"

struct landing;

#define LANDING_SLOT (UINT64_C(16) << 20)

/* Makes as many slots as fit in so many bytes, 32 at most, and pins them for the rank's
 * devices, if any.  Trainer's thread, with the lock.
 * -ENOMEM
 * Errors of pinned_open and of the port's pin.
 */
int landing_init(struct engine *e, uint64_t bytes);
/* Frees the slots.  The communicator has ended. */
void landing_free(struct engine *e);

/* Lends a slot, LANDING_SLOT bytes, to the trainer until landing_slot_put.  NULL: none is free.
 * Trainer's thread, with the lock.
 */
void *landing_slot_get(struct engine *e);
void landing_slot_put(struct engine *e, const void *memory);

/* Answers PREFETCH.  Engine thread, with the lock, as landing_close and landing_turn. */
void landing_serve(struct engine *e, uint32_t peer, const struct wire_header *header,
		   const void *body, const void *tail, size_t tail_size);
/* Ends the PREFETCH with that id, after VIEW_CLOSE; does nothing if there is none. */
void landing_close(struct engine *e, const uint64_t id[2]);
void landing_turn(struct engine *e, uint64_t now);

/* The text of .frag/nccl: rounds_report, and what was brought to mounts.  With the lock; the
 * caller frees it.  NULL: no memory.
 */
char *landing_text(struct engine *e);

#endif
