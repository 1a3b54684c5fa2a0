/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/rank/registry-version.h"
#include "engine/rank/view-owner.h"

#include <errno.h>
#include <string.h>

enum { COPY_CHUNK = 1 << 20, COPY_AFTER_MS = 5 };

void view_owner_init(struct view_owner *v, uint64_t bytes_max)
{
	memset(v, 0, sizeof(*v));
	pthread_mutex_init(&v->lock, NULL);
	view_pool_init(&v->pool, bytes_max);
}

static void drop(struct view_owner *v, struct view *view)
{
	LIST_REMOVE(view, link);
	if (view->buffer)
		view_pool_put(&v->pool, view->buffer, monotonic_ms());
	registry_version_put(view->version);
	free(view);
	atomic_fetch_sub(&v->count, 1);
}

void view_owner_fini(struct view_owner *v)
{
	while (!LIST_EMPTY(&v->list))
		drop(v, LIST_FIRST(&v->list));
	view_pool_fini(&v->pool);
	pthread_mutex_destroy(&v->lock);
}

static struct view *find(struct view_owner *v, const uint64_t id[2])
{
	struct view *view;

	LIST_FOREACH (view, &v->list, link)
		if (!memcmp(view->id, id, sizeof(view->id)))
			return view;
	return NULL;
}

static void set_complete(struct view *view, bool complete)
{
	if (view->buffer)
		atomic_store(&view_pool_label(view->buffer)->complete, complete);
}

/* The view shows the row as it is now.  A tier with versions holds this one from here on: the
 * trainer publishes no other version before it has taken the lock of views.
 */
static int go_live(struct view *view, struct registry *r)
{
	int rc = registry_tier(r, view->row) != view->tier ? -ESTALE
		 : view->buffer
			 ? registry_covers(r, view->epoch, view->row, view->offset, view->size)
			 : registry_version_hold(r, view->epoch, view->row, view->offset,
						 view->size, &view->version);

	if (!rc)
		view->state = VIEW_LIVE;
	return rc;
}

/* Makes the view show generation want.
 * -EEXIST: want has passed, or its content is being changed.
 * Errors of go_live.
 */
static int show(struct view *view, struct registry *r, uint64_t want)
{
	uint64_t now = control_content(r->control, view->is_grad);
	int rc;

	view->copied = 0;
	view->status = 0;
	set_complete(view, false);
	registry_version_put(view->version);
	view->version = NULL;
	view->generation = want > now ? want : now;
	view->state = want ? VIEW_FUTURE : VIEW_NEXT;
	if (now >= want && now) {
		rc = go_live(view, r);
		return rc ? rc : want && now > want ? -EEXIST : 0;
	}
	return want && want <= control_newest(r->control, view->is_grad) ? -EEXIST : 0;
}

/* Bounds the mappings, of which the trainer needs some too, and the share of one observer. */
static bool too_many(const struct view_owner *v, uint32_t peer)
{
	unsigned own = 0, all = 0;
	const struct view *view;

	LIST_FOREACH (view, &v->list, link) {
		own += view->peer == peer;
		all++;
	}
	return all >= VIEW_OWNER_MAX || own >= VIEW_OWNER_OF_PEER_MAX;
}

static int add(struct view_owner *v, struct registry *r, const struct view_request *q,
	       uint64_t now)
{
	struct view *view;
	int rc = registry_covers(r, q->epoch, q->row, q->offset, q->size);

	if (rc == -ENODATA && q->is_grad && !control_content(r->control, true))
		rc = 0; /* their memory comes with their window */
	if (rc)
		return rc;
	if (too_many(v, q->peer))
		return -EAGAIN;
	view = calloc(1, sizeof(*view));
	if (!view)
		return -ENOMEM;
	*view = (struct view){ .id = { q->id[0], q->id[1] },
			       .peer = q->peer,
			       .epoch = q->epoch,
			       .row = q->row,
			       .tier = registry_tier(r, q->row),
			       .is_grad = q->is_grad,
			       .offset = q->offset,
			       .size = q->size,
			       .opened_ms = now };
	if (view->tier == STATE_HOST)
		rc = view_pool_get(&v->pool, q->size, q->id, &view->buffer);
	if (rc) {
		free(view);
		return rc;
	}
	LIST_INSERT_HEAD(&v->list, view, link);
	/* before show: the trainer must not change the content unseen while it is looked at */
	atomic_fetch_add(&v->count, 1);
	return show(view, r, q->want);
}

