/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/swap/swap-file-internal.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"
#include "tests/unit/swap/faulty-disk.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* TEST_SEED: of the ranges.  TEST_DIR: where the files are (/tmp). */

enum { EXTENT = (5 << 20) + 1234, ROUNDS = 400, SIDE = 1 << 16 };

static const struct disk_ops *const all[] = { &disk_uring, &disk_threads };
static char dir[200];
static struct swap_file_config config;
static struct disk *disk;
static struct swap_file *file;
static char why[512];
static uint64_t seed;
static uint8_t *truth, *memory; /* [EXTENT + SIDE] */

static uint64_t next_random(uint64_t below)
{
	seed = seed * 6364136223846793005 + 1442695040888963407;
	return (seed >> 20) % below;
}

static void fill(uint8_t *to, size_t size)
{
	for (size_t i = 0; i < size; i++)
		to[i] = (uint8_t)next_random(256);
}

/* ---- files ---- */

static void make_dir(void)
{
	const char *given = getenv("TEST_DIR");

	snprintf(dir, sizeof(dir), "%s/test-swap-file-XXXXXX", given ? given : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	truth = calloc(1, EXTENT + SIDE);
	memory = aligned_alloc(SWAP_BLOCK, (EXTENT + 2 * SIDE) / SWAP_BLOCK * SWAP_BLOCK);
	ck_assert(truth && memory);
}

static void path_of(char path[300])
{
	snprintf(path, 300, "%s/rank0.swap", dir);
}

static void remove_dir(void)
{
	ck_assert_int_eq(rmdir(dir), 0); /* whatever was done, no file is left */
	free(truth);
	free(memory);
}

static bool open_disk(int which)
{
	config = (struct swap_file_config){ .dir = dir,
					    .name = "rank0.swap",
					    .disk_ops = all[which] };
	if (all[which]->open(&disk, NULL))
		return false;
	config.disk = disk;
	return true;
}

static bool start(int which)
{
	if (!open_disk(which))
		return false;
	ck_assert_msg(!swap_file_create(&file, &config, why, sizeof(why)), "%s", why);
	return true;
}

/* By a disk of that kind, some of whose requests go wrong. */
static bool start_faulty(int which)
{
	if (!open_disk(which))
		return false;
	faulty_over(all[which]);
	config.disk_ops->close(disk);
	config.disk_ops = &faulty_disk;
	ck_assert_int_eq(faulty_disk.open(&disk, NULL), 0);
	config.disk = disk;
	ck_assert_msg(!swap_file_create(&file, &config, why, sizeof(why)), "%s", why);
	return true;
}

static struct swap_extent *new_extent(uint64_t bytes)
{
	struct swap_extent *x;

	ck_assert_int_eq(swap_file_extent_new(file, 7, bytes, &x), 0);
	return x;
}

/* x NULL: there is none. */
static void stop(struct swap_extent *x)
{
	if (x)
		swap_file_extent_drop(file, x);
	swap_file_close(file);
	config.disk_ops->close(disk);
}

struct waiter {
	pthread_mutex_t lock;
	pthread_cond_t over;
	int rc; /* 1: not yet */
};

static void wake(struct swap_io *io, int rc)
{
	struct waiter *w = io->owner;

	pthread_mutex_lock(&w->lock);
	w->rc = rc;
	pthread_cond_signal(&w->over);
	pthread_mutex_unlock(&w->lock);
}

static int wait_for(struct waiter *w)
{
	pthread_mutex_lock(&w->lock);
	while (w->rc == 1)
		pthread_cond_wait(&w->over, &w->lock);
	pthread_mutex_unlock(&w->lock);
	return w->rc;
}

static int run_io(struct swap_io *io)
{
	struct waiter w = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 1 };

	io->done = wake;
	io->owner = &w;
	swap_file_submit(file, io);
	return wait_for(&w);
}

static int run(struct swap_extent *x, enum disk_what what, uint64_t offset, uint64_t bytes,
	       void *at)
{
	struct swap_io io = { .extent = x,
			      .what = what,
			      .slab = DISK_NO_SLAB,
			      .offset = offset,
			      .bytes = bytes,
			      .memory = at };

	return run_io(&io);
}

