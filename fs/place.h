/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_PLACE_H
#define FS_PLACE_H

/* Lines of .frag/control that move states to another tier, or ask whether the states are there:
 *
 *	place params/NAMES/STATES TIER
 *	placed params/NAMES/STATES TIER
 *
 * NAMES and STATES are patterns of fnmatch(3), TIER is host, swap or device.  write(2) returns
 * when every rank has taken the order (place) or has answered (placed); .frag/place tells how
 * far the ranks are.
 */

#include "fs/handle.h"

#define PLACE_WORD "place "
#define PLACED_WORD "placed "

/* A deferred_call: replies to a write of c->size bytes that are the line c->name. */
int place_line(fuse_req_t req, const struct deferred_call *c);

#endif
