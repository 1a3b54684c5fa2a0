/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* faulty-fs FOLDER OP N FAULT MOUNTPOINT [FUSE option...]: the files of a folder, where each
 * N-th read or write (OP) goes wrong: EIO; SHORT, half of it; LOST, a write of which nothing is
 * done; ELSEWHERE, one that goes 64 KiB further on; FLIP, a read of which one bit is another;
 * DELAY, 20 ms late; SILENT, that and all after it are never answered, and there is a file
 * "silent".  0: none.
 */

#define FUSE_USE_VERSION 35
#include <fuse3/fuse.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int folder;
static const char *op, *fault;
static unsigned every;
static atomic_uint seen;

static const char *name_of(const char *path)
{
	return path[1] ? path + 1 : ".";
}

static bool is_hit(const char *which, const char *what)
{
	return every && !strcmp(op, which) && !strcmp(fault, what);
}

/* Does this one go wrong? */
static bool is_turn(const char *which)
{
	return every && !strcmp(op, which) && ++seen % every == 0;
}

static void delay(const char *which)
{
	if (is_hit(which, "DELAY"))
		nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
}

static _Noreturn void stay_silent(void)
{
	int fd = openat(folder, "silent", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	if (fd >= 0)
		close(fd);
	while (true)
		pause();
}

static bool is_silent(const char *which)
{
	return is_hit(which, "SILENT") && seen >= every;
}

static int do_getattr(const char *path, struct stat *st, struct fuse_file_info *f)
{
	if (f)
		return fstat((int)f->fh, st) ? -errno : 0;
	return fstatat(folder, name_of(path), st, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
}

static int open_at(const char *path, int flags, mode_t mode, struct fuse_file_info *f)
{
	int fd = openat(folder, name_of(path), flags & ~O_DIRECT, mode);

	if (fd < 0)
		return -errno;
	f->fh = (uint64_t)fd;
	f->direct_io = 1;
	return 0;
}

static int do_open(const char *path, struct fuse_file_info *f)
{
	return open_at(path, f->flags, 0, f);
}

static int do_create(const char *path, mode_t mode, struct fuse_file_info *f)
{
	return open_at(path, f->flags | O_CREAT, mode, f);
}

static int do_read(const char *path, char *to, size_t size, off_t at, struct fuse_file_info *f)
{
	bool turn = is_turn("read");
	ssize_t n;

	(void)path;
	if (turn && is_hit("read", "EIO"))
		return -EIO;
	if (is_silent("read"))
		stay_silent();
	if (turn)
		delay("read");
	n = pread((int)f->fh, to, turn && is_hit("read", "SHORT") ? size / 2 : size, at);
	if (turn && n > 0 && is_hit("read", "FLIP"))
		to[n / 2] ^= 1;
	return n < 0 ? -errno : (int)n;
}

static int do_write(const char *path, const char *from, size_t size, off_t at,
		    struct fuse_file_info *f)
{
	bool turn = is_turn("write");
	ssize_t n;

	(void)path;
	if (turn && is_hit("write", "EIO"))
		return -EIO;
	if (is_silent("write"))
		stay_silent();
	if (turn && is_hit("write", "LOST"))
		return (int)size;
	if (turn)
		delay("write");
	if (turn && is_hit("write", "ELSEWHERE"))
		at += 1 << 16;
	n = pwrite((int)f->fh, from, turn && is_hit("write", "SHORT") ? size / 2 : size, at);
	return n < 0 ? -errno : (int)n;
}

static int do_truncate(const char *path, off_t size, struct fuse_file_info *f)
{
	(void)path;
	return f && ftruncate((int)f->fh, size) ? -errno : 0;
}

static int do_fallocate(const char *path, int mode, off_t at, off_t size,
			struct fuse_file_info *f)
{
	(void)path;
	return fallocate((int)f->fh, mode, at, size) ? -errno : 0;
}

static int do_statfs(const char *path, struct statvfs *s)
{
	(void)path;
	return fstatvfs(folder, s) ? -errno : 0;
}

static int do_unlink(const char *path)
{
	return unlinkat(folder, name_of(path), 0) ? -errno : 0;
}

static int do_release(const char *path, struct fuse_file_info *f)
{
	(void)path;
	return close((int)f->fh) ? -errno : 0;
}

/* Files without a name are files. */
static void *do_init(struct fuse_conn_info *connection, struct fuse_config *config)
{
	(void)connection;
	config->hard_remove = 1;
	config->nullpath_ok = 1;
	return NULL;
}

static const struct fuse_operations operations = {
	.init = do_init,
	.getattr = do_getattr,
	.open = do_open,
	.create = do_create,
	.read = do_read,
	.write = do_write,
	.truncate = do_truncate,
	.fallocate = do_fallocate,
	.statfs = do_statfs,
	.unlink = do_unlink,
	.release = do_release,
};

int main(int argc, char **argv)
{
	if (argc < 6)
		return 2;
	folder = open(argv[1], O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (folder < 0) {
		perror(argv[1]);
		return 1;
	}
	op = argv[2];
	every = (unsigned)atoi(argv[3]);
	fault = argv[4];
	argv[4] = argv[0];
	return fuse_main(argc - 4, argv + 4, &operations, NULL);
}
