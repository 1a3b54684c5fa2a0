/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/rank/registry-internal.h"
#include "engine/base/thread.h"

#include <errno.h>

static int version_new(struct registry *r, const struct tier_ops *ops, make_version *make,
		       uint64_t epoch, uint32_t row, uint64_t offset, uint64_t size,
		       struct registry_version **version)
{
	struct registry_version *v = malloc(sizeof(*v));
	int rc;

	if (!v)
		return -ENOMEM;
	*v = (struct registry_version){ .tier = ops, .users = 1 };
	rc = make(r, epoch, row, offset, size, v);
	if (rc)
		free(v);
	else
		*version = v;
	return rc;
}

bool registry_versions_exist(enum state_tier tier)
{
	return registry_tiers[tier]->newest;
}

int registry_version_newest(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
			    uint64_t size, struct registry_version **version)
{
	const struct tier_ops *ops = registry_tier_ops(r, epoch, row);

	*version = NULL;
	if (!ops || !ops->newest)
		return -ESTALE;
	return version_new(r, ops, ops->newest, epoch, row, offset, size, version);
}

int registry_version_hold(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
			  uint64_t size, struct registry_version **version)
{
	const struct tier_ops *ops = registry_tier_ops(r, epoch, row);

	*version = NULL;
	if (!ops)
		return -ESTALE;
	return ops->hold ? version_new(r, ops, ops->hold, epoch, row, offset, size, version)
			 : 0;
}

int registry_version_preserve(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
			      uint64_t size, struct registry_version **version)
{
	const struct tier_ops *ops = registry_tier_ops(r, epoch, row);

	assert(thread_may_be_trainer());
	*version = NULL;
	if (!ops || !ops->preserve)
		return -ESTALE;
	return version_new(r, ops, ops->preserve, epoch, row, offset, size, version);
}

struct registry_version *registry_version_get(struct registry_version *v)
{
	if (v)
		atomic_fetch_add_explicit(&v->users, 1, memory_order_relaxed);
	return v;
}

void registry_version_put(struct registry_version *v)
{
	if (!v || atomic_fetch_sub_explicit(&v->users, 1, memory_order_acq_rel) > 1)
		return;
	v->tier->release(v);
	free(v);
}

bool registry_version_same(const struct registry_version *a, const struct registry_version *b)
{
	return a == b || (a->tier == b->tier && a->tier->same(a, b));
}

bool registry_version_is_live(const struct registry_version *v)
{
	return v->tier->is_live && v->tier->is_live(v);
}
