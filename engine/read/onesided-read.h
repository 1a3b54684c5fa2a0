/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_READ_ONESIDED_READ_H
#define ENGINE_READ_ONESIDED_READ_H

/* Reading at once, in the caller's thread, where every piece is memory of this host. */

#include "engine/node/file.h"

/* size bytes from offset of the file, into out: of the generation of its view, or, where it has
 * none, all of one.  -EAGAIN: not possible at once (a piece is out of reach, has another
 * generation or is being changed): make it a transfer; -EFAULT: freed, or moved meanwhile: the
 * same.  -EIO, -ENOENT, -EINVAL. Any thread, without the lock.
 */
int onesided_read(struct engine *e, struct engine_file *f, uint64_t offset, void *out,
		  size_t size);

#endif
