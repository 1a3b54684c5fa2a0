/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/state-internal.h"
#include "fs/write-buffer.h"

#include "engine/base/element.h"
#include "engine/base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* This many texts take a millisecond or two.  The engine's thread is too busy for more: a
 * thread of its own makes them.
 */
enum { TEXTS_AT_ONCE = 1024 };

/* Replies with bytes of an element's line. */
static void reply_element(struct request *r)
{
	char text[ELEMENT_TEXT_MAX + 1];
	size_t length = element_format(r->handle->cells.dtype, r->gather.out, text);
	uint64_t offset;

	text[length++] = '\n';
	offset = u64_min(r->offset, length);
	fuse_reply_buf(r->req, text + offset, u64_min(r->size, length - offset));
}

/* Returns the cells of the gathered elements, which the caller frees: the first byte to reply,
 * the one at `start` behind the header, is at *before in them.  NULL: no memory.
 */
static char *make_cells(const struct request *r, size_t size, uint64_t start, uint64_t *before)
{
	const struct handle *h = r->handle;
	const struct cells *c = &h->cells;
	const struct gather *g = &r->gather;
	char *cells;

	if (state_export_converts(h))
		return state_export_convert(h, size, start, g->out, before);
	cells = malloc(g->count * c->cell);
	if (cells)
		cells_fill(c, g->first, g->count, g->out, cells);
	*before = start - g->first * c->cell;
	return cells;
}

/* Replies with the bytes of the header, of cells and of the trailer that the reader wants. */
static void reply_cells(struct request *r)
{
	const struct handle *h = r->handle;
	const struct cells *c = &h->cells;
	uint64_t head = r->offset < c->head ? u64_min(r->size, c->head - r->offset) : 0, before;
	size_t size = r->size - head - r->tail;
	char *cells = make_cells(r, size, r->offset + head - c->head, &before);
	struct iovec parts[3];

	if (!cells) {
		fuse_reply_err(r->req, ENOMEM);
		return;
	}
	if (h->write_buffer)
		write_buffer_overlay(r->handle, r->offset + head, cells + before, size);
	parts[0] = (struct iovec){ head ? h->text + r->offset : NULL, head };
	parts[1] = (struct iovec){ cells + before, size };
	parts[2] = (struct iovec){ r->tail ? h->text + c->head : NULL, r->tail };
	fuse_reply_iov(r->req, parts, ARRAY_SIZE(parts));
	free(cells);
}

static void *reply(void *arg)
{
	struct request *r = arg;
	void *out = r->gather.out;

	if (r->handle->cells.form == CELLS_ELEMENT)
		reply_element(r);
	else
		reply_cells(r);
	request_put(r);
	free(out);
	return NULL;
}

static void came(struct gather *g, int result)
{
	struct request *r = g->owner;
	void *out = g->out;
	pthread_t thread;

	request_done(r);
	if (result) {
		fuse_reply_err(r->req, request_error(result));
		request_put(r);
		free(out);
	} else if (r->handle->cells.form == CELLS_TXT && g->count > TEXTS_AT_ONCE &&
		   !thread_start(&thread, reply, r)) {
		pthread_detach(thread);
	} else {
		reply(r);
	}
}

static void cancel(struct request *r)
{
	gather_cancel(&r->gather);
}

/* Sets the elements that a read needs, and allocates memory for them. */
static int set_elements(struct handle *h, size_t size, uint64_t offset, struct gather *g)
{
	const struct cells *c = &h->cells;
	uint64_t start = offset > c->head ? offset - c->head : 0;

	g->slice = &c->slice;
	g->element = c->element;
	g->first = c->cell ? start / c->cell : 0;
	g->count = c->cell ? u64_div_ceil(offset + size - c->head, c->cell) - g->first : 1;
	if (state_export_converts(h)) /* the cells are bytes */
		state_export_source(h, offset + size - c->head - start, start, &g->first,
				    &g->count);
	g->out = malloc(g->count * g->element);
	return g->out ? 0 : -ENOMEM;
}

int state_cells_read(struct handle *h, fuse_req_t req, size_t size, size_t tail,
		     uint64_t offset, int flags)
{
	struct request *r;
	void *out;
	int rc = state_request(h, req, &r);

	if (rc)
		return rc;
	r->kind = REQUEST_OTHER;
	r->cancel = cancel;
	r->size = size;
	r->tail = tail;
	r->offset = offset;
	r->gather = (struct gather){ .engine = h->fs->engine,
				     .file = r->through->file,
				     .nowait = flags & O_NONBLOCK,
				     .thread = fuse_req_ctx(req)->pid,
				     .done = came,
				     .owner = r };
	rc = set_elements(h, size - tail, offset, &r->gather);
	out = r->gather.out;
	if (!rc)
		rc = request_arm(r) ? gather_start(&r->gather) : -EINTR;
	if (rc) {
		request_drop(r);
		free(out);
	} else {
		request_submitted(r);
	}
	return rc;
}