static void write_all(struct swap_extent *x)
{
	fill(truth, x->bytes);
	memcpy(memory, truth, x->bytes);
	ck_assert_int_eq(run(x, DISK_WRITE, 0, x->bytes, memory), 0);
}

static void expect_all(struct swap_extent *x)
{
	memset(memory, 1, x->bytes);
	ck_assert_int_eq(run(x, DISK_READ, 0, x->bytes, memory), 0);
	ck_assert_mem_eq(memory, truth, x->bytes);
}

/* ---- ranges ---- */

START_TEST(any_range_at_any_address)
{
	struct swap_extent *x;

	if (!start(_i))
		return;
	x = new_extent(EXTENT);
	memset(truth, 0, EXTENT);
	expect_all(x); /* zeros, of which nothing was ever written */
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t most = next_random(4) ? 3 * SWAP_BLOCK : EXTENT;
		uint64_t offset = next_random(EXTENT), bytes = 1 + next_random(most);
		uint8_t *at = memory + next_random(2) * next_random(SWAP_BLOCK);

		if (next_random(3) == 0)
			offset -= offset % SWAP_BLOCK;
		bytes = u64_min(bytes, EXTENT - offset);
		if (next_random(2)) {
			fill(truth + offset, u64_min(bytes, 5000));
			memcpy(at, truth + offset, bytes);
			ck_assert_int_eq(run(x, DISK_WRITE, offset, bytes, at), 0);
		} else {
			memset(at, 0xee, bytes);
			ck_assert_int_eq(run(x, DISK_READ, offset, bytes, at), 0);
			ck_assert_mem_eq(at, truth + offset, bytes);
		}
	}
	expect_all(x);
	stop(x);
}
END_TEST

START_TEST(a_small_read_reads_little)
{
	struct swap_counters before, after;
	struct swap_extent *x;

	if (!start(_i))
		return;
	x = new_extent(EXTENT);
	write_all(x);
	swap_file_counters(file, &before);
	ck_assert_int_eq(run(x, DISK_READ, 5 * SWAP_BLOCK + 100, SWAP_BLOCK, memory), 0);
	swap_file_counters(file, &after);
	ck_assert_mem_eq(memory, truth + 5 * SWAP_BLOCK + 100, SWAP_BLOCK);
	ck_assert_uint_le(after.read_bytes - before.read_bytes, 2 * SWAP_BLOCK);
	ck_assert_int_eq(run(x, DISK_READ, EXTENT - 3, 3, memory), 0);
	ck_assert_mem_eq(memory, truth + EXTENT - 3, 3);
	ck_assert_int_eq(run(x, DISK_READ, EXTENT - 3, 4, memory), -EINVAL);
	ck_assert_int_eq(run(x, DISK_WRITE, UINT64_MAX, 4, memory), -EINVAL);
	ck_assert_int_eq(run(x, DISK_READ, EXTENT, 0, memory), 0);
	stop(x);
}
END_TEST

/* ---- what goes wrong ---- */

/* As another would, not past the page cache. */
static int open_again(void)
{
	char path[40];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static void flip(uint64_t offset)
{
	int fd = open_again();
	uint8_t byte;

	ck_assert_int_eq(pread(fd, &byte, 1, (off_t)offset), 1);
	byte ^= 4;
	ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)offset), 1);
	close(fd);
}

START_TEST(a_flipped_bit_is_eio_there_and_nowhere_else)
{
	struct swap_extent *x;
	struct swap_counters n;
	struct swap_io io;

	if (!start(_i))
		return;
	x = new_extent(EXTENT);
	write_all(x);
	flip(x->offset + 10 * SWAP_BLOCK + 17);
	io = (struct swap_io){ .extent = x,
			       .what = DISK_READ,
			       .slab = DISK_NO_SLAB,
			       .offset = 10 * SWAP_BLOCK,
			       .bytes = 8,
			       .memory = memory };
	ck_assert_int_eq(run_io(&io), -EIO);
	ck_assert_uint_eq(io.damaged, 10 * SWAP_BLOCK);
	ck_assert_uint_eq(io.damaged_end, 11 * SWAP_BLOCK);
	io.offset = 0; /* the same, found among others */
	io.bytes = EXTENT;
	ck_assert_int_eq(run_io(&io), -EIO);
	ck_assert_uint_eq(io.damaged, 10 * SWAP_BLOCK);
	ck_assert_int_eq(run(x, DISK_READ, 0, 10 * SWAP_BLOCK, memory), 0);
	ck_assert_int_eq(run(x, DISK_READ, 11 * SWAP_BLOCK, SWAP_BLOCK, memory), 0);
	/* A part of the block cannot be written: the rest of it is not known. */
	ck_assert_int_eq(run(x, DISK_WRITE, 10 * SWAP_BLOCK + 5, 5, memory), -EIO);
	ck_assert_int_eq(run(x, DISK_WRITE, 10 * SWAP_BLOCK, SWAP_BLOCK, memory), 0);
	ck_assert_int_eq(run(x, DISK_READ, 0, EXTENT, memory), 0);
	swap_file_counters(file, &n);
	ck_assert_uint_ge(n.damaged_blocks, 3);
	stop(x);
}
END_TEST

