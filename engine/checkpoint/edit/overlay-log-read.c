/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/edit/overlay-log.h"
#include "engine/checkpoint/parse/little-endian.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Reads a log that anybody may have written: every number is checked before it is used. */

enum { LISTS_MAX = 40 };

struct reader {
	struct overlay_log *r;
	char *why;
	size_t whysize;
	uint64_t size; /* of the log */
	uint64_t at;
	uint8_t *chunk;   /* [OVERLAY_LOG_CHUNK] */
	XXH3_state_t sum; /* of what read_next has read */
	/* Maps of some edits each, a list at least twice as long as the next. */
	struct vec lists[LISTS_MAX];
	unsigned nlists;
};

static int damaged(struct reader *x, const char *what)
{
	snprintf(x->why, x->whysize,
		 "%s/" OVERLAY_LOG_NAME " is damaged at byte %" PRIu64
		 ": %s (fragctl discard removes it)",
		 x->r->path, x->at, what);
	return -EBADMSG;
}

static int read_bytes(struct reader *x, void *to, uint64_t size)
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

static const uint8_t *take(struct cursor *c, size_t size)
{
	const uint8_t *at = c->at;

	if ((size_t)(c->end - at) < size)
		return NULL;
	c->at += size;
	return at;
}

static int take_text(struct reader *x, struct cursor *c, size_t length, char **out)
{
	const char *text = (const char *)take(c, length);

	if (!text || !length || memchr(text, 0, length))
		return damaged(x, "no name");
	*out = text_copy(text, length);
	return *out ? 0 : -ENOMEM;
}

static int take_files(struct reader *x, struct cursor *c)
{
	struct overlay_log *r = x->r;
	int rc = 0;

	r->files = calloc(r->nfiles ? r->nfiles : 1, sizeof(*r->files));
	if (!r->files)
		return -ENOMEM;
	for (uint32_t i = 0; i < r->nfiles && !rc; i++) {
		const uint8_t *row = take(c, OVERLAY_LOG_FILE);

		if (!row)
			return damaged(x, "not as many files");
		memcpy(r->files[i].identity, row, OVERLAY_LOG_IDENTITY);
		rc = take_text(x, c, get_le16(row + OVERLAY_LOG_IDENTITY), &r->files[i].name);
	}
	return rc;
}

static int read_whole_head(struct reader *x, uint8_t *head, uint64_t size)
{
	struct cursor c = { head + OVERLAY_LOG_HEAD, head + size - OVERLAY_LOG_SUM };
	int rc;

	x->at = 0;
	rc = read_bytes(x, head, size);
	if (rc)
		return rc;
	x->r->seed = get_le64(c.end);
	if (XXH3_64bits(head, size - OVERLAY_LOG_SUM) != x->r->seed)
		return damaged(x, "the head's checksum");
	x->r->nfiles = get_le32(head + 12);
	rc = take_text(x, &c, get_le16(head + 24), &x->r->over);
	return rc ? rc : take_files(x, &c);
}

static int read_head(struct reader *x)
{
	uint8_t h[OVERLAY_LOG_HEAD];
	CLEANUP(free) uint8_t *head = NULL;
	uint64_t size;
	int rc = read_bytes(x, h, sizeof(h));

	if (rc)
		return rc;
	if (memcmp(h, OVERLAY_LOG_MAGIC, 8) != 0)
		return damaged(x, "it is no overlay's");
	if (get_le32(h + 8) != OVERLAY_LOG_VERSION) {
		snprintf(x->why, x->whysize,
			 "%s/" OVERLAY_LOG_NAME " is another version's of fragfs", x->r->path);
		return -EOPNOTSUPP;
	}
	size = get_le64(h + 16);
	if (size < OVERLAY_LOG_HEAD + OVERLAY_LOG_SUM || size > OVERLAY_LOG_HEAD_MAX ||
	    size > x->size || size % OVERLAY_LOG_ALIGN ||
	    get_le32(h + 12) > size / OVERLAY_LOG_FILE)
		return damaged(x, "the head's size");
	head = malloc(size);
	return head ? read_whole_head(x, head, size) : -ENOMEM;
}

/* ---- the map of all edits ---- */

static int merge_last_two(struct reader *x)
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

static int merge_all(struct reader *x)
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

