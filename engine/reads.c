/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/grab.h"
#include "engine/readahead.h"
#include "engine/reads.h"
#include "engine/transfers.h"
#include "engine/viewing.h"

#include <errno.h>
#include <string.h>

static _Thread_local void *hot; /* the caller's bounce buffer */
static pthread_key_t hot_key;
static pthread_once_t hot_once = PTHREAD_ONCE_INIT;

static void free_hot(void *at)
{
	free(*(void **)at);
}

static void make_hot_key(void)
{
	pthread_key_create(&hot_key, free_hot);
}

static void need_hot(void)
{
	pthread_once(&hot_once, make_hot_key);
	if (!hot && (hot = readahead_buffer()))
		pthread_setspecific(hot_key, &hot);
}

static void read_in_this_thread(struct engine *e, struct engine_read *read)
{
	struct engine_file *f = read->file;
	int rc = hot ? grab_now(e, f, read->offset, hot, read->size) : -ENOMEM;

	atomic_store_explicit(&f->fast, !rc, memory_order_relaxed);
	if (rc == -EAGAIN || rc == -EFAULT) { /* the owner itself will say what is true */
		transfers_start(e, read);
		return;
	}
	node_count_read(e, rc ? rc : (int64_t)read->size);
	read->done(read, rc ? NULL : hot, rc ? rc : (int64_t)read->size);
}

/* The first request covers all of a small file: all of one generation, it stays with the file. */
static bool keep_whole(struct engine *e, struct engine_read *read)
{
	struct engine_file *f = read->file;

	return !read->offset && read->size == f->bytes && viewing_wanted(f) && hot &&
	       !grab_now(e, f, 0, hot, read->size) && !viewing_keep_whole(f, hot);
}

static bool read_whole(struct engine *e, struct engine_read *read)
{
	struct engine_file *f = read->file;
	const uint8_t *whole;

	if (atomic_load(&f->viewed) || (!atomic_load(&f->whole) && !keep_whole(e, read)))
		return false;
	whole = atomic_load(&f->whole);
	node_count_read(e, (int64_t)read->size);
	read->done(read, whole + read->offset, (int64_t)read->size);
	return true;
}

void reads_start(struct engine *e, struct engine_read *read)
{
	struct engine_file *f = read->file;

	read->private = NULL;
	if (read->size > ENGINE_READ_MAX)
		read->size = ENGINE_READ_MAX;
	if (read->offset >= f->bytes || !read->size) {
		read->done(read, "", 0);
		return;
	}
	read->size = u64_min(read->size, f->bytes - read->offset);
	need_hot();
	if (read_whole(e, read))
		return;
	if (viewing_wanted(f) && !atomic_load(&f->viewed)) {
		transfers_start(e, read); /* opens the view */
		return;
	}
	if (readahead_take(f, read->offset, read->size, &hot)) {
		node_count_read(e, (int64_t)read->size);
		read->done(read, hot, (int64_t)read->size);
		return;
	}
	read_in_this_thread(e, read);
}

void reads_cancel(struct engine *e, struct engine_read *read)
{
	transfers_cancel(e, read);
}

/* ---- for callers that wait ---- */

struct waiter {
	pthread_mutex_t lock;
	pthread_cond_t done;
	bool ended;
	void *out;
	int64_t result;
};

static void on_waited(struct engine_read *read, const void *data, int64_t result)
{
	struct waiter *w = read->owner;

	pthread_mutex_lock(&w->lock);
	if (result > 0)
		memcpy(w->out, data, (size_t)result);
	w->result = result;
	w->ended = true;
	pthread_cond_signal(&w->done);
	pthread_mutex_unlock(&w->lock);
}

/* A transfer ends by itself: its waits are bounded by the timeout of silence. */
static int get_by_transfer(struct engine *e, struct engine_file *f, uint64_t offset, void *out,
			   size_t size)
{
	struct waiter w = { .out = out };
	struct engine_read read = { .file = f,
				    .offset = offset,
				    .size = size,
				    .nowait = true,
				    .done = on_waited,
				    .owner = &w };

	pthread_mutex_init(&w.lock, NULL);
	pthread_cond_init(&w.done, NULL);
	transfers_start(e, &read);
	pthread_mutex_lock(&w.lock);
	while (!w.ended) {
		if (e->threaded) {
			pthread_cond_wait(&w.done, &w.lock);
			continue;
		}
		pthread_mutex_unlock(&w.lock);
		node_yield(e);
		pthread_mutex_lock(&w.lock);
	}
	pthread_mutex_unlock(&w.lock);
	pthread_cond_destroy(&w.done);
	pthread_mutex_destroy(&w.lock);
	return w.result < 0 ? (int)w.result : 0;
}

int reads_get(struct engine *e, const struct engine_address *address, uint64_t offset,
	      void *out, uint64_t size)
{
	struct engine_file f = { .engine = e,
				 .address = *address,
				 .live = true,
				 .is_grad = !strcmp(address->key, "grad") };
	int rc = 0;

	for (uint64_t done = 0; done < size && !rc; done += ENGINE_READ_MAX) {
		size_t chunk = u64_min(ENGINE_READ_MAX, size - done);

		rc = grab_now(e, &f, offset + done, (uint8_t *)out + done, chunk);
		if (rc == -EAGAIN || rc == -EFAULT)
			rc = get_by_transfer(e, &f, offset + done, (uint8_t *)out + done,
					     chunk);
	}
	return rc;
}
