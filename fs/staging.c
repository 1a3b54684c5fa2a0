/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/staging.h"
#include "engine/base/vec.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { SLAB_BLOCKS = STAGING_SLAB / STAGING_BLOCK };
static_assert(SLAB_BLOCKS == 32, "a slab's blocks are the bits of a word");

struct staging_slab {
	SLIST_ENTRY(staging_slab) link;
	unsigned char *memory;
	uint32_t taken; /* bit per block */
};

struct dirty_range {
	uint32_t start, end; /* in the block, half open */
};

struct staging_block {
	unsigned char *memory; /* [STAGING_BLOCK] */
	struct staging_slab *slab;
	uint32_t nranges, room;
	struct dirty_range *ranges; /* sorted, neither overlapping nor touching */
};

void staging_pool_init(struct staging_pool *p, uint64_t limit)
{
	*p = (struct staging_pool){ .limit = limit };
	pthread_mutex_init(&p->lock, NULL);
}

void staging_pool_fini(struct staging_pool *p)
{
	struct staging_slab *slab;

	assert(!p->used);
	while ((slab = SLIST_FIRST(&p->slabs))) {
		SLIST_REMOVE_HEAD(&p->slabs, link);
		munmap(slab->memory, STAGING_SLAB);
		free(slab);
	}
	pthread_mutex_destroy(&p->lock);
}

