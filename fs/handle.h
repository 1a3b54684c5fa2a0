/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_HANDLE_H
#define FS_HANDLE_H

/* struct fs, a mount, and struct handle, an open file (libfuse's fi->fh). */

#include "engine/base/queue.h"
#include "fs/hypers.h"
#include "fs/deferred.h"
#include "fs/poll.h"
#include "fs/request.h"
#include "fs/stat-cache.h"
#include "fs/staging.h"
#include "fs/tree.h"
#include "fs/cells.h"

#include <stdatomic.h>

/* Whether reads of an open file go by the kernel's pages of its inode (fs/pages.h). */
enum pages_use {
	PAGES_UNUSED,
	PAGES_USED,    /* the pages have the bytes that the file reads */
	PAGES_REFUSED, /* the pages have, or had, bytes of another generation */
};

enum { PAGES_REFUSALS = 64 };

/* An open(2) that pages_admit refused with ESTALE: the kernel looks the name up and opens it
 * once more.
 */
struct pages_refusal {
	uint64_t inode; /* with alias 0; 0: none */
	pid_t opener;
	uint64_t since_ms;
};

struct pages {
	uint32_t aliases; /* aliases given out since the mount */
	struct pages_refusal refusals[PAGES_REFUSALS];
};

struct stats_table; /* fs/stats-table.h */
struct stats_tables;

struct fs {
	struct engine *engine;
	struct tree tree;
	struct requests requests;
	struct deferred deferred;
	struct hypers hypers;
	struct stat_cache stats;
	struct stats_tables *tables;
	struct polls polls;
	struct staging_pool pool;
	bool writable;
	unsigned max_read;           /* bytes of one request; 0: the kernel's maximum */
	pthread_mutex_t lock;        /* of handles */
	LIST_HEAD(, handle) handles; /* files that the kernel has open, the newest first */
	struct pages pages;          /* under lock */
	void (*ready)(void *arg);    /* called once, when the kernel has sent INIT */
	void *ready_arg;
};

struct write_buffer; /* fs/write-buffer.h */

struct handle {
	struct fs *fs;
	LIST_ENTRY(handle) entry; /* in fs->handles while listed; under its lock */
	bool listed;
	struct node node;
	struct engine_file *file; /* of a state; NULL: text is the whole content */
	uint64_t bytes;           /* of the engine's file */
	struct cells cells;       /* of the engine's file: the part that this file shows */
	/* Content of texts, hypers, and, from its first read on, of a NODE_STAT; header of
	 * .npy, and of a NODE_EXPORT_FILE; else NULL.
	 */
	char *text;
	uint64_t length;       /* of text */
	enum frag_dtype dtype; /* of a NODE_STAT's state */
	/* A NODE_HYPER's: time of its last change, by hypers_get.  A NODE_STAT's: time of its
	 * state's last change, as of open(2); 0: the bytes may change without a time.
	 */
	uint64_t changed_ns;
	struct export_set *exported; /* of a NODE_EXPORT_FILE; else NULL */
	_Atomic unsigned refs;       /* one until RELEASE, and one for each request under way */
	struct write_buffer *write_buffer; /* NULL: opened for reading */
	/* lock owner of the last write(2); 0: there was no write */
	_Atomic uint64_t writer;
	_Atomic pid_t opener;   /* thread in open(2); -1: that open(2) has returned */
	_Atomic bool truncated; /* by O_TRUNC; the write buffer takes it from here */
	pthread_mutex_t lock;   /* of newer and was_read; taken with fs->lock held, or alone */
	/* handle whose engine's file is read in place of this one's, since a commit, or since
	 * the inode's pages are used (fs/pages.h)
	 */
	struct handle *newer;
	_Atomic bool was_read;        /* bytes of the engine's file were asked for */
	_Atomic bool behind;          /* after a commit: the next read opens `newer` anew */
	bool write_only;              /* opened O_WRONLY: no READ of it fills pages */
	bool still;                   /* its bytes never change */
	enum pages_use pages;         /* under fs->lock */
	struct engine_events *events; /* of /events; else NULL */
	struct stats_table *table;    /* of .frag/stats; else NULL */
	/* id of the freeze or watch that ends when this file is closed; 0: none */
	_Atomic uint64_t held;
	struct poll poll; /* used where poll_can(node) */
};

/* Takes a reference for a request under way.  The reply to the request lets the reader go on,
 * so close(2) and the RELEASE after it may come before the function that replied has returned.
 * state_close gives the reference back.
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
