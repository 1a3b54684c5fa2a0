/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_EDIT_RWGATE_H
#define ENGINE_CHECKPOINT_EDIT_RWGATE_H

/* Reads of a checkpoint and the bytes of an edit, apart: while the gate is shut nobody is
 * inside, and who comes is called when it opens.  Any thread.
 */

#include "engine/base/base.h"
#include "engine/base/queue.h"

#include <pthread.h>

struct rwgate_pass { /* the caller's memory until go is called */
	/* Inside, in the caller's thread or that of rwgate_open. */
	void (*go)(struct rwgate_pass *pass);
	STAILQ_ENTRY(rwgate_pass) entry; /* the gate's */
};

STAILQ_HEAD(rwgate_passes, rwgate_pass);

struct rwgate {
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t empty;
	bool shut;
	unsigned inside;
	struct rwgate_passes waiting;
};

void rwgate_init(struct rwgate *g);
void rwgate_fini(struct rwgate *g);

/* Calls go, now or later; rwgate_leave belongs to it. */
void rwgate_enter(struct rwgate *g, struct rwgate_pass *pass);
void rwgate_leave(struct rwgate *g);

/* -ETIMEDOUT: there is still somebody inside; it stays open. */
int rwgate_shut(struct rwgate *g, unsigned seconds);
void rwgate_open(struct rwgate *g);

#endif
