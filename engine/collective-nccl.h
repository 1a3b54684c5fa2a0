/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_COLLECTIVE_NCCL_H
#define ENGINE_COLLECTIVE_NCCL_H

/* What the files of collective-nccl share.
 *
 *   trainer's thread   launch: wait for its event, group, its end's event  --> stream of the port's
 *   the port's thread  opens (errand) ... polls: errors, events, deadlines ... lets go (errand), tells
 *   an errand          a thread for calls of NCCL that may not return: it is waited for no longer than it may take
 */

#include "engine/collective-common.h"
#include "engine/collective-nccl-load.h"
#include "engine/device-cuda.h"

#ifdef HAVE_NCCL

struct collective {
	struct collective_options options;
	struct cuda
		cuda; /* its own: an errand that was left may return when the device's has gone */
	struct nccl nccl;

	pthread_mutex_t calls; /* of NCCL's calls for comm, once it is ready, and of unmarked */
	ncclComm_t comm;       /* NULL: none */
	cudaStream_t stream;
	void *warm; /* memory for warming up */
	bool warm_is_pinned;
	struct collective_io *unmarked; /* NCCL has not enqueued it yet */

	pthread_mutex_t lock; /* of what follows; after calls */
	pthread_cond_t changed;
	struct collective_about about;
	struct collective_id id;
	bool has_id, stop, told;
	uint64_t open_until_ms, failed_ms;
	struct collective_list launched; /* not ended; the first ends first */
	void (*errand)(struct collective *c);
	bool errand_over, left; /* left: it did not return in time, and uses all this */

	pthread_t thread;
	struct collective *next_left;
};

/* With the first error and its text; a line says it. */
void nccl_fail(struct collective *c, int rc, const char *fmt, ...) PRINTF(3, 4);
/* The library's own text. */
void nccl_refuse(struct collective *c, const char *call, ncclResult_t result);
int nccl_state(struct collective *c);
bool nccl_has_failed(struct collective *c);
/* What is enqueued: ncclSuccess, ncclInProgress, or what went wrong.  Under calls. */
ncclResult_t nccl_poll(struct collective *c);
/* Of what it has enqueued, the event of its end.  Under calls. */
void nccl_mark(struct collective *c);

/* ---- collective-nccl-open.c: errands, which touch nothing of the device's ---- */

/* For a byte to each rank, one from each, and one of each; whole pages. */
uint64_t nccl_warm_size(unsigned nranks);
void nccl_open(struct collective *c);
void nccl_let_go(struct collective *c);

/* ---- collective-nccl-launch.c: the trainer's thread ---- */

int nccl_launch(struct collective *c, struct collective_io *io);

#endif
#endif
