/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_METRICS_H
#define ENGINE_BASE_METRICS_H

/* Lines of the Prometheus text format. */

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

/* Writes a counter, fragfs_NAME, with its help text.  Any thread. */
static inline void metrics_counter(FILE *out, const char *name, const char *help,
				   const _Atomic uint64_t *value)
{
	fprintf(out, "# HELP fragfs_%s %s\n# TYPE fragfs_%s counter\nfragfs_%s %" PRIu64 "\n",
		name, help, name, name, atomic_load_explicit(value, memory_order_relaxed));
}

#endif
