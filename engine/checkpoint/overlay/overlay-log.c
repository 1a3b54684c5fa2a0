/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/overlay/overlay-log.h"

#include "engine/base/fd.h"
#include "engine/base/log.h"
#include "engine/checkpoint/edit/file-lock.h"
#include "engine/checkpoint/parse/le.h"
#include "engine/checkpoint/table/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- reading ----
 *
 * Anybody may have written the log: every number is checked before it is used.
 */

enum { LISTS_MAX = 40 };

struct log_reader {
	struct overlay_log *r;
	char *why;
	size_t whysize;
	uint64_t size; /* of the log */
	uint64_t at;
	uint8_t *chunk;   /* [OVERLAY_LOG_CHUNK] */
	XXH3_state_t sum; /* of the bytes that read_next has read */
	/* Maps of some edits each; a list is at least twice as long as the next. */
	struct vec lists[LISTS_MAX];
	unsigned nlists;
};

static int damaged(struct log_reader *x, const char *what)
{
	snprintf(x->why, x->whysize,
		 "%s/" OVERLAY_LOG_NAME " is damaged at byte %" PRIu64
		 ": %s (fragctl discard removes it)",
		 x->r->path, x->at, what);
	return -EBADMSG;
}

static int read_bytes(struct log_reader *x, void *to, uint64_t size)
{
	uint8_t *bytes = to;

	while (size) {
		ssize_t n = pread(x->r->fd, bytes, size, (off_t)x->at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			snprintf(x->why, x->whysize, "%s/" OVERLAY_LOG_NAME ": %s", x->r->path,
				 strerror(errno));
			return -errno;
		}
		if (!n)
			return damaged(x, "it ends here");
		bytes += n;
		x->at += (uint64_t)n;
		size -= (uint64_t)n;
	}
	return 0;
}

/* ---- the head ---- */

struct cursor {
	const uint8_t *at, *end;
};

static const uint8_t *take_from_head(struct cursor *c, size_t size)
{
	const uint8_t *at = c->at;

	if ((size_t)(c->end - at) < size)
		return NULL;
	c->at += size;
	return at;
}

static int take_text(struct log_reader *x, struct cursor *c, size_t length, char **out)
{
	const char *text = (const char *)take_from_head(c, length);

	if (!text || !length || memchr(text, 0, length))
		return damaged(x, "no name");
	*out = text_copy(text, length);
	return *out ? 0 : -ENOMEM;
}

static int take_files(struct log_reader *x, struct cursor *c)
{
	struct overlay_log *r = x->r;
	int rc = 0;

	r->files = calloc(r->nfiles ? r->nfiles : 1, sizeof(*r->files));
	if (!r->files)
		return -ENOMEM;
	for (uint32_t i = 0; i < r->nfiles && !rc; i++) {
		const uint8_t *row = take_from_head(c, OVERLAY_LOG_FILE);

		if (!row)
			return damaged(x, "not as many files");
		memcpy(r->files[i].identity, row, OVERLAY_LOG_IDENTITY);
		rc = take_text(x, c, le_get16(row + OVERLAY_LOG_IDENTITY), &r->files[i].name);
	}
	return rc;
}

static int read_whole_head(struct log_reader *x, uint8_t *head, uint64_t size)
{
	struct cursor c = { head + OVERLAY_LOG_HEAD, head + size - OVERLAY_LOG_SUM };
	int rc;

	x->at = 0;
	rc = read_bytes(x, head, size);
	if (rc)
		return rc;
	x->r->seed = le_get64(c.end);
	if (XXH3_64bits(head, size - OVERLAY_LOG_SUM) != x->r->seed)
		return damaged(x, "the head's checksum");
	x->r->nfiles = le_get32(head + 12);
	rc = take_text(x, &c, le_get16(head + 24), &x->r->over);
	return rc ? rc : take_files(x, &c);
}

