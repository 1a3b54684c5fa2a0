/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_REQUEST_H
#define FS_REQUEST_H

/* A FUSE request that the engine answers later, from whichever thread.
 *
 *	handler			engine's thread		a signal at the reader
 *	request_get
 *	request_arm		.			interrupted(): wakes the canceller
 *	engine_read  ------->	.			canceller: engine_read_cancel
 *	request_submitted	done()
 *				  request_done		from here on no interrupt, no cancel
 *				  fuse_reply_...
 *				  request_put
 *
 * libfuse calls interrupt functions with the request locked, and a reply frees the lock.  So an
 * interrupt function can neither reply nor cancel, which may complete the request: the
 * canceller, a thread of this module, cancels.
 */

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include "engine/base/queue.h"
#include "engine/engine.h"
#include "engine/gather.h"
#include "engine/stats-pass.h"

#include <pthread.h>

struct handle;
struct request;
struct waiting_read; /* fs/stats-table.c */

struct requests {
	struct engine *engine;
	void (*release)(struct request *r); /* gives back the request's references to handles */
	pthread_t thread;                   /* the canceller */
	pthread_mutex_t lock;
	pthread_cond_t changed;        /* for the canceller, and for threads that wait for it */
	pthread_cond_t drained;        /* signalled when no request is in flight */
	LIST_HEAD(, request) inflight; /* under lock, as all below */
	LIST_HEAD(, request) free;
	struct request *cancelling; /* in engine_..._cancel right now */
	bool wanted;                /* a request is to be cancelled */
	bool stop;
};

enum request_kind {
	REQUEST_READ,
	REQUEST_WRITE,
	REQUEST_WAIT,
	REQUEST_FREEZE,
	REQUEST_STATS,
	REQUEST_OTHER, /* cancelled by `cancel` */
};

struct request {
	LIST_ENTRY(request) entry; /* of inflight or free */
	struct requests *all;
	fuse_req_t req;
	struct handle *handle;
	struct handle *through; /* the handle whose engine file is read; NULL: a write */
	union {
		struct engine_read read;
		struct engine_write write;
		struct engine_wait wait;
		struct engine_freeze freeze;
		struct stats_pass stats;
		struct gather gather;
	};
	enum request_kind kind;
	/* WAIT: bytes that the reader takes; FREEZE and WRITE of a line: bytes to reply; STATS,
	 * OTHER: bytes of the file to reply, from offset on.
	 */
	size_t size;
	uint64_t offset; /* in the file; READ's too */
	void (*cancel)(struct request *r);
	/* of .frag/stats: its entry in the list of waiting reads */
	struct waiting_read *waiting;
	bool held;   /* a freeze that ends when its file is closed */
	size_t head; /* bytes of a header before those of the engine's file */
	size_t tail; /* bytes of a trailer behind those of the engine's file */
	/* References: one of the handler, until request_submitted, and one of the done
	 * function, until request_put; under lock, as all below.
	 */
	unsigned refs;
	bool submitted;
	bool interrupted;
	bool cancelled; /* the canceller has cancelled it */
	bool finished;  /* request_done was called */
};

/* Starts the canceller.  -errno of pthread_create. */
int requests_init(struct requests *all, struct engine *engine,
		  void (*release)(struct request *r));

/* Cancels the requests in flight and waits for their end.
 * -ETIMEDOUT: some have not ended, so neither the engine nor the session may be closed.
 */
int requests_drain(struct requests *all, unsigned seconds);
void requests_fini(struct requests *all);

/* Makes a request.  The caller takes a reference to handle for it, which release gives back.
 * NULL: no memory.
 */
struct request *request_get(struct requests *all, fuse_req_t req, struct handle *handle);

/* Lets a signal cancel the request from here on.  False: the reader has been interrupted
 * already.
 */
bool request_arm(struct request *r);
/* Frees a request that the engine never got. */
void request_drop(struct request *r);

/* To be called after engine_read, engine_write, engine_wait, engine_freeze, stats_pass_start
 * or gather_start.
 */
void request_submitted(struct request *r);

/* The first call of a done function: no interrupt and no cancel come after it. */
void request_done(struct request *r);
/* The last call of a done function, after the reply. */
void request_put(struct request *r);

/* Converts the engine's result to an errno for the reader. */
int request_error(int64_t result);

#endif
