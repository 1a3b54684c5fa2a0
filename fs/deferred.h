/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_DEFERRED_H
#define FS_DEFERRED_H

/* Handlers that need a table of states which a rank has not sent yet.  libfuse has few threads,
 * and a rank may be silent for long, so no handler waits in such a thread: it returns -EAGAIN,
 * and a thread of this module calls it again.
 *
 *	libfuse's thread	the deferred thread		engine's thread
 *	deferred_run
 *	  run: -EAGAIN
 *	  copied, listed ---->	run: -EAGAIN
 *				engine_wait_epoch  --------->	a table has come, a rank is lost
 *				.  <----------------------------- done
 *				run: it replies
 *
 * The deferred thread does not wait for a rank either: it tries each listed request again when
 * a table has come.  It replies ETIMEDOUT to a request that was listed for timeout_ms, and
 * EINTR to one whose caller was interrupted.
 *
 * Locks of fs/, in the order in which they are taken; an arrow is an order within a row:
 *	libfuse's lock of a request, while its interrupt function runs
 *	fs->lock, of the open files
 *	handle->lock, while a newer handle is opened
 *	write_buffer->lock; polls->lock; hypers->lock; stats_tables->lock -> stats_table->lock
 *	the locks of requests, deferred, staging_pool, tree, found, stat_cache and exports: none
 *		with another
 *	the engine's, in any call of engine.h
 * No lock is held where a request is replied to, but for stats_table->lock, under which the
 * table's text does not move, and stats_tables->lock, while a table takes the kept text; nor
 * where the engine calls a done function.
 */

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include "engine/base/queue.h"
#include "engine/engine.h"

#include <pthread.h>

/* A handler, and those of libfuse's arguments that run() reads. */
struct deferred_call {
	/* 0: run has replied, or has arranged for a reply; else -errno.  -EAGAIN: run has
	 * changed nothing and is to be called again.
	 */
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
	/* Under lock, as all below.  Any thread appends; only the deferred thread removes. */
	TAILQ_HEAD(, deferred_request) requests;
	struct engine_wait wait;
	bool asked; /* the engine has `wait`, and will call its done */
	bool news;  /* the requests are to be tried again */
	bool stop;
};

/* Starts the thread.  -errno of pthread_create. */
int deferred_init(struct deferred *d, struct engine *engine, unsigned timeout_ms);
/* Replies EINTR to all requests that are listed.  No handler may run any more. */
void deferred_fini(struct deferred *d);

/* Calls c->run in this thread; if that returns -EAGAIN, the deferred thread calls it again
 * later.
 * Replies with the errno that c->run returns.
 */
void deferred_run(struct deferred *d, fuse_req_t req, const struct deferred_call *c);

/* Has the requests tried again, for a change that the engine does not report.  Any thread. */
void deferred_wake(struct deferred *d);

#endif