static int open_or_move(struct view_owner *v, struct registry *r, const struct view_request *q,
			uint64_t now)
{
	struct view *view = find(v, q->id);

	if (!view)
		return add(v, r, q, now);
	if (q->want > view->generation)
		return show(view, r, q->want);
	return q->want && view->generation > q->want ? -EEXIST : 0;
}

int view_owner_open(struct view_owner *v, struct registry *r, const struct view_request *q,
		    uint64_t now, struct view *out)
{
	struct view *view;
	int rc;

	LOCKED(&v->lock);
	rc = open_or_move(v, r, q, now);
	if (rc)
		return rc;
	view = find(v, q->id);
	view->heard_ms = now;
	*out = *view;
	return 0;
}

void view_owner_close(struct view_owner *v, const uint64_t id[2])
{
	struct view *view;

	LOCKED(&v->lock);
	view = find(v, id);
	if (view)
		drop(v, view);
}

unsigned view_owner_expire(struct view_owner *v, uint64_t before)
{
	struct view *view, *next;
	unsigned dropped = 0;

	LOCKED(&v->lock);
	LIST_FOREACH_SAFE (view, &v->list, link, next) {
		if (view->heard_ms < before) {
			drop(v, view);
			dropped++;
		}
	}
	return dropped;
}

void view_owner_trim(struct view_owner *v, uint64_t before)
{
	LOCKED(&v->lock);
	view_pool_trim(&v->pool, before);
}

void view_owner_touch(struct view_owner *v, uint32_t peer, uint64_t now)
{
	struct view *view;

	LOCKED(&v->lock);
	LIST_FOREACH (view, &v->list, link)
		if (view->peer == peer)
			view->heard_ms = now;
}

/* Copies up to limit more bytes into the buffer.  Under the lock. */
static void copy_some(struct view *view, struct registry *r, uint64_t limit)
{
	while (view->copied < view->size && limit && !view->status) {
		uint64_t n = u64_min(u64_min(COPY_CHUNK, limit), view->size - view->copied);

		view->status =
			registry_copy(r, view->epoch, view->row, view->offset + view->copied,
				      view->buffer->bytes + view->copied, n);
		view->copied += n;
		limit -= n;
	}
}

static void count_kept(const struct view *view, struct registry *r)
{
	atomic_fetch_add_explicit(&r->control->kept_bytes, view->size, memory_order_relaxed);
}

static void keep_in_buffer(struct view *view, struct registry *r)
{
	copy_some(view, r, UINT64_MAX);
	set_complete(view, !view->status);
	count_kept(view, r);
}

/* Without memory for a version the view ends, since the trainer does not wait. */
static void keep_version(struct view *view, struct registry *r)
{
	if (registry_version_keep(r, view->epoch, view->row, view->offset, view->size,
				  &view->version))
		view->status = -ESTALE;
	else
		count_kept(view, r);
}

static void keep(struct view *view, struct registry *r)
{
	view->state = VIEW_KEPT;
	if (view->buffer)
		keep_in_buffer(view, r);
	else if (!view->version)
		keep_version(view, r);
}

void view_owner_keep(struct view_owner *v, struct registry *r, bool states)
{
	struct view *view;

	LOCKED(&v->lock);
	LIST_FOREACH (view, &v->list, link)
		if (view->state == VIEW_LIVE && (states || view->is_grad))
			keep(view, r);
}

void view_owner_keep_row(struct view_owner *v, struct registry *r, uint32_t row)
{
	struct view *view;

	LOCKED(&v->lock);
	LIST_FOREACH (view, &v->list, link)
		if (view->state == VIEW_LIVE && view->row == row)
			keep(view, r);
}

void view_owner_arrive(struct view_owner *v, struct registry *r)
{
	struct view *view;

	LOCKED(&v->lock);
	LIST_FOREACH (view, &v->list, link) {
		uint64_t now = control_content(r->control, view->is_grad);

		if (!now || view->state > VIEW_FUTURE ||
		    (view->state == VIEW_FUTURE && now < view->generation))
			continue;
		/* generations are global: a view that waits for one sees no later one */
		view->status = view->state == VIEW_FUTURE && now > view->generation
				       ? -ESTALE
				       : go_live(view, r);
		if (view->status)
			view->state = VIEW_KEPT;
		view->generation = now;
	}
}

