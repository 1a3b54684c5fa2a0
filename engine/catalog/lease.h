/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CATALOG_LEASE_H
#define ENGINE_CATALOG_LEASE_H

/* The lease of a freeze, as one rank sees it.  It lasts from the promise until it is thawed,
 * until its bound, counted from the decision, or until its holder has been silent for
 * LEASE_SILENT_MS; meanwhile the trainer stands at the freeze's boundary, once it has come
 * there.  Under its owner's lock.
 */

#include "engine/base/base.h"

enum { LEASE_SILENT_MS = 5000, LEASE_MAX_MS = 24 * 3600 * 1000 };

struct lease {
	uint64_t transaction[2]; /* 0: none */
	uint64_t until_ms;       /* UINT64_MAX: not decided yet */
	uint64_t heard_ms;       /* when its holder was heard last */
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

/* `standing` stays: the trainer clears it when it sees that the lease has ended. */
static inline void lease_end(struct lease *h)
{
	*h = (struct lease){ .standing = h->standing };
}

#endif
