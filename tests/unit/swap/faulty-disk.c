/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "tests/unit/swap/faulty-disk.h"

#include <errno.h>
#include <stdio.h>

struct disk {
	struct disk *inner;
};

struct request {
	struct disk_io io; /* the inner one */
	struct disk_io *asked;
	enum fault fault;
	int result;
	struct request *next;  /* of those held */
	struct request *older; /* of all */
	struct disk *inner;
};

static const struct disk_ops *over;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct faulty now;
static unsigned seen, failed, nheld;
static struct request *held, *newest;

void faulty_over(const struct disk_ops *ops)
{
	over = ops;
}

void faulty_begin(struct faulty f)
{
	pthread_mutex_lock(&lock);
	now = f;
	seen = failed = 0;
	pthread_mutex_unlock(&lock);
}

unsigned faulty_end(void)
{
	struct request *r;
	unsigned n;

	pthread_mutex_lock(&lock);
	now.fault = FAULT_NONE;
	n = failed;
	r = held;
	held = NULL;
	nheld = 0;
	pthread_mutex_unlock(&lock);
	while (r) {
		struct request *next = r->next;

		over->submit(r->inner, &r->io);
		r = next;
	}
	return n;
}

void faulty_wait_held(unsigned n)
{
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 20;
	pthread_mutex_lock(&lock);
	while (nheld < n)
		if (pthread_cond_timedwait(&changed, &lock, &end)) {
			fprintf(stderr, "%u requests are held, not %u\n", nheld, n);
			abort();
		}
	pthread_mutex_unlock(&lock);
}

static int told(struct request *r, int result)
{
	switch (r->fault) {
	case FAULT_ERROR:
		return r->result;
	case FAULT_TORN:
	case FAULT_LOST:
		return (int)r->asked->size;
	case FAULT_FLIP:
		((uint8_t *)r->asked->memory)[result / 2] ^= 4;
		return result;
	default:
		return result;
	}
}

static void forget(struct request *r)
{
	struct request **at = &newest;

	while (*at != r)
		at = &(*at)->older;
	*at = r->older;
}

static void on_done(struct disk_io *io, int result)
{
	struct request *r = container_of(io, struct request, io);
	struct disk_io *asked = r->asked;

	pthread_mutex_lock(&lock);
	forget(r);
	pthread_mutex_unlock(&lock);
	result = result == -ECANCELED ? result : told(r, result);
	free(r);
	asked->done(asked, result);
}

static enum fault choose(const struct disk_io *io)
{
	if (now.fault == FAULT_NONE || now.what != io->what || ++seen < now.first ||
	    seen - now.first >= now.count)
		return FAULT_NONE;
	failed++;
	return now.fault;
}

static void change(struct request *r)
{
	if (r->fault == FAULT_ERROR || r->fault == FAULT_LOST)
		r->io.what = DISK_SYNC; /* something to end, in the disk's thread */
	if (r->fault == FAULT_SHORT || r->fault == FAULT_TORN)
		r->io.size = (r->io.size / 2 + 511) / 512 * 512;
}

static void hold(struct request *r)
{
	r->next = held;
	held = r;
	nheld++;
	pthread_cond_broadcast(&changed);
}

static void faulty_submit(struct disk *d, struct disk_io *io)
{
	struct request *r = calloc(1, sizeof(*r));
	bool keep;

	if (!r) { /* as a disk without memory does */
		io->done(io, -ENOMEM);
		return;
	}
	pthread_mutex_lock(&lock);
	r->io = *io;
	r->io.done = on_done;
	r->asked = io;
	r->inner = d->inner;
	r->fault = choose(io);
	r->result = now.result;
	r->older = newest;
	newest = r;
	keep = r->fault == FAULT_DEAF || (r->fault == FAULT_HOLD && !io->canceled);
	if (keep)
		hold(r);
	pthread_mutex_unlock(&lock);
	change(r);
	if (!keep)
		over->submit(d->inner, &r->io);
}

static struct request *find(const struct disk_io *io)
{
	struct request *r = newest;

	while (r && r->asked != io)
		r = r->older;
	return r;
}

static bool let_go(struct request *r)
{
	struct request **at = &held;

	while (*at && *at != r)
		at = &(*at)->next;
	if (!*at)
		return false;
	*at = r->next;
	nheld--;
	return true;
}

/* What is held is something to end, in the disk's thread. */
static void faulty_cancel(struct disk *d, struct disk_io *io)
{
	struct request *r;
	bool ends = false;

	(void)d;
	pthread_mutex_lock(&lock);
	r = find(io);
	io->canceled |= !r; /* not submitted yet */
	if (r && r->fault != FAULT_DEAF) {
		ends = r->fault == FAULT_HOLD && let_go(r);
		over->cancel(r->inner, &r->io);
	}
	pthread_mutex_unlock(&lock);
	if (ends)
		over->submit(r->inner, &r->io);
}

static int faulty_open(struct disk **out, struct disk_setup *slabs)
{
	struct disk *d = calloc(1, sizeof(*d));
	int rc;

	if (!d)
		abort();
	rc = over->open(&d->inner, slabs);
	if (rc)
		free(d);
	else
		*out = d;
	return rc;
}

static void faulty_close(struct disk *d)
{
	over->close(d->inner);
	free(d);
}

const struct disk_ops faulty_disk = { "faulty", faulty_open, faulty_close, faulty_submit,
				      faulty_cancel };
