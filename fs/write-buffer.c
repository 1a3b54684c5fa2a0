/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/write-buffer.h"

#include "engine/base/dtype.h"
#include "engine/base/element.h"
#include "engine/base/log.h"
#include "engine/base/queue.h"
#include "engine/base/vec.h"
#include "fs/hyper.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { HOLE_BLOCK = 4096 }; /* holes of files are whole blocks of their file system */

struct pending_flush {
	SLIST_ENTRY(pending_flush) link;
	fuse_req_t req;
};

SLIST_HEAD(pending_flushes, pending_flush);

struct write_buffer {
	pthread_mutex_t lock;   /* of all below */
	struct staging staging; /* states */
	char text[HYPER_TEXT_MAX];
	size_t length;  /* of text; hypers and elements */
	bool touched;   /* text was written to */
	bool truncated; /* by O_TRUNC or truncate(2): a commit must cover the whole file */
	/* Since the truncation: where the file ends by writes and ftruncate(2), and whether
	 * what was not written before that is holes, which are zeros.
	 */
	uint64_t end;
	bool has_holes_only;
	bool committing;
	int refused; /* errno of a write that was refused; 0: none was refused */
	int failed;  /* errno of the last commit, if nothing was written since */
	bool logged; /* the engine has logged the failed commit */
	union {      /* the value of text */
		double hyper;
		unsigned char element[ELEMENT_BYTES_MAX];
	} value;
	struct engine_extent *extents;  /* while committing */
	struct pending_flushes waiters; /* flushes that came while committing */
};

static bool is_hyper(const struct handle *h)
{
	return h->node.kind == NODE_HYPER;
}

/* Returns true if programs write a line, and not bytes. */
static bool is_text(const struct handle *h)
{
	return is_hyper(h) || h->cells.form == CELLS_ELEMENT;
}

int write_buffer_new(struct handle *h)
{
	struct write_buffer *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	pthread_mutex_init(&d->lock, NULL);
	staging_init(&d->staging, &h->fs->pool, h->cells.bytes);
	if (is_hyper(h)) {
		d->length = h->length;
		memcpy(d->text, h->text, d->length);
	}
	h->write_buffer = d;
	return 0;
}

static bool dirty(const struct handle *h)
{
	return is_text(h) ? h->write_buffer->touched : h->write_buffer->staging.covered;
}

static void truncate_all(struct write_buffer *d)
{
	d->length = 0;
	d->truncated = true;
	d->end = 0;
	d->has_holes_only = true;
}

/* Takes the lock.  The caller has the file's descriptor, so its open(2) has returned: from here
 * on a truncation by that thread means another file.
 */
static void enter(struct handle *h)
{
	pthread_mutex_lock(&h->write_buffer->lock);
	atomic_store(&h->opener, -1);
	if (!atomic_exchange(&h->truncated, false) || dirty(h))
		return;
	truncate_all(h->write_buffer);
}

static void leave(struct handle *h)
{
	pthread_mutex_unlock(&h->write_buffer->lock);
}

static uint64_t staged(const struct handle *h)
{
	return is_text(h) ? h->write_buffer->length : h->write_buffer->staging.covered;
}

