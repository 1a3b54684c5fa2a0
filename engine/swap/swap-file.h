/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SWAP_SWAP_FILE_H
#define ENGINE_SWAP_SWAP_FILE_H

/* A rank's container of swapped states: one file of extents, whose checksums, one for each 4
 * KiB, are kept in memory.
 *
 *	| extent | extent | ...hole... | extent |
 *
 * The file loses its name when it is made, and so ends with the process, however that ends, and
 * no other process can open it.  It has no header and no index: the caller gives each extent a
 * number.
 *
 * The caller keeps apart requests on overlapping bytes of an extent of which one is a write.
 */

#include "engine/swap/disk.h"

#include <pthread.h>

enum { SWAP_BLOCK = 4096, SWAP_NAME_MAX = 200 };

struct swap_file;

struct swap_file_config {
	const char *dir;
	const char *name; /* without a folder; at most SWAP_NAME_MAX */
	const struct disk_ops *disk_ops;
	struct disk *disk; /* the caller's, until close */
	bool no_direct;    /* through the page cache */
	uint32_t chunk; /* most bytes of a request, a multiple of SWAP_BLOCK; 0: SWAP_CHUNK */
};

/* Makes a folder that is missing, for its owner alone (mode 0700), and says so in a line of the
 * log.  The folder above it must be there: where a disk is not mounted, nothing is made in its
 * place.  Another process may make the same folder meanwhile.
 * Errors of mkdir.
 */
int swap_file_make_dir(const char *dir);

/* Makes a file, and removes one of that name that an ended process left.  On error why has one
 * line.
 * -EBUSY: another process uses a file of that name.
 * -ELOOP: a symbolic link has that name.
 * -EINVAL: a folder or a device has that name, or it is no plain name.
 * -ENOMEM.
 * Errors of open.
 */
int swap_file_create(struct swap_file **f, const struct swap_file_config *config, char *why,
		     size_t whysize);
/* All extents must be dropped, and no request may be under way.  NULL: does nothing. */
void swap_file_close(struct swap_file *f);

struct swap_extent {
	uint64_t id; /* the caller's number */
	uint64_t bytes;
	uint64_t offset; /* in the file */
	uint64_t block;  /* its handle in the arena */
	uint32_t *sums;  /* a checksum for each SWAP_BLOCK */
};

/* Makes an extent, which reads as zeros, without the disk, until it is written.
 * -ENOSPC: the disk or the limit has no room.
 * -EFBIG: the file would exceed RLIMIT_FSIZE.
 * -ENOMEM.
 * -EINVAL: bytes is 0.
 */
int swap_file_extent_new(struct swap_file *f, uint64_t id, uint64_t bytes,
			 struct swap_extent **x);
/* Bounds the bytes of all extents, each rounded up to SWAP_BLOCK; those that exist stay. */
void swap_file_limit(struct swap_file *f, uint64_t bytes);
void swap_file_extent_drop(struct swap_file *f, struct swap_extent *x);

enum { SWAP_CHUNKS = 8, SWAP_CHUNK = 2 << 20 };

struct swap_chunk { /* the file's */
	struct disk_io disk;
	struct swap_io *io;
	uint8_t *bounce;      /* NULL: the disk reads and writes the request's memory itself */
	uint64_t at;          /* in the extent; whole blocks */
	uint32_t size, gone;  /* bytes; of these, done */
	uint32_t lead, count; /* the request has `count` bytes of the chunk, from `lead` on */
	uint8_t *memory;      /* the request's memory for these bytes */
	bool completing;      /* a write first reads its block, of which it has only a part */
	bool written;         /* a read: its blocks were written */
	bool used;
	bool submitted; /* the disk has it */
	uint8_t again;  /* times in a row that the disk said to try again */
	uint8_t parts;  /* of a write, not over yet: the disk's, the checksums' */
	int rc;         /* of the parts that are over */
	TAILQ_ENTRY(swap_chunk) in_queue; /* of the threads for checksums */
};

/* A request on any range of an extent.  No byte is copied if offset and memory are multiples of
 * SWAP_BLOCK, else the blocks at the edges are, or all.
 */
struct swap_io { /* the caller's memory until done is called */
	struct swap_extent *extent;
	enum disk_what what; /* DISK_READ, DISK_WRITE */
	uint16_t slab;       /* as struct disk_io's */
	uint64_t offset, bytes;
	void *memory;
	/* Called in a thread of the disk or of the file, or in swap_file_submit.
	 * -EINVAL: the range is not in the extent.
	 * -EIO: a block has other bytes than were written, or its last write failed.
	 * -ECANCELED: the request was canceled.
	 * Errors of pread and pwrite.
	 */
	void (*done)(struct swap_io *io, int rc);
	void *owner;
	/* out: the range from the first damaged block to the end of the last; UINT64_MAX: none.
	 */
	uint64_t damaged, damaged_end;
	/* The file's; 0 at first. */
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
/* Any thread, also before swap_file_submit, until done has returned.  The request ends as soon
 * as the disk lets it, with -ECANCELED or its own result.
 */
void swap_file_cancel(struct swap_file *f, struct swap_io *io);
/* Cancels all requests that were submitted. */
void swap_file_cancel_all(struct swap_file *f);

struct swap_counters {                                /* since the file was made */
	uint64_t reads, writes;                       /* requests to the disk */
	uint64_t read_bytes, written_bytes;           /* of the disk */
	uint64_t asked_read_bytes, asked_write_bytes; /* of requests */
	uint64_t short_requests, errors, damaged_blocks;
	uint64_t extents, extent_bytes, extent_bytes_max, extent_bytes_limit, file_bytes;
	bool direct;
};

void swap_file_counters(struct swap_file *f, struct swap_counters *out);

#endif
