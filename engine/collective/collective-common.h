/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_COLLECTIVE_COLLECTIVE_COMMON_H
#define ENGINE_COLLECTIVE_COLLECTIVE_COMMON_H

/* Checks, deadlines and figures of operations, for implementations of collective.h. */

#include "engine/collective/collective.h"

#include <errno.h>
#include <limits.h>

/* Fills in the defaults.  -EINVAL: rank or nranks. */
int collective_check(struct collective_options *o, unsigned rank, unsigned nranks);

/* Checks an operation that is to be launched, and clears io->port.  Errors of launch and of the
 * device's `where`.
 */
int collective_io_check(const struct device_ops *ops, const struct collective_options *o,
			unsigned nranks, struct collective_io *io);

static inline bool collective_has_failed(const struct collective_about *about)
{
	return about->state && about->state != -EINPROGRESS;
}

/* Returns the time that an operation may take when its event has passed. */
uint64_t collective_limit_ms(const struct collective_options *o,
			     const struct collective_io *io);

/* Counts an operation that has ended. */
void collective_count(struct collective_about *a, const struct collective_io *io, int result);

STAILQ_HEAD(collective_ios, collective_io); /* by port.next */

#endif