START_TEST(a_file_cut_off_is_eio)
{
	struct swap_extent *x;

	if (!start(_i))
		return;
	x = new_extent(EXTENT);
	write_all(x);
	ck_assert_int_eq(ftruncate(file->fd, (off_t)x->offset + (1 << 20)), 0);
	ck_assert_int_eq(run(x, DISK_READ, 0, EXTENT, memory), -EIO);
	ck_assert_int_eq(run(x, DISK_READ, 0, 1 << 20, memory), 0);
	ck_assert_mem_eq(memory, truth, 1 << 20);
	stop(x);
}
END_TEST

/* DeepSpeed's B11: 2 of 4 MiB written, and told that it was all. */
START_TEST(b11_a_write_over_the_limit_is_efbig)
{
	struct rlimit limit = { SWAP_BLOCK, SWAP_BLOCK };
	struct swap_extent *x, *y;
	int rc;

	if (!start(_i))
		return;
	x = new_extent(EXTENT);
	write_all(x);
	limit.rlim_cur = limit.rlim_max = x->offset + (2 << 20);
	setrlimit(RLIMIT_FSIZE, &limit);
	rc = run(x, DISK_WRITE, 0, EXTENT, memory);
	ck_assert_int_eq(rc, -EFBIG);
	/* What it may have half overwritten is not served as anything. */
	ck_assert_int_eq(run(x, DISK_READ, 2 << 20, SWAP_BLOCK, memory), -EIO);
	ck_assert_int_eq(run(x, DISK_READ, 0, SWAP_BLOCK, memory), 0);
	rc = swap_file_extent_new(file, 8, EXTENT, &y);
	ck_assert_int_eq(rc, -EFBIG);
	stop(x);
}
END_TEST

START_TEST(no_room_is_said_when_it_is_asked_for)
{
	struct swap_extent *x, *y, *third[3];

	if (!open_disk(_i))
		return;
	ck_assert_int_eq(swap_file_create(&file, &config, why, sizeof(why)), 0);
	swap_file_limit(file, 3 << 20);
	ck_assert_int_eq(swap_file_extent_new(file, 1, 2 << 20, &x), 0);
	ck_assert_int_eq(swap_file_extent_new(file, 2, 2 << 20, &y), -ENOSPC);
	swap_file_extent_drop(file, x);
	ck_assert_int_eq(swap_file_extent_new(file, 2, 2 << 20, &y), 0);
	ck_assert_int_eq(swap_file_extent_new(file, 3, 0, &x), -EINVAL);
	ck_assert_int_eq(swap_file_extent_new(file, 3, 4 << 20, &x), -ENOSPC);
	swap_file_extent_drop(file, y);
	for (uint64_t i = 0; i < ARRAY_SIZE(third); i++)
		ck_assert_int_eq(swap_file_extent_new(file, i, 1 << 20, &third[i]), 0);
	swap_file_extent_drop(file, third[0]);
	swap_file_extent_drop(file, third[2]);
	ck_assert_int_eq(swap_file_extent_new(file, 3, 2 << 20, &x),
			 0); /* holes are not counted */
	ck_assert_int_eq(swap_file_extent_new(file, 4, 1, &y), -ENOSPC);
	swap_file_extent_drop(file, x);
	stop(third[1]);
}
END_TEST

/* ---- what the file system gives ---- */

