/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_ROUNDS_SEND_SOURCE_H
#define ENGINE_ROUNDS_SEND_SOURCE_H

/* Memory from which a communicator sends bytes of this rank's states: the device's own, where
 * they are on one; else a copy.  Trainer's thread; send_source_free: the engine's too.
 */

#include "engine/node/node.h"

struct send_source;
struct device_event;

/* Makes a source of n pieces.  preserve: the bytes are sent as they are now, whatever the
 * trainer enqueues later.  NULL: no memory.
 */
struct send_source *send_source_new(unsigned n, bool preserve);
void send_source_free(struct engine *e, struct send_source *s);

/* Adds the next piece.  *from: its memory, which can be sent also on error, with undefined
 * content; NULL: nothing can be sent.
 * -ENOSPC: there is no room to preserve the bytes.
 * -E2BIG: they lie in several runs on the device.
 * -ENOMEM
 * Errors of registry_copy.
 */
int send_source_from(struct engine *e, struct send_source *s, uint64_t epoch, uint32_t row,
		     uint64_t offset, uint64_t size, void **from);
/* Adds the next piece, as a view of this rank shows it.
 * -ESTALE: there is no such view any more.
 * -EAGAIN: the view does not show its generation yet.
 * Errors of send_source_from.
 */
int send_source_from_view(struct engine *e, struct send_source *s, const uint64_t view[2],
			  const struct wire_piece *piece, void **from);
/* Returns the event after which all pieces may be sent; NULL: at once. */
struct device_event *send_source_after(const struct send_source *s);

#endif
