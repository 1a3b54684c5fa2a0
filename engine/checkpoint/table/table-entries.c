/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/table/table-internal.h"

#include <errno.h>

enum { CRC_BYTES = 4 };

static bool is_inside(uint64_t at, uint64_t size, uint64_t end)
{
	return size <= end && at <= end - size;
}

int table_add_entry(struct table *t, const struct table_entry *e)
{
	uint64_t end;
	int rc;

	assert(e->file < t->nfiles);
	end = t->files[e->file].size;
	if (!is_inside(e->at, e->size, end) ||
	    !is_inside(e->crc_in_directory, CRC_BYTES, end) ||
	    !is_inside(e->crc_in_descriptor, CRC_BYTES, end))
		return table_refuse(t, -EINVAL, "%s ends before its entries do",
				    t->files[e->file].name);
	if (!e->size)
		return 0;
	rc = table_room(&t->entries, t->nentries, sizeof(*e));
	if (rc)
		return rc;
	t->entries[t->nentries++] = *e;
	return 0;
}

static int compare_entries(const void *a, const void *b)
{
	const struct table_entry *x = a, *y = b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return (x->at > y->at) - (x->at < y->at);
}

static bool is_same(const struct table_entry *a, const struct table_entry *b)
{
	return a->file == b->file && a->at == b->at && a->size == b->size &&
	       a->crc_in_directory == b->crc_in_directory &&
	       a->crc_in_descriptor == b->crc_in_descriptor;
}

static bool touches_data(const struct table *t, uint32_t file, uint64_t crc)
{
	const struct table_entry *e = table_find_entry(t, file, crc);

	return e && e->file == file && e->at < crc + CRC_BYTES;
}

static int check_entry(struct table *t, const struct table_entry *e)
{
	const char *name = t->files[e->file].name;

	if (e + 1 < t->entries + t->nentries && e[1].file == e->file &&
	    e->at + e->size > e[1].at)
		return table_refuse(t, -EINVAL, "%s: two entries overlap", name);
	if (touches_data(t, e->file, e->crc_in_directory) ||
	    (e->crc_in_descriptor && touches_data(t, e->file, e->crc_in_descriptor)))
		return table_refuse(t, -EINVAL, "%s: an entry has its CRC among data", name);
	return 0;
}

int table_finish_entries(struct table *t)
{
	uint32_t n = 0;
	int rc = 0;

	if (t->nentries)
		qsort(t->entries, t->nentries, sizeof(*t->entries), compare_entries);
	for (uint32_t i = 0; i < t->nentries; i++)
		if (!n || !is_same(&t->entries[n - 1], &t->entries[i]))
			t->entries[n++] = t->entries[i];
	t->nentries = n;
	for (uint32_t i = 0; i < n && !rc; i++)
		rc = check_entry(t, &t->entries[i]);
	return rc;
}

static bool ends_before(const struct table_entry *e, uint32_t file, uint64_t at)
{
	return e->file < file || (e->file == file && e->at + e->size <= at);
}

const struct table_entry *table_find_entry(const struct table *t, uint32_t file, uint64_t at)
{
	uint64_t i = LOWER_BOUND(t->nentries, k, ends_before(&t->entries[k], file, at));

	return i < t->nentries ? &t->entries[i] : NULL;
}
