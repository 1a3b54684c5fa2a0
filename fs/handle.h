/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_HANDLE_H
#define FS_HANDLE_H

/* What fi->fh points to, and what a mount is. */

#include "fs/hypers.h"
#include "fs/npy.h"
#include "fs/deferred.h"
#include "fs/poll.h"
#include "fs/request.h"
#include "fs/staging.h"
#include "fs/tree.h"

#include <stdatomic.h>

struct fs {
	struct engine *engine;
	struct tree tree;
	struct requests requests;
	struct deferred deferred;
	struct hypers hypers;
	struct polls polls;
	struct staging_pool pool;
	bool writable;
	_Atomic bool told_local;  /* that one rank's states are not writable */
	unsigned max_read;        /* of one request; 0: the kernel's */
	pthread_mutex_t lock;     /* of handles */
	struct handle *handles;   /* all that the kernel has open */
	void (*ready)(void *arg); /* called once, when the kernel has said hello */
	void *ready_arg;
};

struct write_buffer; /* write-buffer.h: what was written through one open file */

struct handle {
	struct fs *fs;
	struct handle *next, **link; /* of fs->handles, under its lock; link NULL: not in it */
	struct node node;
	struct engine_file *file;          /* states; NULL: text has all */
	uint64_t bytes;                    /* of the engine's file */
	char *text;                        /* texts, hypers; .npy: the header; else NULL */
	uint64_t length;                   /* of text */
	_Atomic unsigned refs;             /* RELEASE's, and one of each request */
	struct write_buffer *write_buffer; /* NULL: opened for reading */
	_Atomic pid_t opener;   /* thread in open(2); -1: that has returned, a write came */
	_Atomic bool truncated; /* by O_TRUNC; the write buffer takes it from here */
	pthread_mutex_t lock;   /* of newer */
	struct handle *newer;   /* read in its stead, since a commit; else NULL */
	_Atomic bool behind;    /* a commit was made: the next read opens newer anew */
	struct engine_events *events; /* NODE_EVENTS, else NULL */
	_Atomic uint64_t held;        /* the freeze that ends with it; 0: none */
	struct poll poll;             /* where poll_can(node) */
};

/* The reply lets the reader go on: its close, and the release after it, may come before the
 * call that made the reply has returned.  state_close gives the reference back.
 */
static inline void handle_ref(struct handle *h)
{
	atomic_fetch_add_explicit(&h->refs, 1, memory_order_relaxed);
}

static inline struct handle *handle_of(const struct fuse_file_info *fi)
{
	return (struct handle *)(uintptr_t)fi->fh;
}

#endif