static int read_head(struct log_reader *x)
{
	uint8_t h[OVERLAY_LOG_HEAD];
	CLEANUP(free) uint8_t *head = NULL;
	uint64_t size;
	int rc = read_bytes(x, h, sizeof(h));

	if (rc)
		return rc;
	if (memcmp(h, OVERLAY_LOG_MAGIC, 8) != 0)
		return damaged(x, "it is no overlay's");
	if (le_get32(h + 8) != OVERLAY_LOG_VERSION) {
		snprintf(x->why, x->whysize,
			 "%s/" OVERLAY_LOG_NAME " is another version's of fragfs", x->r->path);
		return -EOPNOTSUPP;
	}
	size = le_get64(h + 16);
	if (size < OVERLAY_LOG_HEAD + OVERLAY_LOG_SUM || size > OVERLAY_LOG_HEAD_MAX ||
	    size > x->size || size % OVERLAY_LOG_ALIGN ||
	    le_get32(h + 12) > size / OVERLAY_LOG_FILE)
		return damaged(x, "the head's size");
	head = malloc(size);
	return head ? read_whole_head(x, head, size) : -ENOMEM;
}

/* ---- the map of all edits ---- */

static int merge_last_two(struct log_reader *x)
{
	struct vec *below = &x->lists[x->nlists - 2], *above = below + 1;
	struct vec both = { .items = NULL };
	int rc = overlay_map_merge(&both, below, above);

	free(below->items);
	free(above->items);
	*above = (struct vec){ .items = NULL };
	*below = both;
	x->nlists--;
	return rc;
}

static int merge_all(struct log_reader *x)
{
	int rc = 0;

	while (x->nlists > 1 && !rc)
		rc = merge_last_two(x);
	if (!rc && x->nlists) {
		x->r->map.ranges = x->lists[0];
		x->nlists = 0;
	}
	return rc;
}

/* ---- commits ---- */

struct commit {
	uint32_t kind, nranges;
	uint64_t bytes, number, sum;
	uint64_t begin, end;
};

static int read_next(struct log_reader *x, void *to, uint64_t size)
{
	int rc = read_bytes(x, to, size);

	XXH3_64bits_update(&x->sum, to, rc ? 0 : size);
	return rc;
}

static int add_range(struct log_reader *x, struct vec *edit, const uint8_t *row, uint64_t at)
{
	struct overlay_map_range r = { le_get64(row), le_get64(row + 8), at,
				       le_get32(row + 16) };
	const struct overlay_map_range *last =
		edit->count ? (struct overlay_map_range *)edit->items + edit->count - 1 : NULL;
	struct overlay_map_range *next;
	uint64_t end;

	if (r.file >= x->r->nfiles || !r.size || !u64_add(r.offset, r.size, &end) ||
	    end > le_get64(x->r->files[r.file].identity))
		return damaged(x, "a range is not in its file");
	if (last && (r.file < last->file ||
		     (r.file == last->file && r.offset < last->offset + last->size)))
		return damaged(x, "ranges are not sorted");
	next = vec_add(edit, sizeof(*next));
	if (!next)
		return -ENOMEM;
	*next = r;
	return 0;
}

static int read_ranges(struct log_reader *x, const struct commit *c, struct vec *edit)
{
	enum { ROWS = OVERLAY_LOG_CHUNK / OVERLAY_LOG_RANGE };
	uint64_t at = x->at + (uint64_t)c->nranges * OVERLAY_LOG_RANGE;
	int rc = 0;

	for (uint32_t i = 0; i < c->nranges && !rc; i += ROWS) {
		uint32_t n = (uint32_t)u64_min(ROWS, c->nranges - i);

		rc = read_next(x, x->chunk, (uint64_t)n * OVERLAY_LOG_RANGE);
		for (uint32_t j = 0; j < n && !rc; j++) {
			const uint8_t *row = x->chunk + (size_t)j * OVERLAY_LOG_RANGE;

			if (le_get64(row + 8) > c->end - at)
				return damaged(x, "more ranges than bytes");
			rc = add_range(x, edit, row, at);
			at += le_get64(row + 8);
		}
	}
	return rc || at == c->end ? rc : damaged(x, "more bytes than ranges");
}

