/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/write.h"

#include "engine/log.h"
#include "fs/hyper.h"
#include "fs/state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

struct waiter {
	struct waiter *next;
	fuse_req_t req;
};

struct edit {
	pthread_mutex_t lock;   /* of all below */
	struct staging staging; /* states */
	char text[HYPER_TEXT_MAX];
	size_t length; /* of text; hypers */
	bool touched;  /* text was written to */
	bool truncated;
	bool committing;
	int refused; /* errno of a write that was not taken, 0: none */
	double value;
	struct engine_extent *extents; /* while committing */
	struct waiter *waiters;        /* flushes that came meanwhile */
};

static bool is_hyper(const struct handle *h)
{
	return h->node.kind == NODE_HYPER;
}

int edit_new(struct handle *h, int flags)
{
	struct edit *e = calloc(1, sizeof(*e));

	if (!e)
		return -ENOMEM;
	pthread_mutex_init(&e->lock, NULL);
	staging_init(&e->staging, &h->fs->pool, h->bytes);
	e->truncated = flags & O_TRUNC;
	if (is_hyper(h) && !e->truncated) {
		e->length = h->length;
		memcpy(e->text, h->text, e->length);
	}
	h->edit = e;
	return 0;
}

static bool dirty(const struct handle *h)
{
	return is_hyper(h) ? h->edit->touched : h->edit->staging.covered;
}

static void log_dropped(struct handle *h)
{
	char path[512];

	tree_path(&h->fs->tree, h->node, path, sizeof(path));
	log_warn("%s: closed without a commit, %" PRIu64 " staged bytes dropped", path,
		 is_hyper(h) ? h->edit->length : h->edit->staging.covered);
}

void edit_free(struct handle *h)
{
	struct edit *e = h->edit;

	if (!e)
		return;
	if (dirty(h))
		log_dropped(h);
	staging_fini(&e->staging);
	pthread_mutex_destroy(&e->lock);
	free(e);
}

static int take_text(struct edit *e, const void *data, size_t size, uint64_t offset)
{
	if (offset > e->length)
		memset(e->text + e->length, 0, offset - e->length);
	memcpy(e->text + offset, data, size);
	e->length = u64_max(e->length, offset + size);
	e->touched = true;
	return 0;
}

static int64_t take(struct handle *h, const void *data, size_t size, uint64_t offset)
{
	struct edit *e = h->edit;
	uint64_t end = is_hyper(h) ? HYPER_TEXT_MAX : h->bytes;
	size_t n;
	int rc;

	if (e->committing)
		return -EBUSY;
	if (size && offset >= end)
		return -EFBIG;
	n = size ? u64_min(size, end - offset) : 0;
	if (!n)
		return 0;
	rc = is_hyper(h) ? take_text(e, data, n, offset)
			 : staging_write(&e->staging, offset, data, n);
	/* The rest lies behind the end: the caller may not look, so that close says it too. */
	if (!rc && n < size)
		e->refused = EFBIG;
	return rc ? rc : (int64_t)n;
}

int64_t edit_write(struct handle *h, const void *data, size_t size, uint64_t offset)
{
	struct edit *e = h->edit;
	int64_t rc;

	pthread_mutex_lock(&e->lock);
	rc = take(h, data, size, offset);
	if (rc < 0)
		e->refused = (int)-rc;
	pthread_mutex_unlock(&e->lock);
	return rc;
}

static void forget(struct handle *h)
{
	struct edit *e = h->edit;

	staging_fini(&e->staging);
	e->touched = false;
	e->refused = 0;
}

int edit_truncate(struct handle *h, uint64_t size)
{
	struct edit *e = h->edit;
	int rc = 0;

	pthread_mutex_lock(&e->lock);
	if (e->committing) {
		rc = -EBUSY;
	} else if (size == (is_hyper(h) ? e->length : h->bytes)) {
		rc = 0;
	} else if (!size) {
		forget(h);
		e->length = 0;
		e->truncated = true;
	} else {
		rc = -EINVAL;
	}
	pthread_mutex_unlock(&e->lock);
	return rc;
}

