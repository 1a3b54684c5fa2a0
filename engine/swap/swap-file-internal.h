/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SWAP_SWAP_FILE_INTERNAL_H
#define ENGINE_SWAP_SWAP_FILE_INTERNAL_H

/* Internals of the swap file. */

#include "engine/memory/arena.h"
#include "engine/swap/swap-file.h"

#include <pthread.h>

enum { SWAP_SUM_THREADS = 2 };

struct swap_sum_threads { /* threads that compute checksums */
	pthread_t threads[SWAP_SUM_THREADS];
	unsigned n;           /* 0: no thread could be started */
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t queued;
	TAILQ_HEAD(, swap_chunk) queue;
	bool stop;
};

enum {
	/* Values that stand in place of a checksum, and that no checksum has. */
	SWAP_UNWRITTEN = 0,
	SWAP_DAMAGED = 1, /* the last write of the block failed */
};

struct swap_file {
	int fd;
	char *path;
	const struct disk_ops *disk_ops;
	struct disk *disk;
	uint32_t chunk;
	struct swap_sum_threads sum_threads;
	pthread_mutex_t lock;      /* of all below */
	struct arena arena;        /* the places of extents in the file */
	uint64_t limit;            /* most bytes of extents */
	uint64_t end;              /* of the file */
	LIST_HEAD(, swap_io) open; /* requests under way; `lock` is taken before theirs */
	struct swap_counters counters;
};

static inline uint64_t swap_file_blocks(uint64_t bytes)
{
	return u64_div_ceil(bytes, SWAP_BLOCK);
}

/* ---- swap-file-sum-threads.c ---- */

void swap_file_sum_threads_start(struct swap_sum_threads *s);
/* No request may be under way. */
void swap_file_sum_threads_stop(struct swap_sum_threads *s);
/* Returns true if the chunk is large enough for the threads. */
bool swap_file_sum_threads_want(const struct swap_sum_threads *s, const struct swap_chunk *c);
void swap_file_sum_threads_add(struct swap_sum_threads *s, struct swap_chunk *c);

/* ---- swap-file-io.c ---- */

/* In a thread for checksums: computes the chunk's checksums, and goes on with its request. */
void swap_file_sum_chunk(struct swap_chunk *c);

/* ---- swap-file-sum.c ---- */

/* Returns the checksum of one block; never SWAP_UNWRITTEN or SWAP_DAMAGED. */
uint32_t swap_file_sum(const void *block);
/* Returns the XXH3 of one block, by AVX2, which the machine must have. */
uint64_t swap_file_hash_avx2(const void *block);

#endif
