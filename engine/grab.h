/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_GRAB_H
#define ENGINE_GRAB_H

/* Reading at once, in the caller's thread, where every piece is memory of this host. */

#include "engine/node.h"

/* size bytes from offset of address, into out.  -EAGAIN: not possible at once (a piece is out of reach, or
 * gradients are not valid now): make it a transfer; -EFAULT: freed, or moved meanwhile: the same.
 * -EIO, -ENOENT, -EINVAL.  Any thread, without the lock.
 */
int grab_now(struct engine *e, const struct engine_address *address, bool is_grad, uint64_t offset,
	     void *out, size_t size);

#endif
