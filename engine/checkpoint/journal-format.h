/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_JOURNAL_FORMAT_H
#define ENGINE_CHECKPOINT_JOURNAL_FORMAT_H

/* What who writes a journal and who reads it share. */

#include "engine/base.h"

#include <endian.h>
#include <string.h>

#define JOURNAL_MAGIC "fragfs\x8a\n"

enum {
	JOURNAL_VERSION = 1,
	JOURNAL_HEADER = 32,
	JOURNAL_FILE = 18, /* and its path */
	JOURNAL_RANGE = 20,
	JOURNAL_CHECKSUM = 4,
	JOURNAL_CHUNK = 1 << 20,
};

static inline void put_le16(uint8_t *at, uint16_t value)
{
	value = htole16(value);
	memcpy(at, &value, sizeof(value));
}

static inline void put_le32(uint8_t *at, uint32_t value)
{
	value = htole32(value);
	memcpy(at, &value, sizeof(value));
}

static inline void put_le64(uint8_t *at, uint64_t value)
{
	value = htole64(value);
	memcpy(at, &value, sizeof(value));
}

static inline uint16_t get_le16(const uint8_t *at)
{
	uint16_t value;

	memcpy(&value, at, sizeof(value));
	return le16toh(value);
}

static inline uint32_t get_le32(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return le32toh(value);
}

static inline uint64_t get_le64(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return le64toh(value);
}

#endif
