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

/* How an open file stands to the pages of its inode; fs/pages.h. */
enum pages_use {
	PAGES_UNUSED,
	PAGES_USED,    /* they have what it reads */
	PAGES_REFUSED, /* they have, or had, another generation */
};

enum { PAGES_REFUSALS = 64 };

/* An open(2) that was ESTALE, for the kernel to look the name up again and try once more. */
struct pages_refusal {
	uint64_t inode; /* with alias 0; 0: none */
	pid_t opener;
	uint64_t since_ms;
};

struct pages {
	uint32_t aliases; /* chosen, ever */
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
	struct cells cells;       /* of the engine's file: what this one has of it */
	/* Content of texts, hypers, and, from its first read on, of a NODE_STAT; header of
	 * .npy, and of a NODE_EXPORT_FILE; else NULL.
	 */
	char *text;
	uint64_t length;       /* of text */
	enum frag_dtype dtype; /* of a NODE_STAT's state */
	/* A hyper's: as hypers_get has it.  A NODE_STAT's: when its state had changed last at
	 * open(2); 0: that says nothing of its bytes.
	 */
	uint64_t changed_ns;
	struct export_set *exported; /* of a NODE_EXPORT_FILE; else NULL */
	_Atomic unsigned refs;       /* one until RELEASE, and one for each request under way */
	struct write_buffer *write_buffer; /* NULL: opened for reading */
	_Atomic uint64_t writer;           /* lock owner of the last write(2); 0: none was */
	_Atomic pid_t opener;   /* thread in open(2); -1: that open(2) has returned */
	_Atomic bool truncated; /* by O_TRUNC; the write buffer takes it from here */
	pthread_mutex_t lock;  /* of newer and was_read; taken with fs->lock held, or without */
	struct handle *newer;  /* the handle that is read in place of this: since a commit, or
				 * since the inode's pages are used (fs/pages.h) */
	_Atomic bool was_read; /* bytes of the engine's file were asked for */
	_Atomic bool behind;   /* after a commit: the next read opens `newer` anew */
	bool write_only;       /* finds no pages of the kernel */
	bool still;            /* its bytes never change */
	enum pages_use pages;  /* under fs->lock */
	struct engine_events *events; /* of /events; else NULL */
	struct stats_table *table;    /* of .frag/stats; else NULL */
	_Atomic uint64_t held;        /* freeze that ends when this is closed; 0: none */
	struct poll poll;             /* used where poll_can(node) */
};

/* Takes a reference for a request under way: its reply lets the reader go on, whose close(2),
 * and the RELEASE after it, may come before the function that replied has returned.
 * state_close gives it back.
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
