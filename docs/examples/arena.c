/* SPDX-License-Identifier: Apache-2.0 */

/* Stage 3: this rank's bf16 shards lie in an arena.  Whole parameters come and go beside them,
 * first to be cut into shards, then to be gathered in each step, and leave holes of all sizes.
 * The arena is so small that it must be compacted, which moves shards.
 */

#include "trainer.h"

#include "device.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static uint64_t block_bytes(uint64_t elements)
{
	return (elements * sizeof(uint16_t) + 255) / 256 * 256;
}

/* Returns bytes for the shards and for two gathered parameters that follow each other: the
 * newer is there before the older is released.
 */
static uint64_t arena_bytes(const struct trainer *t)
{
	uint64_t shards = 0, most = 0, before = 0;

	for (int p = 0; p < MODEL_NPARAMS; p++) {
		uint64_t whole = block_bytes(t->model.param[p].numel);

		shards += block_bytes(t->param[p].piece);
		most = whole + before > most ? whole + before : most;
		before = whole;
	}
	return shards + most;
}

static uint64_t block_new(struct trainer *t, uint64_t elements)
{
	uint64_t block = 0, bytes = block_bytes(elements);
	int rc = frag_arena_alloc(t->frag, bytes, &block);

	if (rc == -EAGAIN) { /* the free bytes are not in one run */
		int64_t moved = frag_arena_compact(t->frag, bytes, UINT64_MAX);

		need(t, "compaction", moved < 0 ? (int)moved : 0);
		rc = frag_arena_alloc(t->frag, bytes, &block);
	}
	need(t, "arena", rc);
	return block;
}

void arena_open(struct trainer *t)
{
	struct frag_arena arena = { .size = sizeof(arena), .bytes = arena_bytes(t) };

	if (!t->frag)
		die("--arena: only with the library");
	if (t->options.device)
		arena.memory = device_alloc(arena.bytes);
	need(t, "arena", frag_arena_open(t->frag, &arena));
	for (int p = 0; p < MODEL_NPARAMS; p++) {
		uint64_t whole = block_new(t, t->model.param[p].numel);
		uint64_t shard = block_new(t, t->param[p].piece);

		need(t, "arena",
		     frag_arena_assign(t->frag, t->param[p].id, FRAG_SHARD, shard, 0));
		need(t, "arena", frag_arena_release(t->frag, whole));
	}
}

void arena_report(const struct trainer *t)
{
	struct frag_arena_figures figures = { .size = sizeof(figures) };

	need(t, "arena", frag_arena_figures(t->frag, &figures));
	printf("train: arena of %llu bytes, %llu used at most, %llu moved\n",
	       (unsigned long long)figures.bytes, (unsigned long long)figures.used_max,
	       (unsigned long long)figures.moved);
}

/* Returns the address of a shard, which changes when the arena is compacted. */
static uint16_t *shard_of(struct trainer *t, int p)
{
	void *memory = NULL;

	need(t, "arena", frag_arena_find(t->frag, t->param[p].id, FRAG_SHARD, NULL, &memory));
	return memory;
}

static void copy_in(const struct trainer *t, uint16_t *to, const uint16_t *from, uint64_t n)
{
	if (t->options.device)
		device_put(to, from, n * sizeof(*to));
	else
		memcpy(to, from, n * sizeof(*to));
}

void arena_put(struct trainer *t, int p, uint64_t at, const uint16_t *values, uint64_t n)
{
	copy_in(t, shard_of(t, p) + at, values, n);
}

void arena_get(struct trainer *t, int p, uint16_t *values, uint64_t n)
{
	const uint16_t *from = shard_of(t, p);

	if (t->options.device)
		device_get(values, from, n * sizeof(*values));
	else
		memcpy(values, from, n * sizeof(*values));
}

void arena_hold(struct trainer *t, const uint16_t *values, uint64_t n)
{
	uint64_t block = block_new(t, n), bytes;
	void *memory = NULL;

	need(t, "arena", frag_arena_memory(t->frag, block, &memory, &bytes));
	copy_in(t, memory, values, n);
	arena_let_go(t);
	t->held = block;
	t->holds = true;
}

void arena_let_go(struct trainer *t)
{
	if (t->holds)
		need(t, "arena", frag_arena_release(t->frag, t->held));
	t->holds = false;
}
