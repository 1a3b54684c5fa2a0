/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_EDIT_RWGATE_H
#define ENGINE_CHECKPOINT_EDIT_RWGATE_H

/* A gate that keeps reads of a checkpoint and the writing of an edit apart, like a
 * readers-writer lock whose readers wait by callback.  Reads are inside while the gate is open;
 * while it is shut nobody is inside, and passes that come are called when it opens.  Any
 * thread.
 */

#include "engine/base/base.h"
#include "engine/base/queue.h"

#include <pthread.h>

struct rwgate_pass { /* one read; the gate borrows it until it calls go */
	/* Called inside the gate, in the thread of rwgate_enter(), or of rwgate_open() or a
	 * rwgate_shut() that fails.
	 */
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

/* Calls pass->go, now or when the gate opens; each call is followed by one rwgate_leave(). */
void rwgate_enter(struct rwgate *g, struct rwgate_pass *pass);
void rwgate_leave(struct rwgate *g);

/* Shuts the gate and waits until no read is inside.
 * -ETIMEDOUT: a read is still inside; the gate is open again.
 */
int rwgate_shut(struct rwgate *g, unsigned seconds);
void rwgate_open(struct rwgate *g);

#endif
