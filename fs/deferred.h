/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_DEFERRED_H
#define FS_DEFERRED_H

/* Handlers that need what a rank has not said yet.  libfuse has few threads, and a rank may be
 * silent for long: no handler waits in them.
 *
 *	libfuse's thread	the deferred thread		engine's thread
 *	deferred_run
 *	  run: -EAGAIN
 *	  copied, listed ---->	run: -EAGAIN
 *				engine_wait_epoch  --------->	a table has come, a rank is lost
 *				.  <----------------------------- done
 *				run: it replies
 *
 * The deferred thread does not wait for a rank either: it tries each of the listed again when
 * something has come, and says ETIMEDOUT to those that are listed for too long, EINTR to the
 * interrupted.
 *
 * Locks of fs/, in the order in which they are taken:
 *	libfuse's of a request, while its interrupt function runs
 *	handle->lock, while a newer handle is opened or closed
 *	write_buffer->lock; polls->lock; that of hypers
 *	those of requests, deferred, fs, staging_pool and tree, none with another
 *	the engine's, at any call of it
 * None is held where a request is replied to, nor where the engine calls a done.
 */

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include "engine/engine.h"

#include <pthread.h>

/* A request as libfuse gave it to its handler, which may look at what it has been given alone.
 */
struct deferred_call {
	/* 0: it has replied, or somebody will; -errno.  With -EAGAIN it has changed nothing. */
	int (*run)(fuse_req_t req, const struct deferred_call *c);
	fuse_ino_t ino;
	const char *name;
	size_t size;
	off_t offset;
	struct fuse_file_info *file;
	struct stat *attr;
	int to_set;
};

struct deferred_request;

struct deferred {
	struct engine *engine;
	unsigned timeout_ms;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct deferred_request *first,
		**last; /* under lock, as all below; the thread takes them out */
	struct engine_wait wait;
	bool asked; /* the engine has wait */
	bool news;  /* try them */
	bool stop;
};

/* -errno of pthread_create. */
int deferred_init(struct deferred *p, struct engine *engine, unsigned timeout_ms);
/* EINTR to all that wait.  No handler may run any more. */
void deferred_fini(struct deferred *p);

/* Replies, or c->run does: now, or later in another thread. */
void deferred_run(struct deferred *p, fuse_req_t req, const struct deferred_call *c);

/* Any thread: something has come that some may wait for, and the engine does not tell. */
void deferred_wake(struct deferred *p);

#endif
