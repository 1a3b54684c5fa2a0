/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/edit/journal.h"

#include "engine/base/fd.h"
#include "engine/base/log.h"
#include "engine/checkpoint/edit/file-lock.h"
#include "engine/checkpoint/parse/le.h"
#include "engine/checkpoint/table/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <zlib.h>

enum { CHUNK = 1 << 20 };

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

	/* first to the name that recovery ignores: if the sync fails, the journal can get its
	 * name back
	 */
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

struct journal_writer {
	int fd;
	int rc; /* -errno of the first write that failed; 0: none */
	uint32_t checksum;
	size_t used;
	uint8_t *buffer; /* [PATCHES_CHUNK] */
};

static void flush(struct journal_writer *o)
{
	o->checksum = (uint32_t)crc32_z(o->checksum, o->buffer, o->used);
	if (!o->rc)
		o->rc = fd_put_all(o->fd, o->buffer, o->used);
	o->used = 0;
}

static void put(struct journal_writer *o, const void *bytes, size_t size)
{
	if (size > PATCHES_CHUNK - o->used)
		flush(o);
	memcpy(o->buffer + o->used, bytes, size);
	o->used += size;
}

static bool is_new_file(const struct patches *p, uint32_t i)
{
	return !i || patches_get(p, i)->file != patches_get(p, i - 1)->file;
}

static void put_header(struct journal_writer *o, const struct patches *p)
{
	uint8_t h[JOURNAL_HEADER];
	uint32_t nfiles = 0;

	for (uint32_t i = 0; i < patches_count(p); i++)
		nfiles += is_new_file(p, i);
	memcpy(h, JOURNAL_MAGIC, 8);
	le_put32(h + 8, JOURNAL_VERSION);
	le_put32(h + 12, nfiles);
	le_put64(h + 16, patches_count(p));
	le_put64(h + 24, p->bytes);
	put(o, h, sizeof(h));
}

static void put_files(struct journal_writer *o, const struct patches *p)
{
	for (uint32_t i = 0; i < patches_count(p); i++) {
		const struct table_file *f = &p->table->files[patches_get(p, i)->file];
		uint8_t row[JOURNAL_FILE];

		if (!is_new_file(p, i))
			continue;
		le_put64(row, f->ino);
		le_put64(row + 8, f->size);
		le_put64(row + 16, (uint64_t)f->mtime.tv_sec);
		le_put32(row + 24, (uint32_t)f->mtime.tv_nsec);
		le_put16(row + 28, (uint16_t)strlen(f->name));
		put(o, row, sizeof(row));
		put(o, f->name, strlen(f->name));
	}
}

static void put_ranges(struct journal_writer *o, const struct patches *p)
{
	uint32_t file = 0;

	for (uint32_t i = 0; i < patches_count(p); i++) {
		uint8_t row[JOURNAL_RANGE];

		file += i && is_new_file(p, i);
		le_put64(row, patches_get(p, i)->offset);
		le_put64(row + 8, patches_get(p, i)->size);
		le_put32(row + 16, file);
		put(o, row, sizeof(row));
	}
}

static int put_old(void *arg, const void *old, size_t size)
{
	struct journal_writer *o = arg;

	put(o, old, size);
	return o->rc;
}

static int put_all(struct journal_writer *o, struct patches *p, const _Atomic bool *cancelled)
{
	uint8_t checksum[JOURNAL_CHECKSUM];
	int rc;

	put_header(o, p);
	put_files(o, p);
	put_ranges(o, p);
	rc = patches_look(p, put_old, o, cancelled);
	flush(o);
	le_put32(checksum, o->checksum);
	put(o, checksum, sizeof(checksum));
	flush(o);
	return rc ? rc : o->rc;
}

