/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_STAT_CACHE_H
#define FS_STAT_CACHE_H

/* Statistics of states that were read last.  Any thread. */

#include "engine/stats/stats.h"

#include <pthread.h>

enum { STAT_CACHE_MAX = 64 };

struct stat_cached {
	uint64_t id;         /* of the state; 0: the entry is unused */
	uint64_t changed_ns; /* when the state had changed last */
	uint64_t used;       /* the number of the last use */
	struct stats values;
};

struct stat_cache {
	pthread_mutex_t lock; /* of all below */
	uint64_t uses;
	struct stat_cached *entries; /* [STAT_CACHE_MAX]; NULL before the first */
};

void stat_cache_init(struct stat_cache *c);
void stat_cache_fini(struct stat_cache *c);

/* Copies what is known of the state since it changed at changed_ns, with bins if they are
 * wanted.  False: nothing is.
 */
bool stat_cache_get(struct stat_cache *c, uint64_t id, uint64_t changed_ns, bool with_bins,
		    struct stats *values);
/* Replaces what is known of the state, or else the entry that was used the longest ago. */
void stat_cache_put(struct stat_cache *c, uint64_t id, uint64_t changed_ns,
		    const struct stats *values);

#endif
