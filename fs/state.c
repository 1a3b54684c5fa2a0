/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/state-internal.h"
#include "fs/state.h"

#include "engine/base/log.h"
#include "fs/write-buffer.h"
#include "fs/event-reader.h"
#include "fs/freeze.h"
#include "fs/hyper.h"
#include "fs/pages.h"
#include "fs/stats-table.h"
#include "fs/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- opening ---- */

static int open_hyper_text(struct handle *h, const struct engine_address *address)
{
	double value;
	int rc = hypers_get(&h->fs->hypers, address, &value, &h->changed_ns);

	if (rc)
		return rc;
	h->text = malloc(HYPER_TEXT_MAX);
	if (!h->text)
		return -ENOMEM;
	h->length = (uint64_t)hyper_format(value, h->text);
	return 0;
}

static int open_view(struct handle *h)
{
	struct engine_state state;
	int rc = tree_state(&h->fs->tree, h->node, &state);

	if (!rc)
		rc = tree_cells(&h->fs->tree, h->node, &state, &h->cells, &h->text);
	if (rc)
		return rc;
	h->length = h->cells.head;
	if (h->cells.of_state != h->bytes) /* the state was replaced since tree_state */
		return -ESTALE;
	if (!h->cells.head || h->text)
		return 0;
	h->text = malloc(NPY_HEADER_MAX);
	if (!h->text)
		return -ENOMEM;
	cells_header(&h->cells, (unsigned char *)h->text);
	return 0;
}

static int open_file(struct handle *h)
{
	struct engine_address address = tree_address(&h->fs->tree, h->node);
	int rc = engine_file_open(h->fs->engine, &address, &h->file, &h->bytes);

	if (rc)
		return rc;
	cells_init_raw(&h->cells, h->bytes);
	if (h->node.kind == NODE_HYPER)
		return open_hyper_text(h, &address);
	if (h->node.kind == NODE_STAT)
		return state_stats_open(h);
	return h->node.kind == NODE_NPY || h->node.kind == NODE_CELLS ||
			       h->node.kind == NODE_UNIVERSAL_STATE
		       ? open_view(h)
		       : 0;
}

static int open_text(struct handle *h)
{
	struct fs *fs = h->fs;
	struct node n = h->node;
	int64_t length = tree_node_is_universal_text(n)
				 ? universal_build(fs->engine, &fs->hypers,
						   n.slot - TEXT_UNIVERSAL, n.item, &h->text)
				 : text_build(&fs->tree, n, &h->text);

	if (length < 0)
		return (int)length;
	h->length = (uint64_t)length;
	return 0;
}

/* Opens the checkpoint's own model_states.pt, which has the scheduler's state and whatever the
 * trainer has saved, or, if there is none, a text in its place.
 */
static int open_model_states(struct handle *h)
{
	const struct engine_address address = { .kind = ENGINE_MODEL_STATES };
	int rc = engine_file_open(h->fs->engine, &address, &h->file, &h->bytes);

	if (rc == -ENOENT)
		return open_text(h);
	if (!rc)
		cells_init_raw(&h->cells, h->bytes);
	return rc;
}

static int open_events(struct handle *h)
{
	int rc = engine_events_open(h->fs->engine, &h->events);

	h->poll.events = h->events;
	return rc;
}

static int open_content(struct handle *h)
{
	if (h->node.kind == NODE_EVENTS)
		return open_events(h);
	if (h->node.kind == NODE_STATS_TABLE)
		return stats_table_open(h);
	if (h->node.kind == NODE_EXPORT_FILE)
		return state_export_open(h);
	if (h->node.kind == NODE_TEXT && h->node.slot == TEXT_UNIVERSAL + UNIVERSAL_MODEL)
		return open_model_states(h);
	return h->node.kind == NODE_TEXT ? open_text(h) : open_file(h);
}

/* Logs once why ranks/ cannot be written. */
static void tell_local(struct fs *fs, struct node n)
{
	char path[TREE_PATH_MAX];

	if (!engine_is_live(fs->engine) || !engine_is_local(tree_address(&fs->tree, n).kind))
		return;
	tree_path(&fs->tree, n, path, sizeof(path));
	log_once(LOG_WARN,
		 "%s is not writable: neither replicas nor low-precision copies on other "
		 "ranks would follow (params/ changes all of them; -o rw,local lets one rank "
		 "be changed alone)",
		 path);
}

