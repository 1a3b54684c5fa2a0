/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CATALOG_LEASE_H
#define ENGINE_CATALOG_LEASE_H

/* A freeze as one rank sees it: from the promise on it lasts until it is thawed, until its
 * bound, counted from the decision, or until who asked for it has been silent; meanwhile the
 * trainer stands at its boundary when it has come there.  Under the lock of whom it belongs to.
 */

#include "engine/base/base.h"

enum { LEASE_SILENT_MS = 5000, LEASE_MAX_MS = 24 * 3600 * 1000 };

struct lease {
	uint64_t transaction[2]; /* 0: none */
	uint64_t until_ms;       /* UINT64_MAX: not decided yet */
	uint64_t heard_ms;       /* of who asked */
	bool standing;           /* the trainer is at its boundary */
};

static inline bool lease_is_held(const struct lease *h, const uint64_t transaction[2])
{
	return h->transaction[0] == transaction[0] && h->transaction[1] == transaction[1];
}

static inline bool lease_lasts(const struct lease *h, uint64_t now)
{
	return (h->transaction[0] || h->transaction[1]) && now < h->until_ms &&
	       now < h->heard_ms + LEASE_SILENT_MS;
}

static inline void lease_promise(struct lease *h, const uint64_t transaction[2], uint64_t now)
{
	*h = (struct lease){ { transaction[0], transaction[1] }, UINT64_MAX, now, false };
}

/* One whose trainer stands somewhere is over when that has seen it. */
static inline void lease_end(struct lease *h)
{
	*h = (struct lease){ .standing = h->standing };
}

#endif
