/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/swap/swap-file-internal.h"
#include "engine/base/log.h"

#include <errno.h>
#include <string.h>

/* A request is cut into chunks, SWAP_CHUNKS of which are under way at once: whole blocks
 * straight from or to memory where that is aligned, else by a bounce buffer; a block that the
 * request has only a part of by itself.
 */

enum { BOUNCE = 256 << 10, AGAIN_MAX = 100 };

/* ---- what is known of blocks ---- */

static uint32_t *sums_of(struct swap_chunk *c)
{
	return c->io->extent->sums + c->at / SWAP_BLOCK;
}

static uint8_t *bytes_of(struct swap_chunk *c)
{
	return c->bounce ? c->bounce : c->memory;
}

static void set_sums(struct swap_chunk *c, bool good)
{
	uint32_t *sums = sums_of(c);

	for (uint32_t i = 0; i < c->size / SWAP_BLOCK; i++)
		sums[i] = good ? swap_file_sum(bytes_of(c) + (size_t)i * SWAP_BLOCK)
			       : SWAP_DAMAGED;
}

/* Returns how many blocks have other bytes than were written; the first of them, and the last.
 */
static uint32_t count_bad(struct swap_chunk *c, uint32_t *first, uint32_t *last)
{
	const uint32_t *sums = sums_of(c);
	uint32_t bad = 0;

	for (uint32_t i = 0; i < c->size / SWAP_BLOCK; i++) {
		if (sums[i] == swap_file_sum(bytes_of(c) + (size_t)i * SWAP_BLOCK))
			continue;
		*first = bad++ ? *first : i;
		*last = i;
	}
	return bad;
}

static int check_sums(struct swap_chunk *c)
{
	struct swap_file *f = c->io->file;
	uint32_t first = 0, last = 0, bad = count_bad(c, &first, &last);

	if (!bad)
		return 0;
	pthread_mutex_lock(&f->lock);
	f->counters.damaged_blocks += bad;
	c->io->damaged = u64_min(c->io->damaged, c->at + (uint64_t)first * SWAP_BLOCK);
	c->io->damaged_end =
		u64_max(c->io->damaged_end, c->at + ((uint64_t)last + 1) * SWAP_BLOCK);
	pthread_mutex_unlock(&f->lock);
	return -EIO;
}

/* ---- counting ---- */

static void count_request(struct swap_chunk *c)
{
	struct swap_counters *n = &c->io->file->counters;
	bool write = c->disk.what == DISK_WRITE;

	pthread_mutex_lock(&c->io->file->lock);
	*(write ? &n->writes : &n->reads) += 1;
	*(write ? &n->written_bytes : &n->read_bytes) += c->disk.size;
	pthread_mutex_unlock(&c->io->file->lock);
}

static void count_result(struct swap_chunk *c, int result)
{
	pthread_mutex_lock(&c->io->file->lock);
	c->io->file->counters.errors += result < 0 && result != -ECANCELED;
	c->io->file->counters.short_requests +=
		result > 0 && c->gone + (uint32_t)result < c->size;
	pthread_mutex_unlock(&c->io->file->lock);
}

/* ---- one chunk ---- */

static void on_done(struct disk_io *disk, int result);

static bool is_for_threads(const struct swap_chunk *c)
{
	return swap_file_sum_threads_want(&c->io->file->sum_threads, c);
}

/* Marks the chunk as submitted.  false: the request was canceled. */
static bool mark_submitted(struct swap_chunk *c)
{
	pthread_mutex_lock(&c->io->lock);
	c->submitted = !c->io->canceled;
	pthread_mutex_unlock(&c->io->lock);
	return c->submitted;
}

/* Returns 1: the disk has the chunk; -ECANCELED: the request was canceled. */
static int submit(struct swap_chunk *c, enum disk_what what)
{
	struct swap_file *f = c->io->file;

	c->disk = (struct disk_io){
		.what = what,
		.fd = f->fd,
		.size = c->size - c->gone,
		.slab = c->bounce ? DISK_NO_SLAB : c->io->slab,
		.offset = c->io->extent->offset + c->at + c->gone,
		.memory = bytes_of(c) + c->gone,
		.done = on_done,
	};
	if (!mark_submitted(c))
		return -ECANCELED;
	count_request(c);
	f->disk_ops->submit(f->disk, &c->disk);
	return 1;
}