static int state_writable(struct fs *fs, struct node n, struct engine_state *state,
			  struct cells *cells)
{
	int rc;

	if (!fs->writable)
		return -EROFS;
	if (!tree_node_is_state(n))
		return -EACCES;
	rc = tree_state(&fs->tree, n, state);
	if (!rc)
		rc = tree_cells(&fs->tree, n, state, cells, NULL);
	if (rc)
		return rc;
	if (!cells_is_writable(cells))
		return -EACCES;
	if (state->flags & ENGINE_STATE_WRITABLE)
		return 0;
	tell_local(fs, n);
	return -EACCES;
}

int state_may_write(struct fs *fs, struct node n, uint64_t *bytes)
{
	struct engine_state state;
	struct cells cells;
	int rc;

	*bytes = 0;
	if (tree_node_is_command(n))
		return fs->writable ? 0 : -EROFS;
	rc = state_writable(fs, n, &state, &cells);
	if (!rc && n.kind != NODE_HYPER)
		*bytes = cells.bytes;
	return rc;
}

static int check_access(struct fs *fs, struct node n, int flags)
{
	uint64_t bytes;

	if ((flags & O_ACCMODE) == O_RDONLY)
		return 0;
	return state_may_write(fs, n, &bytes);
}

static int open_handle(struct fs *fs, struct node n, int flags, struct handle **handle)
{
	struct handle *h;
	int rc = check_access(fs, n, flags);

	if (rc)
		return rc;
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->refs = 1;
	pthread_mutex_init(&h->lock, NULL);
	h->fs = fs;
	h->node = n;
	if (n.kind == NODE_CELLS)
		found_use(fs->tree.found, n.name);
	h->poll.text = n.slot;
	h->write_only = (flags & O_ACCMODE) == O_WRONLY;
	rc = open_content(h);
	if (!rc && (flags & O_ACCMODE) != O_RDONLY && !tree_node_is_command(n))
		rc = write_buffer_new(h);
	if (rc) {
		state_close(h);
		return rc;
	}
	*handle = h;
	return 0;
}

int state_open(struct fs *fs, struct node n, int flags, pid_t opener, struct handle **handle)
{
	struct handle *h;
	int rc = open_handle(fs, n, flags, &h);

	if (rc)
		return rc;
	h->opener = opener;
	pthread_mutex_lock(&fs->lock);
	rc = pages_admit(h, opener);
	h->listed = !rc;
	if (!rc)
		LIST_INSERT_HEAD(&fs->handles, h, entry);
	pthread_mutex_unlock(&fs->lock);
	if (rc)
		state_close(h);
	else
		*handle = h;
	return rc;
}

/* Marks the file that thread `opener` has opened last.  Threads in a pid namespace that this
 * process does not see all have number 0: then all files are marked that no call has used yet.
 */
void state_truncated(struct fs *fs, struct node n, pid_t opener)
{
	struct handle *h;

	pthread_mutex_lock(&fs->lock);
	LIST_FOREACH (h, &fs->handles, entry) {
		if (!tree_node_is_same(h->node, n) || atomic_load(&h->opener) != opener)
			continue;
		atomic_store(&h->truncated, true);
		if (opener)
			break;
	}
	pthread_mutex_unlock(&fs->lock);
}

void state_close(struct handle *h)
{
	if (atomic_fetch_sub_explicit(&h->refs, 1, memory_order_acq_rel) > 1)
		return;
	if (h->listed) {
		pthread_mutex_lock(&h->fs->lock);
		LIST_REMOVE(h, entry);
		pthread_mutex_unlock(&h->fs->lock);
	}
	if (h->newer)
		state_close(h->newer);
	poll_close(&h->fs->polls, &h->poll);
	engine_events_close(h->events);
	stats_table_close(h->table);
	write_buffer_free(h);
	freeze_close(h);
	if (h->file)
		engine_file_close(h->file);
	tree_forget(&h->fs->tree, tree_inode(h->node), 1);
	export_put(h->exported);
	free(h->text);
	pthread_mutex_destroy(&h->lock);
	free(h);
}

