/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_PORTS_COLLECTIVE_HOST_H
#define TESTS_PORTS_COLLECTIVE_HOST_H

/* For tests: how a communicator of collective_host is delayed and made to fail. */

#include "tests/ports/device-host.h"

#include "engine/collective/collective.h"

/* Ranks of one process, over device_host. */
extern const struct collective_ops collective_host;

/* hold: operations of this rank do not begin until hold is false. */
void collective_host_hold(struct collective *c, bool hold);
/* Makes the communicator fail with -EIO, as an error of its device or network does. */
void collective_host_break(struct collective *c);

#endif
