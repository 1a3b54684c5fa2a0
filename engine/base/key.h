/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_KEY_H
#define ENGINE_BASE_KEY_H

/* A job's key: 32 random bytes, a curve25519 secret.  A process that has it belongs to the
 * job: it may be a rank, or a mount that writes.  The public half of the key is the *readers'
 * key*: a process that has only that may read, and change nothing.  The readers' key follows
 * from the job's, never the reverse, and neither is ever sent.
 */

#include "engine/base/base.h"

enum { KEY_BYTES = 32 };

/* Derives the readers' key from the job's; key and readers may be the same array.
 * -ENOTSUP: a libzmq without CURVE.
 */
int key_for_readers(const uint8_t key[KEY_BYTES], uint8_t readers[KEY_BYTES]);

/* Gives the word by which a rank knows the memory of a writer (engine/node/writer-memory.h): it
 * follows from the job's key, not from the readers'.
 * -ENOTSUP: a libzmq without CURVE.
 */
int key_for_writers_memory(const uint8_t key[KEY_BYTES], uint64_t word[2]);

#endif