static int check_rest(struct log_reader *x, const struct commit *c)
{
	int rc = 0;

	while (x->at < c->end && !rc)
		rc = read_next(x, x->chunk, u64_min(OVERLAY_LOG_CHUNK, c->end - x->at));
	if (!rc && XXH3_64bits_digest(&x->sum) != c->sum)
		rc = damaged(x, "a commit's checksum");
	return rc;
}

static int read_edit(struct log_reader *x, const struct commit *c)
{
	struct vec edit = { .items = NULL };
	int rc = read_ranges(x, c, &edit);

	if (!rc)
		rc = check_rest(x, c);
	if (rc) {
		free(edit.items);
		return rc;
	}
	x->r->edits++;
	x->r->end = overlay_log_align(c->end);
	/* Lists are merged while one is shorter than twice the next, so that each range is
	 * merged O(log edits) times.
	 */
	x->lists[x->nlists++] = edit;
	while (x->nlists > 1 && !rc &&
	       (x->lists[x->nlists - 2].count < 2 * (uint64_t)x->lists[x->nlists - 1].count ||
		x->nlists == LISTS_MAX))
		rc = merge_last_two(x);
	return rc;
}

static int read_written(struct log_reader *x, const struct commit *c)
{
	struct overlay_log *r = x->r;
	int rc = 0;

	for (uint32_t i = 0; i < r->nfiles && !rc; i++)
		rc = read_next(x, r->files[i].written, OVERLAY_LOG_IDENTITY);
	r->written = true;
	return rc ? rc : check_rest(x, c);
}

/* Computes the end of a commit from its counts.  Returns false if it is beyond any file's size.
 */
static bool locate(const struct overlay_log *r, struct commit *c)
{
	uint64_t rows = (uint64_t)c->nranges * OVERLAY_LOG_RANGE;

	if (c->kind == OVERLAY_LOG_WRITTEN)
		rows = (uint64_t)r->nfiles * OVERLAY_LOG_IDENTITY;
	return u64_add(rows, c->bytes, &c->end) &&
	       u64_add(c->end, c->begin + OVERLAY_LOG_COMMIT, &c->end) && c->end <= INT64_MAX;
}

/* Reads the first 64 bytes of the next commit.  1: there is no further commit. */
static int read_commit(struct log_reader *x, struct commit *c)
{
	uint8_t h[OVERLAY_LOG_COMMIT];
	int rc;

	c->begin = x->at;
	if (x->at > x->size || x->size - x->at < OVERLAY_LOG_COMMIT)
		return 1;
	rc = read_bytes(x, h, sizeof(h));
	if (rc)
		return rc;
	if (!*h && !memcmp(h, h + 1, sizeof(h) - 1)) /* all are zero */
		return 1;
	if (XXH3_64bits_withSeed(h, OVERLAY_LOG_COMMIT_SUMMED, x->r->seed) !=
	    le_get64(h + OVERLAY_LOG_COMMIT_SUMMED))
		return damaged(x, "the checksum of a commit's beginning");
	c->kind = le_get32(h);
	c->nranges = le_get32(h + 4);
	c->bytes = le_get64(h + 8);
	c->number = le_get64(h + 16);
	c->sum = le_get64(h + 24);
	if ((c->kind != OVERLAY_LOG_EDIT && c->kind != OVERLAY_LOG_WRITTEN) ||
	    c->number != x->r->edits + 1 || x->r->written ||
	    (c->kind == OVERLAY_LOG_WRITTEN && (c->bytes || c->nranges)) || !locate(x->r, c))
		return damaged(x, "a commit's beginning");
	return c->end > x->size;
}

