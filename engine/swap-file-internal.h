/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SWAP_FILE_INTERNAL_H
#define ENGINE_SWAP_FILE_INTERNAL_H

#include "engine/arena.h"
#include "engine/swap-file.h"

#include <pthread.h>

#define SWAP_MAGIC "fragswp1"

enum {
	SWAP_SLOTS = 2,
	SWAP_HEAD = 2 << 20, /* bytes before the first extent */
	SWAP_UNWRITTEN = 0,  /* sums that are none */
	SWAP_DAMAGED = 1,
};

struct swap_file {
	int fd;
	char *path;
	uint8_t job[16];
	const struct disk_ops *disk_ops;
	struct disk *disk;
	pthread_mutex_t lock; /* of all below */
	struct arena arena;   /* bytes from SWAP_HEAD on */
	struct swap_extent *extents;
	struct swap_extent *retired; /* of the last commit alone */
	uint64_t manifest;           /* arena block of the last commit's; 0: none */
	uint64_t sequence;           /* of commits */
	uint64_t end;                /* of the file */
	int unsynced;                /* what fdatasync said when it failed */
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
/* Opens, locks.  flags: O_CREAT or 0. */
int swap_file_open(struct swap_file **out, const struct swap_file_config *config, int flags,
		   char *why, size_t whysize);
int swap_refuse(const struct swap_file_config *config, int rc, const char *what, char *why,
		size_t whysize);
/* Room in the file: under f->lock. */
int swap_reserve(struct swap_file *f, uint64_t bytes, uint64_t *block, uint64_t *offset);
struct swap_extent *swap_extent_alloc(uint64_t id, uint64_t bytes);
void swap_extent_free(struct swap_extent *x);
void swap_extents_free(struct swap_extent *first);

#endif
