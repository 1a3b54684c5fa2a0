/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/swap-file-internal.h"
#include "engine/fd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* A commit: the manifest to an extent of its own, to the disk; then one of two slots, to the disk.  Whichever of the
 * two is whole and newer is the commit.  All numbers are little-endian, as the machine is.
 */

struct slot { /* one block, zeros behind it */
	char magic[8];
	uint8_t job[16];
	uint64_t sequence;
	uint64_t offset, bytes; /* of the manifest, in the file */
	uint64_t sum;           /* of it */
	uint64_t own_sum;       /* of all above */
};

struct entry { /* then its sums */
	uint64_t id, generation, bytes, offset;
};

static uint64_t slot_sum(const struct slot *s)
{
	return XXH3_64bits(s, offsetof(struct slot, own_sum));
}

static uint64_t slot_offset(uint64_t sequence)
{
	return (1 + sequence % SWAP_SLOTS) * SWAP_BLOCK;
}

/* ---- writing ---- */

static size_t entry_size(uint64_t bytes)
{
	return sizeof(struct entry) + swap_blocks(bytes) * sizeof(uint32_t);
}

static size_t manifest_size(const struct swap_file *f)
{
	size_t size = 0;

	for (const struct swap_extent *x = f->extents; x; x = x->next)
		size += entry_size(x->bytes);
	return size;
}

static void write_entries(const struct swap_file *f, uint8_t *to)
{
	for (const struct swap_extent *x = f->extents; x; x = x->next) {
		const struct entry e = { x->id, x->generation, x->bytes, x->offset };

		memcpy(to, &e, sizeof(e));
		memcpy(to + sizeof(e), x->sums, entry_size(x->bytes) - sizeof(e));
		to += entry_size(x->bytes);
	}
}

/* Whole blocks of zeros, at least one. */
static uint8_t *new_blocks(size_t bytes)
{
	size_t size = u64_max(swap_blocks(bytes), 1) * SWAP_BLOCK;
	uint8_t *p = aligned_alloc(SWAP_BLOCK, size);

	if (p)
		memset(p, 0, size);
	return p;
}

static int write_slot(struct swap_file *f, const struct slot *slot)
{
	CLEANUP(free) uint8_t *block = new_blocks(sizeof(*slot));

	if (!block)
		return -ENOMEM;
	memcpy(block, slot, sizeof(*slot));
	return fd_write_all(f->fd, block, SWAP_BLOCK, slot_offset(slot->sequence));
}

/* What the kernel could not write it has forgotten: to ask again would be to be told that all is well. */
static int sync_file(struct swap_file *f)
{
	if (!f->unsynced && fdatasync(f->fd))
		f->unsynced = -errno;
	return f->unsynced;
}

static int write_manifest(struct swap_file *f, struct slot *slot)
{
	CLEANUP(free) uint8_t *bytes = new_blocks(slot->bytes);
	int rc;

	if (!bytes)
		return -ENOMEM;
	write_entries(f, bytes);
	slot->sum = XXH3_64bits(bytes, slot->bytes);
	slot->own_sum = slot_sum(slot);
	rc = fd_write_all(f->fd, bytes, u64_max(swap_blocks(slot->bytes), 1) * SWAP_BLOCK,
			  slot->offset);
	if (!rc)
		rc = sync_file(f);
	if (!rc)
		rc = write_slot(f, slot);
	return rc ? rc : sync_file(f);
}

/* Nothing of the commit before is needed any more. */
static void forget_last(struct swap_file *f, uint64_t manifest)
{
	while (f->retired) {
		struct swap_extent *x = f->retired;

		f->retired = x->next;
		arena_release(&f->arena, x->block);
		swap_extent_free(x);
	}
	if (f->manifest)
		arena_release(&f->arena, f->manifest);
	f->manifest = manifest;
}