bool edit_is_dirty(struct handle *h)
{
	bool is;

	pthread_mutex_lock(&h->edit->lock);
	is = dirty(h);
	pthread_mutex_unlock(&h->edit->lock);
	return is;
}

void edit_overlay(struct handle *h, uint64_t offset, void *out, size_t size)
{
	pthread_mutex_lock(&h->edit->lock);
	staging_overlay(&h->edit->staging, offset, out, size);
	pthread_mutex_unlock(&h->edit->lock);
}

size_t edit_text(struct handle *h, char *out, size_t size)
{
	size_t n;

	pthread_mutex_lock(&h->edit->lock);
	n = u64_min(size, h->edit->length);
	memcpy(out, h->edit->text, n);
	pthread_mutex_unlock(&h->edit->lock);
	return n;
}

/* ---- committing ---- */

static void reply_waiters(struct waiter *w, int error)
{
	while (w) {
		struct waiter *next = w->next;

		fuse_reply_err(w->req, error);
		free(w);
		w = next;
	}
}

static void committed(struct engine_write *write, int result)
{
	struct request *r = write->owner;
	struct handle *h = r->handle;
	struct edit *e = h->edit;
	int error = state_error(result);
	struct waiter *waiters;

	request_done(r);
	pthread_mutex_lock(&e->lock);
	e->committing = false;
	free(e->extents);
	e->extents = NULL;
	if (!result) {
		forget(h);
		e->truncated = false;
	}
	waiters = e->waiters;
	e->waiters = NULL;
	pthread_mutex_unlock(&e->lock);
	fuse_reply_err(r->req, error);
	reply_waiters(waiters, error);
	request_put(r);
}

/* What is to be sent; -EINVAL: the text is no number; -ENOMEM. */
static int64_t extents(struct handle *h)
{
	struct edit *e = h->edit;
	int rc;

	if (!is_hyper(h))
		return staging_extents(&e->staging, &e->extents);
	rc = hyper_parse(e->text, e->length, &e->value);
	if (rc)
		return rc;
	e->extents = calloc(1, sizeof(*e->extents));
	if (!e->extents)
		return -ENOMEM;
	*e->extents = (struct engine_extent){ 0, sizeof(e->value), &e->value };
	return 1;
}

/* 1: *out is to be given to the engine; 0: nothing to do; -errno. */
static int begin(struct handle *h, fuse_req_t req, struct request **out)
{
	struct edit *e = h->edit;
	struct request *r;
	int64_t n;

	if (e->refused)
		return -e->refused;
	if (!dirty(h))
		return 0;
	if (!is_hyper(h) && e->truncated && e->staging.covered < h->bytes)
		return -EINVAL;
	n = extents(h);
	if (n < 0)
		return (int)n;
	r = request_get(&h->fs->requests, req, h);
	if (!r) {
		free(e->extents);
		e->extents = NULL;
		return -ENOMEM;
	}
	r->is_write = true;
	r->write = (struct engine_write){ .file = h->file,
					  .extents = e->extents,
					  .nextents = (size_t)n,
					  .done = committed,
					  .owner = r };
	e->committing = true;
	*out = r;
	return 1;
}

static int wait_for(struct edit *e, fuse_req_t req)
{
	struct waiter *w = malloc(sizeof(*w));

	if (!w)
		return -ENOMEM;
	*w = (struct waiter){ e->waiters, req };
	e->waiters = w;
	return 1;
}

void edit_flush(struct handle *h, fuse_req_t req)
{
	struct request *r = NULL;
	int rc;

	pthread_mutex_lock(&h->edit->lock);
	rc = h->edit->committing ? wait_for(h->edit, req) : begin(h, req, &r);
	pthread_mutex_unlock(&h->edit->lock);
	if (rc <= 0) {
		fuse_reply_err(req, -rc);
	} else if (r) {
		/* Interrupted already: the engine hears of it as soon as it has the write. */
		request_arm(r);
		engine_write(h->fs->engine, &r->write);
		request_submitted(r);
	}
}
