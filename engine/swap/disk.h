/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SWAP_DISK_H
#define ENGINE_SWAP_DISK_H

/* The port to asynchronous reads and writes of files.  A disk ends requests in threads of its
 * own.  It never retries and never chooses: after a short read or write the caller submits the
 * rest.
 */

#include "engine/base/base.h"
#include "engine/base/queue.h"

#include <sys/uio.h>

struct disk;

enum disk_what {
	DISK_READ,
	DISK_WRITE,
	DISK_SYNC /* fdatasync; without size and memory */
};

#define DISK_NO_SLAB UINT16_MAX

struct disk_io { /* the caller's memory until done is called */
	enum disk_what what;
	int fd;
	uint32_t size;
	uint16_t slab; /* the number of the setup's slab that memory lies in, or DISK_NO_SLAB */
	uint64_t offset;
	void *memory;
	/* Called in a thread of the disk.  result: bytes, 0 at the file's end; or -errno. */
	void (*done)(struct disk_io *io, int result);
	/* The disk's; 0 at first. */
	TAILQ_ENTRY(disk_io) next;
	LIST_ENTRY(disk_io) next_canceled;
	bool canceled;
	enum disk_at { DISK_NOWHERE, DISK_QUEUED, DISK_UNDERWAY, DISK_ENDED } at;
};

enum { DISK_DEPTH = 128, DISK_THREADS = 64 };

struct disk_setup {
	/* Memory that the kernel may map once instead of for each request: at most 1 GiB each;
	 * the caller keeps it until close.
	 */
	const struct iovec *slabs;
	unsigned n;
	bool registered;  /* out: the kernel took the slabs; requests name theirs in any case */
	unsigned depth;   /* requests at once, at most DISK_DEPTH; 0: DISK_DEPTH */
	unsigned threads; /* of disk_threads: at most DISK_THREADS, and depth; 0: 4 */
};

struct disk_ops {
	const char *name;
	/* setup NULL: no slabs, and the defaults.
	 * -ENOSYS: the kernel has no io_uring.
	 * -EPERM: io_uring is forbidden here.
	 * -ENOMEM.
	 * Other errors of io_uring_setup(2): it gives no ring.
	 */
	int (*open)(struct disk **d, struct disk_setup *setup);
	/* No request may be under way. */
	void (*close)(struct disk *d);
	/* Any thread, also from done. */
	void (*submit)(struct disk *d, struct disk_io *io);
	/* Any thread, before submit or until done has returned.  The request ends as soon as it
	 * can, with -ECANCELED or with its result: a device or a file system may finish what it
	 * has begun.  Its memory is in use until done.
	 */
	void (*cancel)(struct disk *d, struct disk_io *io);
};

extern const struct disk_ops disk_uring;   /* io_uring */
extern const struct disk_ops disk_threads; /* pread, pwrite */

#endif