static int commit(struct swap_file *f)
{
	struct slot slot = { .magic = SWAP_MAGIC,
			     .sequence = f->sequence + 1,
			     .bytes = manifest_size(f) };
	uint64_t manifest;
	int rc = swap_reserve(f, u64_max(slot.bytes, 1), &manifest, &slot.offset);

	if (rc)
		return rc;
	memcpy(slot.job, f->job, sizeof(slot.job));
	rc = write_manifest(f, &slot);
	if (rc) {
		arena_release(&f->arena, manifest);
		return rc;
	}
	forget_last(f, manifest);
	f->sequence = slot.sequence;
	f->counters.commits++;
	return 0;
}

int swap_file_commit(struct swap_file *f)
{
	int rc;

	pthread_mutex_lock(&f->lock);
	rc = commit(f);
	pthread_mutex_unlock(&f->lock);
	return rc;
}

/* ---- reading ---- */

static bool read_slot(struct swap_file *f, uint64_t number, struct slot *slot)
{
	_Alignas(SWAP_BLOCK) uint8_t block[SWAP_BLOCK];

	if (fd_read_all(f->fd, block, SWAP_BLOCK, slot_offset(number)))
		return false;
	memcpy(slot, block, sizeof(*slot));
	return !memcmp(slot->magic, SWAP_MAGIC, sizeof(slot->magic)) &&
	       slot->own_sum == slot_sum(slot) && slot->sequence % SWAP_SLOTS == number;
}

/* Whole extents in what is there, on whole blocks. */
static bool is_place(const struct swap_file *f, uint64_t offset, uint64_t bytes)
{
	uint64_t end;

	return bytes && offset >= SWAP_HEAD && offset % SWAP_BLOCK == 0 && bytes <= f->end &&
	       u64_add(offset, swap_blocks(bytes) * SWAP_BLOCK, &end) && end <= f->end;
}

static int read_entry(struct swap_file *f, const uint8_t *at, size_t left,
		      struct swap_extent **out)
{
	struct entry e;
	struct swap_extent *x;

	if (left < sizeof(e))
		return -EBADMSG;
	memcpy(&e, at, sizeof(e));
	if (!is_place(f, e.offset, e.bytes) || left < entry_size(e.bytes))
		return -EBADMSG;
	x = swap_extent_alloc(e.id, e.bytes);
	if (!x)
		return -ENOMEM;
	x->generation = e.generation;
	x->offset = e.offset;
	memcpy(x->sums, at + sizeof(e), entry_size(e.bytes) - sizeof(e));
	x->next = f->extents;
	f->extents = x;
	*out = x;
	return 0;
}

static int read_entries(struct swap_file *f, const uint8_t *bytes, size_t size)
{
	struct swap_extent *x;
	int rc;

	for (size_t at = 0; at < size; at += entry_size(x->bytes)) {
		rc = read_entry(f, bytes + at, size - at, &x);
		if (rc)
			return rc;
	}
	return 0;
}

static int read_manifest(struct swap_file *f, const struct slot *slot)
{
	CLEANUP(free) uint8_t *bytes = NULL;
	int rc;

	if (!slot->bytes)
		return 0;
	if (!is_place(f, slot->offset, slot->bytes))
		return -EBADMSG;
	bytes = new_blocks(slot->bytes);
	if (!bytes)
		return -ENOMEM;
	rc = fd_read_all(f->fd, bytes, swap_blocks(slot->bytes) * SWAP_BLOCK, slot->offset);
	if (rc)
		return rc;
	if (XXH3_64bits(bytes, slot->bytes) != slot->sum)
		return -EBADMSG;
	return read_entries(f, bytes, slot->bytes);
}

/* ---- who has which part ---- */

static int compare_offsets(const void *a, const void *b)
{
	const struct swap_extent *x = *(struct swap_extent *const *)a;
	const struct swap_extent *y = *(struct swap_extent *const *)b;

	return (x->offset > y->offset) - (x->offset < y->offset);
}