static int answer; /* of fallocate, the first time; 0: its own */
static unsigned asked, locked;
static struct swap_file *asking;

int fallocate(int fd, int mode, off_t offset, off_t length)
{
	int rc = asked++ ? 0 : answer;

	if (asking && pthread_mutex_trylock(&asking->lock))
		locked++;
	else if (asking)
		pthread_mutex_unlock(&asking->lock);
	if (!rc)
		return (int)syscall(SYS_fallocate, fd, mode, offset, length);
	errno = rc;
	return -1;
}

static void expect_given(struct swap_extent *x)
{
	struct swap_counters n;

	ck_assert_uint_ge(asked, 1);
	ck_assert_uint_eq(locked, 0);
	fill(memory, EXTENT);
	ck_assert_int_eq(run(x, DISK_WRITE, 0, EXTENT, memory), 0);
	ck_assert_int_eq(run(x, DISK_READ, 0, EXTENT, truth), 0);
	ck_assert_mem_eq(memory, truth, EXTENT);
	swap_file_counters(file, &n);
	ck_assert_uint_ge(n.file_bytes, EXTENT);
}

START_TEST(a_file_system_that_takes_its_time_or_gives_nothing_stops_nobody)
{
	static const int answers[] = { 0, EINTR, EOPNOTSUPP, EDQUOT };
	struct swap_extent *x = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
		if (!start(_i))
			return;
		asking = file;
		asked = locked = 0;
		answer = answers[i];
		if (answer == EDQUOT)
			ck_assert_int_eq(swap_file_extent_new(file, 7, EXTENT, &x), -EDQUOT);
		x = new_extent(EXTENT);
		expect_given(x);
		stop(x);
	}
}
END_TEST

START_TEST(it_is_refused_in_one_line)
{
	struct swap_file *other;

	if (!start(_i))
		return;
	config.name = "../x";
	ck_assert_int_eq(swap_file_create(&other, &config, why, sizeof(why)), -EINVAL);
	config.name = "rank0.swap";
	config.dir = "/nowhere/x";
	ck_assert_int_eq(swap_file_create(&other, &config, why, sizeof(why)), -ENOENT);
	ck_assert_str_eq(why, "the folder /nowhere/x: No such file or directory");
	config.dir = dir;
	stop(NULL);
}
END_TEST

START_TEST(a_link_in_its_place_is_not_followed)
{
	char path[300];
	struct stat st;

	if (!open_disk(_i))
		return;
	path_of(path);
	ck_assert_int_eq(symlink("/dev/null", path), 0);
	ck_assert_int_eq(swap_file_create(&file, &config, why, sizeof(why)), -ELOOP);
	ck_assert_msg(strstr(why, path) && strstr(why, "symbolic link"), "%s", why);
	unlink(path);
	ck_assert_int_eq(swap_file_create(&file, &config, why, sizeof(why)), 0);
	ck_assert_int_eq(fstat(file->fd, &st), 0);
	ck_assert_int_eq(st.st_mode & 07777, 0600);
	ck_assert_uint_eq(st.st_nlink, 0);
	stop(NULL);
}
END_TEST

static int leave_file(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	ck_assert_int_eq(write(fd, "of an earlier job", 17), 17);
	return fd;
}

/* Versions before this one left a file when they were killed, and had it locked while they
 * lived.
 */
START_TEST(what_an_earlier_version_left_goes_and_is_not_read)
{
	struct swap_extent *x;
	char path[300];
	int fd;

	if (!open_disk(_i))
		return;
	path_of(path);
	fd = leave_file(path);
	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	ck_assert_int_eq(swap_file_create(&file, &config, why, sizeof(why)), -EBUSY);
	ck_assert_ptr_nonnull(strstr(why, "another process swaps to it"));
	close(fd);
	ck_assert_int_eq(swap_file_create(&file, &config, why, sizeof(why)), 0);
	ck_assert_int_eq(access(path, F_OK), -1);
	x = new_extent(SWAP_BLOCK);
	memset(truth, 0, SWAP_BLOCK);
	expect_all(x);
	stop(x);
}
END_TEST

