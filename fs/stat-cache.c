/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/stat-cache.h"

#include "engine/base/thread.h"

void stat_cache_init(struct stat_cache *c)
{
	*c = (struct stat_cache){ .uses = 0 };
	pthread_mutex_init(&c->lock, NULL);
}

void stat_cache_fini(struct stat_cache *c)
{
	free(c->entries);
	pthread_mutex_destroy(&c->lock);
}

static struct stat_cached *find_cached(struct stat_cache *c, uint64_t id)
{
	for (unsigned i = 0; c->entries && i < STAT_CACHE_MAX; i++)
		if (c->entries[i].id == id)
			return &c->entries[i];
	return NULL;
}

bool stat_cache_get(struct stat_cache *c, uint64_t id, uint64_t changed_ns, bool with_bins,
		    struct stats *values)
{
	struct stat_cached *entry;

	LOCKED(&c->lock);
	entry = find_cached(c, id);
	if (!entry || entry->changed_ns != changed_ns || entry->values.with_bins < with_bins)
		return false;
	entry->used = ++c->uses;
	*values = entry->values;
	return true;
}

void stat_cache_put(struct stat_cache *c, uint64_t id, uint64_t changed_ns,
		    const struct stats *values)
{
	struct stat_cached *entry;

	LOCKED(&c->lock);
	if (!c->entries)
		c->entries = calloc(STAT_CACHE_MAX, sizeof(*c->entries));
	if (!c->entries)
		return;
	entry = find_cached(c, id);
	if (!entry)
		entry = c->entries;
	for (unsigned i = 0; entry->id != id && i < STAT_CACHE_MAX; i++)
		if (c->entries[i].used < entry->used)
			entry = &c->entries[i];
	*entry = (struct stat_cached){ id, changed_ns, ++c->uses, *values };
}