/* A large chunk is summed while the disk writes it. */
static int submit_write(struct swap_chunk *c)
{
	bool both = is_for_threads(c);
	int rc;

	if (c->bounce)
		memcpy(c->bounce + c->lead, c->memory, c->count);
	c->completing = false;
	c->gone = 0;
	c->parts = both ? 2 : 1;
	c->rc = 0;
	rc = submit(c, DISK_WRITE);
	if (rc == 1 && both)
		swap_file_sum_threads_add(&c->io->file->sum_threads, c);
	else if (rc != 1)
		set_sums(c, false);
	return rc;
}

/* Takes what the disk has done.  Returns 1 if the chunk is not over; 0: it is; or -errno. */
static int take_result(struct swap_chunk *c, int result)
{
	uint32_t gone = c->gone + (result > 0 ? (uint32_t)result : 0);

	count_result(c, result);
	if (result == -EAGAIN || result == -EINTR)
		return ++c->again < AGAIN_MAX ? 1 : -EIO;
	if (result < 0)
		return result;
	if (gone >= c->size)
		return 0;
	gone -= gone % SWAP_BLOCK;
	if (gone <= c->gone) /* the file ends here, or the disk moves less than a block */
		return -EIO;
	c->gone = gone;
	return 1;
}

/* Ends one part of a write, the disk's or the checksums', with rc.  Returns 1 if the other part
 * is not over; 0: the chunk is over; or -errno.
 */
static int finish_write(struct swap_chunk *c, int rc)
{
	bool last;

	pthread_mutex_lock(&c->io->lock);
	c->rc = c->rc ? c->rc : rc;
	rc = c->rc;
	last = --c->parts == 0;
	pthread_mutex_unlock(&c->io->lock);
	if (!last)
		return 1;
	if (rc)
		set_sums(c, false);
	return rc;
}

/* Ends a read of the disk.  Returns 1 if the chunk goes on; 0: it is over; or -errno. */
static int finish_read(struct swap_chunk *c)
{
	if (check_sums(c))
		return -EIO;
	if (c->completing)
		return submit_write(c);
	if (c->bounce)
		memcpy(c->memory, c->bounce + c->lead, c->count);
	return 0;
}

/* The disk has ended the chunk, with rc.  Returns 1 if the chunk goes on; 0: it is over; or
 * -errno.
 */
static int finish_chunk(struct swap_chunk *c, int rc)
{
	bool for_threads = is_for_threads(c);

	if (c->disk.what == DISK_WRITE) {
		if (!rc && !for_threads)
			set_sums(c, true);
		return finish_write(c, rc);
	}
	if (rc || !for_threads)
		return rc ? rc : finish_read(c);
	swap_file_sum_threads_add(&c->io->file->sum_threads, c);
	return 1;
}

/* ---- cutting a request ---- */

static bool is_aligned(const void *p)
{
	return (uintptr_t)p % SWAP_BLOCK == 0;
}

/* Returns how many of `most` blocks from `at` on have all been written, or all not. */
static uint32_t run_of(const struct swap_extent *x, uint64_t at, uint32_t most, bool *written)
{
	const uint32_t *sums = x->sums + at / SWAP_BLOCK;
	uint32_t n = 1;

	*written = sums[0] != SWAP_UNWRITTEN;
	while (n < most && (sums[n] != SWAP_UNWRITTEN) == *written)
		n++;
	return n;
}