static int read_commits(struct log_reader *x)
{
	struct commit c;
	int rc;

	x->r->end = x->at;
	while (!(rc = read_commit(x, &c))) {
		XXH3_64bits_reset_withSeed(&x->sum, x->r->seed);
		rc = c.kind == OVERLAY_LOG_EDIT ? read_edit(x, &c) : read_written(x, &c);
		if (rc)
			return rc;
		x->at = overlay_log_align(c.end);
	}
	/* bytes behind the last commit: an edit that was interrupted */
	if (rc > 0)
		x->r->torn = x->size > c.begin;
	return rc < 0 ? rc : merge_all(x);
}

/* Reads and checks the log that r->fd is open on, into *r. */
static int read_log(struct overlay_log *r, char *why, size_t whysize)
{
	struct log_reader x = { .r = r, .why = why, .whysize = whysize };
	struct stat st;
	int rc;

	snprintf(why, whysize, "%s: no memory", r->path);
	if (fstat(r->fd, &st))
		return -errno;
	x.size = (uint64_t)st.st_size;
	x.chunk = malloc(OVERLAY_LOG_CHUNK);
	rc = x.chunk ? read_head(&x) : -ENOMEM;
	if (!rc)
		rc = read_commits(&x);
	r->map.fd = r->fd;
	for (unsigned i = 0; i < x.nlists; i++)
		free(x.lists[i].items);
	free(x.chunk);
	return rc;
}

enum { SAMPLE = 16 << 10 }; /* bytes of a file's head and of its tail that identify it */

/* ---- opening ---- */

/* Closes the log; the folder stays open. */
static void close_log(struct overlay_log *r)
{
	for (uint32_t i = 0; r->files && i < r->nfiles; i++)
		free(r->files[i].name);
	free(r->files);
	free(r->next_map.items);
	overlay_map_fini(&r->map);
	free(r->over);
	base_close(&r->fd);
	*r = (struct overlay_log){ .path = r->path, .dir = r->dir, .fd = -1 };
}

static int lock(struct overlay_log *r, enum overlay_log_use use, char *why, size_t whysize)
{
	bool looks = use == OVERLAY_LOG_LOOK;
	int rc = file_lock_wait(r->dir, looks ? LOCK_SH : LOCK_EX,
				looks ? 0 : monotonic_ms() + FILE_LOCK_MS, r->path);

	r->busy = rc == -EBUSY;
	if (!rc && looks)
		fd_unlock(r->dir); /* a look must not keep a writer out */
	if (!rc || looks)
		return 0;
	if (r->busy)
		snprintf(why, whysize,
			 "%s is the overlay of a mount, or being committed, by %s", r->path,
			 file_lock_holder(r->dir).name);
	else
		snprintf(why, whysize, "%s cannot be locked: %s", r->path, strerror(-rc));
	return rc;
}

static int open_log(struct overlay_log *r, enum overlay_log_use use, char *why, size_t whysize)
{
	struct stat st;
	int fd = folder_open_path(r->dir, OVERLAY_LOG_NAME,
				  use == OVERLAY_LOG_LOOK ? O_RDONLY : O_RDWR, &st);
	int rc;

	if (fd == -ENOENT)
		return 0;
	if (fd < 0) {
		char line[300];

		folder_failed(OVERLAY_LOG_NAME, fd, line, sizeof(line));
		snprintf(why, whysize, "%s: %s", r->path, line);
		return fd;
	}
	r->fd = fd;
	rc = read_log(r, why, whysize);
	if (rc != -EBADMSG || !r->busy)
		return rc;
	snprintf(why, whysize, "%s is being changed by %s: look again", r->path,
		 file_lock_holder(r->dir).name);
	return -EBUSY;
}

static int open_dir(struct overlay_log *r, const char *path, char *why, size_t whysize)
{
	int rc;

	r->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	rc = r->dir < 0 ? -errno : 0;
	if (!rc)
		r->path = realpath(path, NULL); /* the caller may chdir */
	if (!rc && !r->path)
		rc = -errno;
	if (rc)
		snprintf(why, whysize, "%s: %s", path, strerror(-rc));
	return rc;
}

