/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_STAGING_H
#define FS_STAGING_H

/* Bytes written through one open file, held until they are committed.
 *
 *	file   |....####|########|........|..##....|	'#' written
 *	block	   0	     1	    2	     3		a block has memory once something is in it
 *
 * Blocks come from slabs of huge pages that all files of a mount share; the pool bounds them.
 * Free slabs are kept, because the first touch of memory takes longer than the copy, but the
 * machine may take their pages whenever it is short of memory (MADV_FREE).
 */

#include "engine/base/base.h"
#include "engine/engine.h"

#include <pthread.h>

enum { STAGING_BLOCK = 64 << 10, STAGING_SLAB = 2 << 20 };

struct staging_slab;

struct staging_pool {
	pthread_mutex_t lock;
	uint64_t limit; /* bytes in blocks, over all files */
	uint64_t used;
	struct staging_slab *slabs; /* that have a free block */
};

void staging_pool_init(struct staging_pool *p, uint64_t limit);
/* Nothing may be staged any more. */
void staging_pool_fini(struct staging_pool *p);

struct staging_block;

/* Not for several threads at once. */
struct staging {
	struct staging_pool *pool;
	uint64_t bytes;   /* of the file */
	uint64_t covered; /* bytes written at least once */
	uint64_t nblocks;
	struct staging_block **blocks; /* [nblocks]; NULL before the first write */
};

void staging_init(struct staging *s, struct staging_pool *pool, uint64_t bytes);
/* Forgets all that was written: then it is as after staging_init. */
void staging_fini(struct staging *s);

/* offset + size <= s->bytes.  -ENOSPC: over the pool's limit, or no memory: nothing was written
 * of this call.
 */
int staging_write(struct staging *s, uint64_t offset, const void *data, size_t size);

/* Copies what was written in [offset, offset + size) over out. */
void staging_overlay(const struct staging *s, uint64_t offset, void *out, size_t size);

/* What was written, sorted, adjoining memory as one; *extents is the caller's to free and
 * points into the blocks.  Returns their number; -ENOMEM.
 */
int64_t staging_extents(const struct staging *s, struct engine_extent **extents);

#endif
