/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_EDIT_RWGATE_H
#define ENGINE_CHECKPOINT_EDIT_RWGATE_H

/* Reads of a checkpoint and the bytes of an edit, apart: while the gate is shut nobody is inside, and who comes
 * is called when it opens.  Any thread.
 */

#include "engine/base/base.h"

#include <pthread.h>

struct gate_pass { /* the caller's memory until go is called */
	/* Inside, in the caller's thread or that of gate_open. */
	void (*go)(struct gate_pass *pass);
	struct gate_pass *next; /* the gate's */
};

struct gate {
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t empty;
	bool shut;
	unsigned inside;
	struct gate_pass *first, **last; /* who waits */
};

void gate_init(struct gate *g);
void gate_fini(struct gate *g);

/* Calls go, now or later; gate_leave belongs to it. */
void gate_enter(struct gate *g, struct gate_pass *pass);
void gate_leave(struct gate *g);

/* -ETIMEDOUT: there is still somebody inside; it stays open. */
int gate_shut(struct gate *g, unsigned seconds);
void gate_open(struct gate *g);

#endif