/* Maps memory for a slab, aligned to its size, so that it can be one huge page. */
static unsigned char *slab_memory(void)
{
	unsigned char *m = mmap(NULL, 2 * STAGING_SLAB, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t before;

	if (m == MAP_FAILED)
		return NULL;
	before = -(uintptr_t)m % STAGING_SLAB;
	if (before)
		munmap(m, before);
	munmap(m + before + STAGING_SLAB, STAGING_SLAB - before);
	madvise(m + before, STAGING_SLAB, MADV_HUGEPAGE);
	return m + before;
}

static struct staging_slab *slab_new(struct staging_pool *p)
{
	struct staging_slab *slab = calloc(1, sizeof(*slab));

	if (!slab)
		return NULL;
	slab->memory = slab_memory();
	if (!slab->memory) {
		free(slab);
		return NULL;
	}
	SLIST_INSERT_HEAD(&p->slabs, slab, link);
	return slab;
}

/* Takes a block of a slab.  A full slab leaves the list until one of its blocks is put back. */
static struct staging_slab *slab_get(struct staging_pool *p, unsigned *block)
{
	struct staging_slab *slab;

	if (p->used + STAGING_BLOCK > p->limit)
		return NULL;
	slab = SLIST_EMPTY(&p->slabs) ? slab_new(p) : SLIST_FIRST(&p->slabs);
	if (!slab)
		return NULL;
	*block = (unsigned)__builtin_ctz(~slab->taken);
	slab->taken |= 1u << *block;
	if (slab->taken == UINT32_MAX)
		SLIST_REMOVE_HEAD(&p->slabs, link);
	p->used += STAGING_BLOCK;
	return slab;
}

static void slab_put(struct staging_pool *p, struct staging_slab *slab, unsigned block)
{
	if (slab->taken == UINT32_MAX)
		SLIST_INSERT_HEAD(&p->slabs, slab, link);
	slab->taken &= ~(1u << block);
	p->used -= STAGING_BLOCK;
	if (!slab->taken)
		madvise(slab->memory, STAGING_SLAB, MADV_FREE);
}

static struct staging_block *block_new(struct staging_pool *p)
{
	struct staging_block *b = calloc(1, sizeof(*b));
	unsigned number = 0;

	if (!b)
		return NULL;
	pthread_mutex_lock(&p->lock);
	b->slab = slab_get(p, &number);
	pthread_mutex_unlock(&p->lock);
	if (!b->slab) {
		free(b);
		return NULL;
	}
	b->memory = b->slab->memory + (size_t)number * STAGING_BLOCK;
	return b;
}

static void block_free(struct staging_pool *p, struct staging_block *b)
{
	pthread_mutex_lock(&p->lock);
	slab_put(p, b->slab, (unsigned)((size_t)(b->memory - b->slab->memory) / STAGING_BLOCK));
	pthread_mutex_unlock(&p->lock);
	free(b->ranges);
	free(b);
}

/* Reserves memory for one more range, so that adding a range cannot fail. */
static bool block_reserve(struct staging_block *b)
{
	return vec_grow(&b->ranges, b->nranges, &b->room, sizeof(*b->ranges));
}

/* Returns the first range that ends at `start` or behind it. */
static uint32_t range_find(const struct staging_block *b, uint32_t start)
{
	return (uint32_t)LOWER_BOUND(b->nranges, i, b->ranges[i].end < start);
}

/* Adds a range, joined with the ranges that it touches; returns how many bytes are new. */
static uint32_t range_add(struct staging_block *b, struct dirty_range add)
{
	uint32_t first = range_find(b, add.start), last = first, had = 0;

	for (; last < b->nranges && b->ranges[last].start <= add.end; last++) {
		had += b->ranges[last].end - b->ranges[last].start;
		add.start =
			add.start < b->ranges[last].start ? add.start : b->ranges[last].start;
		add.end = add.end > b->ranges[last].end ? add.end : b->ranges[last].end;
	}
	memmove(b->ranges + first + 1, b->ranges + last,
		(b->nranges - last) * sizeof(*b->ranges));
	b->ranges[first] = add;
	b->nranges = b->nranges - (last - first) + 1;
	return add.end - add.start - had;
}

void staging_init(struct staging *s, struct staging_pool *pool, uint64_t bytes)
{
	*s = (struct staging){ .pool = pool,
			       .bytes = bytes,
			       .nblocks = u64_div_ceil(bytes, STAGING_BLOCK) };
}

void staging_fini(struct staging *s)
{
	for (uint64_t i = 0; s->blocks && s->covered && i < s->nblocks; i++) {
		if (s->blocks[i])
			block_free(s->pool, s->blocks[i]);
	}
	free(s->blocks);
	s->blocks = NULL;
	s->covered = 0;
}

static void drop_empty(struct staging *s, uint64_t first, uint64_t last)
{
	for (uint64_t i = first; i <= last; i++) {
		if (s->blocks[i] && !s->blocks[i]->nranges) {
			block_free(s->pool, s->blocks[i]);
			s->blocks[i] = NULL;
		}
	}
}

static int reserve(struct staging *s, uint64_t first, uint64_t last)
{
	if (!s->blocks)
		s->blocks = calloc(s->nblocks, sizeof(struct staging_block *));
	if (!s->blocks)
		return -ENOSPC;
	for (uint64_t i = first; i <= last; i++) {
		if (!s->blocks[i])
			s->blocks[i] = block_new(s->pool);
		if (!s->blocks[i] || !block_reserve(s->blocks[i])) {
			drop_empty(s, first, last);
			return -ENOSPC;
		}
	}
	return 0;
}

/* Returns the part of [offset, offset + size) that is in the block of `offset`. */
static struct dirty_range part(uint64_t offset, size_t size)
{
	uint32_t start = (uint32_t)(offset % STAGING_BLOCK);

	return (struct dirty_range){ start, (uint32_t)u64_min(STAGING_BLOCK, start + size) };
}

int staging_write(struct staging *s, uint64_t offset, const void *data, size_t size)
{
	const unsigned char *from = data;
	int rc;

	assert(offset <= s->bytes && size <= s->bytes - offset);
	if (!size)
		return 0;
	rc = reserve(s, offset / STAGING_BLOCK, (offset + size - 1) / STAGING_BLOCK);
	while (!rc && size) {
		struct staging_block *b = s->blocks[offset / STAGING_BLOCK];
		struct dirty_range r = part(offset, size);
		size_t n = r.end - r.start;

		memcpy(b->memory + r.start, from, n);
		s->covered += range_add(b, r);
		from += n;
		offset += n;
		size -= n;
	}
	return rc;
}

static void zero(struct staging_block *b, uint32_t start, uint32_t end)
{
	if (start < end)
		memset(b->memory + start, 0, end - start);
}

/* Stages zeros in the gaps of a range; returns how many bytes are new. */
static uint32_t fill_block(struct staging_block *b, struct dirty_range want)
{
	uint32_t at = want.start;

	for (uint32_t i = range_find(b, want.start);
	     i < b->nranges && b->ranges[i].start < want.end; i++) {
		zero(b, at, b->ranges[i].start);
		at = (uint32_t)u64_max(at, b->ranges[i].end);
	}
	zero(b, at, want.end);
	return range_add(b, want);
}

int staging_fill(struct staging *s, uint64_t offset)
{
	int rc = 0;

	assert(offset <= s->bytes);
	while (!rc && offset < s->bytes) {
		struct dirty_range r = part(offset, s->bytes - offset);
		uint64_t i = offset / STAGING_BLOCK;

		rc = reserve(s, i, i);
		if (!rc)
			s->covered += fill_block(s->blocks[i], r);
		offset += r.end - r.start;
	}
	return rc;
}

static void overlay_block(const struct staging_block *b, struct dirty_range want,
			  unsigned char *out)
{
	for (uint32_t i = range_find(b, want.start); i < b->nranges; i++) {
		uint32_t start = (uint32_t)u64_max(want.start, b->ranges[i].start);
		uint32_t end = (uint32_t)u64_min(want.end, b->ranges[i].end);

		if (b->ranges[i].start >= want.end)
			break;
		if (start < end)
			memcpy(out + (start - want.start), b->memory + start, end - start);
	}
}

void staging_overlay(const struct staging *s, uint64_t offset, void *out, size_t size)
{
	unsigned char *to = out;

	assert(offset <= s->bytes && size <= s->bytes - offset);
	while (s->blocks && size) {
		struct dirty_range r = part(offset, size);
		const struct staging_block *b = s->blocks[offset / STAGING_BLOCK];
		size_t n = r.end - r.start;

		if (b)
			overlay_block(b, r, to);
		to += n;
		offset += n;
		size -= n;
	}
}

static int64_t collect(const struct staging *s, struct engine_extent *out)
{
	int64_t n = 0;

	for (uint64_t i = 0; s->covered && i < s->nblocks; i++) {
		const struct staging_block *b = s->blocks[i];

		for (uint32_t k = 0; b && k < b->nranges; k++) {
			uint64_t offset = i * STAGING_BLOCK + b->ranges[k].start;
			unsigned char *data = b->memory + b->ranges[k].start;
			uint32_t size = b->ranges[k].end - b->ranges[k].start;

			struct engine_extent *last = n ? &out[n - 1] : NULL;

			if (last && last->offset + last->size == offset &&
			    (const unsigned char *)last->data + last->size == data)
				last->size += size;
			else
				out[n++] = (struct engine_extent){ offset, size, data };
		}
	}
	return n;
}

int64_t staging_extents(const struct staging *s, struct engine_extent **extents)
{
	uint64_t most = 0;

	for (uint64_t i = 0; s->covered && i < s->nblocks; i++)
		most += s->blocks[i] ? s->blocks[i]->nranges : 0;
	*extents = calloc(most + 1, sizeof(**extents));
	return *extents ? collect(s, *extents) : -ENOMEM;
}
