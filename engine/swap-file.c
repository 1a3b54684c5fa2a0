/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/log.h"
#include "engine/swap-file-internal.h"
#include "engine/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

enum {
	LOCK_MS = 2000
}; /* a killed process has it until the kernel has ended its last request */

int swap_refuse(const struct swap_file_config *config, int rc, const char *what, char *why,
		size_t whysize)
{
	snprintf(why, whysize, "%s/%s: %s", config->dir, config->name,
		 what ? what : strerror(-rc));
	return rc;
}

/* ---- opening ---- */

static uint64_t room_of(const struct swap_file_config *config, int fd)
{
	struct statvfs s;

	if (config->capacity)
		return u64_div_ceil(config->capacity, SWAP_BLOCK) * SWAP_BLOCK;
	if (fstatvfs(fd, &s))
		return 1ULL << 40;
	return (uint64_t)s.f_blocks * s.f_frsize / SWAP_BLOCK * SWAP_BLOCK;
}

/* Relative to the folder, whose path may lead through links; the file itself is none. */
static int open_plain(const struct swap_file_config *config, int flags)
{
	CLEANUP(close) int dir = open(config->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int fd;

	if (dir < 0)
		return -errno;
	flags |= O_RDWR | O_CLOEXEC | O_NOFOLLOW;
	fd = openat(dir, config->name, flags | (config->no_direct ? 0 : O_DIRECT), 0600);
	if (fd < 0 && errno == EINVAL && !config->no_direct)
		fd = openat(dir, config->name, flags, 0600);
	return fd < 0 ? -errno : fd;
}

static int check_file(int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	return S_ISREG(st.st_mode) ? fd_lock(fd, LOCK_MS) : -EINVAL;
}

static int fill_in(struct swap_file *f, const struct swap_file_config *config)
{
	const struct arena_options options = { .size = room_of(config, f->fd),
					       .align = SWAP_BLOCK };

	if (asprintf(&f->path, "%s/%s", config->dir, config->name) < 0) {
		f->path = NULL;
		return -ENOMEM;
	}
	memcpy(f->job, config->job, sizeof(f->job));
	f->disk_ops = config->disk_ops;
	f->disk = config->disk;
	f->counters.direct = fcntl(f->fd, F_GETFL) & O_DIRECT;
	if (!f->counters.direct && !config->no_direct)
		log_warn("%s: no O_DIRECT there: swapping through the page cache", f->path);
	return arena_init(&f->arena, &options);
}

static void file_free(struct swap_file *f)
{
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

int swap_file_open(struct swap_file **out, const struct swap_file_config *config, int flags,
		   char *why, size_t whysize)
{
	struct swap_file *f;
	int fd, rc;

	if (!is_plain(config->name))
		return swap_refuse(config, -EINVAL, "no plain name", why, whysize);
	fd = open_plain(config, flags);
	if (fd < 0)
		return swap_refuse(config, fd, NULL, why, whysize);
	rc = check_file(fd);
	f = rc ? NULL : calloc(1, sizeof(*f));
	if (!f) {
		close(fd);
		return swap_refuse(config, rc ? rc : -ENOMEM,
				   rc == -EBUSY ? "another process swaps to it" : NULL, why,
				   whysize);
	}
	f->fd = fd;
	pthread_mutex_init(&f->lock, NULL);
	rc = fill_in(f, config);
	if (rc) {
		file_free(f);
		return swap_refuse(config, rc, NULL, why, whysize);
	}
	*out = f;
	return 0;
}

/* No slot of an earlier life is left: they are zeros until the first commit. */
static int clear(struct swap_file *f)
{
	int rc;

	if (ftruncate(f->fd, 0))
		return -errno;
	rc = posix_fallocate(f->fd, 0, SWAP_HEAD);
	f->end = SWAP_HEAD;
	return -rc;
}

int swap_file_create(struct swap_file **f, const struct swap_file_config *config, char *why,
		     size_t whysize)
{
	int rc = swap_file_open(f, config, O_CREAT, why, whysize);

	if (rc)
		return rc;
	rc = clear(*f);
	if (!rc)
		return 0;
	swap_file_close(*f, true);
	return swap_refuse(config, rc, NULL, why, whysize);
}

void swap_file_close(struct swap_file *f, bool remove)
{
	if (!f)
		return;
	if (remove && unlink(f->path))
		log_warn("%s: %s", f->path, strerror(errno));
	swap_extents_free(f->extents);
	swap_extents_free(f->retired);
	arena_fini(&f->arena);
	file_free(f);
}

/* ---- extents ---- */

struct swap_extent *swap_extent_alloc(uint64_t id, uint64_t bytes)
{
	struct swap_extent *x = calloc(1, sizeof(*x));

	if (!x)
		return NULL;
	x->id = id;
	x->bytes = bytes;
	x->sums = calloc(swap_blocks(bytes), sizeof(*x->sums));
	if (!x->sums) {
		free(x);
		return NULL;
	}
	return x;
}

void swap_extent_free(struct swap_extent *x)
{
	free(x->sums);
	free(x);
}

void swap_extents_free(struct swap_extent *x)
{
	while (x) {
		struct swap_extent *next = x->next;

		swap_extent_free(x);
		x = next;
	}
}

/* What the file system has given cannot be missing later, when there is nowhere else to put it. */
int swap_reserve(struct swap_file *f, uint64_t bytes, uint64_t *block, uint64_t *offset)
{
	uint64_t run, end;
	int rc = arena_alloc(&f->arena, bytes, block);

	if (rc)
		return rc == -EAGAIN ? -ENOSPC : rc;
	arena_find(&f->arena, *block, 0, offset, &run);
	*offset += SWAP_HEAD;
	end = *offset + run;
	if (end > f->end) {
		rc = -posix_fallocate(f->fd, (off_t)f->end, (off_t)(end - f->end));
		if (rc)
			arena_release(&f->arena, *block);
		else
			f->end = end;
	}
	return rc;
}

int swap_extent_new(struct swap_file *f, uint64_t id, uint64_t bytes, struct swap_extent **out)
{
	struct swap_extent *x = bytes ? swap_extent_alloc(id, bytes) : NULL;
	int rc;

	if (!x)
		return bytes ? -ENOMEM : -EINVAL;
	pthread_mutex_lock(&f->lock);
	rc = swap_reserve(f, bytes, &x->block, &x->offset);
	if (!rc) {
		x->next = f->extents;
		f->extents = x;
	}
	pthread_mutex_unlock(&f->lock);
	if (rc)
		swap_extent_free(x);
	else
		*out = x;
	return rc;
}

static void unlink_extent(struct swap_file *f, struct swap_extent *x)
{
	struct swap_extent **link = &f->extents;

	while (*link != x)
		link = &(*link)->next;
	*link = x->next;
}

void swap_extent_drop(struct swap_file *f, struct swap_extent *x)
{
	pthread_mutex_lock(&f->lock);
	unlink_extent(f, x);
	if (f->sequence) { /* it may be of the last commit */
		x->next = f->retired;
		f->retired = x;
	} else {
		arena_release(&f->arena, x->block);
		swap_extent_free(x);
	}
	pthread_mutex_unlock(&f->lock);
}

struct swap_extent *swap_extent_find(struct swap_file *f, uint64_t id)
{
	struct swap_extent *found = NULL;

	pthread_mutex_lock(&f->lock);
	for (struct swap_extent *x = f->extents; x; x = x->next)
		if (x->id == id && (!found || x->generation > found->generation))
			found = x;
	pthread_mutex_unlock(&f->lock);
	return found;
}

void swap_file_counters(struct swap_file *f, struct swap_counters *out)
{
	pthread_mutex_lock(&f->lock);
	*out = f->counters;
	out->extents = f->arena.nblocks;
	out->extent_bytes = f->arena.used;
	out->extent_bytes_max = f->arena.used_max;
	out->file_bytes = f->end;
	pthread_mutex_unlock(&f->lock);
}
