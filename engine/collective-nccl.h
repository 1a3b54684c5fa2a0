/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_COLLECTIVE_NCCL_H
#define ENGINE_COLLECTIVE_NCCL_H

/* What the files of collective-nccl share.
 *
 *   trainer's thread   launch: wait for its event, group, its end's event  --> stream of the port's
 *   the port's thread  opens (errand) ... polls: errors, events, deadlines ... lets go (errand), tells
 *   an errand          a thread for calls of NCCL that may not return: it is waited for no longer than it may take
 */

#include "engine/collective-life.h"
#include "engine/collective-nccl-load.h"
#include "engine/device-cuda.h"

#ifdef HAVE_NCCL

struct collective {
	struct collective_life life;
	struct cuda
		cuda; /* its own: an errand that was left may return when the device's has gone */
	struct nccl nccl;

	pthread_mutex_t
		calls; /* of NCCL's calls for comm, once it is ready, and of unmarked; before the life's lock */
	ncclComm_t comm; /* NULL: none */
	cudaStream_t stream;
	void *warm; /* memory for warming up */
	bool warm_is_pinned;
	struct collective_io *unmarked; /* NCCL has not enqueued it yet */
};

/* It fails, with the library's own text. */
void nccl_refuse(struct collective *c, const char *call, ncclResult_t result);
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
