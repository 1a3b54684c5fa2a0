/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/collective-ipc.h"

/* Staging of communicators that are closed, which stays as long as a live process may have it mapped. */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct collective *kept;

void ipc_keep(struct collective *c)
{
	pthread_mutex_lock(&lock);
	c->next_kept = kept;
	kept = c;
	pthread_mutex_unlock(&lock);
}

static bool is_free(struct collective *c)
{
	return ipc_who_has_us(c) == c->life.about.nranks;
}

/* One of that device; NULL: none.  any: whoever has it mapped. */
static struct collective *take(const struct device *d, bool any)
{
	struct collective **at, *c;

	pthread_mutex_lock(&lock);
	for (at = &kept; *at; at = &(*at)->next_kept)
		if ((*at)->life.options.device == d && (any || is_free(*at)))
			break;
	c = *at;
	if (c)
		*at = c->next_kept;
	pthread_mutex_unlock(&lock);
	return c;
}

void ipc_give_kept(struct device *d)
{
	struct collective *c;

	while ((c = take(d, false))) {
		c->life.options.device_ops->unshare(d, c->staging);
		ipc_free(c);
	}
}

void collective_ipc_forget(struct device *d)
{
	struct collective *c;

	while ((c = take(d, true)))
		ipc_free(c);
}
