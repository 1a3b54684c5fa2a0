/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_HYPERS_H
#define FS_HYPERS_H

/* Values of hyper-parameters that handlers need, and for which none of them waits: each try of
 * a deferred_run asks, and the one after the value has come takes it.
 */

#include "fs/deferred.h"

struct hyper_read;

struct hypers {
	struct deferred *deferred; /* of those who ask */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct hyper_read *reads; /* at most one of each hyper-parameter */
	struct hyper_read *cancelling;
	bool stop;
};

void hypers_init(struct hypers *all, struct deferred *deferred);
/* Nobody is told any more that one has come: deferred_fini may follow, then hypers_fini. */
void hypers_stop(struct hypers *all);
void hypers_fini(struct hypers *all);

/* The value since the handler's first try.  -EAGAIN: it is on its way; -errno of
 * engine_file_open, engine_read.
 */
int hypers_get(struct hypers *all, const struct engine_address *address, double *value);

#endif