void write_buffer_free(struct handle *h)
{
	struct write_buffer *d = h->write_buffer;
	char path[TREE_PATH_MAX];

	if (!d)
		return;
	if (dirty(h) && !(d->failed && d->logged)) {
		tree_path(&h->fs->tree, h->node, path, sizeof(path));
		log_warn("%s: closed without a commit, %" PRIu64 " staged bytes dropped%s%s",
			 path, staged(h), d->failed ? ": " : "",
			 d->failed ? strerror(d->failed) : "");
	}
	staging_fini(&d->staging);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

/* Logs why a write is refused. */
static int refuse(struct handle *h, const char *why)
{
	char path[TREE_PATH_MAX];

	tree_path(&h->fs->tree, h->node, path, sizeof(path));
	log_warn("%s: %s", path, why);
	return -EINVAL;
}

/* Parses a hyper-parameter's text.  NaN and infinities are refused: one step with such a
 * learning rate destroys the model.
 */
static int parse_hyper(struct handle *h, const char *text, size_t length, double *value)
{
	char why[HYPER_TEXT_MAX + 64];
	int rc = hyper_parse(text, length, value);

	if (!rc && isfinite(*value))
		return 0;
	if (rc == -ERANGE)
		snprintf(why, sizeof(why), "%.*s is refused: not representable as a float64",
			 (int)length - (text[length - 1] == '\n'), text);
	else if (rc)
		return refuse(h, "what was written is refused: no number");
	else
		snprintf(why, sizeof(why), "%g is refused: no finite number", *value);
	return refuse(h, why);
}

/* Parses an element's text.  NaN and infinities are allowed, because they are allowed in writes
 * of a state's bytes, which are not looked at.
 */
static int parse_element(struct handle *h, const char *text, size_t length, void *element)
{
	char why[HYPER_TEXT_MAX + 96];
	int rc = element_parse(h->cells.dtype, text, length, element);

	if (!rc)
		return 0;
	snprintf(why, sizeof(why), "%.*s is refused: no %s%s",
		 (int)length - (length && text[length - 1] == '\n'), text,
		 rc == -ERANGE ? "number in the range of " : "",
		 rc == -ERANGE || !dtype_is_float(h->cells.dtype)
			 ? frag_dtype_name(h->cells.dtype)
			 : "number");
	return refuse(h, why);
}

/* Sets *to to the value of the text: a float64, or an element. */
static int parse(struct handle *h, const char *text, size_t length, void *to)
{
	return is_hyper(h) ? parse_hyper(h, text, length, to)
			   : parse_element(h, text, length, to);
}

/* Stages text of a hyper-parameter or element.  A line that is no number is refused at once,
 * and not staged, because shells ignore the result of close(2).
 */
static int take_text(struct handle *h, const void *data, size_t size, uint64_t offset)
{
	struct write_buffer *d = h->write_buffer;
	char text[HYPER_TEXT_MAX + 1] = "";
	size_t length = u64_max(d->length, offset + size);
	unsigned char value[ELEMENT_BYTES_MAX] __attribute__((aligned(16)));
	int rc;

	if (offset > HYPER_TEXT_MAX || size > HYPER_TEXT_MAX - offset) {
		snprintf(text, sizeof(text), "more than %d bytes are refused", HYPER_TEXT_MAX);
		return refuse(h, text);
	}
	/* A write of "9" over "0.0031" would make 9.0031. */
	if (!d->touched && d->length && (offset || size < d->length))
		return refuse(h, "a write of a part is refused: truncate it first");
	memcpy(text, d->text, d->length);
	memcpy(text + offset, data, size);
	rc = text[length - 1] == '\n' ? parse(h, text, length, value) : 0;
	if (rc)
		return rc;
	memcpy(d->text, text, length);
	d->length = length;
	d->touched = true;
	return 0;
}

/* A program that goes forward and leaves out blocks behind its first bytes, as cp(1) does,
 * means holes.  One that seeks elsewhere means to change a part, and has truncated by mistake.
 */
static void go_on(struct write_buffer *d, uint64_t offset, size_t size)
{
	bool is_hole =
		d->end && offset > d->end && !(d->end % HOLE_BLOCK) && !(offset % HOLE_BLOCK);

	d->has_holes_only = d->has_holes_only && (offset == d->end || is_hole);
	d->end = offset + size;
}

static int64_t take_data(struct handle *h, const void *data, size_t size, uint64_t offset)
{
	struct write_buffer *d = h->write_buffer;
	size_t n;
	int rc;

	if (d->committing)
		return -EBUSY;
	if (!size)
		return 0;
	if (is_text(h)) {
		rc = take_text(h, data, size, offset);
		return rc ? rc : (int64_t)size;
	}
	if (offset >= h->cells.bytes)
		return -EFBIG;
	if (offset < h->cells.head &&
	    memcmp(data, h->text + offset, u64_min(size, h->cells.head - offset)) != 0)
		return refuse(h, "what was written is refused: its header is not this file's, "
				 "whose dtype and shape stay");
	n = u64_min(size, h->cells.bytes - offset);
	rc = staging_write(&d->staging, offset, data, n);
	if (!rc)
		go_on(d, offset, n);
	/* The bytes behind the end were not taken.  Callers may ignore a short write, so
	 * close(2) fails too.
	 */
	if (!rc && n < size)
		d->refused = EFBIG;
	return rc ? rc : (int64_t)n;
}

static void forget(struct handle *h)
{
	struct write_buffer *d = h->write_buffer;

	staging_fini(&d->staging);
	d->touched = false;
	d->failed = 0;
	d->refused = 0;
}

int write_buffer_truncate(struct handle *h, uint64_t size)
{
	struct write_buffer *d = h->write_buffer;
	int rc = 0;

	enter(h);
	if (d->committing) {
		rc = -EBUSY;
	} else if (size == (is_text(h) ? d->length : h->cells.bytes)) {
		d->has_holes_only = true;
		d->end = size;
	} else if (!size) {
		forget(h);
		truncate_all(d);
	} else {
		rc = -EINVAL;
	}
	leave(h);
	return rc;
}

bool write_buffer_is_dirty(struct handle *h)
{
	bool is;

	enter(h);
	is = dirty(h);
	leave(h);
	return is;
}

void write_buffer_overlay(struct handle *h, uint64_t offset, void *out, size_t size)
{
	enter(h);
	staging_overlay(&h->write_buffer->staging, offset, out, size);
	leave(h);
}

size_t write_buffer_text(struct handle *h, char *out, size_t size)
{
	size_t n;

	enter(h);
	n = u64_min(size, h->write_buffer->length);
	memcpy(out, h->write_buffer->text, n);
	leave(h);
	return n;
}

/* ---- committing ---- */

static void reply_waiters(struct pending_flushes *waiters, int error)
{
	struct pending_flush *w;

	while ((w = SLIST_FIRST(waiters))) {
		SLIST_REMOVE_HEAD(waiters, link);
		fuse_reply_err(w->req, error);
		free(w);
	}
}

static void committed(struct engine_write *write, int result)
{
	struct request *r = write->owner;
	struct handle *h = r->handle;
	struct write_buffer *d = h->write_buffer;
	int error = request_error(result);
	size_t written = r->size;
	struct pending_flushes waiters;
	char path[TREE_PATH_MAX];

	request_done(r);
	pthread_mutex_lock(&d->lock);
	d->committing = false;
	free(d->extents);
	d->extents = NULL;
	d->failed = error;
	d->logged = write->logged;
	if (!result && !d->logged) {
		tree_path(&h->fs->tree, h->node, path, sizeof(path));
		log_info("%s: committed, %" PRIu64 " bytes", path, staged(h));
	}
	if (!result) {
		forget(h);
		d->truncated = false;
		atomic_store(&h->behind, true);
	} else if (written) { /* the line is forgotten, as by O_TRUNC, and close(2) fails too */
		d->touched = false;
		truncate_all(d);
		d->refused = error;
		if (!d->logged) {
			tree_path(&h->fs->tree, h->node, path, sizeof(path));
			log_warn("%s: not committed: %s", path, strerror(error));
		}
	}
	waiters = d->waiters;
	SLIST_INIT(&d->waiters);
	pthread_mutex_unlock(&d->lock);
	if (written && !error)
		fuse_reply_write(r->req, written);
	else
		fuse_reply_err(r->req, error);
	reply_waiters(&waiters, error);
	request_put(r);
}

/* Makes offsets in the file to offsets in the slice: leaves out the bytes of the header, which
 * equal the header's own.  Returns the number of extents that are left.
 */
static int64_t skip_header(struct engine_extent *extents, int64_t n, uint64_t head)
{
	int64_t kept = 0;

	for (int64_t i = 0; i < n; i++) {
		struct engine_extent e = extents[i];
		uint64_t skip = e.offset < head ? u64_min(head - e.offset, e.size) : 0;

		if (skip < e.size)
			extents[kept++] =
				(struct engine_extent){ e.offset + skip - head, e.size - skip,
							(const char *)e.data + skip };
	}
	return kept;
}

/* Returns the first bytes of e, which lie in the slice, that are neighbours in the state, too:
 * by their offset in the state.
 */
static struct engine_extent first_in_state(const struct cells *c, const struct engine_extent *e)
{
	uint64_t inside = e->offset % c->element;
	struct slice_run run = slice_run(&c->slice, e->offset / c->element);
	uint64_t elements = run.step == 1 ? run.count : 1;

	return (struct engine_extent){ run.first * c->element + inside,
				       u64_min(elements * c->element - inside, e->size),
				       e->data };
}

/* Lists extents of a slice by their offsets in the state, sorted.
 * -ENOSPC: the list alone would take more than stage_mem.
 * -ENOMEM.
 */
static int64_t scatter(const struct handle *h, const struct engine_extent *extents, int64_t n,
		       struct vec *scattered)
{
	uint64_t most = h->fs->pool.limit / sizeof(struct engine_extent);

	for (int64_t i = 0; i < n; i++) {
		struct engine_extent rest = extents[i], first, *added;

		for (; rest.size; rest.size -= first.size) {
			added = scattered->count < most ? vec_add(scattered, sizeof(*added))
							: NULL;
			if (!added)
				return scattered->count < most ? -ENOMEM : -ENOSPC;
			*added = first = first_in_state(&h->cells, &rest);
			rest.offset += first.size;
			rest.data = (const char *)rest.data + first.size;
		}
	}
	static_assert(offsetof(struct engine_extent, offset) == 0, "u64_compare");
	if (!slice_rises(&h->cells.slice))
		qsort(scattered->items, scattered->count, sizeof(struct engine_extent),
		      u64_compare);
	return scattered->count;
}

/* Lists the staged bytes by their offsets in the state. */
static int64_t state_extents(struct handle *h)
{
	struct write_buffer *d = h->write_buffer;
	int64_t n = staging_extents(&d->staging, &d->extents);
	struct vec scattered = { 0 };
	uint64_t start;

	if (n <= 0)
		return n;
	n = skip_header(d->extents, n, h->cells.head);
	if (cells_is_range(&h->cells, &start)) {
		for (int64_t i = 0; i < n; i++)
			d->extents[i].offset += start;
		return n;
	}
	n = scatter(h, d->extents, n, &scattered);
	free(d->extents);
	d->extents = n < 0 ? NULL : scattered.items;
	if (n < 0)
		free(scattered.items);
	return n;
}

/* Fills d->extents with the bytes to commit.  Returns their number.
 * -EINVAL: the text is no finite number.
 * -ENOMEM.
 */
static int64_t extents(struct handle *h)
{
	struct write_buffer *d = h->write_buffer;
	int rc;

	if (!is_text(h))
		return state_extents(h);
	rc = parse(h, d->text, d->length, &d->value);
	if (rc)
		return rc;
	d->extents = calloc(1, sizeof(*d->extents));
	if (!d->extents)
		return -ENOMEM;
	*d->extents =
		(struct engine_extent){ h->cells.slice.first * h->cells.element,
					is_hyper(h) ? sizeof(d->value.hyper) : h->cells.element,
					&d->value };
	return 1;
}

/* Returns true if the file was truncated, and not all of it was written. */
static bool is_short(const struct handle *h)
{
	const struct write_buffer *d = h->write_buffer;

	return !is_text(h) && d->truncated && d->staging.covered < h->cells.bytes;
}

static bool has_holes(const struct handle *h)
{
	const struct write_buffer *d = h->write_buffer;

	return is_short(h) && d->has_holes_only && d->end == h->cells.bytes;
}

/* Begins a commit.  1: *out is to be given to the engine; 0: nothing is to be committed;
 * -errno.
 */
static int begin(struct handle *h, fuse_req_t req, bool fsync, struct request **out)
{
	struct write_buffer *d = h->write_buffer;
	struct request *r;
	int64_t n;
	int rc;

	if (d->refused)
		return -d->refused;
	rc = has_holes(h) ? staging_fill(&d->staging, h->cells.head) : 0;
	if (rc)
		return rc;
	if (!dirty(h))
		return 0;
	/* A program whose fsync(2) has failed takes the edit for not made.  The close(2) that
	 * follows, by the program or by its end, must not make the edit: only fsync(2) tries
	 * again.
	 */
	if (d->failed && !fsync)
		return -d->failed;
	if (is_short(h))
		return refuse(h, "what was written is refused: the file was truncated, and "
				 "not all of it was written");
	n = extents(h);
	if (n < 0)
		return (int)n;
	if (!n) { /* only bytes of the header */
		free(d->extents);
		d->extents = NULL;
		forget(h);
		d->truncated = false;
		return 0;
	}
	r = request_get(&h->fs->requests, req, h);
	if (!r) {
		free(d->extents);
		d->extents = NULL;
		return -ENOMEM;
	}
	handle_ref(h);
	r->kind = REQUEST_WRITE;
	r->write = (struct engine_write){ .file = h->file,
					  .extents = d->extents,
					  .nextents = (size_t)n,
					  .thread = fuse_req_ctx(req)->pid,
					  .done = committed,
					  .owner = r };
	d->committing = true;
	*out = r;
	return 1;
}

static int wait_for(struct write_buffer *d, fuse_req_t req)
{
	struct pending_flush *w = malloc(sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->req = req;
	SLIST_INSERT_HEAD(&d->waiters, w, link);
	return 1;
}

static void submit(struct handle *h, struct request *r)
{
	/* the result is not used: if a signal came first, request_submitted cancels */
	request_arm(r);
	engine_write(h->fs->engine, &r->write);
	request_submitted(r);
}

/* Returns true if the last write, size bytes at offset, made a hyper-parameter's whole line. */
static bool is_line(const struct handle *h, size_t size, uint64_t offset)
{
	const struct write_buffer *d = h->write_buffer;

	return is_text(h) && !offset && size == d->length && d->text[size - 1] == '\n';
}

void write_buffer_write(struct handle *h, fuse_req_t req, const void *data, size_t size,
			uint64_t offset)
{
	struct write_buffer *d = h->write_buffer;
	struct request *r = NULL;
	int64_t n, rc = 0;

	enter(h);
	n = take_data(h, data, size, offset);
	d->failed = 0;
	if (n > 0 && is_line(h, size, offset)) {
		d->refused = 0; /* a whole line replaces the text that was refused before */
		rc = begin(h, req, false, &r);
	}
	if (r)
		r->size = size;
	if (n < 0)
		rc = n;
	if (rc < 0)
		d->refused = (int)-rc;
	leave(h);
	if (r)
		submit(h, r);
	else if (rc < 0)
		fuse_reply_err(req, (int)-rc);
	else
		fuse_reply_write(req, (size_t)n);
}

void write_buffer_flush(struct handle *h, fuse_req_t req, bool fsync)
{
	struct request *r = NULL;
	int rc;

	enter(h);
	rc = h->write_buffer->committing ? wait_for(h->write_buffer, req)
					 : begin(h, req, fsync, &r);
	leave(h);
	if (rc <= 0) {
		fuse_reply_err(req, -rc);
	} else if (r) {
		submit(h, r);
	}
}
