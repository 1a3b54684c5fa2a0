/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_DISK_H
#define ENGINE_DISK_H

/* Reading ranges of files without waiting for them.  One thread of its own, or some, where reads end.  A
 * port: it never retries and never chooses; a short read is the caller's to go on with.
 */

#include "engine/base.h"

struct disk;

struct disk_read { /* the caller's memory until done is called */
	int fd;
	uint32_t size;
	uint64_t offset;
	void *to;
	/* Bytes, 0 at the end of the file; or -errno.  From a thread of the disk's. */
	void (*done)(struct disk_read *read, int result);
	struct disk_read *next; /* the disk's */
};

struct disk_ops {
	const char *name;
	/* -ENOSYS, -EPERM and others: the machine does not let us. */
	int (*open)(struct disk **d);
	/* No read may be under way. */
	void (*close)(struct disk *d);
	/* Any thread, also from done. */
	void (*submit)(struct disk *d, struct disk_read *read);
};

extern const struct disk_ops disk_uring; /* io_uring */
extern const struct disk_ops disk_pread; /* threads */

#endif