/* What is left under the name may have another. */
START_TEST(another_name_of_what_was_left_keeps_its_bytes)
{
	char path[300], other[320], text[18] = "";
	int fd;

	if (!open_disk(_i))
		return;
	path_of(path);
	snprintf(other, sizeof(other), "%s.mine", path);
	fd = leave_file(path);
	ck_assert_int_eq(link(path, other), 0);
	ck_assert_int_eq(swap_file_create(&file, &config, why, sizeof(why)), 0);
	ck_assert_int_eq(pread(fd, text, 17, 0), 17);
	ck_assert_str_eq(text, "of an earlier job");
	close(fd);
	unlink(other);
	stop(NULL);
}
END_TEST

static void *create_often(void *failed)
{
	struct swap_file *mine;
	char line[512];

	for (int i = 0; i < 200; i++) {
		struct stat st;

		if (swap_file_create(&mine, &config, line, sizeof(line))) {
			printf("%s\n", line);
			*(bool *)failed = true;
			return NULL;
		}
		*(bool *)failed |= fstat(mine->fd, &st) || st.st_nlink;
		swap_file_close(mine);
	}
	return NULL;
}

START_TEST(each_of_two_at_once_has_its_own)
{
	bool failed[2] = { false };
	pthread_t thread[2];

	if (!open_disk(_i))
		return;
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, create_often, &failed[i]), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	ck_assert(!failed[0] && !failed[1]);
	config.disk_ops->close(disk);
}
END_TEST

/* Returns true if a descriptor of this process is a swap file's, in dir, or an io_uring's. */
static bool swaps(void)
{
	char path[40], target[300];

	for (int fd = 0; fd < 1024; fd++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = '\0';
		if (!strncmp(target, dir, strlen(dir)) || strstr(target, "io_uring"))
			return true;
	}
	return false;
}

static bool maps_ring(void)
{
	CLEANUP(close) int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	static char maps[1 << 20];
	size_t size = 0;
	ssize_t n;

	while ((n = read(fd, maps + size, sizeof(maps) - 1 - size)) > 0)
		size += (size_t)n;
	maps[size] = '\0';
	return strstr(maps, "io_uring");
}

START_TEST(a_forked_child_keeps_neither_the_file_nor_the_ring)
{
	struct swap_extent *x;
	int status = -1;
	pid_t child;

	if (!start(_i))
		return;
	x = new_extent(EXTENT);
	write_all(x);
	ck_assert(swaps());
	ck_assert(maps_ring() == (config.disk_ops == &disk_uring));
	child = fork();
	if (!child)
		_exit(swaps() || maps_ring());
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	expect_all(x);
	stop(x);
	ck_assert(!swaps());
}
END_TEST

/* What one machine wrote another reads. */
START_TEST(sums_do_not_depend_on_the_machine)
{
	if (_i)
		return;
	for (int round = 0; round < 100; round++) {
		uint32_t sum;

		fill(memory, SWAP_BLOCK);
		sum = (uint32_t)XXH3_64bits(memory, SWAP_BLOCK);
		ck_assert_uint_eq(swap_file_sum(memory), sum > SWAP_DAMAGED ? sum : sum + 2);
	}
}
END_TEST

/* ---- without memory ---- */

/* -errno of the first that failed. */
static int use_a_file(void)
{
	struct swap_extent *x;
	int rc = swap_file_create(&file, &config, why, sizeof(why));

	if (rc)
		return rc;
	rc = swap_file_extent_new(file, 1, 3 * SWAP_BLOCK, &x);
	if (!rc) {
		rc = run(x, DISK_WRITE, 5, 2 * SWAP_BLOCK, memory);
		rc = rc ? rc : run(x, DISK_READ, 5, 2 * SWAP_BLOCK, memory + 1);
		swap_file_extent_drop(file, x);
	}
	swap_file_close(file);
	return rc;
}

START_TEST(a_file_is_used_or_enomem)
{
	unsigned n = 0, failed;
	int rc;

	if (!open_disk(_i))
		return;
	do {
		scarce_begin(++n, 1);
		rc = use_a_file();
		failed = scarce_end();
		ck_assert_msg(!rc || (failed && rc == -ENOMEM), "%u: %d", n, rc);
	} while (failed);
	ck_assert_uint_gt(n, 5);
	config.disk_ops->close(disk);
}
END_TEST

