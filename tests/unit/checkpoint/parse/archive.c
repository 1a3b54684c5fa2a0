/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/unit/checkpoint/parse/archive.h"

#include <stdio.h>
#include <string.h>

void put16(uint8_t *at, uint16_t value)
{
	at[0] = (uint8_t)value;
	at[1] = (uint8_t)(value >> 8);
}

void put32(uint8_t *at, uint32_t value)
{
	put16(at, (uint16_t)value);
	put16(at + 2, (uint16_t)(value >> 16));
}

void put64(uint8_t *at, uint64_t value)
{
	put32(at, (uint32_t)value);
	put32(at + 4, (uint32_t)(value >> 32));
}

uint32_t archive_crc(const void *data, size_t size)
{
	uint32_t crc = ~0u;

	for (const uint8_t *p = data; size--; p++) {
		crc ^= *p;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return ~crc;
}

void archive_put(struct archive *a, const void *bytes, size_t size)
{
	assert(a->size + size <= sizeof(a->bytes));
	if (size)
		memcpy(a->bytes + a->size, bytes, size);
	a->size += size;
}

static uint8_t *room(struct archive *a, size_t size, const char *mark)
{
	uint8_t *at = a->bytes + a->size;

	assert(a->size + size <= sizeof(a->bytes));
	memset(at, 0, size);
	memcpy(at, mark, 4);
	a->size += size;
	return at;
}

void archive_add(struct archive *a, const char *name, const void *data, size_t size)
{
	size_t n = strlen(name), padding = (0 - (a->size + 30 + n + 4)) % 64;
	unsigned i = a->nentries++;
	uint8_t *at;

	assert(i < ARCHIVE_ENTRIES);
	snprintf(a->entries[i].name, sizeof(a->entries[i].name), "%s", name);
	a->entries[i].local = a->size;
	at = room(a, 30, "PK\3\4");
	put16(at + 6, 0x808);
	put16(at + 26, (uint16_t)n);
	put16(at + 28, (uint16_t)(4 + padding));
	archive_put(a, name, n);
	at = room(a, 4 + padding, "FB\0\0");
	put16(at + 2, (uint16_t)padding);
	a->entries[i].data = a->size;
	a->entries[i].size = size;
	archive_put(a, data, size);
	at = room(a, 16, "PK\7\10");
	put32(at + 4, archive_crc(data, size));
	put32(at + 8, (uint32_t)size);
	put32(at + 12, (uint32_t)size);
}

static void end_entry(struct archive *a, unsigned i)
{
	const size_t n = strlen(a->entries[i].name);
	uint8_t *at;

	a->entries[i].central = a->size;
	at = room(a, 46, "PK\1\2");
	put16(at + 8, 0x808);
	put32(at + 16, archive_crc(a->bytes + a->entries[i].data, a->entries[i].size));
	put32(at + 20, (uint32_t)a->entries[i].size);
	put32(at + 24, (uint32_t)a->entries[i].size);
	put16(at + 28, (uint16_t)n);
	put32(at + 42, (uint32_t)a->entries[i].local);
	archive_put(a, a->entries[i].name, n);
}

void archive_end(struct archive *a, const char *comment)
{
	size_t size;
	uint8_t *at;

	a->directory = a->size;
	for (unsigned i = 0; i < a->nentries; i++)
		end_entry(a, i);
	size = a->size - a->directory;
	a->end64 = a->size;
	at = room(a, 56, "PK\6\6");
	put64(at + 4, 44);
	put64(at + 24, a->nentries);
	put64(at + 32, a->nentries);
	put64(at + 40, size);
	put64(at + 48, a->directory);
	a->locator = a->size;
	at = room(a, 20, "PK\6\7");
	put64(at + 8, a->end64);
	put32(at + 16, 1);
	a->end = a->size;
	at = room(a, 22, "PK\5\6");
	put16(at + 8, (uint16_t)a->nentries);
	put16(at + 10, (uint16_t)a->nentries);
	put32(at + 12, (uint32_t)size);
	put32(at + 16, (uint32_t)a->directory);
	put16(at + 20, (uint16_t)(comment ? strlen(comment) : 0));
	archive_put(a, comment, comment ? strlen(comment) : 0);
}
