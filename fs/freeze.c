/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/freeze.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { SECONDS_MAX = 24 * 3600 };

static int parse(const char *text, size_t size, uint32_t *ms, bool *held)
{
	char line[32], word[8], rest;
	unsigned seconds;
	int n;

	if (size >= sizeof(line))
		return -EINVAL;
	memcpy(line, text, size);
	line[size] = '\0';
	n = sscanf(line, "%6u %7s %c", &seconds, word, &rest);
	*held = n == 2 && !strcmp(word, "held");
	if ((n != 1 && !*held) || seconds > SECONDS_MAX)
		return -EINVAL;
	*ms = seconds * 1000;
	return 0;
}

static void done(struct engine_freeze *freeze, int result)
{
	struct request *r = freeze->owner;

	request_done(r);
	if (!result && r->held)
		atomic_store(&r->handle->held, freeze->id);
	if (result)
		fuse_reply_err(r->req, request_error(result));
	else
		fuse_reply_write(r->req, r->size);
	request_put(r);
}

void freeze_write(struct handle *h, fuse_req_t req, const char *text, size_t size)
{
	struct request *r;
	uint32_t ms;
	bool held;
	int rc = parse(text, size, &ms, &held);

	r = rc ? NULL : request_get(&h->fs->requests, req, h);
	if (!r) {
		fuse_reply_err(req, rc ? -rc : ENOMEM);
		return;
	}
	handle_ref(h);
	r->kind = REQUEST_FREEZE;
	r->held = held && ms;
	r->size = size;
	r->freeze = (struct engine_freeze){
		.ms = ms, .thread = fuse_req_ctx(req)->pid, .done = done, .owner = r
	};
	if (!ms)
		r->freeze.id = atomic_exchange(&h->held, 0);
	request_arm(r); /* where it is interrupted already, request_submitted cancels */
	engine_freeze(h->fs->engine, &r->freeze);
	request_submitted(r);
}

static void forget(struct engine_freeze *freeze, int result)
{
	free(freeze);
}

void freeze_close(struct handle *h)
{
	uint64_t id = atomic_exchange(&h->held, 0);
	struct engine_freeze *thaw = id ? malloc(sizeof(*thaw)) : NULL;

	if (!thaw)
		return;
	*thaw = (struct engine_freeze){ .id = id, .done = forget };
	engine_freeze(h->fs->engine, thaw);
}