/* Sets the place of the next chunk in the extent, and how much of the request is in it. */
static void cut_blocks(struct swap_io *io, struct swap_chunk *c)
{
	uint64_t from = io->offset + io->started, left = io->bytes - io->started, most;

	c->memory = (uint8_t *)io->memory + io->started;
	c->lead = (uint32_t)(from % SWAP_BLOCK);
	c->at = from - c->lead;
	c->gone = 0;
	c->completing = false;
	most = is_aligned(c->memory) ? io->file->chunk : u64_min(BOUNCE, io->file->chunk);
	if (c->lead || left < SWAP_BLOCK) {
		c->count = (uint32_t)u64_min(left, SWAP_BLOCK - c->lead);
		c->size = SWAP_BLOCK;
	} else {
		c->count = c->size = (uint32_t)(u64_min(left, most) / SWAP_BLOCK * SWAP_BLOCK);
	}
}

/* Cuts the next chunk; a read's has only blocks that were written, or only others. */
static void cut(struct swap_io *io, struct swap_chunk *c)
{
	cut_blocks(io, c);
	if (io->what == DISK_READ) {
		c->size = run_of(io->extent, c->at, c->size / SWAP_BLOCK, &c->written) *
			  SWAP_BLOCK;
		c->count = (uint32_t)u64_min(c->count, c->size);
	}
}

/* Returns true if a block has bytes of the extent that the request does not bring. */
static bool is_part(const struct swap_chunk *c)
{
	return c->lead || (c->count < SWAP_BLOCK && c->at + c->count < c->io->extent->bytes);
}

static int need_bounce(struct swap_chunk *c)
{
	if (c->count == c->size && is_aligned(c->memory))
		return 0;
	c->bounce = aligned_alloc(SWAP_BLOCK, c->size);
	if (!c->bounce)
		return -ENOMEM;
	memset(c->bounce, 0, c->size);
	return 0;
}

/* Returns 1: the read is under way; 0: it needed no disk; or -errno. */
static int start_read(struct swap_chunk *c)
{
	if (!c->written) {
		memset(c->memory, 0, c->count);
		return 0;
	}
	return need_bounce(c) ? -ENOMEM : submit(c, DISK_READ);
}

static int start_write(struct swap_chunk *c)
{
	if (need_bounce(c))
		return -ENOMEM;
	c->completing = is_part(c) && *sums_of(c) != SWAP_UNWRITTEN;
	return c->completing ? submit(c, DISK_READ) : submit_write(c);
}

static struct swap_chunk *free_chunk(struct swap_io *io)
{
	for (size_t i = 0; i < SWAP_CHUNKS; i++)
		if (!io->chunks[i].used)
			return &io->chunks[i];
	return NULL;
}

/* Takes the next chunk that is to be started; NULL: none now.  Under io->lock. */
static struct swap_chunk *next_chunk(struct swap_io *io)
{
	struct swap_chunk *c;

	if (io->canceled && io->started < io->bytes && !io->rc)
		io->rc = -ECANCELED;
	c = io->rc || io->started == io->bytes ? NULL : free_chunk(io);
	if (!c)
		return NULL;
	c->used = true;
	c->again = 0;
	c->bounce = NULL;
	c->io = io;
	cut(io, c);
	io->started += c->count;
	io->underway++;
	return c;
}

/* ---- a request ---- */

static void end_chunk(struct swap_chunk *c, int rc)
{
	struct swap_io *io = c->io;

	free(c->bounce);
	c->bounce = NULL;
	pthread_mutex_lock(&io->lock);
	c->used = false;
	if (rc && !io->rc)
		io->rc = rc;
	io->underway--;
	pthread_mutex_unlock(&io->lock);
}

static void end_swap_io(struct swap_io *io)
{
	pthread_mutex_lock(&io->file->lock);
	io->open = false;
	LIST_REMOVE(io, next);
	pthread_mutex_unlock(&io->file->lock);
	pthread_mutex_destroy(&io->lock);
	io->done(io, io->rc);
}

static struct swap_chunk *take_chunk(struct swap_io *io)
{
	struct swap_chunk *c;

	pthread_mutex_lock(&io->lock);
	c = next_chunk(io);
	pthread_mutex_unlock(&io->lock);
	return c;
}

static void start_chunks(struct swap_io *io)
{
	struct swap_chunk *c;

	while ((c = take_chunk(io))) {
		int rc = io->what == DISK_READ ? start_read(c) : start_write(c);

		if (rc != 1)
			end_chunk(c, rc);
	}
}

