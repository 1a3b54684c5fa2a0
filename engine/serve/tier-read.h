/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SERVE_TIER_READ_H
#define ENGINE_SERVE_TIER_READ_H

/* Reads of this rank's bytes in a tier that has versions: on a device or on NVMe.  A read finds
 * the version that has the bytes, fetches them from it, and looks again where the trainer may
 * have changed them meanwhile.  Any thread.
 */

#include "engine/node/node.h"
#include "engine/rank/registry-fetch.h"

/* Returns true if the bytes are in such a tier. */
bool tier_read_is_due(struct engine *e, const struct wire_read *read);
/* Finds where the bytes are now, and the version to fetch them from, which the caller gives
 * back by registry_version_put.  Without a view, bytes of any generation will do.
 * Errors of view_owner_look and registry_version_newest.
 */
int tier_read_find(struct engine *e, const struct wire_read *read, struct view_look *shown);
/* Says whether a fetch that ended with status has the bytes that `shown` promised.
 * -EAGAIN: the trainer may have changed them meanwhile; the caller finds them again.
 * Other errors: status; those of view_owner_look and registry_covers.
 */
int tier_read_check(struct engine *e, const struct wire_read *read,
		    const struct view_look *shown, struct registry_fetch *f, int status);

#endif
