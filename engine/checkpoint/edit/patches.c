/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/fd.h"
#include "engine/checkpoint/edit/patches.h"

#include <errno.h>
#include <string.h>
#include <zlib.h>

enum { CRC_BYTES = 4 };

void patches_init(struct patches *p, const struct table *table,
		  const struct overlay_map *overlay)
{
	*p = (struct patches){ .table = table, .overlay = overlay };
}

void patches_fini(struct patches *p)
{
	void **owned = p->owned.items;

	for (uint32_t i = 0; i < p->owned.count; i++)
		free(owned[i]);
	free(p->owned.items);
	free(p->all.items);
	free(p->crcs.items);
}

static struct patch *items(const struct patches *p)
{
	return p->all.items;
}

int patches_add(struct patches *p, uint32_t file, uint64_t offset, uint64_t size,
		const void *bytes)
{
	struct patch *patch = vec_add(&p->all, sizeof(*patch));

	assert(size);
	if (!patch)
		return -ENOMEM;
	*patch = (struct patch){ .file = file,
				 .offset = offset,
				 .size = size,
				 .bytes = bytes,
				 .number = p->all.count };
	return 0;
}

void *patches_lend(struct patches *p, uint64_t size)
{
	void **slot = vec_add(&p->owned, sizeof(*slot));

	if (!slot)
		return NULL;
	return *slot = malloc(size ? size : 1);
}

/* ---- order ---- */

static int compare_places(const void *a, const void *b)
{
	const struct patch *x = a, *y = b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return x->number < y->number ? -1 : 1;
}

static int compare_numbers(const void *a, const void *b)
{
	const struct patch *x = a, *y = b;

	return (x->number > y->number) - (x->number < y->number);
}

static void sort(struct patches *p)
{
	if (p->all.count)
		qsort(p->all.items, p->all.count, sizeof(struct patch), compare_places);
}

/* Returns how many patches from the i-th on are linked by overlaps; *end: the end of their
 * bytes.
 */
static uint32_t overlapping(const struct patches *p, uint32_t i, uint64_t *end)
{
	const struct patch *all = items(p);
	uint32_t n = 1;

	*end = all[i].offset + all[i].size;
	for (; i + n < p->all.count; n++) {
		const struct patch *next = &all[i + n];

		if (next->file != all[i].file || next->offset >= *end)
			break;
		*end = u64_max(*end, next->offset + next->size);
	}
	return n;
}

/* Makes one patch of n patches that overlap; each writes over those that were added before it.
 */
static int merge(struct patches *p, uint32_t i, uint32_t n, uint64_t end, struct patch *out)
{
	struct patch *some = items(p) + i;
	struct patch whole = some[0];
	uint8_t *bytes = patches_lend(p, end - whole.offset);

	if (!bytes)
		return -ENOMEM;
	qsort(some, n, sizeof(*some), compare_numbers);
	for (uint32_t j = 0; j < n; j++)
		memcpy(bytes + (some[j].offset - whole.offset), some[j].bytes, some[j].size);
	whole.size = end - whole.offset;
	whole.bytes = bytes;
	*out = whole;
	return 0;
}

static int merge_overlaps(struct patches *p)
{
	uint32_t used = 0, n;
	uint64_t end;

	for (uint32_t i = 0; i < p->all.count; i += n) {
		struct patch one = items(p)[i];

		n = overlapping(p, i, &end);
		if (n > 1 && merge(p, i, n, end, &one))
			return -ENOMEM;
		items(p)[used++] = one;
	}
	p->all.count = used;
	return 0;
}

/* ---- CRCs ---- */

static struct patch_crc *crc_at(const struct patches *p, uint32_t i)
{
	return (struct patch_crc *)p->crcs.items + i;
}

/* Adds the CRC of an entry once; patches come in the order of entries. */
static int note_entry(struct patches *p, const struct table_entry *e)
{
	struct patch_crc *c;

	if (p->crcs.count && crc_at(p, p->crcs.count - 1)->entry == e)
		return 0;
	c = vec_add(&p->crcs, sizeof(*c));
	if (!c)
		return -ENOMEM;
	*c = (struct patch_crc){ .entry = e };
	return 0;
}

static int note_entries(struct patches *p, const struct patch *x)
{
	const struct table *t = p->table;
	const struct table_entry *e = table_find_entry(t, x->file, x->offset);
	int rc = 0;

	for (; e && e < t->entries + t->nentries && !rc; e++) {
		if (e->file != x->file || e->at >= x->offset + x->size)
			break;
		rc = note_entry(p, e);
	}
	return rc;
}

static int add_crcs(struct patches *p)
{
	int rc = 0;

	for (uint32_t i = 0; i < p->all.count && !rc; i++)
		rc = note_entries(p, &items(p)[i]);
	for (uint32_t i = 0; i < p->crcs.count && !rc; i++) {
		struct patch_crc *c = crc_at(p, i);
		uint64_t at[2] = { c->entry->crc_in_directory, c->entry->crc_in_descriptor };

		for (int k = 0; k < 2 && !rc; k++) {
			if (!at[k])
				continue;
			rc = patches_add(p, c->entry->file, at[k], CRC_BYTES, c->places[k]);
			if (!rc)
				items(p)[p->all.count - 1].crc = c->places[k];
		}
	}
	return rc;
}

