/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_COLLECTIVE_COLLECTIVE_NCCL_H
#define ENGINE_COLLECTIVE_COLLECTIVE_NCCL_H

/* Internals of collective-nccl.
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
	/* Its own table: an errand that was left may return when the device's table is gone. */
	struct cuda cuda;
	struct nccl nccl;

	/* Held for NCCL's calls for comm, once that is ready, and for unmarked; before lock. */
	pthread_mutex_t calls;
	ncclComm_t comm; /* NULL: none */
	cudaStream_t stream;
	void *warm; /* memory for warming up */
	bool warm_is_pinned;
	struct collective_io *unmarked; /* launched, but not enqueued by NCCL yet; NULL: none */

	pthread_mutex_t lock; /* of all below; order: engine/node/node.h */
	pthread_cond_t changed;
	struct collective_about about;
	struct collective_id id;
	bool has_id, stop;
	bool told; /* done was called for all, and nothing can be launched any more */
	uint64_t open_until_ms, failed_ms;
	struct collective_ios launched; /* not ended; the first ends first */
	void (*errand)(struct collective *c);
	bool errand_over,
		left; /* left: an errand did not return in time, and may use all this */

	pthread_t thread;
	struct collective *next_left;
};

/* Makes the communicator fail, with the library's own text. */
void collective_nccl_refuse(struct collective *c, const char *call, ncclResult_t result);
/* Returns ncclInProgress while NCCL enqueues, then ncclSuccess or an error.  Under calls. */
ncclResult_t collective_nccl_poll(struct collective *c);
/* Records the event of the end of `unmarked`, which NCCL has enqueued.  Under calls. */
void collective_nccl_mark(struct collective *c);

/* ---- collective-nccl-life.c ---- */

/* Starts the port's thread, with options that are checked.  -EAGAIN: no thread. */
int collective_nccl_start(struct collective *c, void *(*run)(void *collective), unsigned rank,
			  unsigned nranks);
/* Closes.  False: an errand was left, and the caller must not free c. */
bool collective_nccl_stop(struct collective *c);

bool collective_nccl_has_failed(struct collective *c);
/* Makes the communicator fail with rc, and logs the text, unless it has failed before. */
void collective_nccl_fail(struct collective *c, int rc, const char *fmt, ...) PRINTF(3, 4);
/* At the end of opening: makes it ready, unless it has failed. */
void collective_nccl_be_ready(struct collective *c);
/* Returns true if opening has failed or takes too long. */
bool collective_nccl_is_late(struct collective *c);

/* The port's thread: runs the errand in another thread, and waits for it until until_ms. */
void collective_nccl_run_errand(struct collective *c, void (*errand)(struct collective *c),
				uint64_t until_ms);
/* Runs collective_nccl_let_go as an errand of at most end_ms, unless one was left already; a
 * line says that it was left.
 */
void collective_nccl_let_go_in_time(struct collective *c);

/* Appends a launched operation.  Returns the communicator's error where the port's thread has
 * ended all operations and will end no other.
 */
int collective_nccl_append(struct collective *c, struct collective_io *io);
struct collective_io *collective_nccl_first(struct collective *c); /* NULL: none */
/* Removes the first operation, which ended with that result; the caller calls done. */
struct collective_io *collective_nccl_take(struct collective *c, int result);
/* Removes the first operation, ended with the communicator's error; NULL: none, and none can be
 * appended any more.
 */
struct collective_io *collective_nccl_take_rest(struct collective *c);

int collective_nccl_state(struct collective *c);
int collective_nccl_id(struct collective *c, struct collective_id *id);
void collective_nccl_abort(struct collective *c);
bool collective_nccl_is_over(struct collective *c);
void collective_nccl_about(struct collective *c, struct collective_about *about);

/* ---- collective-nccl-open.c: errands, which do not use the struct device ---- */

/* Bytes of memory for warming up, in whole pages: for each rank one to send, one to receive and
 * one to gather.
 */
uint64_t collective_nccl_warm_size(unsigned nranks);
void collective_nccl_open(struct collective *c);
void collective_nccl_let_go(struct collective *c);

/* ---- collective-nccl-launch.c: the trainer's thread ---- */

int collective_nccl_launch(struct collective *c, struct collective_io *io);

#endif
#endif
