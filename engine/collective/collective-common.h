/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_COLLECTIVE_COLLECTIVE_COMMON_H
#define ENGINE_COLLECTIVE_COLLECTIVE_COMMON_H

/* What implementations of collective.h share. */

#include "engine/collective/collective.h"

#include <errno.h>
#include <limits.h>

/* Fills in the defaults.  -EINVAL. */
int collective_check(struct collective_options *o, unsigned rank, unsigned nranks);

/* -EINVAL, -EFAULT, -EOVERFLOW, as launch, and -EIO of where.  Sets io->port anew. */
int collective_io_check(const struct device_ops *ops, const struct collective_options *o,
			unsigned nranks, struct collective_io *io);

static inline bool collective_has_failed(const struct collective_about *about)
{
	return about->state && about->state != -EINPROGRESS;
}

/* How long it may take from when its event has passed. */
uint64_t collective_limit_ms(const struct collective_options *o,
			     const struct collective_io *io);

/* It has ended. */
void collective_count(struct collective_about *a, const struct collective_io *io, int result);

STAILQ_HEAD(collective_ios, collective_io); /* by port.next */

#endif
