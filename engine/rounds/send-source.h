/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_ROUNDS_SEND_SOURCE_H
#define ENGINE_ROUNDS_SEND_SOURCE_H

/* Memory from which a communicator sends bytes of this rank's states: of a device where they
 * are on one, so that they do not come to the host; else a copy.  Trainer's thread; free: the
 * engine's too.
 */

#include "engine/node/node.h"

struct send;
struct device_event;

/* For n pieces.  keep: as they are now, whatever the trainer enqueues later.  NULL: no memory.
 */
struct send *send_source_new(unsigned n, bool keep);
void send_source_free(struct engine *e, struct send *s);

/* The next piece.  *from, unless it is NULL: as many bytes can be sent, also where they are not
 * what they ought to be: -ENOSPC: they could not be kept; as registry_copy; -ENOMEM; -E2BIG:
 * they lie in several runs.
 */
int send_source_from(struct engine *e, struct send *s, uint64_t epoch, uint32_t row,
		     uint64_t offset, uint64_t size, void **from);
/* The same of a piece as a view shows it, all of one view on this rank.  -ESTALE: it is there
 * no more; -EAGAIN: not yet what it is to show.
 */
int send_source_from_view(struct engine *e, struct send *s, const uint64_t view[2],
			  const struct wire_piece *piece, void **from);
/* When all of them are there; NULL: they are. */
struct device_event *send_source_after(const struct send *s);

#endif