START_TEST(a_pipe_is_no_file_to_swap_to)
{
	char path[300];

	if (!open_disk(_i))
		return;
	path_of(path);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(swap_file_create(&file, &config, why, sizeof(why)), -EINVAL);
	unlink(path);
	config.disk_ops->close(disk);
}
END_TEST

/* ---- sums beside the disk ---- */

static bool is_summed(struct swap_io *io)
{
	bool summed = true;

	pthread_mutex_lock(&io->lock);
	for (size_t i = 0; i < SWAP_CHUNKS; i++)
		summed = summed && (!io->chunks[i].used || io->chunks[i].parts == 1);
	pthread_mutex_unlock(&io->lock);
	return summed;
}

START_TEST(a_write_is_summed_while_the_disk_has_it)
{
	enum { BYTES = 4 << 20 };
	struct waiter w = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 1 };
	struct swap_io io = { .what = DISK_WRITE,
			      .slab = DISK_NO_SLAB,
			      .bytes = BYTES,
			      .memory = memory,
			      .done = wake,
			      .owner = &w };

	if (!start_faulty(_i))
		return;
	ck_assert_uint_eq(file->sum_threads.n, SWAP_SUM_THREADS);
	io.extent = new_extent(BYTES);
	fill(memory, BYTES);
	faulty_begin((struct faulty){ FAULT_HOLD, DISK_WRITE, 0, 1, BYTES / SWAP_CHUNK });
	swap_file_submit(file, &io);
	faulty_wait_held(BYTES / SWAP_CHUNK);
	while (!is_summed(&io)) /* TEST_TIMEOUT */
		usleep(1000);
	for (size_t i = 0; i < BYTES / SWAP_BLOCK; i++)
		ck_assert_uint_eq(io.extent->sums[i], swap_file_sum(memory + i * SWAP_BLOCK));
	ck_assert_int_eq(w.rc, 1);
	ck_assert_uint_eq(faulty_end(), BYTES / SWAP_CHUNK);
	ck_assert_int_eq(wait_for(&w), 0);
	memcpy(truth, memory, BYTES);
	expect_all(io.extent);
	stop(io.extent);
}
END_TEST

/* Whichever of disk and sums is done first. */
START_TEST(a_write_that_the_disk_refuses_is_damaged_though_it_is_summed)
{
	enum { BYTES = 4 << 20, TIMES = 20 };

	if (!start_faulty(_i))
		return;
	for (int i = 0; i < TIMES; i++) {
		struct swap_extent *x = new_extent(BYTES);

		fill(memory, BYTES);
		faulty_begin((struct faulty){ FAULT_ERROR, DISK_WRITE, -ENOSPC, 2, 1 });
		ck_assert_int_eq(run(x, DISK_WRITE, 0, BYTES, memory), -ENOSPC);
		faulty_end();
		for (size_t k = 0; k < BYTES / SWAP_BLOCK; k++)
			if (k * SWAP_BLOCK / SWAP_CHUNK == 1)
				ck_assert_uint_eq(x->sums[k], SWAP_DAMAGED);
		ck_assert_int_eq(run(x, DISK_READ, SWAP_CHUNK, SWAP_CHUNK, truth), -EIO);
		swap_file_extent_drop(file, x);
	}
	stop(NULL);
}
END_TEST

/* The rest of its block is read first, by a disk that does not hear that. */
START_TEST(a_write_that_is_canceled_meanwhile_is_not_begun)
{
	struct swap_counters before;
	struct waiter w = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 1 };
	struct swap_io io = { .what = DISK_WRITE,
			      .slab = DISK_NO_SLAB,
			      .offset = 1,
			      .bytes = 1,
			      .memory = memory,
			      .done = wake,
			      .owner = &w };

	if (!start_faulty(_i))
		return;
	io.extent = new_extent(EXTENT);
	write_all(io.extent);
	before = file->counters;
	faulty_begin((struct faulty){ FAULT_DEAF, DISK_READ, 0, 1, 1 });
	swap_file_submit(file, &io);
	faulty_wait_held(1);
	swap_file_cancel(file, &io);
	ck_assert_uint_eq(faulty_end(), 1);
	ck_assert_int_eq(wait_for(&w), -ECANCELED);
	ck_assert_uint_eq(file->counters.reads, before.reads + 1);
	ck_assert_uint_eq(file->counters.writes, before.writes);
	stop(io.extent);
}
END_TEST

