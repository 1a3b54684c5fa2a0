/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SERVE_TIER_FETCH_H
#define ENGINE_SERVE_TIER_FETCH_H

/* Reads of this rank's bytes that are on a device or on NVMe, for threads that may wait. */

#include "engine/serve/tier-read.h"

struct tier_fetch;

/* Fetches the bytes, or with `what` sums of them, and waits for the end.  For a thread that may
 * wait.  On success *fetched is the caller's, to be freed by tier_fetch_free.
 * -ECANCELED: *abandoned became true.
 * -ETIMEDOUT: the disk was silent for the engine's timeout.
 * Errors of tier_read_find, registry_fetch_begin, struct registry_fetch's done, and
 * tier_read_check.
 */
int tier_fetch_now(struct engine *e, const struct wire_read *read, enum device_what what,
		   const _Atomic bool *abandoned, struct tier_fetch **fetched);
/* Returns the bytes that were asked for, or the struct device_sums. */
const void *tier_fetch_result(const struct tier_fetch *t);
void tier_fetch_free(struct tier_fetch *t);

#endif
