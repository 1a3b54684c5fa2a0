/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_READ_ONESIDED_READ_H
#define ENGINE_READ_ONESIDED_READ_H

/* One-sided reads: the calling thread copies bytes out of the owners' memory, where all owners
 * are on this host, and checks by their control pages, read after the bytes, that no owner was
 * changing them meanwhile.
 */

#include "engine/node/file.h"

/* Copies size bytes from offset of the file to out: of the generation of the file's view; of
 * any one generation, where the file has no view.  caller: as of struct engine_read.  Any
 * thread, without the lock.
 * -EAGAIN: a piece is out of reach, has another generation or is being changed.
 * -EFAULT: the owner has freed or moved a piece meanwhile.
 * After both of these errors remote_read_start may still succeed.
 * -EACCES: an owner's memory cannot be read.
 * -EIO: an owner is lost.
 * -ETIMEDOUT: an owner is lost, because it is silent.
 * -ESTALE: an owner of the file's view was started again.
 * -ENOENT: there is no such state.
 * -EINVAL: the range goes past the end.
 */
int onesided_read(struct engine *e, struct engine_file *f, uint64_t offset, void *out,
		  size_t size, const char *caller);

#endif
