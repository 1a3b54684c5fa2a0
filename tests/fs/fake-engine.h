/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_FAKE_ENGINE_H
#define FS_FAKE_ENGINE_H

/* All of engine/engine.h over a job that is made up: tests of fs/ link it instead of the
 * engine.
 *
 * Sources: "fake", "fake:N" (N more parameters), "none" (nobody there). States are answered as
 * their key says: fp32 and bf16 at once, grad and exp_avg from another thread, slow after 20
 * ms, fails with EIO, never only when cancelled, at once, never_async the same from another
 * thread.  Writes likewise, but never at once. Hypers of group 0: commits counts engine_write;
 * grads_valid, when 0, makes grad wait; extra_state, when not 0, lets a state "extra" of
 * parameter 0 appear. Rank 1 has an arena; the loss scale is 1024. .frag/inflight is how many
 * requests wait.
 */

#include <stdint.h>

/* What byte offset of a state is at first. */
unsigned char fake_byte(uint32_t param, const char *key, uint64_t offset);

#endif
