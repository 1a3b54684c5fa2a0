/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_HYPERS_H
#define FS_HYPERS_H

/* Values of hyper-parameters for handlers, none of which waits for one: a handler run by
 * deferred_run asks for the value and returns -EAGAIN, and the try after its arrival takes it.
 */

#include "fs/deferred.h"

struct hyper_read;
struct hyper_change;

struct hypers {
	struct deferred *deferred; /* woken when a value has come */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	LIST_HEAD(, hyper_read) reads; /* at most one read of each hyper-parameter */
	/* the read that hypers_fini cancels, without the lock; not to be freed */
	struct hyper_read *cancelling;
	/* the last change of each hyper-parameter that was read */
	LIST_HEAD(, hyper_change) changes;
	bool stop;
};

void hypers_init(struct hypers *all, struct deferred *deferred);
/* Stops waking `deferred`: to be called before deferred_fini(), which hypers_fini() follows. */
void hypers_stop(struct hypers *all);
void hypers_fini(struct hypers *all);

/* Gives the value, read no earlier than the handler's first try, and the time (CLOCK_REALTIME)
 * of the generation in which this mount saw it change last, or saw it first; 0: not known.
 * -EAGAIN: it is on its way.
 * Errors of engine_file_open and engine_read.
 */
int hypers_get(struct hypers *all, const struct engine_address *address, double *value,
	       uint64_t *changed_ns);

#endif
