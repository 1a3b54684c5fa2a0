/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/swap/disk.h"
#include "tests/run-suite.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

/* Each case on both implementations.  TEST_SEED: of the ranges. */

enum { BLOCK = 4096, BLOCKS = 256, UNDERWAY = 64, ROUNDS = 2000, SLABS = 2 };

static const struct disk_ops *const all[] = { &disk_uring, &disk_threads };
static struct disk *disk;
static const struct disk_ops *ops;
static int fd;
static uint8_t *slab[SLABS]; /* [UNDERWAY / SLABS * BLOCK] each */
static struct disk_setup slabs;
static struct iovec iov[SLABS];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;

struct job {
	struct disk_io io;
	int result;
	bool over;
};

static void on_done(struct disk_io *io, int result)
{
	struct job *j = container_of(io, struct job, io);

	pthread_mutex_lock(&lock);
	j->result = result;
	j->over = true;
	pthread_cond_broadcast(&ended);
	pthread_mutex_unlock(&lock);
}

static void (*how)(struct disk_io *io, int result) = on_done;
static bool let_go;

static void submit(struct job *j)
{
	j->over = false;
	j->io.done = how;
	ops->submit(disk, &j->io);
}

static int wait_for(struct job *j)
{
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 20;
	pthread_mutex_lock(&lock);
	while (!j->over)
		ck_assert_int_eq(pthread_cond_timedwait(&ended, &lock, &end), 0);
	pthread_mutex_unlock(&lock);
	return j->result;
}

static int run(struct disk_io io)
{
	struct job j = { .io = io };

	submit(&j);
	return wait_for(&j);
}

