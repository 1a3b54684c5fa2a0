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
 * libfuse calls interrupt functions with the request locked, and the lock dies with the reply,
 * so neither a cancel, which may complete the request, nor a reply can be made inside one: a
 * thread of our own cancels.
 */

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include "engine/engine.h"

#include <pthread.h>

struct handle;
struct request;

struct requests {
	struct engine *engine;
	void (*release)(struct request *r); /* its handles: it has no more use for them */
	pthread_t thread;                   /* the canceller */
	pthread_mutex_t lock;
	pthread_cond_t changed;   /* for the canceller, and for who waits for it */
	pthread_cond_t drained;   /* nothing is in flight */
	struct request *inflight; /* under lock, as all below */
	struct request *free;
	struct request *cancelling; /* by the canceller, right now */
	bool wanted;                /* some request wants to be cancelled */
	bool stop;
};

enum request_kind { REQUEST_READ, REQUEST_WRITE, REQUEST_WAIT, REQUEST_FREEZE };

struct request {
	struct request *next, **link; /* of inflight or free */
	struct requests *all;
	fuse_req_t req;
	struct handle *handle;
	struct handle *through; /* whose engine file is read; a write: NULL */
	union {
		struct engine_read read;
		struct engine_write write;
		struct engine_wait wait;
		struct engine_freeze freeze;
	};
	enum request_kind kind;
	size_t size; /* of a wait: that the reader has room for; of a freeze: of its line */
	bool held;   /* the freeze, by its open file */
	size_t head; /* bytes of a .npy header that go before the engine's */
	unsigned
		refs; /* the handler's until request_submitted, done's; under lock, as all below */
	bool submitted;
	bool interrupted;
	bool cancelled; /* the canceller has had it */
	bool finished;
};

/* Starts the canceller.  -errno of pthread_create. */
int requests_init(struct requests *all, struct engine *engine,
		  void (*release)(struct request *r));

/* Cancels what is in flight and waits for it.  -ETIMEDOUT: something is still there, so that
 * neither engine nor session may be closed.
 */
int requests_drain(struct requests *all, unsigned seconds);
void requests_fini(struct requests *all);

/* The caller has a reference to handle for it, which release gives back.  NULL: no memory. */
struct request *request_get(struct requests *all, fuse_req_t req, struct handle *handle);

/* False: the caller has been interrupted already.  Then, as when it is not given to the engine
 * for another reason, request_drop is next.
 */
bool request_arm(struct request *r);
void request_drop(struct request *r);

/* After engine_read, engine_write or engine_wait. */
void request_submitted(struct request *r);

/* First thing in done. */
void request_done(struct request *r);
/* Last thing in done, after the reply. */
void request_put(struct request *r);

/* errno for the caller of what the engine said. */
int request_error(int64_t result);

#endif
