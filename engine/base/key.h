/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_KEY_H
#define ENGINE_BASE_KEY_H

/* A job's key: 32 random bytes, a curve25519 secret.  Who has it is of the job: a rank, a mount
 * that writes, whoever it says it is.  Its public half is a key of its own, for readers: it
 * shows what the job is and has, and changes nothing.  The one is got from the other in this
 * direction only, and neither is ever sent.
 */

#include "engine/base/base.h"

enum { KEY_BYTES = 32 };

/* Both may be the same.  -ENOTSUP: a libzmq without CURVE. */
int key_for_readers(const uint8_t key[KEY_BYTES], uint8_t readers[KEY_BYTES]);

#endif