/* The caller has counted itself in underway, which keeps the request from ending meanwhile. */
static void go_on(struct swap_io *io)
{
	bool last;

	start_chunks(io);
	pthread_mutex_lock(&io->lock);
	last = --io->underway == 0;
	pthread_mutex_unlock(&io->lock);
	if (last)
		end_swap_io(io);
}

/* rc: 1, the chunk goes on; 0, it is over; or -errno. */
static void chunk_came(struct swap_chunk *c, struct swap_io *io, int rc)
{
	if (rc != 1)
		end_chunk(c, rc);
	go_on(io);
}

static void on_done(struct disk_io *disk, int result)
{
	struct swap_chunk *c = container_of(disk, struct swap_chunk, disk);
	struct swap_io *io = c->io;
	int rc;

	pthread_mutex_lock(&io->lock);
	c->submitted = false;
	io->underway++; /* ours, for go_on */
	pthread_mutex_unlock(&io->lock);
	rc = take_result(c, result);
	if (rc == 1)
		rc = submit(c, c->disk.what);
	chunk_came(c, io, rc == 1 ? 1 : finish_chunk(c, rc));
}

void swap_file_sum_chunk(struct swap_chunk *c)
{
	struct swap_io *io = c->io;

	pthread_mutex_lock(&io->lock);
	io->underway++; /* ours, for go_on */
	pthread_mutex_unlock(&io->lock);
	if (io->what == DISK_READ) {
		chunk_came(c, io, finish_read(c));
		return;
	}
	set_sums(c, true);
	chunk_came(c, io, finish_write(c, 0));
}

static bool is_in(const struct swap_io *io)
{
	uint64_t end_of;

	return u64_add(io->offset, io->bytes, &end_of) && end_of <= io->extent->bytes &&
	       (io->what == DISK_READ || io->what == DISK_WRITE);
}

void swap_file_submit(struct swap_file *f, struct swap_io *io)
{
	if (!is_in(io) || !io->bytes) {
		io->done(io, is_in(io) ? 0 : -EINVAL);
		return;
	}
	log_trace("swap: %s of %llu bytes at %llu of extent %llu",
		  io->what == DISK_WRITE ? "write" : "read", (unsigned long long)io->bytes,
		  (unsigned long long)io->offset, (unsigned long long)io->extent->id);
	io->file = f;
	pthread_mutex_init(&io->lock, NULL);
	io->started = 0;
	io->underway = 1;
	io->rc = 0;
	io->damaged = UINT64_MAX;
	io->damaged_end = 0;
	memset(io->chunks, 0, sizeof(io->chunks));
	pthread_mutex_lock(&f->lock);
	*(io->what == DISK_WRITE ? &f->counters.asked_write_bytes
				 : &f->counters.asked_read_bytes) += io->bytes;
	io->open = true;
	LIST_INSERT_HEAD(&f->open, io, next);
	pthread_mutex_unlock(&f->lock);
	go_on(io);
}

/* Under the file's lock. */
static void cancel(struct swap_file *f, struct swap_io *io)
{
	pthread_mutex_lock(&io->lock);
	io->canceled = true;
	for (size_t i = 0; i < SWAP_CHUNKS; i++)
		if (io->chunks[i].used && io->chunks[i].submitted)
			f->disk_ops->cancel(f->disk, &io->chunks[i].disk);
	pthread_mutex_unlock(&io->lock);
}

void swap_file_cancel(struct swap_file *f, struct swap_io *io)
{
	pthread_mutex_lock(&f->lock);
	if (io->open)
		cancel(f, io);
	else
		io->canceled = true;
	pthread_mutex_unlock(&f->lock);
}

void swap_file_cancel_all(struct swap_file *f)
{
	struct swap_io *io;

	pthread_mutex_lock(&f->lock);
	LIST_FOREACH (io, &f->open, next)
		cancel(f, io);
	pthread_mutex_unlock(&f->lock);
}
