/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_STAGING_H
#define FS_STAGING_H

/* Bytes written through one open file, kept until they are committed.
 *
 *	file   |....####|########|........|..##....|	'#' written
 *	block	   0	     1	    2	     3		memory from a block's first write on
 *
 * Blocks come from slabs of huge pages that all files of a mount share; the pool bounds them.
 * Free slabs are kept, because the first touch of memory takes longer than the copy, but the
 * kernel may take their pages when it is short of memory (MADV_FREE).
 */

#include "engine/base/base.h"
#include "engine/base/queue.h"
#include "engine/engine.h"

#include <pthread.h>

enum { STAGING_BLOCK = 64 << 10, STAGING_SLAB = 2 << 20 };

struct staging_slab;

struct staging_pool {
	pthread_mutex_t lock;
	uint64_t limit; /* bytes in blocks, over all files */
	uint64_t used;
	SLIST_HEAD(, staging_slab) slabs; /* those with a free block */
};

void staging_pool_init(struct staging_pool *p, uint64_t limit);
/* To be called when no file has staged bytes. */
void staging_pool_fini(struct staging_pool *p);

struct staging_block;

/* Bytes of one file.  One thread at a time. */
struct staging {
	struct staging_pool *pool;
	uint64_t bytes;   /* of the file */
	uint64_t covered; /* bytes written at least once */
	uint64_t nblocks;
	struct staging_block **blocks; /* [nblocks]; NULL before the first write */
};

void staging_init(struct staging *s, struct staging_pool *pool, uint64_t bytes);
/* Forgets all bytes; s is then as after staging_init. */
void staging_fini(struct staging *s);

/* Stages size bytes at offset; offset + size <= s->bytes.
 * -ENOSPC: the pool's limit is reached, or there is no memory; none of the bytes are staged.
 */
int staging_write(struct staging *s, uint64_t offset, const void *data, size_t size);

/* Stages zeros at offset and behind it, wherever nothing is staged; offset <= s->bytes.
 * -ENOSPC: as staging_write, but some of the zeros may be staged.
 */
int staging_fill(struct staging *s, uint64_t offset);

/* Copies the staged bytes of [offset, offset + size) over out. */
void staging_overlay(const struct staging *s, uint64_t offset, void *out, size_t size);

/* Lists the staged bytes as extents, sorted, neighbours joined where their memory adjoins.
 * *extents is the caller's to free and points into the blocks.  Returns their number; -ENOMEM.
 */
int64_t staging_extents(const struct staging *s, struct engine_extent **extents);

#endif
