/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SWAP_DISK_H
#define ENGINE_SWAP_DISK_H

/* Ranges of files, without waiting for them.  One thread of its own, or some, where requests
 * end.  A port: it never retries and never chooses; what was read or written short is the
 * caller's to go on with.
 */

#include "engine/base/base.h"

#include <sys/uio.h>

struct disk;

enum disk_what {
	DISK_READ,
	DISK_WRITE,
	DISK_SYNC /* fdatasync; size and memory are nothing */
};

#define DISK_NO_SLAB UINT16_MAX

struct disk_io { /* the caller's memory until done is called */
	enum disk_what what;
	int fd;
	uint32_t size;
	uint16_t slab; /* of those given to open, in which memory lies; or DISK_NO_SLAB */
	uint64_t offset;
	void *memory;
	/* Bytes, 0 at the end of a file that is read; or -errno.  From a thread of the disk's.
	 */
	void (*done)(struct disk_io *io, int result);
	/* the disk's, 0 at first: */
	struct disk_io *next, *next_canceled;
	bool canceled;
	enum disk_at { DISK_NOWHERE, DISK_QUEUED, DISK_UNDERWAY, DISK_ENDED } at;
};

enum { DISK_DEPTH = 128, DISK_THREADS = 64 };

struct disk_setup {
	/* Memory that is registered once, not for each request; at most 1 GiB each; the
	 * caller's until close.
	 */
	const struct iovec *slabs;
	unsigned n;
	bool registered; /* out: the machine lets us; requests name their slab all the same */
	unsigned depth;  /* requests at once; 0: DISK_DEPTH, which is the most */
	unsigned
		threads; /* where requests need threads of ours; 0: 4; at most DISK_THREADS, and depth */
};

struct disk_ops {
	const char *name;
	/* NULL: no slabs, and the rest is 0.  -ENOSYS, -EPERM and others: the machine does not
	 * let us.
	 */
	int (*open)(struct disk **d, struct disk_setup *setup);
	/* Nothing may be under way. */
	void (*close)(struct disk *d);
	/* Any thread, also from done. */
	void (*submit)(struct disk *d, struct disk_io *io);
	/* Any thread, before done has returned, or before submit: it ends as soon as it can,
	 * with -ECANCELED, or as it would have: what a device or a file system has begun may
	 * not let go.  Until done its memory is in use.
	 */
	void (*cancel)(struct disk *d, struct disk_io *io);
};

extern const struct disk_ops disk_uring;   /* io_uring */
extern const struct disk_ops disk_threads; /* pread, pwrite */

#endif