static int read_next(struct reader *x, void *to, uint64_t size)
{
	int rc = read_bytes(x, to, size);

	XXH3_64bits_update(&x->sum, to, rc ? 0 : size);
	return rc;
}

static int add_range(struct reader *x, struct vec *edit, const uint8_t *row, uint64_t at)
{
	struct overlay_map_range r = { get_le64(row), get_le64(row + 8), at,
				       get_le32(row + 16) };
	const struct overlay_map_range *last =
		edit->count ? (struct overlay_map_range *)edit->items + edit->count - 1 : NULL;
	struct overlay_map_range *next;
	uint64_t end;

	if (r.file >= x->r->nfiles || !r.size || !u64_add(r.offset, r.size, &end) ||
	    end > get_le64(x->r->files[r.file].identity))
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

static int read_ranges(struct reader *x, const struct commit *c, struct vec *edit)
{
	enum { ROWS = OVERLAY_LOG_CHUNK / OVERLAY_LOG_RANGE };
	uint64_t at = x->at + (uint64_t)c->nranges * OVERLAY_LOG_RANGE;
	int rc = 0;

	for (uint32_t i = 0; i < c->nranges && !rc; i += ROWS) {
		uint32_t n = (uint32_t)u64_min(ROWS, c->nranges - i);

		rc = read_next(x, x->chunk, (uint64_t)n * OVERLAY_LOG_RANGE);
		for (uint32_t j = 0; j < n && !rc; j++) {
			const uint8_t *row = x->chunk + (size_t)j * OVERLAY_LOG_RANGE;

			if (get_le64(row + 8) > c->end - at)
				return damaged(x, "more ranges than bytes");
			rc = add_range(x, edit, row, at);
			at += get_le64(row + 8);
		}
	}
	return rc || at == c->end ? rc : damaged(x, "more bytes than ranges");
}

static int check_rest(struct reader *x, const struct commit *c)
{
	int rc = 0;

	while (x->at < c->end && !rc)
		rc = read_next(x, x->chunk, u64_min(OVERLAY_LOG_CHUNK, c->end - x->at));
	if (!rc && XXH3_64bits_digest(&x->sum) != c->sum)
		rc = damaged(x, "a commit's checksum");
	return rc;
}

static int read_edit(struct reader *x, const struct commit *c)
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

static int read_written(struct reader *x, const struct commit *c)
{
	struct overlay_log *r = x->r;
	int rc = 0;

	for (uint32_t i = 0; i < r->nfiles && !rc; i++)
		rc = read_next(x, r->files[i].written, OVERLAY_LOG_IDENTITY);
	r->written = true;
	return rc ? rc : check_rest(x, c);
}

/* Computes the end of a commit from its counts; false: beyond any file's size. */
static bool place(const struct overlay_log *r, struct commit *c)
{
	uint64_t rows = (uint64_t)c->nranges * OVERLAY_LOG_RANGE;

	if (c->kind == OVERLAY_LOG_WRITTEN)
		rows = (uint64_t)r->nfiles * OVERLAY_LOG_IDENTITY;
	return u64_add(rows, c->bytes, &c->end) &&
	       u64_add(c->end, c->begin + OVERLAY_LOG_COMMIT, &c->end) && c->end <= INT64_MAX;
}

/* Reads the first 64 bytes of the next commit.  1: there is no further commit. */
static int read_commit(struct reader *x, struct commit *c)
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
	    get_le64(h + OVERLAY_LOG_COMMIT_SUMMED))
		return damaged(x, "the checksum of a commit's beginning");
	c->kind = get_le32(h);
	c->nranges = get_le32(h + 4);
	c->bytes = get_le64(h + 8);
	c->number = get_le64(h + 16);
	c->sum = get_le64(h + 24);
	if ((c->kind != OVERLAY_LOG_EDIT && c->kind != OVERLAY_LOG_WRITTEN) ||
	    c->number != x->r->edits + 1 || x->r->written ||
	    (c->kind == OVERLAY_LOG_WRITTEN && (c->bytes || c->nranges)) || !place(x->r, c))
		return damaged(x, "a commit's beginning");
	return c->end > x->size;
}

static int read_commits(struct reader *x)
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
	if (rc > 0)
		x->r->torn = x->size > c.begin;
	return rc < 0 ? rc : merge_all(x);
}

int overlay_log_read(struct overlay_log *r, char *why, size_t whysize)
{
	struct reader x = { .r = r, .why = why, .whysize = whysize };
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