/* Requests of many chunks; each on a quarter of its own. */
static void cancel_some(int which, uint32_t chunk)
{
	enum { TIMES = 100, EACH = EXTENT / 4 / SWAP_BLOCK * SWAP_BLOCK };
	struct swap_extent *x;
	unsigned canceled = 0;

	if (!open_disk(which))
		return;
	config.chunk = chunk;
	ck_assert_int_eq(swap_file_create(&file, &config, why, sizeof(why)), 0);
	x = new_extent(EXTENT);
	write_all(x);
	for (int round = 0; round < TIMES; round++) {
		struct waiter w = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 1 };
		uint64_t at = next_random(4) * (uint64_t)EACH;
		enum disk_what what = next_random(2) ? DISK_READ : DISK_WRITE;
		struct swap_io io = { .extent = x,
				      .what = what,
				      .slab = DISK_NO_SLAB,
				      .offset = at,
				      .bytes = EACH,
				      .memory = memory + at,
				      .done = wake,
				      .owner = &w };
		int rc;

		memcpy(memory, truth, EXTENT);
		if (!next_random(8))
			swap_file_cancel(file, &io);
		swap_file_submit(file, &io);
		pthread_mutex_lock(&w.lock);
		if (w.rc == 1 && next_random(2))
			swap_file_cancel(file, &io);
		else if (w.rc == 1)
			swap_file_cancel_all(file);
		while (w.rc == 1)
			pthread_cond_wait(&w.over, &w.lock);
		pthread_mutex_unlock(&w.lock);
		ck_assert(w.rc == 0 || w.rc == -ECANCELED);
		canceled += w.rc != 0;
		ck_assert(w.rc || !memcmp(memory + at, truth + at, EACH));
		rc = run(x, DISK_READ, at, EACH, memory + at);
		ck_assert(rc == -EIO || (!rc && !memcmp(memory + at, truth + at, EACH)));
		ck_assert(!rc || (what == DISK_WRITE && w.rc));
		if (rc)
			ck_assert_int_eq(run(x, DISK_WRITE, at, EACH, truth + at), 0);
	}
	printf("%u of %d were canceled\n", canceled, TIMES);
	ck_assert_uint_gt(canceled, 0);
	stop(x);
}

/* Of chunks that the disk's thread sums, and of larger ones. */
START_TEST(a_canceled_request_ends_once_and_leaves_no_wrong_bytes)
{
	cancel_some(_i, SWAP_BLOCK);
	cancel_some(_i, 256 << 10);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		any_range_at_any_address,
		a_small_read_reads_little,
		a_flipped_bit_is_eio_there_and_nowhere_else,
		a_file_cut_off_is_eio,
		b11_a_write_over_the_limit_is_efbig,
		no_room_is_said_when_it_is_asked_for,
		a_file_system_that_takes_its_time_or_gives_nothing_stops_nobody,
		it_is_refused_in_one_line,
		a_link_in_its_place_is_not_followed,
		what_an_earlier_version_left_goes_and_is_not_read,
		another_name_of_what_was_left_keeps_its_bytes,
		each_of_two_at_once_has_its_own,
		a_forked_child_keeps_neither_the_file_nor_the_ring,
		sums_do_not_depend_on_the_machine,
		a_file_is_used_or_enomem,
		a_pipe_is_no_file_to_swap_to,
		a_canceled_request_ends_once_and_leaves_no_wrong_bytes,
		a_write_that_is_canceled_meanwhile_is_not_begun,
		a_write_is_summed_while_the_disk_has_it,
		a_write_that_the_disk_refuses_is_damaged_though_it_is_summed,
	};
	const char *given = getenv("TEST_SEED");
	Suite *suite = suite_create("swap-file");
	TCase *c = tcase_create("all");

	seed = given ? strtoull(given, NULL, 10) : monotonic_ms();
	printf("TEST_SEED=%llu\n", (unsigned long long)seed);
	tcase_add_checked_fixture(c, make_dir, remove_dir);
	tcase_set_timeout(c, 60);
	for (size_t i = 0; i < ARRAY_SIZE(tests); i++)
		tcase_add_loop_test(c, tests[i], 0, ARRAY_SIZE(all));
	return run_suite(suite, c);
}
