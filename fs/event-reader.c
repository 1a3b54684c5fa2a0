/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/event-reader.h"

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

/* Copies lines to text and returns their bytes; 0: the job has ended, and its last line was
 * read.
 * -EAGAIN: there are no lines now.
 */
static ssize_t take(struct handle *h, char *text, size_t size)
{
	struct engine_job job;
	size_t n;

	engine_job(h->fs->engine, &job);
	n = engine_events_read(h->events, text, size);
	return n || !size || job.ended ? (ssize_t)n : -EAGAIN;
}

static void came(struct engine_wait *wait, int result)
{
	struct request *r = wait->owner;
	struct engine *e = r->handle->fs->engine;
	bool mount_ends = result && !fuse_req_interrupted(r->req);
	char text[AT_ONCE_MAX];
	ssize_t n = 0;

	wait->seen = engine_changes(e);
	if (!result)
		n = take(r->handle, text, r->size);
	if (n == -EAGAIN) {
		engine_wait(e, wait);
		return;
	}
	request_done(r);
	reply(r->req, text, (size_t)n, mount_ends ? 0 : request_error(result));
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

void event_reader_read(struct handle *h, fuse_req_t req, size_t size, int flags)
{
	/* Read before the lines are taken, so that a line that comes between ends the wait at
	 * once.
	 */
	uint64_t seen = engine_changes(h->fs->engine);
	char text[AT_ONCE_MAX];
	ssize_t n;

	size = u64_min(size, AT_ONCE_MAX);
	n = take(h, text, size);
	if (n >= 0)
		reply(req, text, (size_t)n, 0);
	else if (flags & O_NONBLOCK)
		reply(req, NULL, 0, EAGAIN);
	else
		wait_for_some(h, req, size, seen);
}