int overlay_log_open(struct overlay_log **out, const char *path, enum overlay_log_use use,
		     char *why, size_t whysize)
{
	struct overlay_log *r = calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return -ENOMEM;
	r->dir = r->fd = -1;
	rc = open_dir(r, path, why, whysize);
	if (!rc)
		rc = lock(r, use, why, whysize);
	if (!rc && use != OVERLAY_LOG_REMOVE)
		rc = open_log(r, use, why, whysize);
	if (rc) {
		overlay_log_close(r);
		return rc;
	}
	*out = r;
	return 0;
}

bool overlay_log_is_in(const struct overlay_log *r, int folder)
{
	CLEANUP(close) int at = openat(r->dir, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct stat wanted, here, before = { .st_ino = 0 };

	if (fstat(folder, &wanted))
		return false;
	while (at >= 0 && !fstat(at, &here)) {
		int up;

		if (here.st_dev == wanted.st_dev && here.st_ino == wanted.st_ino)
			return true;
		if (here.st_dev == before.st_dev && here.st_ino == before.st_ino)
			return false; /* the root */
		before = here;
		up = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		close(at);
		at = up;
	}
	return false;
}

/* ---- what files are ---- */

static int identify(const struct table_file *f, uint8_t identity[OVERLAY_LOG_IDENTITY])
{
	CLEANUP(free) uint8_t *bytes = malloc(2 * SAMPLE);
	/* head and tail of a small file overlap */
	uint64_t size = u64_min(f->size, SAMPLE);
	XXH128_canonical_t sum;
	int rc = bytes ? fd_read_all(f->fd, bytes, size, 0) : -ENOMEM;

	if (!rc)
		rc = fd_read_all(f->fd, bytes + size, size, f->size - size);
	if (rc)
		return rc;
	XXH128_canonicalFromHash(&sum, XXH3_128bits(bytes, 2 * size));
	le_put64(identity, f->size);
	le_put64(identity + 8, (uint64_t)f->mtime.tv_sec);
	le_put32(identity + 16, (uint32_t)f->mtime.tv_nsec);
	memcpy(identity + 20, &sum, sizeof(sum));
	return 0;
}

static int other(const struct overlay_log *r, const char *name, char *why, size_t whysize)
{
	snprintf(why, whysize,
		 "%s has changed since the overlay %s was made: %s (fragctl discard drops its "
		 "edits of %s)",
		 name, r->path, strerror(ESTALE), r->over);
	return OVERLAY_LOG_OTHER;
}

int overlay_log_match(struct overlay_log *r, const struct table *t, char *why, size_t whysize)
{
	bool same = true, written = r->written;
	uint32_t last = 0;

	if (t->nfiles != r->nfiles)
		return other(r, "the list of files", why, whysize);
	for (uint32_t i = 0; i < t->nfiles && (same || written); i++) {
		const struct overlay_log_file *f = &r->files[i];
		uint8_t now[OVERLAY_LOG_IDENTITY];
		int rc = strcmp(f->name, t->files[i].name)
				 ? other(r, t->files[i].name, why, whysize)
				 : identify(&t->files[i], now);

		if (rc)
			return rc;
		same = same && !memcmp(now, f->identity, sizeof(now));
		written = written && !memcmp(now, f->written, sizeof(now));
		last = i;
	}
	if (!same && !written)
		return other(r, r->files[last].name, why, whysize);
	return same ? OVERLAY_LOG_SAME : OVERLAY_LOG_SAME_AS_WRITTEN;
}

/* ---- a new log ---- */

struct log_writer {
	int fd;
	int rc; /* -errno of the first write that failed; 0: none */
	uint64_t at;
	size_t used;
	uint8_t *buffer; /* [OVERLAY_LOG_CHUNK] */
	XXH3_state_t sum;
};

static void flush(struct log_writer *o)
{
	XXH3_64bits_update(&o->sum, o->buffer, o->used);
	if (!o->rc)
		o->rc = fd_write_all(o->fd, o->buffer, o->used, o->at);
	o->at += o->used;
	o->used = 0;
}

static void put(struct log_writer *o, const void *bytes, uint64_t size)
{
	const uint8_t *from = bytes;

	while (size) {
		size_t n = u64_min(size, OVERLAY_LOG_CHUNK - o->used);

		memcpy(o->buffer + o->used, from, n);
		o->used += n;
		from += n;
		size -= n;
		if (o->used == OVERLAY_LOG_CHUNK)
			flush(o);
	}
}

static int begin_out(struct log_writer *o, int fd, uint64_t at, uint64_t seed)
{
	*o = (struct log_writer){ .fd = fd, .at = at, .buffer = malloc(OVERLAY_LOG_CHUNK) };
	XXH3_64bits_reset_withSeed(&o->sum, seed);
	return o->buffer ? 0 : -ENOMEM;
}

static int end_out(struct log_writer *o, uint64_t *sum)
{
	flush(o);
	*sum = XXH3_64bits_digest(&o->sum);
	free(o->buffer);
	return o->rc;
}

static int put_files(struct log_writer *o, const struct table *t)
{
	int rc = 0;

	for (uint32_t i = 0; i < t->nfiles && !rc; i++) {
		const char *name = t->files[i].name;
		uint8_t row[OVERLAY_LOG_FILE];

		rc = identify(&t->files[i], row);
		le_put16(row + OVERLAY_LOG_IDENTITY, (uint16_t)strlen(name));
		put(o, row, sizeof(row));
		put(o, name, strlen(name));
	}
	return rc;
}

static uint64_t head_size(const struct table *t, const char *over)
{
	uint64_t size = OVERLAY_LOG_HEAD + strlen(over) + OVERLAY_LOG_SUM;

	for (uint32_t i = 0; i < t->nfiles; i++)
		size += OVERLAY_LOG_FILE + strlen(t->files[i].name);
	return overlay_log_align(size);
}

static int write_head(int fd, const struct table *t, const char *over)
{
	static const uint8_t zeros[OVERLAY_LOG_ALIGN];
	uint64_t size = head_size(t, over), sum;
	uint8_t h[OVERLAY_LOG_HEAD] = OVERLAY_LOG_MAGIC;
	struct log_writer o;
	int rc = size > OVERLAY_LOG_HEAD_MAX ? -EFBIG : begin_out(&o, fd, 0, 0), end;

	if (rc)
		return rc;
	le_put32(h + 8, OVERLAY_LOG_VERSION);
	le_put32(h + 12, t->nfiles);
	le_put64(h + 16, size);
	le_put16(h + 24, (uint16_t)strlen(over));
	put(&o, h, sizeof(h));
	put(&o, over, strlen(over));
	rc = put_files(&o, t);
	if (!rc)
		put(&o, zeros, size - OVERLAY_LOG_SUM - (o.at + o.used));
	end = end_out(&o, &sum);
	/* h is used once more, for the checksum at the head's end */
	le_put64(h, sum);
	rc = rc ? rc : end;
	if (!rc)
		rc = fd_write_all(fd, h, OVERLAY_LOG_SUM, size - OVERLAY_LOG_SUM);
	return rc || !fsync(fd) ? rc : -errno;
}

static bool is_ours(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..") || !strcmp(name, OVERLAY_LOG_NAME) ||
	       !strcmp(name, OVERLAY_LOG_NEW);
}

int overlay_log_check_alone(const struct overlay_log *r)
{
	int fd = openat(r->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	int rc = 0;

	if (!d) {
		rc = -errno;
		base_close(&fd);
		return rc;
	}
	while (!rc && (entry = readdir(d)))
		rc = is_ours(entry->d_name) ? 0 : -ENOTEMPTY;
	closedir(d);
	return rc;
}

static int sync_dir(const struct overlay_log *r)
{
	return fsync(r->dir) ? -errno : 0;
}

static int create(struct overlay_log *r, const struct table *t, const char *over)
{
	CLEANUP(close) int fd = -1;
	int rc = overlay_log_check_alone(r);

	if (!rc && unlinkat(r->dir, OVERLAY_LOG_NEW, 0) && errno != ENOENT)
		rc = -errno;
	if (rc)
		return rc;
	fd = openat(r->dir, OVERLAY_LOG_NEW, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	rc = fd < 0 ? -errno : write_head(fd, t, over);
	if (!rc && renameat(r->dir, OVERLAY_LOG_NEW, r->dir, OVERLAY_LOG_NAME))
		rc = -errno;
	if (rc) {
		unlinkat(r->dir, OVERLAY_LOG_NEW, 0);
		return rc;
	}
	return sync_dir(r);
}

/* ---- over a checkpoint ---- */

int overlay_log_remove(struct overlay_log *r)
{
	close_log(r);
	unlinkat(r->dir, OVERLAY_LOG_NEW, 0);
	if (unlinkat(r->dir, OVERLAY_LOG_NAME, 0))
		return -errno;
	return sync_dir(r);
}

void overlay_log_close(struct overlay_log *r)
{
	if (!r)
		return;
	/* torn: whether it has an edit is not known */
	if (r->is_new && !r->edits && !r->torn)
		overlay_log_remove(r);
	close_log(r);
	base_close(&r->dir);
	free(r->path);
	free(r);
}

/* Cuts off the log behind the last edit, with a commit of kind `written`. */
static int cut(struct overlay_log *r)
{
	r->written = false;
	r->torn = true;
	if (ftruncate(r->fd, (off_t)r->end) || fdatasync(r->fd))
		return -errno;
	r->torn = false;
	return 0;
}

static int bind_new(struct overlay_log *r, const struct table *t, const char *over, char *why,
		    size_t whysize)
{
	int rc = create(r, t, over);

	if (rc)
		snprintf(why, whysize, "%s: %s", r->path,
			 rc == -ENOTEMPTY
				 ? "there are other things in it: an overlay needs a folder of "
				   "its own"
				 : strerror(-rc));
	r->is_new = !rc;
	return rc ? rc : open_log(r, OVERLAY_LOG_CHANGE, why, whysize);
}

int overlay_log_bind(struct overlay_log *r, const struct table *t, const char *over, char *why,
		     size_t whysize)
{
	int rc = r->fd < 0 ? OVERLAY_LOG_SAME : overlay_log_match(r, t, why, whysize);

	if (rc == OVERLAY_LOG_OTHER)
		return -ESTALE;
	if (rc == OVERLAY_LOG_SAME_AS_WRITTEN) {
		log_info("%s: its edits were written to the files: empty now", r->path);
		rc = overlay_log_remove(r);
	}
	if (!rc && r->fd < 0)
		return bind_new(r, t, over, why, whysize);
	if (!rc && r->torn)
		log_warn("%s: an edit that was not whole is left out", r->path);
	if (!rc)
		rc = cut(r);
	if (rc)
		snprintf(why, whysize, "%s: %s", r->path, strerror(-rc));
	return rc;
}

/* ---- a commit ---- */

/* Makes next_map and next_end for a commit at r->end, which has its ranges first, then their
 * bytes.
 */
static int map_patches(struct overlay_log *r, const struct patches *p)
{
	struct vec own = { .items = NULL };
	uint64_t at =
		r->end + OVERLAY_LOG_COMMIT + (uint64_t)patches_count(p) * OVERLAY_LOG_RANGE;
	int rc = 0;

	for (uint32_t i = 0; i < patches_count(p) && !rc; i++) {
		const struct patch *x = patches_get(p, i);
		struct overlay_map_range *range = vec_add(&own, sizeof(*range));

		if (range)
			*range = (struct overlay_map_range){ x->offset, x->size, at, x->file };
		else
			rc = -ENOMEM;
		at += x->size;
	}
	r->next_end = overlay_log_align(at);
	if (!rc)
		rc = overlay_map_merge(&r->next_map, &r->map.ranges, &own);
	free(own.items);
	return rc;
}

static void put_edit(struct log_writer *o, const struct patches *p)
{
	for (uint32_t i = 0; i < patches_count(p); i++) {
		const struct patch *x = patches_get(p, i);
		uint8_t row[OVERLAY_LOG_RANGE];

		le_put64(row, x->offset);
		le_put64(row + 8, x->size);
		le_put32(row + 16, x->file);
		put(o, row, sizeof(row));
	}
	for (uint32_t i = 0; i < patches_count(p); i++)
		put(o, patches_get(p, i)->bytes, patches_get(p, i)->size);
}

/* Fills r->commit, the first 64 bytes of the commit, which are written last. */
static void set_commit(struct overlay_log *r, enum overlay_log_kind kind, uint32_t nranges,
		       uint64_t bytes, uint64_t sum)
{
	uint8_t *h = r->commit;

	memset(h, 0, sizeof(r->commit));
	le_put32(h, kind);
	le_put32(h + 4, nranges);
	le_put64(h + 8, bytes);
	le_put64(h + 16, r->edits + 1);
	le_put64(h + 24, sum);
	le_put64(h + OVERLAY_LOG_COMMIT_SUMMED,
		 XXH3_64bits_withSeed(h, OVERLAY_LOG_COMMIT_SUMMED, r->seed));
}

static int write_edit(struct overlay_log *r, const struct patches *p)
{
	struct log_writer o;
	uint64_t sum;
	int rc = begin_out(&o, r->fd, r->end + OVERLAY_LOG_COMMIT, r->seed);

	if (rc)
		return rc;
	put_edit(&o, p);
	rc = end_out(&o, &sum);
	set_commit(r, OVERLAY_LOG_EDIT, patches_count(p), p->bytes, sum);
	return rc || !fdatasync(r->fd) ? rc : -errno;
}

int overlay_log_drop(struct overlay_log *r)
{
	free(r->next_map.items);
	r->next_map = (struct vec){ .items = NULL };
	return cut(r);
}

int overlay_log_begin(struct overlay_log *r, struct patches *p, const _Atomic bool *cancelled)
{
	int rc = r->torn ? cut(r) : 0;

	if (!rc)
		rc = patches_look(p, NULL, NULL, cancelled);
	if (!rc)
		rc = map_patches(r, p);
	if (!rc)
		rc = write_edit(r, p);
	if (rc)
		overlay_log_drop(r);
	return rc;
}

static int write_commit(struct overlay_log *r)
{
	int rc = fd_write_all(r->fd, r->commit, sizeof(r->commit), r->end);

	return rc || !fdatasync(r->fd) ? rc : -errno;
}

int overlay_log_end(struct overlay_log *r)
{
	int rc = write_commit(r);

	if (rc)
		return rc;
	free(r->map.ranges.items);
	r->map.ranges = r->next_map;
	r->next_map = (struct vec){ .items = NULL };
	r->end = r->next_end;
	r->edits++;
	return 0;
}

int overlay_log_note_written(struct overlay_log *r, const struct table *t)
{
	uint8_t identity[OVERLAY_LOG_IDENTITY];
	struct log_writer o;
	uint64_t sum;
	int rc = r->torn && !r->written ? cut(r) : 0, end;

	if (!rc)
		rc = begin_out(&o, r->fd, r->end + OVERLAY_LOG_COMMIT, r->seed);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < t->nfiles && !rc; i++) {
		rc = identify(&t->files[i], identity);
		put(&o, identity, sizeof(identity));
	}
	end = end_out(&o, &sum);
	set_commit(r, OVERLAY_LOG_WRITTEN, 0, 0, sum);
	if (!rc)
		rc = end;
	if (!rc && fdatasync(r->fd))
		rc = -errno;
	return rc ? rc : write_commit(r);
}