static int write_new(int dir, struct patches *p, const _Atomic bool *cancelled)
{
	CLEANUP(free) uint8_t *buffer = malloc(PATCHES_CHUNK);
	struct journal_writer o = { .fd = -1, .buffer = buffer };
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

/* ---- undoing ---- */

/* Anybody may have written the journal: so undoing changes bytes of files in its own folder,
 * and nothing else.
 */

struct target {
	uint64_t inode, size;
	struct timespec changed;
	char *path;
	int fd; /* -1: not open */
	bool lent;
};

struct journal_range {
	uint64_t offset, size;
	uint32_t file;
};

struct undo {
	int dir, fd;
	const struct table *table; /* NULL: files are opened by name */
	uid_t owner;
	char *why;
	size_t whysize;
	uint64_t size; /* of the journal */
	uint32_t nfiles;
	uint64_t nranges, bytes;
	uint64_t ranges_at, bytes_at;
	struct target *targets;
	uint8_t *chunk; /* [CHUNK] */
};

static int refuse(struct undo *u, int rc, const char *fmt, ...) PRINTF(3, 4);
static int refuse(struct undo *u, int rc, const char *fmt, ...)
{
	va_list ap;
	int used = snprintf(u->why, u->whysize, "an edit was interrupted, and ");

	va_start(ap, fmt);
	if ((size_t)used < u->whysize)
		vsnprintf(u->why + used, u->whysize - (size_t)used, fmt, ap);
	va_end(ap);
	return rc;
}

static int damaged(struct undo *u)
{
	return refuse(u, -EBADMSG,
		      "%s is damaged: the files may hold half of it; remove it to keep them as "
		      "they are",
		      JOURNAL_NAME);
}

static int read_at(struct undo *u, uint64_t at, void *to, size_t size)
{
	size_t done = 0;

	while (done < size) {
		ssize_t n = pread(u->fd, (char *)to + done, size - done, (off_t)(at + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return refuse(u, -errno, "%s: %s", JOURNAL_NAME, strerror(errno));
		if (!n)
			return damaged(u);
		done += (size_t)n;
	}
	return 0;
}

static int check_sum(struct undo *u)
{
	uint64_t end = u->size - JOURNAL_CHECKSUM;
	uint8_t stored[JOURNAL_CHECKSUM];
	uint32_t sum = 0;
	int rc = 0;

	for (uint64_t at = 0; at < end && !rc; at += CHUNK) {
		size_t size = u64_min(CHUNK, end - at);

		rc = read_at(u, at, u->chunk, size);
		if (!rc)
			sum = (uint32_t)crc32_z(sum, u->chunk, size);
	}
	if (!rc)
		rc = read_at(u, end, stored, sizeof(stored));
	return rc || le_get32(stored) == sum ? rc : damaged(u);
}

static int read_header(struct undo *u)
{
	uint8_t h[JOURNAL_HEADER];
	int rc = u->size < sizeof(h) + JOURNAL_CHECKSUM ? damaged(u)
							: read_at(u, 0, h, sizeof(h));

	if (rc)
		return rc;
	if (memcmp(h, JOURNAL_MAGIC, 8) != 0)
		return damaged(u);
	if (le_get32(h + 8) != JOURNAL_VERSION)
		return refuse(u, -EOPNOTSUPP, "another version of fragfs must undo it");
	u->nfiles = le_get32(h + 12);
	u->nranges = le_get64(h + 16);
	u->bytes = le_get64(h + 24);
	if (u->nfiles > TABLE_FILES_MAX || u->nfiles > u->size / JOURNAL_FILE)
		return damaged(u);
	return 0;
}

static int read_file(struct undo *u, struct target *x, uint64_t *at)
{
	uint8_t row[JOURNAL_FILE];
	size_t length;
	int rc = read_at(u, *at, row, sizeof(row));

	if (rc)
		return rc;
	x->inode = le_get64(row);
	x->size = le_get64(row + 8);
	x->changed.tv_sec = (time_t)le_get64(row + 16);
	x->changed.tv_nsec = le_get32(row + 24);
	length = le_get16(row + 28);
	x->path = calloc(1, length + 1);
	if (!x->path)
		return -ENOMEM;
	rc = read_at(u, *at + sizeof(row), x->path, length);
	if (!rc && (!length || strlen(x->path) != length))
		rc = damaged(u);
	*at += sizeof(row) + length;
	return rc;
}

static int read_files(struct undo *u)
{
	uint64_t at = JOURNAL_HEADER;
	int rc = 0;

	u->targets = calloc(u->nfiles ? u->nfiles : 1, sizeof(*u->targets));
	if (!u->targets)
		return -ENOMEM;
	for (uint32_t i = 0; i < u->nfiles; i++)
		u->targets[i].fd = -1;
	for (uint32_t i = 0; i < u->nfiles && !rc; i++)
		rc = read_file(u, &u->targets[i], &at);
	u->ranges_at = at;
	return rc;
}

/* Checks that header, files, ranges, bytes and checksum are all of the journal. */
static int check_size(struct undo *u)
{
	uint64_t size;

	if (!u64_mul(u->nranges, JOURNAL_RANGE, &size) ||
	    !u64_add(size, u->ranges_at, &u->bytes_at) ||
	    !u64_add(u->bytes_at, u->bytes, &size) || !u64_add(size, JOURNAL_CHECKSUM, &size) ||
	    size != u->size)
		return damaged(u);
	return 0;
}

static int for_ranges(struct undo *u,
		      int (*see)(struct undo *u, const struct journal_range *r, void *arg),
		      void *arg)
{
	enum { ROWS = 1024 };
	CLEANUP(free) uint8_t *rows = malloc((size_t)ROWS * JOURNAL_RANGE);
	int rc = rows ? 0 : -ENOMEM;

	for (uint64_t i = 0; i < u->nranges && !rc; i += ROWS) {
		uint64_t n = u64_min(ROWS, u->nranges - i);

		rc = read_at(u, u->ranges_at + i * JOURNAL_RANGE, rows, n * JOURNAL_RANGE);
		for (uint64_t j = 0; j < n && !rc; j++) {
			const uint8_t *row = rows + j * JOURNAL_RANGE;
			struct journal_range r = { le_get64(row), le_get64(row + 8),
						   le_get32(row + 16) };

			rc = see(u, &r, arg);
		}
	}
	return rc;
}

struct ranges_check {
	struct journal_range last;
	uint64_t bytes;
};

static int check_range(struct undo *u, const struct journal_range *r, void *arg)
{
	struct ranges_check *c = arg;
	uint64_t end;

	if (r->file >= u->nfiles || r->file < c->last.file || !r->size ||
	    !u64_add(r->offset, r->size, &end) || end > u->targets[r->file].size)
		return damaged(u);
	if (r->file == c->last.file && r->offset < c->last.offset + c->last.size)
		return damaged(u);
	c->last = *r;
	return u64_add(c->bytes, r->size, &c->bytes) ? 0 : damaged(u);
}

static int find_open(struct undo *u, struct target *x)
{
	const struct table *t = u->table;

	for (uint32_t i = 0; i < t->nfiles; i++) {
		if (strcmp(t->files[i].name, x->path) != 0)
			continue;
		x->fd = t->files[i].fd;
		x->lent = true;
		return 0;
	}
	return refuse(u, -ENOENT, "%s is not open", x->path);
}

static int open_target(struct undo *u, struct target *x)
{
	struct stat st;

	if (u->table)
		return find_open(u, x);
	x->fd = folder_open_path(u->dir, x->path, O_RDWR, &st);
	if (x->fd == -EACCES || x->fd == -EROFS || x->fd == -EPERM)
		return refuse(u, x->fd,
			      "%s cannot be written to undo it: mount this once as who may",
			      x->path);
	if (x->fd < 0)
		return refuse(u, x->fd, "%s cannot be opened to undo it: %s", x->path,
			      strerror(-x->fd));
	if (st.st_ino != x->inode || (uint64_t)st.st_size != x->size)
		return refuse(u, -ESTALE,
			      "%s was replaced since: remove %s to keep the files as they are",
			      x->path, JOURNAL_NAME);
	if (u->owner != st.st_uid && u->owner != geteuid())
		return refuse(u, -EPERM, "%s is neither yours nor that of %s's owner",
			      JOURNAL_NAME, x->path);
	if (st.st_nlink != 1)
		return refuse(u, -EMLINK, "%s has hard links now, so that it cannot be undone",
			      x->path);
	if (file_lock_wait(x->fd, LOCK_EX, monotonic_ms() + FILE_LOCK_MS, x->path) == -EBUSY)
		return refuse(u, -EBUSY, "%s is mounted by %s meanwhile", x->path,
			      file_lock_holder(x->fd).name);
	return 0;
}

static int undo_range(struct undo *u, const struct journal_range *r, void *arg)
{
	const struct target *x = &u->targets[r->file];
	uint64_t *from = arg;
	int rc = 0;

	for (uint64_t at = 0; at < r->size && !rc; at += CHUNK) {
		size_t size = u64_min(CHUNK, r->size - at);

		rc = read_at(u, *from + at, u->chunk, size);
		if (rc)
			return rc;
		rc = fd_write_all(x->fd, u->chunk, size, r->offset + at);
	}
	*from += r->size;
	return rc ? refuse(u, rc, "%s cannot be undone: %s", x->path, strerror(-rc)) : 0;
}

/* Sets the file's old time, which only its owner and root may: others leave the new one. */
static void set_time(const struct target *x)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, x->changed };

	if (x->changed.tv_nsec < 1000000000 && futimens(x->fd, times))
		log_debug("%s: its time stays: %s", x->path, strerror(errno));
}

static int sync_targets(struct undo *u)
{
	for (uint32_t i = 0; i < u->nfiles; i++) {
		set_time(&u->targets[i]);
		if (fsync(u->targets[i].fd))
			return refuse(u, -errno, "%s cannot be undone: %s", u->targets[i].path,
				      strerror(errno));
	}
	return 0;
}

static int check(struct undo *u)
{
	struct ranges_check c = { .bytes = 0 };
	int rc = read_header(u);

	if (!rc)
		rc = check_sum(u);
	if (!rc)
		rc = read_files(u);
	if (!rc)
		rc = check_size(u);
	if (!rc)
		rc = for_ranges(u, check_range, &c);
	return rc || c.bytes == u->bytes ? rc : damaged(u);
}

static int apply(struct undo *u)
{
	uint64_t from = u->bytes_at;
	int rc = 0;

	for (uint32_t i = 0; i < u->nfiles && !rc; i++)
		rc = open_target(u, &u->targets[i]);
	if (!rc)
		rc = for_ranges(u, undo_range, &from);
	if (!rc)
		rc = sync_targets(u);
	if (!rc && (rc = journal_end(u->dir)))
		refuse(u, rc, "%s cannot be removed: %s", JOURNAL_NAME, strerror(-rc));
	return rc;
}

int journal_undo(int dir, const struct table *table, char *why, size_t whysize)
{
	struct undo u = { .dir = dir, .table = table, .why = why, .whysize = whysize };
	struct stat st;
	int rc;

	snprintf(why, whysize, "no memory");
	u.fd = folder_open_path(dir, JOURNAL_NAME, O_RDONLY, &st);
	if (u.fd < 0)
		return refuse(&u, u.fd, "%s cannot be read to undo it: %s", JOURNAL_NAME,
			      strerror(-u.fd));
	u.size = (uint64_t)st.st_size;
	u.owner = st.st_uid;
	u.chunk = malloc(CHUNK);
	rc = u.chunk ? check(&u) : -ENOMEM;
	if (!rc)
		rc = apply(&u);
	for (uint32_t i = 0; u.targets && i < u.nfiles; i++) {
		if (u.targets[i].fd >= 0 && !u.targets[i].lent)
			close(u.targets[i].fd);
		free(u.targets[i].path);
	}
	free(u.targets);
	free(u.chunk);
	close(u.fd);
	return rc;
}