static bool open_disk_as(int which, bool with_slabs, unsigned depth, unsigned threads)
{
	char name[] = "/tmp/test-disk-XXXXXX";
	int rc;

	ops = all[which];
	fd = mkostemp(name, O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	unlink(name);
	for (int i = 0; i < SLABS; i++) {
		slab[i] = mmap(NULL, UNDERWAY / SLABS * BLOCK, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		iov[i] = (struct iovec){ slab[i], UNDERWAY / SLABS * BLOCK };
	}
	slabs = (struct disk_setup){
		.slabs = iov, .n = SLABS, .depth = depth, .threads = threads
	};
	rc = ops->open(&disk, with_slabs ? &slabs : NULL);
	if (rc)
		printf("%s: %s: not here\n", ops->name, strerror(-rc));
	return !rc;
}

static bool open_disk(int which, bool with_slabs)
{
	return open_disk_as(which, with_slabs, 0, 0);
}

static void close_disk(void)
{
	ops->close(disk);
	for (int i = 0; i < SLABS; i++)
		munmap(slab[i], UNDERWAY / SLABS * BLOCK);
	close(fd);
}

START_TEST(what_was_written_is_read)
{
	char in[] = "fragments", out[sizeof(in)] = "";
	struct disk_io io = { .size = sizeof(in), .slab = DISK_NO_SLAB, .offset = 12345 };

	if (!open_disk(_i, false))
		return;
	io.fd = fd;
	io.what = DISK_WRITE;
	io.memory = in;
	ck_assert_int_eq(run(io), sizeof(in));
	io.what = DISK_SYNC;
	ck_assert_int_eq(run(io), 0);
	io.what = DISK_READ;
	io.memory = out;
	ck_assert_int_eq(run(io), sizeof(in));
	ck_assert_str_eq(in, out);
	io.offset = 12345 + 5;
	ck_assert_int_eq(run(io), sizeof(in) - 5); /* short: the end of the file */
	io.offset = 1 << 20;
	ck_assert_int_eq(run(io), 0);
	close_disk();
}
END_TEST

/* DeepSpeed's B11: it says that all is well. */
START_TEST(b11_an_error_is_its_own)
{
	char byte = 1;
	struct disk_io io = {
		.what = DISK_WRITE, .size = 1, .slab = DISK_NO_SLAB, .memory = &byte
	};
	const struct rlimit small = { 8192, 8192 };
	char two[8192] = "";

	if (!open_disk(_i, false))
		return;
	io.fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	ck_assert_int_eq(run(io), -EBADF);
	io.what = DISK_SYNC;
	ck_assert_int_eq(run(io), -EINVAL);
	close(io.fd);
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &small);
	io = (struct disk_io){ .what = DISK_WRITE,
			       .fd = fd,
			       .size = sizeof(two),
			       .offset = 4096,
			       .slab = DISK_NO_SLAB,
			       .memory = two };
	ck_assert_int_eq(run(io), 4096); /* short: the limit */
	io.offset = 8192;
	ck_assert_int_eq(run(io), -EFBIG);
	close_disk();
}
END_TEST

static uint64_t seed;

static uint32_t next_random(uint32_t below)
{
	seed = seed * 6364136223846793005 + 1442695040888963407;
	return (uint32_t)(seed >> 33) % below;
}

static uint8_t truth[BLOCKS * BLOCK];

static void check_job(struct job *j)
{
	ck_assert_int_eq(wait_for(j), (int)j->io.size);
	if (j->io.what == DISK_READ)
		ck_assert_mem_eq(j->io.memory, truth + j->io.offset, j->io.size);
}

/* No two that overlap are under way: job i has blocks of its own, i, i + UNDERWAY ... */
static void start_job(struct job *j, uint32_t i)
{
	uint8_t *memory = slab[i % SLABS] + i / SLABS * BLOCK;
	uint64_t offset = ((uint64_t)next_random(BLOCKS / UNDERWAY) * UNDERWAY + i) * BLOCK;
	uint32_t size = 1 + next_random(BLOCK);

	j->io = (struct disk_io){ .what = next_random(2) ? DISK_READ : DISK_WRITE,
				  .fd = fd,
				  .size = size,
				  .slab = (uint16_t)(i % SLABS),
				  .offset = offset,
				  .memory = memory };
	for (uint32_t k = 0; j->io.what == DISK_WRITE && k < size; k++)
		memory[k] = truth[offset + k] = (uint8_t)next_random(256);
	submit(j);
}

START_TEST(many_at_once_by_slabs)
{
	static struct job jobs[UNDERWAY];

	if (!open_disk(_i, true))
		return;
	memset(truth, 0, sizeof(truth));
	ck_assert_int_eq(ftruncate(fd, sizeof(truth)), 0);
	for (uint32_t i = 0; i < UNDERWAY; i++)
		start_job(&jobs[i], i);
	for (int round = 0; round < ROUNDS; round++) {
		uint32_t i = next_random(UNDERWAY);

		check_job(&jobs[i]);
		start_job(&jobs[i], i);
	}
	for (uint32_t i = 0; i < UNDERWAY; i++)
		check_job(&jobs[i]);
	printf("%s: slabs are %sregistered\n", ops->name, slabs.registered ? "" : "not ");
	close_disk();
}
END_TEST

static unsigned count_threads(void)
{
	DIR *d = opendir("/proc/self/task");
	unsigned n = 0;

	ck_assert_ptr_nonnull(d);
	for (const struct dirent *e = readdir(d); e; e = readdir(d))
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

/* One that ended may be listed for a moment. */
static bool have_threads(unsigned n)
{
	uint64_t end = monotonic_ms() + 60000;

	while (count_threads() != n && monotonic_ms() < end)
		sched_yield();
	return count_threads() == n;
}

START_TEST(it_has_the_threads_that_it_is_told)
{
	unsigned before;
	static const struct {
		unsigned depth, threads, has;
	} cases[] = { { 0, 0, 4 }, { 0, 7, 7 }, { 2, 7, 2 }, { 0, 1000, DISK_THREADS } };

	if (!open_disk_as(1, true, 0, 1))
		return;
	before = count_threads() - 1; /* a sanitizer has one of its own from the first on */
	close_disk();
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		ck_assert(have_threads(before));
		ck_assert(open_disk_as(1, true, cases[i].depth, cases[i].threads));
		ck_assert_msg(have_threads(before + cases[i].has), "%u, not %u",
			      count_threads() - before, cases[i].has);
		close_disk();
	}
}
END_TEST

/* The first waits for what we have not written yet, the second for the first. */
static void start_two(struct job *first, struct job *second, int from)
{
	static uint8_t block[BLOCK];

	*first = (struct job){ .io = { .what = DISK_READ,
				       .fd = from,
				       .size = 1,
				       .slab = DISK_NO_SLAB,
				       .memory = block } };
	*second = (struct job){ .io = { .what = DISK_SYNC, .fd = fd, .slab = DISK_NO_SLAB } };
	submit(first);
	how = on_done;
	submit(second);
}

START_TEST(no_more_are_under_way_than_it_is_told)
{
	struct job first, second;
	int pipe_fd[2];

	if (!open_disk_as(0, true, 1, 0))
		return;
	ck_assert_int_eq(pipe2(pipe_fd, O_CLOEXEC), 0);
	start_two(&first, &second, pipe_fd[0]);
	nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL); /* time to be wrong in */
	pthread_mutex_lock(&lock);
	ck_assert(!first.over && !second.over);
	pthread_mutex_unlock(&lock);
	ck_assert_int_eq(write(pipe_fd[1], "x", 1), 1);
	ck_assert_int_eq(wait_for(&first), 1);
	ck_assert_int_eq(wait_for(&second), 0);
	close(pipe_fd[0]);
	close(pipe_fd[1]);
	close_disk();
}
END_TEST