void state_release(struct request *r)
{
	if (r->through)
		state_close(r->through);
	state_close(r->handle);
}

static struct handle *read_through_another(struct fs *fs)
{
	struct handle *h;

	LIST_FOREACH (h, &fs->handles, entry)
		if (h->newer)
			break;
	return h;
}

void state_close_all(struct fs *fs)
{
	struct handle *h, *newer;

	while ((h = read_through_another(fs))) {
		newer = h->newer;
		h->newer = NULL;
		state_close(newer);
	}
	while (!LIST_EMPTY(&fs->handles))
		state_close(LIST_FIRST(&fs->handles));
}

int state_text_attr(struct fs *fs, struct node n, struct stat *st)
{
	struct handle *h;
	int rc = open_handle(fs, n, O_RDONLY, &h);

	if (rc)
		return rc;
	st->st_size = (off_t)(h->node.kind == NODE_TEXT && h->file ? h->bytes : h->length);
	st->st_blocks = (blkcnt_t)u64_div_ceil((uint64_t)st->st_size, 512);
	if (h->changed_ns)
		tree_set_time(&st->st_mtim, h->changed_ns);
	state_close(h);
	return 0;
}

/* ---- reading ---- */

static void reply_overlaid(struct request *r, const void *data, size_t size)
{
	struct handle *h = r->handle;
	char *copy = malloc(r->head + size);

	if (!copy) {
		fuse_reply_err(r->req, ENOMEM);
		return;
	}
	if (r->head)
		memcpy(copy, h->text + h->length - r->head, r->head);
	memcpy(copy + r->head, data, size);
	write_buffer_overlay(h, r->offset, copy, r->head + size);
	fuse_reply_buf(r->req, copy, r->head + size);
	free(copy);
}

static void reply_with_header(struct request *r, const void *data, size_t size)
{
	struct handle *h = r->handle;
	struct iovec parts[] = { { h->text + h->length - r->head, r->head },
				 { NULL, size },
				 { h->text + h->length, r->tail } };

	/* iov_base is not const, but fuse_reply_iov only reads from it. */
	memcpy(&parts[1].iov_base, &data, sizeof(data));
	fuse_reply_iov(r->req, parts, ARRAY_SIZE(parts));
}

static void came(struct engine_read *read, const void *data, int64_t result)
{
	struct request *r = read->owner;
	struct handle *h = r->handle;

	request_done(r);
	if (result < 0)
		fuse_reply_err(r->req, request_error(result));
	else if (r->tail && (size_t)result < read->size)
		/* the state is shorter now, but the trailer belongs behind all of its bytes */
		fuse_reply_err(r->req, ESTALE);
	else if (h->write_buffer && write_buffer_is_dirty(h))
		reply_overlaid(r, data, (size_t)result);
	else if (r->head || r->tail)
		reply_with_header(r, data, (size_t)result);
	else
		fuse_reply_buf(r->req, data, (size_t)result);
	request_put(r);
}

/* Opens `newer` anew.  *past: the handle that h has read from so far; the caller closes it
 * without h->lock, because closing a listed handle takes fs->lock.
 */
static int open_newer(struct handle *h, struct handle **past)
{
	struct handle *newer;
	int rc = open_handle(h->fs, h->node, O_RDONLY, &newer);

	if (!rc && newer->bytes != h->bytes) {
		state_close(newer);
		rc = -ESTALE;
	}
	if (rc)
		return rc;
	*past = h->newer;
	h->newer = newer;
	return 0;
}

/* Finds the handle to read from in place of h: an engine's file shows one generation until it
 * is closed, and a commit through h makes a later one.  *through has a reference.
 */
static int read_through(struct handle *h, struct handle **through)
{
	struct handle *past = NULL;
	int rc = 0;

	pthread_mutex_lock(&h->lock);
	h->was_read = true;
	if (atomic_exchange(&h->behind, false))
		rc = open_newer(h, &past);
	if (rc)
		atomic_store(&h->behind, true);
	else
		handle_ref(*through = h->newer ? h->newer : h);
	pthread_mutex_unlock(&h->lock);
	if (past)
		state_close(past);
	return rc;
}

