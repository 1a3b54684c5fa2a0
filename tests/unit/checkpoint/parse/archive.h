/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_UNIT_CHECKPOINT_PARSE_ARCHIVE_H
#define TESTS_UNIT_CHECKPOINT_PARSE_ARCHIVE_H

/* Zip archives as torch writes them, byte by byte, so that a test can then break any of them.
 */

#include "engine/checkpoint/parse/blob.h"

enum { ARCHIVE_ENTRIES = 8, ARCHIVE_MAX = 1 << 17 };

struct archive {
	uint8_t bytes[ARCHIVE_MAX];
	size_t size;
	unsigned nentries;
	struct {
		char name[64];
		size_t local, data, size;
		size_t central; /* once it is ended, as those below */
	} entries[ARCHIVE_ENTRIES];
	size_t directory, end64, locator, end;
};

/* All but name and data as torch: flags 0x808, sizes and CRC after the data; aligned to 64. */
void archive_add(struct archive *a, const char *name, const void *data, size_t size);
/* Writes the directory and the ends; comment may be NULL. */
void archive_end(struct archive *a, const char *comment);
void archive_put(struct archive *a, const void *bytes, size_t size);

void put16(uint8_t *at, uint16_t value);
void put32(uint8_t *at, uint32_t value);
void put64(uint8_t *at, uint64_t value);
uint32_t archive_crc(const void *data, size_t size);

#endif
