/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/commit-own.h"
#include "engine/peers.h"

#include <errno.h>

enum { WAIT_MS = 100 };

/* With the lock. */
static int plan(struct engine *e, struct commit *c)
{
	uint64_t deadline = monotonic_ms() + e->timeout_ms;
	int rc;

	while ((rc = commit_plan(e, c)) == -EAGAIN && monotonic_ms() < deadline)
		node_wait_answer(e, u64_min(deadline, monotonic_ms() + WAIT_MS));
	return rc;
}

static int stage(struct engine *e, const struct commit *c, const uint64_t transaction[2],
		 uint32_t peer)
{
	uint64_t epoch = e->peers[e->rank].states->epoch;
	int rc = 0;

	for (size_t i = 0; i < c->nitems && !rc; i++) {
		const struct commit_item *item = &c->items[i];

		if (item->rank == e->rank)
			rc = edits_stage(&e->edits, transaction, peer, monotonic_ms(), epoch,
					 item->row, registry_is_grad(&e->registry, item->row),
					 item->offset, item->data, item->size);
	}
	return rc;
}

int commit_stage_own(struct engine *e, const struct engine_write *write,
		     const uint64_t transaction[2], uint32_t writer)
{
	uint32_t peer = writer == e->rank ? NODE_LOCAL : e->peers[writer].link;
	struct commit *c = calloc(1, sizeof(*c));
	int rc = c ? commit_add_writes(e, c, write, 1) : -ENOMEM;

	if (!rc) {
		pthread_mutex_lock(&e->lock);
		rc = plan(e, c);
		rc = rc ? rc : stage(e, c, transaction, peer);
		pthread_mutex_unlock(&e->lock);
	}
	if (c)
		commit_free(c);
	return rc;
}
