/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/fd.h"
#include "engine/base/fork.h"
#include "engine/base/log.h"
#include "engine/swap/swap-file-internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

enum {
	LOCK_MS =
		/* a killed process has the lock until the kernel has ended its last request */
	2000,
	TRIES = 100
};

static const char *why_not(int rc)
{
	switch (rc) {
	case -EBUSY:
		return "another process swaps to it";
	case -ELOOP:
		return "it is a symbolic link";
	default:
		return NULL;
	}
}

static int refuse(const struct swap_file_config *config, int rc, const char *what, char *why,
		  size_t whysize)
{
	snprintf(why, whysize, "%s/%s: %s", config->dir, config->name,
		 what ? what : strerror(-rc));
	return rc;
}

/* ---- opening ---- */

int swap_file_make_dir(const char *dir)
{
	if (mkdir(dir, 0700))
		return errno == EEXIST ? 0 : -errno;
	log_info("swap: the folder %s was missing: made, with mode 0700", dir);
	return 0;
}

static uint64_t room_of(int fd)
{
	struct statvfs s;

	if (fstatvfs(fd, &s))
		return 1ULL << 40;
	return (uint64_t)s.f_blocks * s.f_frsize / SWAP_BLOCK * SWAP_BLOCK;
}

/* Removes the file of a dead process: one of an older version, whose file outlived it, or one
 * that was killed in open_nameless.
 */
static int remove_left(int dir, const char *name)
{
	CLEANUP(close)
	int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	int rc;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (fstat(fd, &st))
		return -errno;
	rc = S_ISREG(st.st_mode) ? fd_lock(fd, LOCK_MS) : -EINVAL;
	if (rc)
		return rc;
	return unlinkat(dir, name, 0) && errno != ENOENT ? -errno : 0;
}

/* Makes a file and removes its name at once: whatever ends this process, no file stays. */
static int open_nameless(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600), rc = 0;

	if (fd < 0)
		return -errno;
	if (unlinkat(dir, name, 0) && errno != ENOENT) {
		rc = -errno;
		close(fd);
	}
	return rc ? rc : fd;
}

/* Opens names relative to the folder: its path may lead through symbolic links, but a file that
 * was left in it may be none.
 */
static int open_new(int dir, const struct swap_file_config *config)
{
	int fd = -EEXIST, rc;

	for (int i = 0; i < TRIES && fd == -EEXIST; i++) {
		rc = remove_left(dir, config->name);
		if (rc)
			return rc;
		fd = open_nameless(dir, config->name);
	}
	return fd;
}

static bool make_direct(int fd)
{
	return !fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_DIRECT);
}

static int fill_in(struct swap_file *f, const struct swap_file_config *config)
{
	const struct arena_options options = { .size = room_of(f->fd), .align = SWAP_BLOCK };

	if (asprintf(&f->path, "%s/%s", config->dir, config->name) < 0) {
		f->path = NULL;
		return -ENOMEM;
	}
	f->disk_ops = config->disk_ops;
	f->disk = config->disk;
	f->chunk = config->chunk ? config->chunk : SWAP_CHUNK;
	f->limit = options.size;
	f->counters.direct = !config->no_direct && make_direct(f->fd);
	if (!f->counters.direct && !config->no_direct)
		log_warn("%s: no O_DIRECT there: swapping through the page cache", f->path);
	return arena_init(&f->arena, &options);
}