bool view_owner_copy_ahead(struct view_owner *v, struct registry *r, uint64_t now)
{
	struct view *view;

	if (!view_owner_any(v))
		return false;
	LOCKED(&v->lock);
	LIST_FOREACH (view, &v->list, link) {
		if (!view->buffer || view->state != VIEW_LIVE || view->copied == view->size ||
		    now < view->opened_ms + COPY_AFTER_MS)
			continue;
		copy_some(view, r, COPY_CHUNK);
		return true;
	}
	return false;
}

static int take_kept(const struct view *view, uint64_t offset, void *out, size_t size)
{
	if (!view->status)
		memcpy(out, view->buffer->bytes + offset, size);
	return view->status;
}

/* Copies live bytes without the lock, so that the trainer does not wait; if the view has become
 * KEPT meanwhile, the preserved bytes replace them.
 */
static int read_live(struct view_owner *v, struct registry *r, const struct view *seen,
		     uint64_t offset, void *out, size_t size)
{
	int rc = registry_read_memory(r, seen->epoch, seen->row, seen->offset + offset, out,
				      size);
	struct view *view;

	LOCKED(&v->lock);
	view = find(v, seen->id);
	if (!view)
		return -ESTALE;
	return view->state == VIEW_KEPT ? take_kept(view, offset, out, size) : rc;
}

/* Under the lock.  Errors of view_owner_read. */
static int check_read(const struct view *view, uint64_t offset, size_t size)
{
	if (!view)
		return -ESTALE;
	if (offset > view->size || size > view->size - offset)
		return -EINVAL;
	if (view->state < VIEW_LIVE)
		return -EAGAIN;
	return view->buffer ? 0 : -EREMOTE;
}

int view_owner_read(struct view_owner *v, struct registry *r, const uint64_t id[2],
		    uint64_t offset, void *out, size_t size)
{
	struct view seen, *view;
	int rc;

	pthread_mutex_lock(&v->lock);
	view = find(v, id);
	rc = check_read(view, offset, size);
	if (!rc && view->state == VIEW_KEPT)
		rc = take_kept(view, offset, out, size);
	if (!rc)
		seen = *view;
	pthread_mutex_unlock(&v->lock);
	return rc || seen.state == VIEW_KEPT ? rc : read_live(v, r, &seen, offset, out, size);
}

/* Under the lock.  Errors of view_owner_look. */
static int check_remote(const struct view *view, uint64_t offset, size_t size)
{
	int rc = check_read(view, offset, size);

	if (rc == -EREMOTE)
		return view->status;
	return rc ? rc : -EINVAL;
}

int view_owner_look(struct view_owner *v, const uint64_t id[2], uint64_t offset, size_t size,
		    struct view_look *look)
{
	struct view *view;
	int rc;

	LOCKED(&v->lock);
	view = find(v, id);
	rc = check_remote(view, offset, size);
	if (rc)
		return rc;
	*look = (struct view_look){ .generation = view->generation,
				    .epoch = view->epoch,
				    .at = view->offset + offset,
				    .row = view->row,
				    .version = registry_version_get(view->version) };
	return 0;
}

static bool has_bytes(const struct view *view, uint32_t row, uint64_t offset, uint64_t size)
{
	return view && view->row == row && offset >= view->offset && size <= view->size &&
	       offset - view->offset <= view->size - size;
}

int view_owner_covers(struct view_owner *v, const uint64_t id[2], uint32_t row, uint64_t offset,
		      uint64_t size, uint64_t *inside)
{
	const struct view *view;

	LOCKED(&v->lock);
	view = find(v, id);
	if (!has_bytes(view, row, offset, size))
		return -ESTALE;
	*inside = offset - view->offset;
	return 0;
}

enum state_tier view_owner_tier(struct view_owner *v, const uint64_t id[2])
{
	const struct view *view;

	LOCKED(&v->lock);
	view = find(v, id);
	return view ? view->tier : STATE_HOST;
}
