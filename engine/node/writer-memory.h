/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_NODE_WRITER_MEMORY_H
#define ENGINE_NODE_WRITER_MEMORY_H

/* A rank copies the bytes of an edit out of the memory of a mount on its host, as a mount
 * copies states out of ranks' memory: STAGE then says where the bytes are, and has none.
 *
 * A STAGE could name any process of the user.  So there must be a word that follows from the
 * job's key at an address that the STAGE names: mounts that may write keep that word.  Ranks
 * are never copied from: an edit could bring the word into their memory.  A job without a key
 * sends bytes.
 */

#include "engine/node/node.h"

#include <sys/uio.h>

/* Makes the word from the job's key, if there is one.  Before the engine thread starts, or in
 * it, when the job has another key.
 */
void writer_memory_init(struct engine *e);
/* Returns true if the rank is to copy the bytes of edits; false: they are to be sent to it.
 * Engine thread, with the lock.
 */
bool writer_memory_is_copied(const struct engine *e, uint32_t rank);
/* Fills *from for bytes of this process, a mount, which stay until the rank has answered.
 * False: as writer_memory_is_copied.  Engine thread, with the lock.
 */
bool writer_memory_name(const struct engine *e, uint32_t rank, const void *bytes,
			struct wire_memory *from);
/* Notes that the rank has answered -ENOLINK: from now on it is sent the bytes. */
void writer_memory_refused(struct engine *e, uint32_t rank);
/* Copies a writer's memory to a rank, this engine: to n pieces of memory, one after the other.
 * Engine thread.
 * -ENOLINK: the process cannot be read, or is no mount that writes.
 */
int writer_memory_copy(const struct engine *e, const struct wire_memory *from,
		       const struct iovec *to, unsigned n);

#endif
