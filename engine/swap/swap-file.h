/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SWAP_SWAP_FILE_H
#define ENGINE_SWAP_SWAP_FILE_H

/* A rank's container of swapped states: one file of extents, with a checksum for each 4 KiB,
 * kept in memory.
 *
 *	| extent | extent | ...hole... | extent |
 *
 * The file has no name but while it is made: it ends with the process, however that ends, and
 * nobody else finds it or reads it.  So nothing is in it but extents: what each holds is a
 * number of the caller's.
 *
 * Requests on one extent that overlap, one of them a write, must not be under way together.
 */

#include "engine/swap/disk.h"

#include <pthread.h>

enum { SWAP_BLOCK = 4096, SWAP_NAME_MAX = 200 };

struct swap_file;

struct swap_file_config {
	const char *dir;
	const char *name; /* plain; at most SWAP_NAME_MAX */
	const struct disk_ops *disk_ops;
	struct disk *disk; /* the caller's, until close */
	bool no_direct;    /* through the page cache */
	uint32_t chunk; /* most bytes of a request, a multiple of SWAP_BLOCK; 0: SWAP_CHUNK */
};

/* A new one; what is left there of that name by an ended process goes.  -EBUSY: another process
 * has that; -ENOENT, -EACCES and so on; -ELOOP: a link is there; -EINVAL: another thing that is
 * no file is.  why has one line.
 */
int swap_file_create(struct swap_file **f, const struct swap_file_config *config, char *why,
		     size_t whysize);
/* All extents are dropped, and nothing is under way.  NULL is allowed. */
void swap_file_close(struct swap_file *f);

struct swap_extent {
	uint64_t id; /* the caller's */
	uint64_t bytes;
	uint64_t offset; /* in the file */
	uint64_t block;  /* of the arena */
	uint32_t *sums;  /* of each SWAP_BLOCK */
};

/* What it holds is not there yet: read as zeros, without the disk.  -ENOSPC; -ENOMEM. */
int swap_file_extent_new(struct swap_file *f, uint64_t id, uint64_t bytes,
			 struct swap_extent **x);
/* There are never more bytes of extents than that, each rounded up to SWAP_BLOCK, unless there
 * are already.
 */
void swap_file_limit(struct swap_file *f, uint64_t bytes);
void swap_file_extent_drop(struct swap_file *f, struct swap_extent *x);

enum { SWAP_CHUNKS = 8, SWAP_CHUNK = 2 << 20 };

struct swap_chunk { /* the file's */
	struct disk_io disk;
	struct swap_io *io;
	uint8_t *bounce; /* NULL: it goes to memory itself */
	uint64_t at;     /* in the extent; whole blocks */
	uint32_t size, gone;
	uint32_t lead, count; /* bytes of the request in it, from lead on */
	uint8_t *memory;      /* of those */
	bool completing;      /* a write first reads the rest of its block */
	bool written;         /* a read: it is there */
	bool used;
	bool submitted; /* the disk has it */
	uint8_t again;  /* -EAGAIN or -EINTR, one after the other */
};

/* Any range of an extent.  Where offset and memory are multiples of SWAP_BLOCK no byte is
 * copied; elsewhere what is at the edges is.  A block that is not what was written is -EIO, and
 * so is what is read of a write that failed.
 */
struct swap_io { /* the caller's memory until done is called */
	struct swap_extent *extent;
	enum disk_what what; /* DISK_READ, DISK_WRITE */
	uint16_t slab;       /* as struct disk_io's */
	uint64_t offset, bytes;
	void *memory;
	/* 0 or -errno: -EINVAL: not in the extent; -ECANCELED; -ENOSPC, -EFBIG, -EIO and so on.
	 * From a thread of the disk's, or in swap_file_submit.
	 */
	void (*done)(struct swap_io *io, int rc);
	void *owner;
	/* out: from the first damaged block to the end of the last; UINT64_MAX: there was none.
	 */
	uint64_t damaged, damaged_end;
	/* the file's, 0 at first: */
	struct swap_file *file;
	LIST_ENTRY(swap_io) next; /* under the file's lock, as open is */
	bool open;
	pthread_mutex_t lock; /* of all below */
	bool canceled;
	uint64_t started; /* bytes */
	unsigned underway;
	int rc;
	struct swap_chunk chunks[SWAP_CHUNKS];
};

void swap_file_submit(struct swap_file *f, struct swap_io *io);
/* Any thread, also before swap_file_submit, and before done has returned: it ends as soon as the
 * disk lets it, with -ECANCELED, or as it would have.
 */
void swap_file_cancel(struct swap_file *f, struct swap_io *io);
/* All that were submitted. */
void swap_file_cancel_all(struct swap_file *f);

struct swap_counters {                                /* since it was opened */
	uint64_t reads, writes;                       /* requests to the disk */
	uint64_t read_bytes, written_bytes;           /* of the disk */
	uint64_t asked_read_bytes, asked_write_bytes; /* by callers */
	uint64_t short_requests, errors, damaged_blocks;
	uint64_t extents, extent_bytes, extent_bytes_max, extent_bytes_limit, file_bytes;
	bool direct;
};

void swap_file_counters(struct swap_file *f, struct swap_counters *out);

#endif
