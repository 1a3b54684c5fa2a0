/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SWAP_SWAP_FILE_INTERNAL_H
#define ENGINE_SWAP_SWAP_FILE_INTERNAL_H

#include "engine/memory/arena.h"
#include "engine/swap/swap-file.h"

#include <pthread.h>

enum {
	SWAP_UNWRITTEN = 0, /* sums that are none */
	SWAP_DAMAGED = 1,
};

struct swap_file {
	int fd;
	char *path;
	const struct disk_ops *disk_ops;
	struct disk *disk;
	uint32_t chunk;
	pthread_mutex_t lock; /* of all below */
	struct arena arena;   /* its bytes */
	uint64_t limit;       /* of the bytes of it that are used */
	uint64_t end;         /* of the file */
	struct swap_io *open; /* requests under way; before the locks of these */
	struct swap_counters counters;
};

static inline uint64_t swap_blocks(uint64_t bytes)
{
	return u64_div_ceil(bytes, SWAP_BLOCK);
}

/* Of one block; never one of those that are none. */
uint32_t swap_sum(const void *block);
/* Where the machine has AVX2. */
uint64_t swap_hash_avx2(const void *block);

#endif
