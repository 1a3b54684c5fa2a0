/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/zero/torch-writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { ALIGNMENT = 64, FLAGS = 0x808, ENTRY_NAME = 128 };
#define LARGE 0xffffffffu

struct entry {
	char name[ENTRY_NAME];
	uint64_t local, size;
	uint32_t
		crc; /* 0: of a storage, as with torch.serialization.set_crc32_options(False) */
};

struct zip_out {
	int fd;
	char name[ENTRY_NAME / 2];
	uint64_t at; /* the file's end */
	struct entry *entries;
	unsigned n, storages;
};

void writer_fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static uint32_t crc_of(const void *data, size_t size)
{
	uint32_t crc = ~0u;

	for (const uint8_t *p = data; size--; p++) {
		crc ^= *p;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return ~crc;
}

/* ---- little-endian records ---- */

struct record {
	uint8_t bytes[512];
	size_t n;
};

static void add(struct record *r, uint64_t value, size_t size)
{
	assert(r->n + size <= sizeof(r->bytes));
	for (size_t i = 0; i < size; i++)
		r->bytes[r->n++] = (uint8_t)(i < 8 ? value >> 8 * i : 0);
}

static void add_name(struct record *r, const char *name)
{
	memcpy(r->bytes + r->n, name, strlen(name));
	r->n += strlen(name);
}

void zip_out_write(struct zip_out *z, uint64_t at, const void *data, size_t size)
{
	const char *p = data;

	while (size) {
		ssize_t n = pwrite(z->fd, p, size, (off_t)at);

		if (n <= 0)
			writer_fail(z->name);
		p += n;
		at += (uint64_t)n;
		size -= (size_t)n;
	}
}

static void append(struct zip_out *z, const struct record *r)
{
	zip_out_write(z, z->at, r->bytes, r->n);
	z->at += r->n;
}

/* ---- entries ---- */

static bool is_long(const struct entry *e)
{
	return e->size >= LARGE || e->local >= LARGE;
}

static void begin_entry(struct zip_out *z, const struct entry *e)
{
	struct record r = { .n = 0 };
	size_t name = strlen(e->name), more = e->size >= LARGE ? 20 : is_long(e) ? 12 : 0;
	size_t padding = (size_t)(0 - (e->local + 30 + name + more + 4)) % ALIGNMENT;

	add(&r, 0x04034b50, 4);
	add(&r, 0, 2);
	add(&r, FLAGS, 2);
	add(&r, 0, 18); /* method, time, date, and what stands behind the data */
	add(&r, name, 2);
	add(&r, more + 4 + padding, 2);
	add_name(&r, e->name);
	if (more) {
		add(&r, 1, 2);
		add(&r, more - 4, 2);
		add(&r, e->size >= LARGE ? e->size : e->local, 8);
		add(&r, 0, e->size >= LARGE ? 8 : 0);
	}
	add(&r, 0x4246, 2);
	add(&r, padding, 2);
	memset(r.bytes + r.n, 'Z', padding);
	r.n += padding;
	append(z, &r);
}

static void end_entry(struct zip_out *z, const struct entry *e)
{
	struct record r = { .n = 0 };
	size_t each = is_long(e) ? 8 : 4;

	add(&r, 0x08074b50, 4);
	add(&r, e->crc, 4);
	add(&r, e->size, each);
	add(&r, e->size, each);
	append(z, &r);
}

/* Where its data begin. */
static uint64_t add_entry(struct zip_out *z, const char *name, uint64_t size, const void *data)
{
	struct entry *e;
	uint64_t begin;

	z->entries = reallocarray(z->entries, z->n + 1, sizeof(*z->entries));
	if (!z->entries)
		writer_fail("memory");
	e = &z->entries[z->n++];
	*e = (struct entry){ .local = z->at,
			     .size = size,
			     .crc = data ? crc_of(data, size) : 0 };
	snprintf(e->name, sizeof(e->name), "%s/%s", z->name, name);
	begin_entry(z, e);
	begin = z->at;
	if (data)
		zip_out_write(z, begin, data, size);
	z->at += size;
	end_entry(z, e);
	return begin;
}

static void add_to_directory(struct zip_out *z, const struct entry *e)
{
	struct record r = { .n = 0 };
	bool big = e->size >= LARGE, far = e->local >= LARGE;
	size_t more = big || far ? 4 + (big ? 16 : 0) + (far ? 8 : 0) : 0;

	add(&r, 0x02014b50, 4);
	add(&r, 0, 4);
	add(&r, FLAGS, 2);
	add(&r, 0, 6); /* method, time, date */
	add(&r, e->crc, 4);
	add(&r, big ? LARGE : e->size, 4);
	add(&r, big ? LARGE : e->size, 4);
	add(&r, strlen(e->name), 2);
	add(&r, more, 2);
	add(&r, 0, 10); /* comment, disk, attributes */
	add(&r, far ? LARGE : e->local, 4);
	add_name(&r, e->name);
	if (more) {
		add(&r, 1, 2);
		add(&r, more - 4, 2);
		add(&r, e->size, big ? 8 : 0);
		add(&r, e->size, big ? 8 : 0);
		add(&r, e->local, far ? 8 : 0);
	}
	append(z, &r);
}

static void end_directory(struct zip_out *z, uint64_t begin)
{
	uint64_t size = z->at - begin, end = z->at;
	struct record r = { .n = 0 };

	add(&r, 0x06064b50, 4);
	add(&r, 44, 8);
	add(&r, 0, 4 + 8); /* versions, disks */
	add(&r, z->n, 8);
	add(&r, z->n, 8);
	add(&r, size, 8);
	add(&r, begin, 8);
	add(&r, 0x07064b50, 4);
	add(&r, 0, 4);
	add(&r, end, 8);
	add(&r, 1, 4);
	add(&r, 0x06054b50, 4);
	add(&r, 0, 4);
	add(&r, z->n, 2);
	add(&r, z->n, 2);
	add(&r, size, 4);
	add(&r, begin >= LARGE ? LARGE : begin, 4);
	add(&r, 0, 2);
	append(z, &r);
}

/* ---- a file ---- */

static void add_text(struct zip_out *z, const char *name, const char *text)
{
	add_entry(z, name, strlen(text), text);
}

struct zip_out *zip_out_open(const char *folder, const char *name, struct pickle_out *p)
{
	struct zip_out *z = calloc(1, sizeof(*z));
	char path[4096];

	if (!z)
		writer_fail("memory");
	snprintf(path, sizeof(path), "%s/%s.pt", folder, name);
	snprintf(z->name, sizeof(z->name), "%s", name);
	z->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (z->fd < 0)
		writer_fail(path);
	add_entry(z, "data.pkl", p->n, p->bytes);
	free(p->bytes);
	add_text(z, ".format_version", "1");
	add_text(z, ".storage_alignment", "64");
	add_text(z, "byteorder", "little");
	return z;
}

uint64_t zip_out_storage(struct zip_out *z, uint64_t bytes)
{
	char name[32];

	snprintf(name, sizeof(name), "data/%u", z->storages++);
	return add_entry(z, name, bytes, NULL);
}

void zip_out_close(struct zip_out *z)
{
	uint64_t begin;

	add_text(z, "version", "3\n");
	add_text(z, ".data/serialization_id", "1575997250119166374708021713210617312500");
	begin = z->at;
	for (unsigned i = 0; i < z->n; i++)
		add_to_directory(z, &z->entries[i]);
	end_directory(z, begin);
	if (close(z->fd))
		writer_fail(z->name);
	free(z->entries);
	free(z);
}
