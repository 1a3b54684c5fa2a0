/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_READS_H
#define ENGINE_READS_H

#include "engine/node.h"

/* Blocks the calling thread (not the engine's, without the lock) until the bytes are at out.  Errors of
 * engine_read with nowait.
 */
int engine_get(struct engine *e, const struct engine_address *address, uint64_t offset,
	       void *out, uint64_t size);

#endif
