/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/state-internal.h"

#include "engine/base/thread.h"
#include "fs/stat-text.h"
#include "fs/state.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

struct pass { /* results of one pass over a state */
	struct stats values;
	uint64_t hash; /* of STAT_XXH64 */
	uint64_t id;   /* of the state, in the cache */
};

/* Returns the time of the state's last change; 0: the bytes may change without a new time, as
 * gradients do, and files below now/.
 */
static uint64_t changed_ns(struct handle *h)
{
	struct engine_address address = tree_address(&h->fs->tree, h->node);

	if (tree_node_is_now(h->node) ||
	    (engine_is_live(h->fs->engine) && !strcmp(address.key, "grad")))
		return 0;
	return engine_changed_ns(h->fs->engine, &address);
}

int state_stats_open(struct handle *h)
{
	struct engine_state state;
	int rc = tree_state(&h->fs->tree, h->node, &state);

	if (rc)
		return rc;
	h->dtype = state.dtype;
	h->changed_ns = changed_ns(h);
	return h->node.stat == STAT_XXH64 || stats_has(state.dtype) ? 0 : -EOPNOTSUPP;
}

/* Replies with the file's text. */
static void reply(struct handle *h, fuse_req_t req, size_t size, uint64_t offset)
{
	offset = u64_min(offset, h->length);
	handle_ref(h);
	fuse_reply_buf(req, h->text + offset, u64_min(size, h->length - offset));
	state_close(h);
}

/* Gives the file its text, unless another read has given one. */
static int set_text(struct handle *h, const struct pass *pass)
{
	char *text = h->node.stat == STAT_XXH64
			     ? stat_text_hash(pass->hash)
			     : stat_text_build(&h->fs->tree, h->node, &pass->values);

	LOCKED(&h->lock);
	if (!text)
		return -ENOMEM;
	if (h->text) {
		free(text);
		return 0;
	}
	h->length = strlen(text);
	h->text = text;
	return 0;
}

static void came(struct stats_pass *stats, int result)
{
	struct request *r = stats->owner;
	struct handle *h = r->handle;
	struct pass *pass = container_of(stats->values, struct pass, values);

	request_done(r);
	/* An earlier read of this open file may have chosen an older generation of the bytes.
	 */
	if (!result && !stats->hash && h->changed_ns && h->changed_ns == changed_ns(h))
		stat_cache_put(&h->fs->stats, pass->id, h->changed_ns, &pass->values);
	if (!result)
		result = set_text(h, pass);
	free(pass);
	if (result)
		fuse_reply_err(r->req, request_error(result));
	else
		reply(h, r->req, r->size, r->offset);
	request_put(r);
}

static int start(struct handle *h, fuse_req_t req, size_t size, uint64_t offset, int flags,
		 struct pass *pass)
{
	struct request *r = request_get(&h->fs->requests, req, h);
	int rc;

	if (!r)
		return -ENOMEM;
	handle_ref(h);
	r->kind = REQUEST_STATS;
	r->size = size;
	r->offset = offset;
	r->stats = (struct stats_pass){ .engine = h->fs->engine,
					.address = tree_address(&h->fs->tree, h->node),
					.file = h->file,
					.bytes = h->bytes,
					.dtype = h->dtype,
					.with_bins = stat_text_needs_bins(h->node.stat),
					.nowait = flags & O_NONBLOCK,
					.thread = fuse_req_ctx(req)->pid,
					.values = &pass->values,
					.hash = h->node.stat == STAT_XXH64 ? &pass->hash : NULL,
					.done = came,
					.owner = r };
	rc = request_arm(r) ? stats_pass_start(&r->stats) : -EINTR;
	if (rc)
		request_drop(r);
	else
		request_submitted(r);
	return rc;
}

static bool has_text(struct handle *h)
{
	LOCKED(&h->lock);
	return h->text;
}

int state_stats_read(struct handle *h, fuse_req_t req, size_t size, uint64_t offset, int flags)
{
	struct node state = h->node;
	struct pass *pass;
	int rc = 0;

	if (has_text(h)) {
		reply(h, req, size, offset);
		return 0;
	}
	pass = malloc(sizeof(*pass));
	if (!pass)
		return -ENOMEM;
	state.stat = 0;
	pass->id = tree_inode(state);
	if (h->node.stat == STAT_XXH64 ||
	    !stat_cache_get(&h->fs->stats, pass->id, h->changed_ns,
			    stat_text_needs_bins(h->node.stat), &pass->values)) {
		rc = start(h, req, size, offset, flags, pass);
		if (rc)
			free(pass);
		return rc;
	}
	rc = set_text(h, pass);
	free(pass);
	if (!rc)
		reply(h, req, size, offset);
	return rc;
}
