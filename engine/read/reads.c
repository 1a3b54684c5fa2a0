/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/read/onesided-read.h"
#include "engine/read/readahead.h"
#include "engine/read/reads.h"
#include "engine/read/remote-read.h"
#include "engine/read/view-reader.h"

#include <errno.h>
#include <string.h>

enum { WHOLE_MAX = 64 }; /* files larger than ENGINE_READ_MAX that keep all their bytes */

/* This thread's bounce buffer, of READAHEAD_BUFFER bytes; the key frees it with the thread. */
static _Thread_local void *hot;
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

static void need_hot(struct engine *e)
{
	pthread_once(&hot_once, make_hot_key);
	if (!hot && (hot = readahead_buffer(e)))
		pthread_setspecific(hot_key, &hot);
}

static void read_in_this_thread(struct engine *e, struct engine_read *read)
{
	struct engine_file *f = read->file;
	int rc = hot ? onesided_read(e, f, read->offset, hot, read->size, read->caller)
		     : -ENOMEM;

	atomic_store_explicit(&f->fast, !rc, memory_order_relaxed);
	if (rc == -EAGAIN || rc == -EFAULT) { /* asks the owner, which has the bytes or errno */
		remote_read_start(e, read);
		return;
	}
	node_count_read(e, read, rc ? rc : (int64_t)read->size);
	read->done(read, rc ? NULL : hot, rc ? rc : (int64_t)read->size);
}

/* Copies all bytes of a file, of one generation, and keeps them with the file, if its first
 * request covers all of a small file, or a quarter of one that fits the buffer: to copy the
 * rest takes less time than to open a view.  Returns true if the file has all its bytes.
 */
static bool keep_whole(struct engine *e, struct engine_read *read)
{
	struct engine_file *f = read->file;
	bool is_small = f->bytes <= ENGINE_READ_MAX;
	int rc;

	if (read->offset || !view_reader_wanted(f))
		return false;
	if (is_small ? read->size < f->bytes
		     : f->bytes > READAHEAD_BUFFER || read->size < f->bytes / 4 ||
			       atomic_load(&e->read.nwhole) >= WHOLE_MAX)
		return false;
	need_hot(e);
	if (!hot || onesided_read(e, f, 0, hot, f->bytes, read->caller))
		return false;
	if (is_small)
		return !view_reader_keep_whole(f, hot);
	rc = view_reader_take_whole(f, hot);
	if (rc)
		return rc == -EEXIST; /* another thread's first read was faster */
	atomic_fetch_add(&e->read.nwhole, 1);
	hot = NULL;
	return true;
}

static bool read_whole(struct engine *e, struct engine_read *read)
{
	struct engine_file *f = read->file;
	const uint8_t *whole;

	if (atomic_load(&f->view_is_ready) || (!atomic_load(&f->whole) && !keep_whole(e, read)))
		return false;
	whole = atomic_load(&f->whole);
	node_count_read(e, read, (int64_t)read->size);
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
	if (file_is_stale(f)) {
		read->done(read, NULL, -ESTALE);
		return;
	}
	read->size = u64_min(read->size, f->bytes - read->offset);
	log_trace("read of %llu bytes at %llu", (unsigned long long)read->size,
		  (unsigned long long)read->offset);
	if (read_whole(e, read))
		return;
	need_hot(e);
	if (view_reader_wanted(f) && !atomic_load(&f->view_is_ready)) {
		remote_read_start(e, read); /* opens the view */
		return;
	}
	if (readahead_take(f, read->offset, read->size, &hot)) {
		node_count_read(e, read, (int64_t)read->size);
		read->done(read, hot, (int64_t)read->size);
		return;
	}
	read_in_this_thread(e, read);
}

void reads_cancel(struct engine *e, struct engine_read *read)
{
	remote_read_cancel(e, read);
}

/* ---- for callers that wait ---- */

