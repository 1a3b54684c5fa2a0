/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_STAT_CACHE_H
#define FS_STAT_CACHE_H

/* Statistics of the states that were read most recently.  Any thread. */

#include "engine/stats/stats.h"

#include <pthread.h>

enum { STAT_CACHE_MAX = 64 };

struct stat_cached {
	uint64_t id; /* of the state; 0: the entry is unused */
	/* time of the state's last change, when the statistics were made */
	uint64_t changed_ns;
	uint64_t used; /* value of stat_cache.uses at the last use */
	struct stats values;
};

struct stat_cache {
	pthread_mutex_t lock; /* of all below */
	uint64_t uses;
	struct stat_cached *entries; /* [STAT_CACHE_MAX]; NULL until the first stat_cache_put */
};

void stat_cache_init(struct stat_cache *c);
void stat_cache_fini(struct stat_cache *c);

/* Copies the statistics of the state since its change at changed_ns, with bins if wanted.
 * False: the cache has none.
 */
bool stat_cache_get(struct stat_cache *c, uint64_t id, uint64_t changed_ns, bool with_bins,
		    struct stats *values);
/* Replaces the state's entry, or else the entry that was used the longest ago. */
void stat_cache_put(struct stat_cache *c, uint64_t id, uint64_t changed_ns,
		    const struct stats *values);

#endif
