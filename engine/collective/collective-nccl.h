/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_COLLECTIVE_COLLECTIVE_NCCL_H
#define ENGINE_COLLECTIVE_COLLECTIVE_NCCL_H

/* What the files of collective-nccl share.
 *
 *   trainer's thread   launch: wait for `after`, group, event of its end  --> the port's stream
 *   the port's thread  opens (errand) ... polls: errors, events, deadlines ... lets go (errand)
 *   an errand          a thread for calls of NCCL that may never return: the port's thread
 *                      waits for it up to a deadline, and then leaves it
 */

#include "engine/collective/collective-common.h"
#include "engine/collective/collective-nccl-load.h"
#include "engine/device/device-cuda.h"

#include <pthread.h>

#ifdef HAVE_NCCL

struct collective {
	struct collective_options options;
	/* A table of its own: an errand that was left may return after the device's is gone. */
	struct cuda cuda;
	struct nccl nccl;

	/* Of NCCL's calls for comm, once it is ready, and of unmarked; taken before lock. */
	pthread_mutex_t calls;
	ncclComm_t comm; /* NULL: none */
	cudaStream_t stream;
	void *warm; /* memory for warming up */
	bool warm_is_pinned;
	struct collective_io *unmarked; /* NCCL has not enqueued it yet */

	pthread_mutex_t lock; /* what follows; order: engine/node/node.h */
	pthread_cond_t changed;
	struct collective_about about;
	struct collective_id id;
	bool has_id, stop;
	bool told; /* done was called for all, and nothing can be launched any more */
	uint64_t open_until_ms, failed_ms;
	struct collective_ios launched; /* not ended; the first ends first */
	void (*errand)(struct collective *c);
	bool errand_over, left; /* left: an errand did not return in time, and uses all this */

	pthread_t thread;
	struct collective *next_left;
};

/* It fails, with the library's own text. */
void collective_nccl_refuse(struct collective *c, const char *call, ncclResult_t result);
/* What is enqueued: ncclSuccess, ncclInProgress, or what went wrong.  Under calls. */
ncclResult_t collective_nccl_poll(struct collective *c);
/* Of what it has enqueued, the event of its end.  Under calls. */
void collective_nccl_mark(struct collective *c);

/* ---- collective-nccl-life.c ---- */

/* Starts the port's thread.  Options are checked.  -EAGAIN: no thread; all is as before. */
int collective_nccl_start(struct collective *c, void *(*run)(void *collective), unsigned rank,
			  unsigned nranks);
/* From close.  Returns whether the caller can free it: an errand that was left uses it. */
bool collective_nccl_stop(struct collective *c);

bool collective_nccl_has_failed(struct collective *c);
/* It fails with rc and this text, in a line too, unless it has failed before. */
void collective_nccl_fail(struct collective *c, int rc, const char *fmt, ...) PRINTF(3, 4);
/* From opening: it is ready, unless it has failed. */
void collective_nccl_be_ready(struct collective *c);
/* Whether opening is to end. */
bool collective_nccl_is_late(struct collective *c);

/* The port's thread: runs the errand in a thread of its own, which it leaves after until_ms. */
void collective_nccl_run_errand(struct collective *c, void (*errand)(struct collective *c),
				uint64_t until_ms);
/* Runs collective_nccl_let_go as an errand, within end_ms, unless one was left; a line says when it is. */
void collective_nccl_let_go_in_time(struct collective *c);

/* From launch.  What it has failed with, when done was called for all that was launched. */
int collective_nccl_append(struct collective *c, struct collective_io *io);
struct collective_io *collective_nccl_first(struct collective *c); /* NULL: none */
/* Takes out the first, which ended so; the caller calls done. */
struct collective_io *collective_nccl_take(struct collective *c, int result);
/* Takes out the first, ended with the communicator's error; NULL: none, now and ever. */
struct collective_io *collective_nccl_take_rest(struct collective *c);

int collective_nccl_state(struct collective *c);
int collective_nccl_id(struct collective *c, struct collective_id *id);
void collective_nccl_abort(struct collective *c);
bool collective_nccl_is_over(struct collective *c);
void collective_nccl_about(struct collective *c, struct collective_about *about);

/* ---- collective-nccl-open.c: errands, which touch nothing of the device's ---- */

/* For a byte to each rank, one from each, and one of each; whole pages. */
uint64_t collective_nccl_warm_size(unsigned nranks);
void collective_nccl_open(struct collective *c);
void collective_nccl_let_go(struct collective *c);

/* ---- collective-nccl-launch.c: the trainer's thread ---- */

int collective_nccl_launch(struct collective *c, struct collective_io *io);

#endif
#endif