/* ---- canceled ---- */

/* While it has not ended. */
static void cancel(struct job *j)
{
	pthread_mutex_lock(&lock);
	if (!j->over)
		ops->cancel(disk, &j->io);
	pthread_mutex_unlock(&lock);
}

/* Nothing moves in the thread that calls it. */
static void stand(struct disk_io *io, int result)
{
	pthread_mutex_lock(&lock);
	while (!let_go)
		pthread_cond_wait(&ended, &lock);
	pthread_mutex_unlock(&lock);
	on_done(io, result);
}

START_TEST(what_has_not_begun_ends_when_it_is_canceled)
{
	struct job first, second, early = { .io = { .what = DISK_SYNC, .slab = DISK_NO_SLAB } };
	int ends[2];

	if (!open_disk_as(_i, true, 1, 1))
		return;
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	let_go = false;
	how = ops == &disk_threads ? stand : on_done;
	start_two(&first, &second, ends[0]);
	cancel(&second);
	ck_assert_int_eq(wait_for(&second), -ECANCELED);
	early.io.fd = fd;
	ops->cancel(disk, &early.io);
	submit(&early);
	ck_assert_int_eq(wait_for(&early), -ECANCELED);
	pthread_mutex_lock(&lock);
	ck_assert(!first.over);
	let_go = true;
	pthread_cond_broadcast(&ended);
	pthread_mutex_unlock(&lock);
	ck_assert_int_eq(write(ends[1], "x", 1), 1);
	wait_for(&first);
	close(ends[0]);
	close(ends[1]);
	close_disk();
}
END_TEST

/* The ring lets go of it; a thread would read on. */
START_TEST(what_has_begun_ends_once_when_it_is_canceled)
{
	struct job first, second;
	int ends[2];

	if (!open_disk_as(0, true, 1, 1))
		return;
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	start_two(&first, &second, ends[0]);
	nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL); /* time to begin in */
	cancel(&first);
	cancel(&first);
	ck_assert_int_eq(wait_for(&first), -ECANCELED);
	ck_assert_int_eq(wait_for(&second), 0);
	close(ends[0]);
	close(ends[1]);
	close_disk();
}
END_TEST

/* Whenever that is: each ends once, and is the caller's from then on. */
START_TEST(any_may_be_canceled_at_any_time)
{
	static struct job jobs[UNDERWAY];
	unsigned canceled = 0;

	if (!open_disk(_i, true))
		return;
	memset(truth, 0, sizeof(truth));
	ck_assert_int_eq(ftruncate(fd, sizeof(truth)), 0);
	for (int round = 0; round < ROUNDS; round++) {
		uint32_t i = next_random(UNDERWAY);
		int result = jobs[i].io.done ? wait_for(&jobs[i]) : 0;

		ck_assert(result == -ECANCELED || result == (int)jobs[i].io.size);
		canceled += result == -ECANCELED;
		start_job(&jobs[i], i);
		cancel(&jobs[next_random(2) ? i : next_random(UNDERWAY)]);
	}
	for (uint32_t i = 0; i < UNDERWAY; i++)
		if (jobs[i].io.done)
			wait_for(&jobs[i]);
	printf("%s: %u of %d were canceled\n", ops->name, canceled, ROUNDS);
	close_disk();
}
END_TEST

int main(void)
{
	const char *given = getenv("TEST_SEED");
	Suite *suite = suite_create("disk");
	TCase *c = tcase_create("all");

	seed = given ? strtoull(given, NULL, 10) : monotonic_ms();
	printf("TEST_SEED=%llu\n", (unsigned long long)seed);
	tcase_add_loop_test(c, what_was_written_is_read, 0, ARRAY_SIZE(all));
	tcase_add_loop_test(c, b11_an_error_is_its_own, 0, ARRAY_SIZE(all));
	tcase_add_loop_test(c, many_at_once_by_slabs, 0, ARRAY_SIZE(all));
	tcase_add_loop_test(c, what_has_not_begun_ends_when_it_is_canceled, 0, ARRAY_SIZE(all));
	tcase_add_test(c, what_has_begun_ends_once_when_it_is_canceled);
	tcase_add_loop_test(c, any_may_be_canceled_at_any_time, 0, ARRAY_SIZE(all));
	tcase_add_test(c, it_has_the_threads_that_it_is_told);
	tcase_add_test(c, no_more_are_under_way_than_it_is_told);
	return run_suite(suite, c);
}
