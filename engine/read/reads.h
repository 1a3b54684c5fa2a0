/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_READ_READS_H
#define ENGINE_READ_READS_H

#include "engine/node/node.h"

/* As engine_read, engine_read_cancel. */
void reads_start(struct engine *e, struct engine_read *read);
void reads_cancel(struct engine *e, struct engine_read *read);

/* Blocks the calling thread (not the engine's, without the lock) until the bytes are at out.
 * Errors of engine_read with nowait.
 */
int reads_get(struct engine *e, const struct engine_address *address, uint64_t offset,
	      void *out, uint64_t size);

#endif
