/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/swap-file-internal.h"
#include "tests/ranks/scarce.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

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
	char path[300];

	path_of(path);
	unlink(path);
	rmdir(dir);
	free(truth);
	free(memory);
}

static bool open_disk(int which)
{
	config = (struct swap_file_config){ .dir = dir,
					    .name = "rank0.swap",
					    .job = "the job of today",
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

static void stop(void)
{
	swap_file_close(file, false);
	config.disk_ops->close(disk);
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

	return swap_run(file, &io);
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
	ck_assert_int_eq(swap_extent_new(file, 7, EXTENT, &x), 0);
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
	stop();
}
END_TEST

START_TEST(a_small_read_reads_little)
{
	struct swap_counters before, after;
	struct swap_extent *x;

	if (!start(_i))
		return;
	swap_extent_new(file, 7, EXTENT, &x);
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
	stop();
}
END_TEST

/* ---- what goes wrong ---- */

static void flip(uint64_t offset)
{
	char path[300];
	uint8_t byte;
	int fd;

	path_of(path);
	fd = open(path, O_RDWR);
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
	swap_extent_new(file, 7, EXTENT, &x);
	write_all(x);
	flip(x->offset + 10 * SWAP_BLOCK + 17);
	io = (struct swap_io){ .extent = x,
			       .what = DISK_READ,
			       .slab = DISK_NO_SLAB,
			       .offset = 10 * SWAP_BLOCK,
			       .bytes = 8,
			       .memory = memory };
	ck_assert_int_eq(swap_run(file, &io), -EIO);
	ck_assert_uint_eq(io.damaged, 10 * SWAP_BLOCK);
	io.offset = 0; /* the same, found among others */
	io.bytes = EXTENT;
	ck_assert_int_eq(swap_run(file, &io), -EIO);
	ck_assert_uint_eq(io.damaged, 10 * SWAP_BLOCK);
	ck_assert_int_eq(run(x, DISK_READ, 0, 10 * SWAP_BLOCK, memory), 0);
	ck_assert_int_eq(run(x, DISK_READ, 11 * SWAP_BLOCK, SWAP_BLOCK, memory), 0);
	/* A part of the block cannot be written: the rest of it is not known. */
	ck_assert_int_eq(run(x, DISK_WRITE, 10 * SWAP_BLOCK + 5, 5, memory), -EIO);
	ck_assert_int_eq(run(x, DISK_WRITE, 10 * SWAP_BLOCK, SWAP_BLOCK, memory), 0);
	ck_assert_int_eq(run(x, DISK_READ, 0, EXTENT, memory), 0);
	swap_file_counters(file, &n);
	ck_assert_uint_ge(n.damaged_blocks, 3);
	stop();
}
END_TEST

START_TEST(a_file_cut_off_is_eio)
{
	struct swap_extent *x;
	char path[300];

	if (!start(_i))
		return;
	path_of(path);
	swap_extent_new(file, 7, EXTENT, &x);
	write_all(x);
	ck_assert_int_eq(truncate(path, (off_t)x->offset + (1 << 20)), 0);
	ck_assert_int_eq(run(x, DISK_READ, 0, EXTENT, memory), -EIO);
	ck_assert_int_eq(run(x, DISK_READ, 0, 1 << 20, memory), 0);
	ck_assert_mem_eq(memory, truth, 1 << 20);
	stop();
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
	swap_extent_new(file, 7, EXTENT, &x);
	write_all(x);
	signal(SIGXFSZ, SIG_IGN);
	limit.rlim_cur = limit.rlim_max = x->offset + (2 << 20);
	setrlimit(RLIMIT_FSIZE, &limit);
	rc = run(x, DISK_WRITE, 0, EXTENT, memory);
	ck_assert_int_eq(rc, -EFBIG);
	/* What it may have half overwritten is not served as anything. */
	ck_assert_int_eq(run(x, DISK_READ, 2 << 20, SWAP_BLOCK, memory), -EIO);
	ck_assert_int_eq(run(x, DISK_READ, 0, SWAP_BLOCK, memory), 0);
	rc = swap_extent_new(file, 8, EXTENT, &y);
	ck_assert_int_eq(rc, -EFBIG);
	stop();
}
END_TEST

START_TEST(no_room_is_said_when_it_is_asked_for)
{
	struct swap_extent *x, *y, *third[3];

	if (!open_disk(_i))
		return;
	config.capacity = 3 << 20;
	ck_assert_int_eq(swap_file_create(&file, &config, why, sizeof(why)), 0);
	ck_assert_int_eq(swap_extent_new(file, 1, 2 << 20, &x), 0);
	ck_assert_int_eq(swap_extent_new(file, 2, 2 << 20, &y), -ENOSPC);
	swap_extent_drop(file, x);
	ck_assert_int_eq(swap_extent_new(file, 2, 2 << 20, &y), 0);
	ck_assert_ptr_eq(swap_extent_find(file, 2), y);
	ck_assert_ptr_null(swap_extent_find(file, 1));
	ck_assert_int_eq(swap_extent_new(file, 3, 0, &x), -EINVAL);
	ck_assert_int_eq(swap_extent_new(file, 3, 4 << 20, &x), -ENOSPC);
	swap_extent_drop(file, y);
	for (uint64_t i = 0; i < ARRAY_SIZE(third); i++)
		ck_assert_int_eq(swap_extent_new(file, i, 1 << 20, &third[i]), 0);
	swap_extent_drop(file, third[0]);
	swap_extent_drop(file, third[2]);
	ck_assert_int_eq(swap_extent_new(file, 3, 2 << 20, &x), -ENOSPC); /* in one piece */
	stop();
}
END_TEST

START_TEST(it_is_refused_in_one_line)
{
	struct swap_file *other;

	if (!start(_i))
		return;
	ck_assert_int_eq(swap_file_create(&other, &config, why, sizeof(why)), -EBUSY);
	ck_assert_ptr_nonnull(strstr(why, "another process swaps to it"));
	config.name = "../x";
	ck_assert_int_eq(swap_file_create(&other, &config, why, sizeof(why)), -EINVAL);
	config.name = "rank0.swap";
	config.dir = "/nowhere";
	ck_assert_int_eq(swap_file_create(&other, &config, why, sizeof(why)), -ENOENT);
	ck_assert_str_eq(why, "/nowhere/rank0.swap: No such file or directory");
	config.dir = dir;
	stop();
}
END_TEST

START_TEST(a_link_in_its_place_is_not_followed)
{
	char path[300];
	struct stat st;

	if (!open_disk(_i))
		return;
	path_of(path);
	unlink(path);
	ck_assert_int_eq(symlink("/dev/null", path), 0);
	ck_assert_int_eq(swap_file_create(&file, &config, why, sizeof(why)), -ELOOP);
	unlink(path);
	ck_assert_int_eq(swap_file_create(&file, &config, why, sizeof(why)), 0);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_eq(st.st_mode & 07777, 0600);
	stop();
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
		ck_assert_uint_eq(swap_sum(memory), sum > SWAP_DAMAGED ? sum : sum + 2);
	}
}
END_TEST

/* ---- commits ---- */

START_TEST(nothing_committed_is_stale)
{
	struct swap_extent *x;

	if (!start(_i))
		return;
	swap_extent_new(file, 7, EXTENT, &x);
	write_all(x);
	swap_file_close(file, false);
	ck_assert_int_eq(swap_file_recover(&file, &config, why, sizeof(why)), -ESTALE);
	ck_assert_ptr_nonnull(strstr(why, "nothing was committed"));
	/* Nor is an older commit found in a new container of the same name. */
	ck_assert_int_eq(swap_file_create(&file, &config, why, sizeof(why)), 0);
	ck_assert_int_eq(swap_file_commit(file), 0);
	swap_file_close(file, false);
	ck_assert_int_eq(swap_file_create(&file, &config, why, sizeof(why)), 0);
	swap_file_close(file, false);
	ck_assert_int_eq(swap_file_recover(&file, &config, why, sizeof(why)), -ESTALE);
	config.disk_ops->close(disk);
}
END_TEST

START_TEST(another_jobs_is_stale)
{
	if (!start(_i))
		return;
	ck_assert_int_eq(swap_file_commit(file), 0);
	swap_file_close(file, false);
	config.job[3] ^= 1;
	ck_assert_int_eq(swap_file_recover(&file, &config, why, sizeof(why)), -ESTALE);
	ck_assert_ptr_nonnull(strstr(why, "another job's"));
	config.job[3] ^= 1;
	ck_assert_int_eq(swap_file_recover(&file, &config, why, sizeof(why)), 0);
	stop();
}
END_TEST

/* Each step's value goes to new extents; then they are committed and the old dropped. */
enum { STATES = 5, STEPS = 1000000 };
static const uint64_t sizes[STATES] = { 4096, 100000, 1, 1 << 20, 8192 };

static int write_step(uint64_t step, struct swap_extent *now[STATES])
{
	for (uint64_t i = 0; i < STATES; i++) {
		struct swap_extent *old = now[i];
		int rc = swap_extent_new(file, i, sizes[i], &now[i]);

		if (rc)
			return rc;
		now[i]->generation = step;
		memset(memory, (int)(step + i) & 255, sizes[i]);
		rc = run(now[i], DISK_WRITE, 0, sizes[i], memory);
		if (rc)
			return rc;
		if (old)
			swap_extent_drop(file, old);
	}
	return swap_file_commit(file);
}

static void train(int ready)
{
	struct swap_extent *now[STATES] = { NULL };

	for (uint64_t step = 1; step < STEPS; step++) {
		if (write_step(step, now))
			_exit(1);
		if (write(ready, "s", 1) != 1)
			_exit(2);
	}
	_exit(3);
}

static uint64_t expect_one_step(void)
{
	struct swap_extent *x = swap_extent_find(file, 0);
	uint64_t step = x ? x->generation : 0;

	for (uint64_t i = 0; i < STATES; i++) {
		x = swap_extent_find(file, i);
		ck_assert_ptr_nonnull(x);
		ck_assert_uint_eq(x->generation, step);
		ck_assert_uint_eq(x->bytes, sizes[i]);
		ck_assert_int_eq(run(x, DISK_READ, 0, sizes[i], memory), 0);
		memset(truth, (int)(step + i) & 255, sizes[i]);
		ck_assert_mem_eq(memory, truth, sizes[i]);
	}
	return step;
}

/* SIGKILL anywhere: what is found is one step, the last that was said to be committed or a later one. */
START_TEST(killed_anywhere_it_has_one_whole_step)
{
	for (int round = 0; round < 5; round++) {
		uint64_t said = 0, step;
		int ready[2], status;
		struct timespec pause = { .tv_nsec = (long)next_random(3000000) };
		pid_t pid;
		char byte;

		ck_assert_int_eq(pipe(ready), 0);
		pid = fork();
		if (!pid) {
			if (!start(_i))
				_exit(77);
			train(ready[1]);
		}
		close(ready[1]);
		for (uint64_t n = 2 + next_random(4);
		     said < n && read(ready[0], &byte, 1) == 1;)
			said++;
		nanosleep(&pause, NULL);
		kill(pid, SIGKILL);
		while (read(ready[0], &byte, 1) == 1)
			said++;
		close(ready[0]);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
			return;
		ck_assert(WIFSIGNALED(status));
		ck_assert(open_disk(_i));
		ck_assert_msg(!swap_file_recover(&file, &config, why, sizeof(why)), "%s", why);
		step = expect_one_step();
		ck_assert_uint_ge(step, said);
		ck_assert_uint_le(step, said + 1);
		/* It goes on from there. */
		struct swap_extent *now[STATES];

		for (uint64_t i = 0; i < STATES; i++)
			now[i] = swap_extent_find(file, i);
		ck_assert_int_eq(write_step(step + 1, now), 0);
		swap_file_close(file, false);
		ck_assert_int_eq(swap_file_recover(&file, &config, why, sizeof(why)), 0);
		ck_assert_uint_eq(expect_one_step(), step + 1);
		stop();
	}
}
END_TEST

/* Whatever one damaged byte says, it is an errno, or the commit before. */
START_TEST(a_damaged_manifest_is_refused_or_the_one_before)
{
	struct swap_extent *now[STATES] = { NULL };
	struct stat st;
	char path[300];

	if (!start(_i))
		return;
	path_of(path);
	ck_assert_int_eq(write_step(1, now), 0);
	ck_assert_int_eq(write_step(2, now), 0);
	swap_file_close(file, false);
	stat(path, &st);
	for (int round = 0; round < 200; round++) {
		uint64_t at = round < 100 ? SWAP_BLOCK + next_random(2 * SWAP_BLOCK / 16)
					  : next_random((uint64_t)st.st_size);
		int rc;

		flip(at);
		rc = swap_file_recover(&file, &config, why, sizeof(why));
		if (!rc) {
			for (uint64_t i = 0; i < STATES; i++)
				ck_assert_ptr_nonnull(swap_extent_find(file, i));
			swap_file_close(file, false);
		} else {
			ck_assert(rc == -ESTALE || rc == -EBADMSG);
		}
		flip(at);
	}
	ck_assert_int_eq(swap_file_recover(&file, &config, why, sizeof(why)), 0);
	ck_assert_uint_eq(expect_one_step(), 2);
	stop();
}
END_TEST

/* ---- manifests that lie, their sums being right ---- */

enum {
	SLOT_SEQUENCE = 24,
	SLOT_OFFSET = 32,
	SLOT_BYTES = 40,
	SLOT_SUM = 48,
	SLOT_OWN_SUM = 56
};
enum { ENTRY_BYTES = 16, ENTRY_OFFSET = 24 };

static int swap_fd;
static uint8_t slot[SLOT_OWN_SUM + 8], manifest[4 * SWAP_BLOCK];
static uint64_t slot_at, manifest_at, manifest_size;

static uint64_t word(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

/* The one commit of two extents of a block each. */
static void read_commit(void)
{
	for (slot_at = SWAP_BLOCK; slot_at <= 2 * SWAP_BLOCK; slot_at += SWAP_BLOCK) {
		ck_assert_int_eq(pread(swap_fd, slot, sizeof(slot), (off_t)slot_at),
				 sizeof(slot));
		if (word(slot + SLOT_SEQUENCE))
			break;
	}
	manifest_at = word(slot + SLOT_OFFSET);
	manifest_size = word(slot + SLOT_BYTES);
	ck_assert_uint_le(manifest_size, sizeof(manifest));
	ck_assert_int_eq(pread(swap_fd, manifest, manifest_size, (off_t)manifest_at),
			 (ssize_t)manifest_size);
}

static int recover_with(const uint8_t *s, const uint8_t *entries)
{
	uint8_t told[sizeof(slot)];
	uint64_t sum = XXH3_64bits(entries, manifest_size);
	int rc;

	memcpy(told, s, sizeof(told));
	memcpy(told + SLOT_SUM, &sum, sizeof(sum));
	sum = XXH3_64bits(told, SLOT_OWN_SUM);
	memcpy(told + SLOT_OWN_SUM, &sum, sizeof(sum));
	ck_assert_int_eq(pwrite(swap_fd, told, sizeof(told), (off_t)slot_at), sizeof(told));
	ck_assert_int_eq(pwrite(swap_fd, entries, manifest_size, (off_t)manifest_at),
			 (ssize_t)manifest_size);
	rc = swap_file_recover(&file, &config, why, sizeof(why));
	if (!rc)
		swap_file_close(file, false);
	return rc;
}

static int recover_with_word(uint8_t *of, size_t at, uint64_t value)
{
	uint64_t kept = word(of + at);
	int rc;

	memcpy(of + at, &value, sizeof(value));
	rc = recover_with(slot, manifest);
	memcpy(of + at, &kept, sizeof(kept));
	return rc;
}

START_TEST(a_manifest_that_lies_is_refused)
{
	static const uint64_t lies[] = { 0, SWAP_BLOCK, 1ULL << 40, UINT64_MAX, INT64_MAX };
	const size_t places[] = { ENTRY_BYTES, ENTRY_OFFSET };
	struct swap_extent *x;
	char path[300];

	if (!start(_i))
		return;
	for (uint64_t i = 0; i < 2; i++) {
		ck_assert_int_eq(swap_extent_new(file, i, SWAP_BLOCK, &x), 0);
		write_all(x);
	}
	ck_assert_int_eq(swap_file_commit(file), 0);
	swap_file_close(file, false);
	path_of(path);
	swap_fd = open(path, O_RDWR | O_CLOEXEC);
	read_commit();
	ck_assert_int_eq(recover_with(slot, manifest), 0);
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		for (size_t j = 0; j < ARRAY_SIZE(places); j++)
			if (lies[i] != word(manifest + places[j]))
				ck_assert_int_eq(
					recover_with_word(manifest, places[j], lies[i]),
					-EBADMSG);
		ck_assert_int_eq(recover_with_word(slot, SLOT_OFFSET, lies[i]), -EBADMSG);
	}
	/* the first where the second is, where the manifest is, as large as all */
	ck_assert_int_eq(recover_with_word(manifest, ENTRY_OFFSET,
					   word(manifest + manifest_size / 2 + ENTRY_OFFSET)),
			 -EBADMSG);
	ck_assert_int_eq(recover_with_word(manifest, ENTRY_OFFSET, manifest_at), -EBADMSG);
	config.capacity = SWAP_BLOCK; /* less than there is */
	ck_assert_int_eq(recover_with(slot, manifest), -ENOSPC);
	config.capacity = 0;
	ck_assert_int_eq(recover_with_word(slot, SLOT_BYTES, 7), -EBADMSG);
	ck_assert_int_eq(recover_with_word(slot, SLOT_BYTES, UINT64_MAX), -EBADMSG);
	manifest_size -= 4;
	ck_assert_int_eq(recover_with_word(slot, SLOT_BYTES, manifest_size), -EBADMSG);
	manifest_size = manifest_size / 2 + 2 + 20; /* a second entry of 20 bytes */
	ck_assert_int_eq(recover_with_word(slot, SLOT_BYTES, manifest_size), -EBADMSG);
	close(swap_fd);
	config.disk_ops->close(disk);
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
	rc = swap_extent_new(file, 1, 3 * SWAP_BLOCK, &x);
	if (!rc)
		rc = run(x, DISK_WRITE, 5, 2 * SWAP_BLOCK, memory);
	if (!rc)
		rc = run(x, DISK_READ, 5, 2 * SWAP_BLOCK, memory + 1);
	for (uint64_t step = 1; step <= 2 && !rc; step++) {
		x->generation = step;
		rc = swap_file_commit(file);
	}
	swap_file_close(file, false);
	if (rc)
		return rc;
	rc = swap_file_recover(&file, &config, why, sizeof(why));
	if (rc)
		return rc;
	rc = swap_extent_find(file, 1)->generation == 2 ? 0 : -EIO;
	swap_file_close(file, true);
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
	ck_assert_uint_gt(n, 10);
	config.disk_ops->close(disk);
}
END_TEST

/* ---- a disk that fails, or on which nothing moves ---- */

static void fail_and_go_on(ssize_t result)
{
	struct swap_extent *x;

	ck_assert_int_eq(swap_file_create(&file, &config, why, sizeof(why)), 0);
	ck_assert_int_eq(swap_extent_new(file, 1, SWAP_BLOCK, &x), 0);
	write_all(x);
	for (unsigned n = 1; n <= 2; n++) { /* the manifest, the slot */
		scarce_io(n, result, EIO);
		ck_assert_int_eq(swap_file_commit(file), -EIO);
		ck_assert(scarce_io_came());
	}
	ck_assert_int_eq(swap_file_commit(file), 0);
	swap_file_close(file, false);
	scarce_io(3, result, EIO); /* after both slots */
	ck_assert_int_eq(swap_file_recover(&file, &config, why, sizeof(why)), -EIO);
	ck_assert(scarce_io_came());
	ck_assert_int_eq(swap_file_recover(&file, &config, why, sizeof(why)), 0);
	swap_file_close(file, false);
}

START_TEST(a_commit_or_a_recovery_that_fails_is_eio)
{
	if (!open_disk(_i))
		return;
	fail_and_go_on(-1);
	fail_and_go_on(0);
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
	config.disk_ops->close(disk);
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
		it_is_refused_in_one_line,
		a_link_in_its_place_is_not_followed,
		sums_do_not_depend_on_the_machine,
		nothing_committed_is_stale,
		another_jobs_is_stale,
		killed_anywhere_it_has_one_whole_step,
		a_damaged_manifest_is_refused_or_the_one_before,
		a_manifest_that_lies_is_refused,
		a_file_is_used_or_enomem,
		a_commit_or_a_recovery_that_fails_is_eio,
		a_pipe_is_no_file_to_swap_to,
	};
	const char *given = getenv("TEST_SEED");
	Suite *suite = suite_create("swap-file");
	TCase *c = tcase_create("all");
	SRunner *runner = srunner_create(suite);
	int failed;

	seed = given ? strtoull(given, NULL, 10) : monotonic_ms();
	printf("TEST_SEED=%llu\n", (unsigned long long)seed);
	tcase_add_checked_fixture(c, make_dir, remove_dir);
	tcase_set_timeout(c, 60);
	for (size_t i = 0; i < ARRAY_SIZE(tests); i++)
		tcase_add_loop_test(c, tests[i], 0, ARRAY_SIZE(all));
	suite_add_tcase(suite, c);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
