/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/api/api.h"
#include "engine/write/transaction.h"
#include "engine/job/barrier.h"
#include "engine/job/join.h"
#include "engine/live/live.h"
#include "engine/node/file.h"
#include "engine/read/cut-reads.h"

#include <errno.h>
#include <string.h>

/* A rank reads and writes whole parameters as a mount does: its own engine asks the other
 * ranks.
 */

/* Returns 0 if all ranks have joined, else -EAGAIN. */
static int check_ready(struct engine *e)
{
	bool ready;

	pthread_mutex_lock(&e->lock);
	ready = e->job.ready;
	pthread_mutex_unlock(&e->lock);
	return ready ? 0 : -EAGAIN;
}

static bool can_name(const struct engine *e, int param, const char *key)
{
	return e && param >= 0 && (uint32_t)param < e->own->nparams && key &&
	       strlen(key) <= FRAG_KEY_MAX;
}

int api_address_of(struct frag *f, int param, const char *key, struct engine_address *a)
{
	struct engine *e = api_engine(f);

	if (!can_name(e, param, key))
		return -EINVAL;
	if (check_ready(e))
		return -EAGAIN;
	*a = (struct engine_address){ .kind = ENGINE_PARAM, .param = e->job.map_params[param] };
	strcpy(a->key, key);
	return 0;
}

/* Waits until all ranks have joined.
 * -ETIMEDOUT: not all have; a line of the log names those missing.
 * job.failure: joining has failed.
 */
static int wait_ready(struct engine *e, const char *who, uint64_t deadline_ms)
{
	int rc = 0;

	pthread_mutex_lock(&e->lock);
	while (!e->job.ready && !e->job.failure && !rc)
		rc = node_wait(e, deadline_ms);
	if (e->job.ready || e->job.failure)
		rc = e->job.failure;
	else
		join_say_missing(e, who);
	pthread_mutex_unlock(&e->lock);
	return rc;
}

int api_address_in_time(struct frag *f, int param, const char *key, const char *who,
			unsigned *timeout_ms, struct engine_address *a)
{
	struct engine *e = api_engine(f);
	uint64_t now = monotonic_ms(), deadline = now + *timeout_ms;
	int rc = can_name(e, param, key) ? wait_ready(e, who, deadline) : -EINVAL;

	if (rc)
		return rc;
	now = monotonic_ms();
	*timeout_ms = deadline > now ? (unsigned)(deadline - now) : 0;
	return api_address_of(f, param, key, a);
}

static int find_state(struct frag *f, int param, const char *key, struct engine_address *a,
		      uint64_t *bytes)
{
	struct engine_file *file;
	int rc = api_address_of(f, param, key, a);

	if (!rc)
		rc = live_file_open(f->engine, a, 1, &file, bytes);
	if (!rc)
		live_file_close(file);
	return rc;
}

int64_t frag_get_bytes(struct frag *f, int param, const char *key)
{
	struct engine_address a;
	uint64_t bytes;
	int rc = find_state(f, param, key, &a, &bytes);

	return rc ? rc : (int64_t)bytes;
}

int frag_get_range(struct frag *f, int param, const char *key, uint64_t offset, void *out,
		   uint64_t bytes)
{
	struct engine_address a;
	uint64_t size;
	int rc = find_state(f, param, key, &a, &size);

	if (rc)
		return rc;
	if (offset > size || bytes > size - offset || (bytes && !out))
		return -EINVAL;
	return cut_reads_get(f->engine, &a, offset, out, bytes);
}

int frag_get(struct frag *f, int param, const char *key, void *out, uint64_t bytes)
{
	struct engine_address a;
	uint64_t size;
	int rc = find_state(f, param, key, &a, &size);

	if (rc)
		return rc;
	return size == bytes && out ? cut_reads_get(f->engine, &a, 0, out, bytes) : -EINVAL;
}

/* ---- writing ---- */

struct set_wait {
	struct engine *engine;
	bool ended;
	int result;
};

static void on_set(struct engine_write *write, int result)
{
	struct set_wait *w = write->owner;

	pthread_mutex_lock(&w->engine->lock);
	w->ended = true;
	w->result = result;
	pthread_cond_broadcast(&w->engine->changed);
	pthread_mutex_unlock(&w->engine->lock);
}

/* Waits without a deadline: each message of the commit has one, the timeout of silence. */
static int wait_set(struct engine *e, struct set_wait *w)
{
	pthread_mutex_lock(&e->lock);
	while (!w->ended)
		node_wait(e, UINT64_MAX / 2);
	pthread_mutex_unlock(&e->lock);
	return w->result;
}

int api_write_from(const char *caller, struct frag *f, struct engine_write *writes, size_t n)
{
	struct set_wait wait = { .engine = f->engine };

	writes[0].done = on_set;
	writes[0].owner = &wait;
	writes[0].caller = caller;
	transaction_start(f->engine, writes, n, false);
	return wait_set(f->engine, &wait);
}

int api_write_staged(struct frag *f, struct engine_write *write, const uint64_t transaction[2],
		     uint32_t *holders)
{
	struct set_wait wait = { .engine = f->engine };

	write->done = on_set;
	write->owner = &wait;
	write->caller = LOG_PLACE;
	transaction_start_staged(f->engine, write, transaction, holders);
	return wait_set(f->engine, &wait);
}

int frag_set(struct frag *f, int param, const char *key, const void *value, uint64_t bytes)
{
	struct engine_extent extent = { 0, bytes, value };
	struct engine_write write = { .extents = &extent, .nextents = 1 };
	struct engine_address a;
	uint64_t size;
	int rc = api_address_of(f, param, key, &a);

	if (!rc)
		rc = live_file_open(f->engine, &a, 1, &write.file, &size);
	if (rc)
		return rc;
	rc = bytes == size && value ? api_write(f, &write, 1) : -EINVAL;
	live_file_close(write.file);
	return rc;
}

/* ---- between ranks ---- */

int frag_peer_read(struct frag *f, int rank, const char *name, uint64_t offset, void *out,
		   uint64_t bytes)
{
	struct engine *e = api_engine(f);
	struct engine_address a = { .kind = ENGINE_RANK_PUBLISHED, .rank = (uint32_t)rank };
	int rc;

	if (!e || rank < 0 || (uint32_t)rank >= e->world || !name ||
	    strlen(name) > FRAG_KEY_MAX)
		return -EINVAL;
	if (check_ready(e))
		return -EAGAIN;
	strcpy(a.key, name);
	rc = cut_reads_get(e, &a, offset, out, bytes);
	/* the rank has not published that name yet */
	return rc == -ENOENT ? -EAGAIN : rc;
}

int frag_barrier(struct frag *f, unsigned timeout_ms)
{
	struct engine *e = api_engine(f);
	struct wire_barrier at;
	int rc;

	if (!e)
		return -EINVAL;
	pthread_mutex_lock(&e->lock);
	rc = barrier_pass(e, timeout_ms, &at);
	pthread_mutex_unlock(&e->lock);
	if (!rc)
		api_count_on(e, &at);
	return rc;
}