static int check(struct patches *p)
{
	const struct table_file *files = p->table->files;

	for (uint32_t i = 0; i < p->all.count; i++) {
		const struct patch *x = &items(p)[i], *next = x + 1;
		uint64_t end = x->offset + x->size;

		if (end > files[x->file].size)
			return -EINVAL;
		if (i + 1 < p->all.count && next->file == x->file && next->offset < end)
			return -EINVAL;
		p->bytes += x->size;
	}
	return 0;
}

int patches_finish(struct patches *p)
{
	int rc;

	sort(p);
	rc = merge_overlaps(p);
	if (!rc)
		rc = add_crcs(p);
	sort(p);
	return rc ? rc : check(p);
}

bool patches_touch(const struct patches *p, uint32_t file, uint64_t offset, uint64_t size)
{
	const struct patch *all = items(p);
	uint64_t at =
		LOWER_BOUND(p->all.count, i,
			    all[i].file < file || (all[i].file == file &&
						   all[i].offset + all[i].size <= offset));

	return at < p->all.count && all[at].file == file && all[at].offset < offset + size;
}

static struct patch_crc *find_crc(const struct patches *p, const struct table_entry *e)
{
	struct patch_crc *crcs = p->crcs.items;

	return &crcs[LOWER_BOUND(p->crcs.count, i, crcs[i].entry < e)];
}

/* CRC-32 is linear: the change of a CRC is the CRC of old ^ new, followed by `tail` zeros. */
static uint32_t change_of(const uint8_t *old, const uint8_t *new, uint64_t size, uint64_t tail)
{
	uint32_t difference;

	if (!memcmp(old, new, size))
		return 0;
	difference = (uint32_t)(crc32_z(0, old, size) ^ crc32_z(0, new, size));
	return (uint32_t)crc32_combine(difference, 0, (z_off_t)tail);
}

static void saw_data(struct patches *p, uint32_t file, uint64_t offset, const uint8_t *old,
		     const uint8_t *new, uint64_t size)
{
	const struct table *t = p->table;
	const struct table_entry *e = table_find_entry(t, file, offset);

	for (; e && e < t->entries + t->nentries; e++) {
		uint64_t from = u64_max(offset, e->at);
		uint64_t to = u64_min(offset + size, e->at + e->size);

		if (e->file != file || e->at >= offset + size)
			break;
		find_crc(p, e)->change ^=
			change_of(old + (from - offset), new + (from - offset), to - from,
				  e->at + e->size - to);
	}
}

static int look_at(struct patches *p, const struct patch *x, uint8_t *chunk,
		   int (*see)(void *arg, const void *old, size_t size), void *arg,
		   const _Atomic bool *cancelled)
{
	int rc = 0;

	for (uint64_t at = 0; at < x->size && !rc; at += PATCHES_CHUNK) {
		size_t size = u64_min(PATCHES_CHUNK, x->size - at);

		if (atomic_load_explicit(cancelled, memory_order_relaxed))
			return -ECANCELED;
		rc = patches_read_old(p, x->file, x->offset + at, chunk, size);
		if (rc)
			return rc;
		if (x->crc)
			memcpy(x->crc + at, chunk, size);
		else
			saw_data(p, x->file, x->offset + at, chunk, x->bytes + at, size);
		rc = see ? see(arg, chunk, size) : 0;
	}
	return rc;
}

int patches_look(struct patches *p, int (*see)(void *arg, const void *old, size_t size),
		 void *arg, const _Atomic bool *cancelled)
{
	CLEANUP(free) uint8_t *chunk = malloc(PATCHES_CHUNK);
	int rc = chunk ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < p->all.count && !rc; i++)
		rc = look_at(p, &items(p)[i], chunk, see, arg, cancelled);
	for (uint32_t i = 0; i < p->crcs.count && !rc; i++)
		/* a zip file has CRCs little-endian */
		for (int k = 0; k < 2 * CRC_BYTES; k++)
			crc_at(p, i)->places[k / CRC_BYTES][k % CRC_BYTES] ^=
				(uint8_t)(crc_at(p, i)->change >> 8 * (k % CRC_BYTES));
	return rc;
}

/* ---- writing ---- */

int patches_apply(const struct patches *p)
{
	const struct table_file *files = p->table->files;
	const struct patch *all = items(p);
	int rc = 0;

	for (uint32_t i = 0; i < p->all.count && !rc; i++)
		rc = fd_write_all(files[all[i].file].fd, all[i].bytes, all[i].size,
				  all[i].offset);
	for (uint32_t i = 0; i < p->all.count && !rc; i++)
		if (!i || all[i].file != all[i - 1].file)
			rc = fdatasync(files[all[i].file].fd) ? -errno : 0;
	return rc;
}
