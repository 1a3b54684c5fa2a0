/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/edit/journal.h"

#include "engine/base/fd.h"
#include "engine/base/log.h"
#include "engine/checkpoint/edit/journal-format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <zlib.h>

/* ---- the folder ---- */

bool journal_is_there(int dir)
{
	return !faccessat(dir, JOURNAL_NAME, F_OK, AT_SYMLINK_NOFOLLOW);
}

static int sync_folder(int dir)
{
	return fsync(dir) ? -errno : 0;
}

int journal_end(int dir)
{
	int rc;

	if (renameat(dir, JOURNAL_NAME, dir, JOURNAL_NEW))
		return -errno;
	rc = sync_folder(dir);
	if (!rc)
		unlinkat(dir, JOURNAL_NEW, 0);
	else if (renameat(dir, JOURNAL_NEW, dir, JOURNAL_NAME))
		log_error("%s cannot get its name back: %s", JOURNAL_NAME, strerror(errno));
	return rc;
}

/* ---- writing ---- */

struct out {
	int fd;
	int rc; /* of the first write that failed */
	uint32_t checksum;
	size_t used;
	uint8_t *buffer; /* [JOURNAL_CHUNK] */
};

static void flush(struct out *o)
{
	size_t done = 0;

	o->checksum = (uint32_t)crc32_z(o->checksum, o->buffer, o->used);
	while (done < o->used && !o->rc) {
		ssize_t n = write(o->fd, o->buffer + done, o->used - done);

		if (n < 0 && errno != EINTR)
			o->rc = -errno;
		done += n > 0 ? (size_t)n : 0;
	}
	o->used = 0;
}

static void put(struct out *o, const void *bytes, size_t size)
{
	if (size > JOURNAL_CHUNK - o->used)
		flush(o);
	memcpy(o->buffer + o->used, bytes, size);
	o->used += size;
}

static bool is_new_file(const struct patches *p, uint32_t i)
{
	return !i || patches_get(p, i)->file != patches_get(p, i - 1)->file;
}

static void put_header(struct out *o, const struct patches *p)
{
	uint8_t h[JOURNAL_HEADER];
	uint32_t nfiles = 0;

	for (uint32_t i = 0; i < patches_count(p); i++)
		nfiles += is_new_file(p, i);
	memcpy(h, JOURNAL_MAGIC, 8);
	put_le32(h + 8, JOURNAL_VERSION);
	put_le32(h + 12, nfiles);
	put_le64(h + 16, patches_count(p));
	put_le64(h + 24, p->bytes);
	put(o, h, sizeof(h));
}

static void put_files(struct out *o, const struct patches *p)
{
	for (uint32_t i = 0; i < patches_count(p); i++) {
		const struct table_file *f = &p->table->files[patches_get(p, i)->file];
		uint8_t row[JOURNAL_FILE];

		if (!is_new_file(p, i))
			continue;
		put_le64(row, f->ino);
		put_le64(row + 8, f->size);
		put_le64(row + 16, (uint64_t)f->mtime.tv_sec);
		put_le32(row + 24, (uint32_t)f->mtime.tv_nsec);
		put_le16(row + 28, (uint16_t)strlen(f->name));
		put(o, row, sizeof(row));
		put(o, f->name, strlen(f->name));
	}
}

static void put_ranges(struct out *o, const struct patches *p)
{
	uint32_t file = 0;

	for (uint32_t i = 0; i < patches_count(p); i++) {
		uint8_t row[JOURNAL_RANGE];

		file += i && is_new_file(p, i);
		put_le64(row, patches_get(p, i)->offset);
		put_le64(row + 8, patches_get(p, i)->size);
		put_le32(row + 16, file);
		put(o, row, sizeof(row));
	}
}

static int put_old(struct out *o, struct patches *p, const struct patch *x, uint8_t *chunk,
		   const _Atomic bool *cancelled)
{
	int rc = 0;

	for (uint64_t at = 0; at < x->size && !rc && !o->rc; at += JOURNAL_CHUNK) {
		size_t size = u64_min(JOURNAL_CHUNK, x->size - at);

		rc = atomic_load_explicit(cancelled, memory_order_relaxed)
			     ? -ECANCELED
			     : patches_read_old(p, x->file, x->offset + at, chunk, size);
		if (rc)
			break;
		patches_saw(p, x, at, chunk, size);
		put(o, chunk, size);
	}
	return rc ? rc : o->rc;
}

static int put_all(struct out *o, struct patches *p, const _Atomic bool *cancelled)
{
	CLEANUP(free) uint8_t *chunk = malloc(JOURNAL_CHUNK);
	uint8_t checksum[JOURNAL_CHECKSUM];
	int rc = chunk ? 0 : -ENOMEM;

	put_header(o, p);
	put_files(o, p);
	put_ranges(o, p);
	for (uint32_t i = 0; i < patches_count(p) && !rc; i++)
		rc = put_old(o, p, patches_get(p, i), chunk, cancelled);
	flush(o);
	put_le32(checksum, o->checksum);
	put(o, checksum, sizeof(checksum));
	flush(o);
	return rc ? rc : o->rc;
}

static int write_new(int dir, struct patches *p, const _Atomic bool *cancelled)
{
	CLEANUP(free) uint8_t *buffer = malloc(JOURNAL_CHUNK);
	struct out o = { .fd = -1, .buffer = buffer };
	int rc = buffer ? 0 : -ENOMEM;

	if (!rc && unlinkat(dir, JOURNAL_NEW, 0) && errno != ENOENT)
		rc = -errno;
	if (rc)
		return rc;
	o.fd = openat(dir, JOURNAL_NEW, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (o.fd < 0)
		return -errno;
	rc = put_all(&o, p, cancelled);
	if (!rc && fsync(o.fd))
		rc = -errno;
	if (close(o.fd) && !rc)
		rc = -errno;
	return rc;
}

int journal_begin(int dir, struct patches *p, const _Atomic bool *cancelled)
{
	int rc = write_new(dir, p, cancelled);

	patches_seal(p);
	if (!rc && renameat(dir, JOURNAL_NEW, dir, JOURNAL_NAME))
		rc = -errno;
	if (rc) {
		unlinkat(dir, JOURNAL_NEW, 0);
		return rc;
	}
	rc = sync_folder(dir);
	if (rc)
		unlinkat(dir, JOURNAL_NAME, 0);
	return rc;
}