int state_request(struct handle *h, fuse_req_t req, struct request **out)
{
	struct handle *through;
	struct request *r;
	int rc = read_through(h, &through);

	if (rc)
		return rc;
	r = request_get(&h->fs->requests, req, h);
	if (!r) {
		state_close(through);
		return -ENOMEM;
	}
	handle_ref(h);
	r->through = through;
	*out = r;
	return 0;
}

/* Reads from byte `offset` of the file on: `head` bytes of the header, size > 0 bytes of the
 * range of the engine's file that begins at `start`, and `tail` bytes of the trailer.
 */
static int read_engine(struct handle *h, fuse_req_t req, size_t head, size_t size, size_t tail,
		       uint64_t offset, uint64_t start, int flags)
{
	struct request *r;
	int rc = state_request(h, req, &r);

	if (rc)
		return rc;
	r->head = head;
	r->tail = tail;
	r->offset = offset;
	r->read = (struct engine_read){ .file = r->through->file,
					.offset = start + offset + head - h->cells.head,
					.size = size,
					.nowait = flags & O_NONBLOCK,
					.thread = fuse_req_ctx(req)->pid,
					.done = came,
					.owner = r };
	if (!request_arm(r)) {
		request_drop(r);
		return -EINTR;
	}
	engine_read(h->fs->engine, &r->read);
	request_submitted(r);
	return 0;
}

static void read_changing(struct handle *h, fuse_req_t req, size_t size, uint64_t offset)
{
	char text[TEXT_JOB_MAX];

	size = poll_read(&h->fs->polls, &h->poll, offset, size, text);
	fuse_reply_buf(req, text, size);
}

static void read_written(struct handle *h, fuse_req_t req, size_t size, uint64_t offset)
{
	char text[HYPER_TEXT_MAX];
	size_t length = write_buffer_text(h, text, sizeof(text));

	offset = u64_min(offset, length);
	fuse_reply_buf(req, text + offset, u64_min(size, length - offset));
}

/* Replies with the text that was written so far, if there is one, else with the element. */
static int read_element(struct handle *h, fuse_req_t req, size_t size, uint64_t offset,
			int flags)
{
	if (!h->write_buffer || !write_buffer_is_dirty(h))
		return state_cells_read(h, req, size, 0, offset, flags);
	read_written(h, req, size, offset);
	return 0;
}

int state_read(struct handle *h, fuse_req_t req, size_t size, uint64_t offset, int flags)
{
	bool is_text = !h->file || h->node.kind == NODE_HYPER;
	uint64_t total = is_text ? h->length : h->cells.bytes, start, end;
	size_t head, tail;

	if (h->events) {
		event_reader_read(h, req, size, flags);
		return 0;
	}
	if (h->table)
		return stats_table_read(h, req, size, offset, flags);
	if (poll_can(h->node)) {
		read_changing(h, req, size, offset);
		return 0;
	}
	if (h->write_buffer && h->node.kind == NODE_HYPER) {
		read_written(h, req, size, offset);
		return 0;
	}
	if (h->node.kind == NODE_STAT)
		return state_stats_read(h, req, size, offset, flags);
	if (h->cells.form == CELLS_ELEMENT)
		return read_element(h, req, size, offset, flags);
	offset = u64_min(offset, total);
	size = u64_min(u64_min(size, ENGINE_READ_MAX), total - offset);
	head = offset < h->length ? u64_min(size, h->length - offset) : 0;
	end = total - (is_text ? 0 : h->cells.tail);
	tail = offset + size > end ? u64_min(size, offset + size - end) : 0;
	if (head + tail < size &&
	    (state_export_converts(h) || !cells_is_range(&h->cells, &start)))
		return state_cells_read(h, req, size, tail, offset, flags);
	if (head + tail < size)
		return read_engine(h, req, head, size - head - tail, tail, offset, start,
				   flags);
	handle_ref(h);
	fuse_reply_buf(req,
		       h->text + (head   ? offset
				  : tail ? offset - (end - h->length)
					 : 0),
		       size);
	state_close(h);
	return 0;
}