/* The arena's blocks, in order: with ones between them that are then released. */
static int take_part(struct swap_file *f, uint64_t *end, uint64_t offset, uint64_t bytes,
		     uint64_t *block, uint64_t *hole)
{
	int rc = 0;

	*hole = 0;
	if (offset < *end)
		return -EBADMSG; /* two overlap */
	if (offset > *end)
		rc = arena_alloc(&f->arena, offset - *end, hole);
	if (!rc)
		rc = arena_alloc(&f->arena, bytes, block);
	*end = offset + swap_blocks(bytes) * SWAP_BLOCK;
	return rc;
}

static int take_parts(struct swap_file *f, struct swap_extent **all, size_t n, uint64_t *holes)
{
	uint64_t end = SWAP_HEAD;
	int rc = 0;

	qsort(all, n, sizeof(*all), compare_offsets);
	for (size_t i = 0; i < n && !rc; i++)
		rc = take_part(f, &end, all[i]->offset, all[i]->bytes, &all[i]->block,
			       &holes[i]);
	for (size_t i = 0; i < n; i++)
		if (holes[i])
			arena_release(&f->arena, holes[i]);
	return rc;
}

/* The manifest is one of them while its place is taken. */
static int rebuild(struct swap_file *f, const struct slot *slot)
{
	struct swap_extent manifest = { .bytes = u64_max(slot->bytes, 1),
					.offset = slot->offset };
	CLEANUP(free) struct swap_extent **all = NULL;
	CLEANUP(free) uint64_t *holes = NULL;
	size_t n = 0;
	int rc;

	for (struct swap_extent *x = f->extents; x; x = x->next)
		n++;
	all = calloc(n + 1, sizeof(struct swap_extent *));
	holes = calloc(n + 1, sizeof(*holes));
	if (!all || !holes)
		return -ENOMEM;
	n = 0;
	for (struct swap_extent *x = f->extents; x; x = x->next)
		all[n++] = x;
	all[n++] = &manifest;
	rc = take_parts(f, all, n, holes);
	f->manifest = manifest.block;
	return rc;
}

/* Newest first; returns how many. */
static size_t find_slots(struct swap_file *f, struct slot found[SWAP_SLOTS])
{
	size_t n = 0;

	for (uint64_t i = 0; i < SWAP_SLOTS; i++)
		n += read_slot(f, i, &found[n]);
	if (n == 2 && found[0].sequence < found[1].sequence) {
		struct slot newer = found[1];

		found[1] = found[0];
		found[0] = newer;
	}
	return n;
}

/* A slot whose manifest is not there is of a commit that failed; one that we have no memory for is not. */
static int recover(struct swap_file *f, const char **what)
{
	struct slot slots[SWAP_SLOTS];
	size_t n = find_slots(f, slots);
	int rc = -ESTALE;

	*what = "nothing was committed to it";
	for (size_t i = 0; i < n && rc && rc != -ENOMEM; i++) {
		*what = "it is another job's";
		if (memcmp(slots[i].job, f->job, sizeof(f->job)) != 0)
			return -ESTALE;
		*what = NULL;
		rc = read_manifest(f, &slots[i]);
		if (rc) {
			swap_extents_free(f->extents);
			f->extents = NULL;
		} else
			f->sequence = slots[i].sequence;
		if (!rc)
			return rebuild(f, &slots[i]);
	}
	return rc;
}

int swap_file_recover(struct swap_file **out, const struct swap_file_config *config, char *why,
		      size_t whysize)
{
	struct swap_file *f;
	const char *what;
	int rc = swap_file_open(&f, config, 0, why, whysize);

	if (rc)
		return rc;
	f->end = (uint64_t)lseek(f->fd, 0, SEEK_END);
	rc = recover(f, &what);
	if (rc) {
		swap_file_close(f, false);
		return swap_refuse(config, rc,
				   what             ? what
				   : rc == -EBADMSG ? "damaged"
						    : NULL,
				   why, whysize);
	}
	*out = f;
	return 0;
}