static void file_free(struct swap_file *f)
{
	fork_forget(f->fd);
	close(f->fd);
	free(f->path);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

static bool is_plain(const char *name)
{
	return *name && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..") &&
	       strlen(name) <= SWAP_NAME_MAX;
}

int swap_file_create(struct swap_file **out, const struct swap_file_config *config, char *why,
		     size_t whysize)
{
	CLEANUP(close) int dir = open(config->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct swap_file *f;
	int fd, rc = dir < 0 ? -errno : 0;

	if (rc) {
		snprintf(why, whysize, "the folder %s: %s", config->dir, strerror(-rc));
		return rc;
	}
	if (!is_plain(config->name))
		return refuse(config, -EINVAL, "no plain name", why, whysize);
	fd = open_new(dir, config);
	if (fd < 0)
		return refuse(config, fd, why_not(fd), why, whysize);
	f = calloc(1, sizeof(*f));
	if (!f) {
		close(fd);
		return refuse(config, -ENOMEM, NULL, why, whysize);
	}
	f->fd = fd;
	fork_close(fd); /* a child that lives on would keep the bytes on the disk */
	pthread_mutex_init(&f->lock, NULL);
	rc = fill_in(f, config);
	if (rc) {
		file_free(f);
		return refuse(config, rc, NULL, why, whysize);
	}
	swap_file_sum_threads_start(&f->sum_threads);
	*out = f;
	return 0;
}

void swap_file_close(struct swap_file *f)
{
	if (!f)
		return;
	assert(!f->arena.nblocks);
	swap_file_sum_threads_stop(&f->sum_threads);
	arena_fini(&f->arena);
	file_free(f);
}

/* ---- extents ---- */

static struct swap_extent *extent_alloc(uint64_t id, uint64_t bytes)
{
	struct swap_extent *x = calloc(1, sizeof(*x));

	if (!x)
		return NULL;
	x->id = id;
	x->bytes = bytes;
	x->sums = calloc(swap_file_blocks(bytes), sizeof(*x->sums));
	if (!x->sums) {
		free(x);
		return NULL;
	}
	return x;
}

static void extent_free(struct swap_extent *x)
{
	free(x->sums);
	free(x);
}

static int reserve(struct swap_file *f, struct swap_extent *x)
{
	uint64_t run;
	int rc = -ENOSPC;

	pthread_mutex_lock(&f->lock);
	if (f->arena.used + swap_file_blocks(x->bytes) * SWAP_BLOCK <= f->limit)
		rc = arena_alloc(&f->arena, x->bytes, &x->block);
	if (!rc)
		arena_find(&f->arena, x->block, 0, &x->offset, &run);
	pthread_mutex_unlock(&f->lock);
	return rc == -EAGAIN ? -ENOSPC : rc;
}

static void release(struct swap_file *f, const struct swap_extent *x)
{
	pthread_mutex_lock(&f->lock);
	arena_release(&f->arena, x->block);
	pthread_mutex_unlock(&f->lock);
}

/* Reserves disk space; on a file system that cannot, writes find out whether there is any. */
static int allocate(int fd, uint64_t from, uint64_t bytes)
{
	struct rlimit limit;
	int rc;

	if (!getrlimit(RLIMIT_FSIZE, &limit) && from + bytes > limit.rlim_cur)
		return -EFBIG; /* a write would raise SIGXFSZ, which ends the trainer */
	do
		rc = fallocate(fd, 0, (off_t)from, (off_t)bytes) ? -errno : 0;
	while (rc == -EINTR);
	return rc == -EOPNOTSUPP ? 0 : rc;
}

/* Allocates room before it is needed, so that no write fails for lack of space later, when its
 * bytes have no other place.  Allocating may take long: nobody waits for the lock meanwhile.
 */
static int grow(struct swap_file *f, uint64_t end)
{
	uint64_t from;
	int rc = 0;

	pthread_mutex_lock(&f->lock);
	from = f->end;
	pthread_mutex_unlock(&f->lock);
	if (end > from)
		rc = allocate(f->fd, from, end - from);
	if (rc)
		return rc;
	pthread_mutex_lock(&f->lock);
	f->end = u64_max(f->end, end);
	pthread_mutex_unlock(&f->lock);
	return 0;
}

int swap_file_extent_new(struct swap_file *f, uint64_t id, uint64_t bytes,
			 struct swap_extent **out)
{
	struct swap_extent *x = bytes ? extent_alloc(id, bytes) : NULL;
	int rc;

	if (!x)
		return bytes ? -ENOMEM : -EINVAL;
	rc = reserve(f, x);
	if (!rc) {
		rc = grow(f, x->offset + swap_file_blocks(bytes) * SWAP_BLOCK);
		if (rc)
			release(f, x);
	}
	if (rc)
		extent_free(x);
	else
		*out = x;
	return rc;
}

void swap_file_limit(struct swap_file *f, uint64_t bytes)
{
	pthread_mutex_lock(&f->lock);
	f->limit = bytes;
	pthread_mutex_unlock(&f->lock);
}

void swap_file_extent_drop(struct swap_file *f, struct swap_extent *x)
{
	release(f, x);
	extent_free(x);
}

void swap_file_counters(struct swap_file *f, struct swap_counters *out)
{
	pthread_mutex_lock(&f->lock);
	*out = f->counters;
	out->extents = f->arena.nblocks;
	out->extent_bytes = f->arena.used;
	out->extent_bytes_max = f->arena.used_max;
	out->extent_bytes_limit = f->limit;
	out->file_bytes = f->end;
	pthread_mutex_unlock(&f->lock);
}