enum { UNDER_WAY = 4 }; /* while an owner copies one, another is on the wire */

struct read_part {
	struct engine_read read;
	struct blocking_read *of;
	bool used;
};

struct blocking_read {
	const char *caller;
	struct engine *e;
	struct engine_file file;
	pthread_mutex_t lock;
	pthread_cond_t done;
	unsigned used;
	int result; /* the first error */
	struct read_part parts[UNDER_WAY];
};

static void on_waited(struct engine_read *read, const void *data, int64_t result)
{
	struct read_part *p = read->owner;
	struct blocking_read *w = p->of;

	pthread_mutex_lock(&w->lock);
	if (result < 0 && !w->result)
		w->result = (int)result;
	p->used = false;
	w->used--;
	pthread_cond_signal(&w->done);
	pthread_mutex_unlock(&w->lock);
}

/* Waits until fewer than n parts are under way.  Returns the first error.  This wait needs no
 * bound: each part ends by itself, after timeout_ms of silence at the latest.
 */
static int wait_below(struct blocking_read *w, unsigned n)
{
	int rc;

	pthread_mutex_lock(&w->lock);
	while (w->used >= n) {
		if (w->e->thread.started) {
			pthread_cond_wait(&w->done, &w->lock);
			continue;
		}
		pthread_mutex_unlock(&w->lock);
		node_yield(w->e);
		pthread_mutex_lock(&w->lock);
	}
	rc = w->result;
	pthread_mutex_unlock(&w->lock);
	return rc;
}

static struct read_part *take_part(struct blocking_read *w)
{
	struct read_part *p = w->parts;

	pthread_mutex_lock(&w->lock);
	while (p->used)
		p++;
	p->used = true;
	w->used++;
	pthread_mutex_unlock(&w->lock);
	return p;
}

static int get_by_message(struct blocking_read *w, uint64_t offset, void *out, size_t size)
{
	int rc = wait_below(w, UNDER_WAY);
	struct read_part *p;

	if (rc)
		return rc;
	p = take_part(w);
	p->of = w;
	p->read = (struct engine_read){ .file = &w->file,
					.offset = offset,
					.size = size,
					.nowait = true,
					.caller = w->caller,
					.into = out,
					.done = on_waited,
					.owner = p };
	remote_read_start(w->e, &p->read);
	return 0;
}

static int get(struct blocking_read *w, uint64_t offset, uint8_t *out, uint64_t size)
{
	int rc = 0, ended;

	for (uint64_t done = 0; done < size && !rc; done += ENGINE_READ_MAX) {
		size_t chunk = u64_min(ENGINE_READ_MAX, size - done);

		rc = onesided_read(w->e, &w->file, offset + done, out + done, chunk, w->caller);
		if (rc == -EAGAIN || rc == -EFAULT)
			rc = get_by_message(w, offset + done, out + done, chunk);
	}
	ended = wait_below(w, 1);
	return ended ? ended : rc;
}

int reads_get_parts(struct engine *e, struct file_part *parts, uint32_t n, uint64_t offset,
		    void *out, uint64_t size, const char *caller)
{
	struct blocking_read w = { .e = e,
				   .caller = caller,
				   .file = { .engine = e,
					     .parts = parts,
					     .nparts = n,
					     .live = true,
					     .is_grad = !strcmp(parts->address.key, "grad") } };
	int rc;

	pthread_mutex_init(&w.lock, NULL);
	pthread_cond_init(&w.done, NULL);
	rc = get(&w, offset, out, size);
	pthread_cond_destroy(&w.done);
	pthread_mutex_destroy(&w.lock);
	return rc;
}

int reads_get(struct engine *e, const struct engine_address *address, uint64_t offset,
	      void *out, uint64_t size, const char *caller)
{
	/* the plan refuses what is past the end */
	struct file_part state = { .address = *address, .bytes = UINT64_MAX };

	return reads_get_parts(e, &state, 1, offset, out, size, caller);
}
