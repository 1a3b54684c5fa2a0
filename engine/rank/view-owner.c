/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/rank/registry-place.h"
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

static void put_versions(struct view *view)
{
	for (uint32_t i = 0; i < view->nruns; i++) {
		registry_version_put(view->runs[i].version);
		view->runs[i].version = NULL;
	}
}

static void drop(struct view_owner *v, struct view *view)
{
	LIST_REMOVE(view, link);
	if (view->buffer)
		view_pool_put(&v->pool, view->buffer, monotonic_ms());
	put_versions(view);
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

static struct view *find_view(struct view_owner *v, const uint64_t id[2])
{
	struct view *view;

	LIST_FOREACH (view, &v->list, link)
		if (!memcmp(view->id, id, sizeof(view->id)))
			return view;
	return NULL;
}

/* Returns the run that has the byte at offset, which is less than the view's size. */
static struct view_run *run_at(struct view *view, uint64_t offset)
{
	return &view->runs[LOWER_BOUND(view->nruns, i, view->runs[i].at <= offset) - 1];
}

static void set_complete(struct view *view, bool complete)
{
	if (view->buffer)
		atomic_store(&view_pool_label(view->buffer)->complete, complete);
}

/* A view that waits for its generation follows its rows, which have moved to another tier since
 * it was opened.  Without a buffer it stays a view of the tier before, whose readers are told
 * its status.
 * -ESTALE: there is no buffer for it.
 */
static int follow(struct view_owner *v, struct view *view, enum state_tier tier)
{
	if (view->buffer)
		view_pool_put(&v->pool, view->buffer, monotonic_ms());
	view->buffer = NULL;
	if (!registry_versions_exist(tier) &&
	    view_pool_get(&v->pool, view->size, view->id, &view->buffer))
		return -ESTALE;
	view->tier = tier;
	return 0;
}

/* The view shows the rows as they are now.  A tier with versions holds these from here on: the
 * trainer publishes no others before it has taken the lock of views.
 */
static int go_live(struct view_owner *v, struct view *view, struct registry *r)
{
	enum state_tier tier = registry_tier(r, view->runs[0].row);
	int rc = tier == view->tier ? 0 : follow(v, view, tier);

	for (uint32_t i = 0; i < view->nruns && !rc; i++) {
		struct view_run *run = &view->runs[i];

		if (registry_tier(r, run->row) != view->tier)
			rc = -ESTALE;
		else if (view->buffer)
			rc = registry_covers(r, view->epoch, run->row, run->offset, run->size);
		else
			rc = registry_version_hold(r, view->epoch, run->row, run->offset,
						   run->size, &run->version);
	}
	if (rc)
		put_versions(view);
	else
		view->state = VIEW_LIVE;
	return rc;
}

/* Makes the view show generation want.
 * -EEXIST: want has passed, or its content is being changed.
 * Errors of go_live.
 */
static int show(struct view_owner *v, struct view *view, struct registry *r, uint64_t want)
{
	uint64_t now = control_page_content(r->control, view->is_grad);
	int rc;

	view->copied = 0;
	view->status = 0;
	set_complete(view, false);
	put_versions(view);
	view->generation = want > now ? want : now;
	view->state = want ? VIEW_FUTURE : VIEW_NEXT;
	if (now >= want && now) {
		rc = go_live(v, view, r);
		return rc ? rc : want && now > want ? -EEXIST : 0;
	}
	return want && want <= control_page_newest(r->control, view->is_grad) ? -EEXIST : 0;
}

/* Returns true if one more view, of this observer, is too many.  Each has a mapping of its own,
 * and the trainer needs some of those that a process may have.
 */
static bool too_many(const struct view_owner *v, uint32_t peer)
{
	unsigned own = 0, all = 0;
	const struct view *view;

	if (v->count < VIEW_OWNER_OF_PEER_MAX)
		return false;
	LIST_FOREACH (view, &v->list, link) {
		own += view->peer == peer;
		all++;
	}
	return all >= VIEW_OWNER_MAX || own >= VIEW_OWNER_OF_PEER_MAX;
}

/* Returns 0 if the rows have the bytes of all runs, in one tier; *size: how many. */
static int check_runs(struct registry *r, const struct view_request *q, uint64_t *size)
{
	int rc = q->nruns && q->nruns <= VIEW_OWNER_RUNS_MAX ? 0 : -EINVAL;

	*size = 0;
	for (uint32_t i = 0; i < q->nruns && !rc; i++) {
		const struct view_run *run = &q->runs[i];

		rc = registry_covers(r, q->epoch, run->row, run->offset, run->size);
		if (rc == -ENODATA && q->is_grad && !control_page_content(r->control, true))
			rc = 0; /* gradients get their memory with their window */
		if (!rc && (!run->size || !u64_add(*size, run->size, size) ||
			    registry_is_grad(r, run->row) != q->is_grad))
			rc = -EINVAL;
		if (!rc && registry_tier(r, run->row) != registry_tier(r, q->runs[0].row))
			rc = -ESTALE;
	}
	return rc;
}

static struct view *view_new(struct registry *r, const struct view_request *q, uint64_t now)
{
	struct view *view = calloc(1, sizeof(*view) + q->nruns * sizeof(view->runs[0]));

	if (!view)
		return NULL;
	*view = (struct view){ .id = { q->id[0], q->id[1] },
			       .peer = q->peer,
			       .epoch = q->epoch,
			       .tier = registry_tier(r, q->runs[0].row),
			       .is_grad = q->is_grad,
			       .opened_ms = now,
			       .nruns = q->nruns };
	for (uint32_t i = 0; i < q->nruns; i++) {
		view->runs[i] = (struct view_run){ .row = q->runs[i].row,
						   .offset = q->runs[i].offset,
						   .size = q->runs[i].size,
						   .at = view->size };
		view->size += q->runs[i].size;
	}
	return view;
}

static int add_view(struct view_owner *v, struct registry *r, const struct view_request *q,
		    uint64_t now)
{
	struct view *view;
	uint64_t size;
	int rc = check_runs(r, q, &size);

	if (rc)
		return rc;
	if (too_many(v, q->peer))
		return -EAGAIN;
	view = view_new(r, q, now);
	if (!view)
		return -ENOMEM;
	if (!registry_versions_exist(view->tier))
		rc = view_pool_get(&v->pool, size, q->id, &view->buffer);
	if (rc) {
		free(view);
		return rc;
	}
	LIST_INSERT_HEAD(&v->list, view, link);
	/* before show: the trainer must not change the content unseen while it is looked at */
	atomic_fetch_add(&v->count, 1);
	rc = show(v, view, r, q->want);
	if (rc) /* its observer hears of no view: the trainer is to preserve nothing for it */
		drop(v, view);
	return rc;
}

/* Returns false for rows of which some have moved while the view was LIVE or PRESERVED. */
static bool is_in_one_tier(const struct view *view, struct registry *r)
{
	enum state_tier tier = registry_tier(r, view->runs[0].row);

	for (uint32_t i = 1; i < view->nruns; i++)
		if (registry_tier(r, view->runs[i].row) != tier)
			return false;
	return true;
}

static int open_or_move(struct view_owner *v, struct registry *r, const struct view_request *q,
			uint64_t now)
{
	struct view *view = find_view(v, q->id);

	if (!view)
		return add_view(v, r, q, now);
	if (q->want > view->generation)
		return is_in_one_tier(view, r) ? show(v, view, r, q->want) : -ESTALE;
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
	view = find_view(v, q->id);
	view->heard_ms = now;
	*out = *view;
	return 0;
}

void view_owner_close(struct view_owner *v, const uint64_t id[2])
{
	struct view *view;

	LOCKED(&v->lock);
	view = find_view(v, id);
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

void view_owner_touch(struct view_owner *v, uint32_t peer, uint32_t life, uint64_t now)
{
	struct view *view;

	LOCKED(&v->lock);
	LIST_FOREACH (view, &v->list, link)
		if (view->peer == peer || (uint32_t)view->id[0] == life) {
			view->peer = peer;
			view->heard_ms = now;
		}
}

void view_owner_each(struct view_owner *v, void (*see)(void *arg, const struct view *view),
		     void *arg)
{
	const struct view *view;

	LOCKED(&v->lock);
	LIST_FOREACH (view, &v->list, link)
		see(arg, view);
}

/* Copies up to limit more bytes into the buffer.  Under the lock. */
static void copy_some(struct view *view, struct registry *r, uint64_t limit)
{
	while (view->copied < view->size && limit && !view->status) {
		const struct view_run *run = run_at(view, view->copied);
		uint64_t inside = view->copied - run->at;
		uint64_t n = u64_min(u64_min(COPY_CHUNK, limit), run->size - inside);

		view->status = registry_copy(r, view->epoch, run->row, run->offset + inside,
					     view->buffer->bytes + view->copied, n);
		view->copied += n;
		limit -= n;
	}
}

static void count_preserved(uint64_t bytes, struct registry *r)
{
	atomic_fetch_add_explicit(&r->control->kept_bytes, bytes, memory_order_relaxed);
}

static void preserve_in_buffer(struct view *view, struct registry *r)
{
	copy_some(view, r, UINT64_MAX);
	set_complete(view, !view->status);
	count_preserved(view->size, r);
}

/* Preserves a version of each run.  If there is no memory for one, the view ends: the trainer
 * does not wait.
 */
static void preserve_versions(struct view *view, struct registry *r)
{
	for (uint32_t i = 0; i < view->nruns && !view->status; i++) {
		struct view_run *run = &view->runs[i];

		if (run->version)
			continue;
		if (registry_version_preserve(r, view->epoch, run->row, run->offset, run->size,
					      &run->version))
			view->status = -ESTALE;
		else
			count_preserved(run->size, r);
	}
}

static void preserve(struct view *view, struct registry *r)
{
	view->state = VIEW_PRESERVED;
	if (view->buffer)
		preserve_in_buffer(view, r);
	else
		preserve_versions(view, r);
}

void view_owner_preserve(struct view_owner *v, struct registry *r, bool states)
{
	struct view *view;

	assert(thread_may_be_trainer());
	LOCKED(&v->lock);
	LIST_FOREACH (view, &v->list, link)
		if (view->state == VIEW_LIVE && (states || view->is_grad))
			preserve(view, r);
}

static bool has_row(const struct view *view, uint32_t row)
{
	for (uint32_t i = 0; i < view->nruns; i++)
		if (view->runs[i].row == row)
			return true;
	return false;
}

/* Under the lock. */
static bool awaits(const struct view_owner *v, uint32_t row)
{
	const struct view *view;

	LIST_FOREACH (view, &v->list, link) {
		if (view->state > VIEW_FUTURE || !has_row(view, row))
			continue;
		for (uint32_t i = 0; i < view->nruns; i++)
			if (view->runs[i].row != row)
				return true;
	}
	return false;
}

bool view_owner_awaits(struct view_owner *v, uint32_t row)
{
	assert(thread_may_be_trainer());
	if (!view_owner_any(v))
		return false;
	LOCKED(&v->lock);
	return awaits(v, row);
}

void view_owner_move(struct view_owner *v, struct registry *r, struct registry_move *m)
{
	LOCKED(&v->lock);
	if (!awaits(v, m->row)) /* one may have come since the copy was begun */
		registry_place_switch(r, m);
}

/* A view that has the row is preserved as a whole: it is LIVE or PRESERVED. */
void view_owner_preserve_row(struct view_owner *v, struct registry *r, uint32_t row)
{
	struct view *view;

	assert(thread_may_be_trainer());
	LOCKED(&v->lock);
	LIST_FOREACH (view, &v->list, link)
		if (view->state == VIEW_LIVE && has_row(view, row))
			preserve(view, r);
}

void view_owner_arrive(struct view_owner *v, struct registry *r)
{
	struct view *view;

	assert(thread_may_be_trainer());
	LOCKED(&v->lock);
	LIST_FOREACH (view, &v->list, link) {
		uint64_t now = control_page_content(r->control, view->is_grad);

		if (!now || view->state > VIEW_FUTURE ||
		    (view->state == VIEW_FUTURE && now < view->generation))
			continue;
		/* generations are global: a view that waits for one sees no later one */
		view->status = view->state == VIEW_FUTURE && now > view->generation
				       ? -ESTALE
				       : go_live(v, view, r);
		if (view->status)
			view->state = VIEW_PRESERVED;
		view->generation = now;
	}
}

/* Returns how many bytes of a LIVE view are to be copied by now.  All are when three quarters
 * of the way from one change of the content to the next are over, at an even pace from the
 * view's beginning: the rest of a step is left for the change itself, and a view that is closed
 * soon has cost little.
 */
static uint64_t due(const struct view *view, const struct control_page *control, uint64_t now)
{
	uint64_t began = atomic_load_explicit(&control->generation_ns, memory_order_relaxed);
	uint64_t clock = clock_ns(CLOCK_REALTIME);
	uint64_t age_ms = clock > began ? (clock - began) / 1000000 : 0;
	uint64_t until_ms = atomic_load_explicit(&control->interval_ns, memory_order_relaxed) /
			    1000000 * 3 / 4;
	uint64_t open_ms = u64_min(now - view->opened_ms, age_ms);

	if (age_ms >= until_ms)
		return view->size;
	return (uint64_t)((double)view->size * (double)open_ms /
			  (double)(open_ms + until_ms - age_ms));
}

bool view_owner_copy_ahead(struct view_owner *v, struct registry *r, uint64_t now)
{
	struct view *view;

	if (!view_owner_any(v))
		return false;
	LOCKED(&v->lock);
	LIST_FOREACH (view, &v->list, link) {
		if (!view->buffer || view->state != VIEW_LIVE ||
		    now < view->opened_ms + COPY_AFTER_MS ||
		    view->copied >= due(view, r->control, now))
			continue;
		copy_some(view, r, COPY_CHUNK);
		return true;
	}
	return false;
}

static int take_preserved(const struct view *view, uint64_t offset, void *out, size_t size)
{
	if (!view->status)
		memcpy(out, view->buffer->bytes + offset, size);
	return view->status;
}

/* Copies live bytes without the lock, so that the trainer does not wait; if the view has become
 * PRESERVED meanwhile, the preserved bytes replace them.
 */
static int read_live(struct view_owner *v, struct registry *r, const uint64_t id[2],
		     uint64_t epoch, struct view_run seen, uint64_t offset, void *out,
		     size_t size)
{
	int rc = registry_read_memory(r, epoch, seen.row, seen.offset + offset - seen.at, out,
				      size);
	struct view *view;

	LOCKED(&v->lock);
	view = find_view(v, id);
	if (!view)
		return -ESTALE;
	return view->state == VIEW_PRESERVED ? take_preserved(view, offset, out, size) : rc;
}

/* Under the lock.  Sets *run to the run that has the bytes.  Errors of view_owner_read. */
static int check_read(struct view *view, uint64_t offset, size_t size, struct view_run **run)
{
	if (!view)
		return -ESTALE;
	if (offset >= view->size)
		return -EINVAL;
	*run = run_at(view, offset);
	if (size > (*run)->size - (offset - (*run)->at))
		return -EINVAL;
	if (view->state < VIEW_LIVE)
		return -EAGAIN;
	if (!view->buffer && view->status)
		return view->status;
	return view->buffer ? 0 : -EREMOTE;
}

int view_owner_read(struct view_owner *v, struct registry *r, const uint64_t id[2],
		    uint64_t offset, void *out, size_t size)
{
	struct view_run *run, seen = { 0 };
	uint64_t epoch = 0;
	bool is_live = false;
	struct view *view;
	int rc;

	pthread_mutex_lock(&v->lock);
	view = find_view(v, id);
	rc = check_read(view, offset, size, &run);
	if (!rc && view->state == VIEW_PRESERVED) {
		rc = take_preserved(view, offset, out, size);
	} else if (!rc) {
		is_live = true;
		seen = *run;
		epoch = view->epoch;
	}
	pthread_mutex_unlock(&v->lock);
	return is_live ? read_live(v, r, id, epoch, seen, offset, out, size) : rc;
}

/* Under the lock.  Errors of view_owner_look. */
static int check_remote(struct view *view, uint64_t offset, size_t size, struct view_run **run)
{
	int rc = check_read(view, offset, size, run);

	if (rc == -EREMOTE)
		return 0;
	return rc ? rc : -EAGAIN; /* the rows have moved to the host's memory */
}

int view_owner_look(struct view_owner *v, const uint64_t id[2], uint64_t offset, size_t size,
		    struct view_look *look)
{
	struct view *view;
	struct view_run *run;
	int rc;

	LOCKED(&v->lock);
	view = find_view(v, id);
	rc = check_remote(view, offset, size, &run);
	if (rc)
		return rc;
	*look = (struct view_look){ .generation = view->generation,
				    .epoch = view->epoch,
				    .at = run->offset + offset - run->at,
				    .row = run->row,
				    .version = registry_version_get(run->version) };
	return 0;
}

static bool has_bytes(const struct view_run *run, uint32_t row, uint64_t offset, uint64_t size)
{
	return run->row == row && offset >= run->offset && size <= run->size &&
	       offset - run->offset <= run->size - size;
}

int view_owner_covers(struct view_owner *v, const uint64_t id[2], uint32_t row, uint64_t offset,
		      uint64_t size, uint64_t *inside)
{
	const struct view *view;

	LOCKED(&v->lock);
	view = find_view(v, id);
	for (uint32_t i = 0; view && i < view->nruns; i++) {
		const struct view_run *run = &view->runs[i];

		if (!has_bytes(run, row, offset, size))
			continue;
		*inside = run->at + offset - run->offset;
		return 0;
	}
	return -ESTALE;
}

enum state_tier view_owner_tier(struct view_owner *v, const uint64_t id[2])
{
	const struct view *view;

	LOCKED(&v->lock);
	view = find_view(v, id);
	return view ? view->tier : STATE_HOST;
}
