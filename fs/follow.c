/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/follow.h"

#include <errno.h>
#include <fcntl.h>

enum { AT_ONCE_MAX = 16384 };

static void reply(fuse_req_t req, const char *text, size_t size, int error)
{
	if (error)
		fuse_reply_err(req, error);
	else
		fuse_reply_buf(req, text, size);
}

static void came(struct engine_wait *wait, int result)
{
	struct request *r = wait->owner;
	struct engine *e = r->handle->fs->engine;
	char text[AT_ONCE_MAX];
	size_t n = 0;

	wait->seen = engine_changes(e);
	if (!result)
		n = engine_events_read(r->handle->events, text, r->size);
	if (!result && !n) {
		engine_wait(e, wait);
		return;
	}
	request_done(r);
	reply(r->req, text, n, request_error(result));
	request_put(r);
}

static void wait_for_some(struct handle *h, fuse_req_t req, size_t size, uint64_t seen)
{
	struct request *r = request_get(&h->fs->requests, req, h);

	if (!r) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	handle_ref(h);
	r->kind = REQUEST_WAIT;
	r->size = size;
	r->wait = (struct engine_wait){ .seen = seen, .done = came, .owner = r };
	if (!request_arm(r)) {
		request_drop(r);
		fuse_reply_err(req, EINTR);
		return;
	}
	engine_wait(h->fs->engine, &r->wait);
	request_submitted(r);
}

void follow_read(struct handle *h, fuse_req_t req, size_t size, int flags)
{
	uint64_t seen = engine_changes(h->fs->engine);
	char text[AT_ONCE_MAX];
	size_t n;

	size = u64_min(size, AT_ONCE_MAX);
	n = engine_events_read(h->events, text, size);
	if (n || !size)
		reply(req, text, n, 0);
	else if (flags & O_NONBLOCK)
		reply(req, NULL, 0, EAGAIN);
	else
		wait_for_some(h, req, size, seen);
}
