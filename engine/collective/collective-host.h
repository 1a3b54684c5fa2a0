/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_COLLECTIVE_COLLECTIVE_HOST_H
#define ENGINE_COLLECTIVE_COLLECTIVE_HOST_H

/* How collective_host is made to fail. */

#include "engine/collective/collective.h"

/* What it launches does not begin, or goes on with that. */
void collective_host_hold(struct collective *c, bool hold);
/* It fails, with -EIO, as by an error of its device or its network. */
void collective_host_break(struct collective *c);

#endif
