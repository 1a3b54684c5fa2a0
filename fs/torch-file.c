/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/torch-file.h"

#include "engine/base/base.h"
#include "engine/base/text.h"
#include "fs/put-le.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

enum { LOCAL_SIZE = 30, ALIGN = 64, ENTRIES = 4, END64_SIZE = 56 };

struct entry {
	const char *name;
	const void *bytes; /* NULL: the caller has the bytes; their CRC is not known */
	uint64_t size;
	uint64_t at; /* of its local header */
	uint32_t crc;
};

static bool is_large(const struct entry *e)
{
	return e->size >= UINT32_MAX;
}

/* Puts the fields that a local header and a record of the directory have in common. */
static void put_common(FILE *out, const struct entry *e, unsigned extra)
{
	put_le(out, is_large(e) ? 45 : 20, 2); /* version of zip that a reader needs */
	put_le(out, 0, 2);                     /* flags */
	put_le(out, 0, 2);                     /* method: stored */
	put_le(out, 0, 4);                     /* time */
	put_le(out, e->crc, 4);
	put_le(out, u64_min(e->size, UINT32_MAX), 4);
	put_le(out, u64_min(e->size, UINT32_MAX), 4);
	put_le(out, strlen(e->name), 2);
	put_le(out, extra, 2);
}

/* Puts the extra field with the sizes that 32 bits do not hold. */
static void put_large(FILE *out, const struct entry *e)
{
	if (!is_large(e))
		return;
	put_le(out, 1, 2);
	put_le(out, 16, 2);
	put_le(out, e->size, 8);
	put_le(out, e->size, 8);
}

/* Puts a local header.  Its extra field "FB" is padded with Zs, as torch does, so that the
 * entry's bytes behind it are aligned.
 */
static void put_local(FILE *out, struct entry *e, uint64_t at)
{
	unsigned large = is_large(e) ? 20 : 0;
	uint64_t end = at + LOCAL_SIZE + strlen(e->name) + large + 4;
	unsigned pad = (unsigned)(-end % ALIGN);

	e->at = at;
	fputs("PK\3\4", out);
	put_common(out, e, large + 4 + pad);
	fputs(e->name, out);
	put_large(out, e);
	fputs("FB", out);
	put_le(out, pad, 2);
	while (pad--)
		putc('Z', out);
}

static void put_record(FILE *out, const struct entry *e)
{
	fputs("PK\1\2", out);
	put_le(out, 45, 2); /* version of zip that wrote the entry */
	put_common(out, e, is_large(e) ? 20 : 0);
	put_le(out, 0, 2 + 2 + 2 + 4); /* length of comment, disk, attributes */
	put_le(out, e->at, 4);
	fputs(e->name, out);
	put_large(out, e);
}

/* Puts the directory, which begins at byte `at`, and the records behind it. */
static void put_directory(FILE *out, const struct entry *entries, unsigned n, uint64_t at)
{
	uint64_t size = (uint64_t)ftello(out);

	for (unsigned i = 0; i < n; i++)
		put_record(out, &entries[i]);
	size = (uint64_t)ftello(out) - size;
	fputs("PK\6\6", out);
	put_le(out, END64_SIZE - 12, 8); /* bytes of this record behind this field */
	put_le(out, 45, 2);
	put_le(out, 45, 2);
	put_le(out, 0, 8); /* disks */
	put_le(out, n, 8);
	put_le(out, n, 8);
	put_le(out, size, 8);
	put_le(out, at, 8);
	fputs("PK\6\7", out);
	put_le(out, 0, 4);
	put_le(out, at + size, 8);
	put_le(out, 1, 4);
	fputs("PK\5\6", out);
	put_le(out, 0, 4);
	put_le(out, n, 2);
	put_le(out, n, 2);
	put_le(out, size, 4);
	put_le(out, u64_min(at, UINT32_MAX), 4);
	put_le(out, 0, 2);
}

int torch_file_make(const char *pickle, size_t size, const void *bytes, uint64_t nbytes,
		    char **text, uint64_t *head, uint64_t *tail)
{
	struct entry entries[ENTRIES] = {
		{ .name = "archive/data.pkl", .bytes = pickle, .size = size },
		{ .name = "archive/byteorder", .bytes = "little", .size = 6 },
		{ .name = "archive/version", .bytes = "3\n", .size = 2 },
		{ .name = "archive/data/0", .bytes = bytes, .size = nbytes }
	};
	uint64_t begin = 0;
	size_t total;
	FILE *out = open_memstream(text, &total);

	if (!out)
		return -ENOMEM;
	for (struct entry *e = entries; e < entries + ENTRIES; e++) {
		if (e->bytes)
			e->crc = (uint32_t)crc32_z(0, e->bytes, e->size);
		put_local(out, e, (uint64_t)ftello(out));
		begin = (uint64_t)ftello(out);
		if (e->bytes)
			fwrite(e->bytes, 1, e->size, out);
	}
	*head = begin;
	begin = (uint64_t)ftello(out);
	put_directory(out, entries, ENTRIES, *head + nbytes);
	*tail = (uint64_t)ftello(out) - begin;
	return text_end(out, text) ? 0 : -ENOMEM;
}
