/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/cuda/gpu.h"

#include <stdio.h>

/* Two and three ranks, processes of their own, on one GPU: NCCL takes each for a host of its
 * own and goes by sockets, which is slow, but is the protocol of many hosts.  They gather,
 * scatter, lose one of them, and go on without it.
 */

#ifndef HAVE_NCCL

int main(void)
{
	printf("skip: built without NCCL\n");
	return 77;
}

#else

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/wait.h>

/* TEST_STUCK_MS: how long a rank waits for one that is lost: 3 s; for those that live it waits
 * for PART_MS, on connections of their own.
 */

enum {
	SIZE = 4 << 20,
	RANKS_MAX = 3,
	CONNECTIONS = 3,
	STUCK_MS = 3000,
	PART_MS = 60000,
	END_MS = 10000,
	LOST = 9
};

static struct gpu gpu;
static uint64_t stuck_ms = STUCK_MS;
static unsigned rank, nranks; /* nranks: those that are left */
static unsigned connections;
static struct collective *c;
static uint8_t *device_memory, *host;

static _Noreturn void fail(const char *what, int rc)
{
	printf("rank %u of %u: %s: %s\n", rank, nranks, what, strerror(-rc));
	exit(1);
}

static void expect(const char *what, int rc)
{
	if (rc)
		fail(what, rc);
}

/* ---- the id, by a file of the current folder ---- */

static void write_id(const char *name)
{
	struct collective_id id;
	char temporary[64];
	int fd, rc;

	while ((rc = collective_nccl.id(c, &id)) == -EINPROGRESS)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	expect("id", rc);
	snprintf(temporary, sizeof(temporary), "%s.new", name);
	fd = open(temporary, O_CREAT | O_WRONLY | O_TRUNC, 0600);
	if (fd < 0 || write(fd, &id, sizeof(id)) != sizeof(id) || close(fd) ||
	    rename(temporary, name))
		fail(name, -errno);
}

static struct collective_id read_id(const char *name)
{
	uint64_t end = monotonic_ms() + 60000;
	struct collective_id id;
	int fd;

	while ((fd = open(name, O_RDONLY)) < 0 && monotonic_ms() < end)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	if (fd < 0 || read(fd, &id, sizeof(id)) != sizeof(id) || close(fd))
		fail(name, -errno);
	return id;
}

static void connect_ranks(uint64_t patience_ms)
{
	const struct collective_options options = { .device = gpu.device,
						    .stuck_ms = patience_ms,
						    .end_ms = END_MS };
	uint64_t began = monotonic_ms();
	struct collective_id id;
	char name[32];

	snprintf(name, sizeof(name), "id-%u", connections++);
	if (rank)
		id = read_id(name);
	expect("open", collective_nccl.open(&c, &options, rank, nranks, rank ? &id : NULL));
	if (!rank)
		write_id(name);
	expect("ready", gpu_ready(c));
	printf("rank %u of %u: ready in %u ms\n", rank, nranks,
	       (unsigned)(monotonic_ms() - began));
}

/* ---- operations ---- */

static uint8_t byte_of(unsigned r, uint64_t i)
{
	return (uint8_t)(r * 29 + i * 3 + i / 253);
}

static uint64_t piece(unsigned r)
{
	return SIZE - 1000 * r - r;
}

static void expect_bytes(const char *what, const uint8_t *bytes, unsigned r, uint64_t size)
{
	for (uint64_t i = 0; i < size; i++)
		if (bytes[i] != byte_of(r, i))
			fail(what, -EBADMSG);
}

static void run(const char *what, struct gpu_part *p)
{
	uint64_t began = monotonic_ns();

	expect(what, gpu_launch(c, p));
	expect(what, gpu_wait(p));
	printf("rank %u of %u: %s in %.2f ms\n", rank, nranks, what,
	       (double)(monotonic_ns() - began) / 1e6);
}

static void put_own(void)
{
	for (uint64_t i = 0; i < SIZE; i++)
		host[i] = byte_of(rank, i);
	gpu_copy(&gpu, device_memory, host, SIZE);
	memset(host, 0, SIZE);
}

static void gather(void)
{
	struct collective_move moves[RANKS_MAX + 1];
	struct gpu_part p = { .io = { .nmoves = 1, .moves = moves } };

	put_own();
	moves[0] = (struct collective_move){ true, 0, piece(rank), device_memory };
	for (unsigned r = 0; !rank && r < nranks; r++, p.io.nmoves++)
		moves[1 + r] = (struct collective_move){ false, r, piece(r), host + r * SIZE };
	run("gather of unequal pieces to pinned memory", &p);
	for (unsigned r = 0; !rank && r < nranks; r++)
		expect_bytes("gather", host + r * SIZE, r, piece(r));
}

/* What has been gathered, back. */
static void scatter(void)
{
	struct collective_move moves[RANKS_MAX + 1];
	struct gpu_part p = { .io = { .nmoves = 1, .moves = moves } };
	uint8_t *seen = host + RANKS_MAX * SIZE;

	moves[0] = (struct collective_move){ false, 0, piece(rank), device_memory + SIZE };
	for (unsigned r = 0; !rank && r < nranks; r++, p.io.nmoves++)
		moves[1 + r] = (struct collective_move){ true, r, piece(r), host + r * SIZE };
	run("scatter from pinned memory", &p);
	gpu_copy(&gpu, seen, device_memory + SIZE, piece(rank));
	expect_bytes("scatter", seen, rank, piece(rank));
}

static struct gpu_part gather_all_part(void)
{
	return (struct gpu_part){ .io = { .what = COLLECTIVE_GATHER_ALL,
					  .from = device_memory,
					  .to = device_memory + SIZE,
					  .size = SIZE } };
}

static void gather_all(void)
{
	struct gpu_part p = gather_all_part();

	run("gather of equal pieces everywhere", &p);
	gpu_copy(&gpu, host, device_memory + SIZE, nranks * SIZE);
	for (unsigned r = 0; r < nranks; r++)
		expect_bytes("gather everywhere", host + r * SIZE, r, SIZE);
}

static void operate(void)
{
	gather();
	scatter();
	gather_all();
}

/* ---- one is lost ---- */

static void name_done(unsigned r, char name[32])
{
	snprintf(name, 32, "done-%u", r);
}

/* What one that dies has sent may not have come yet. */
static void wait_until_all_are_done(void)
{
	uint64_t end = monotonic_ms() + 60000;
	char name[32];

	name_done(rank, name);
	if (close(open(name, O_CREAT | O_WRONLY, 0600)))
		fail(name, -errno);
	for (unsigned r = 0; r < nranks; r++) {
		name_done(r, name);
		while (access(name, F_OK) && monotonic_ms() < end)
			nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
}

static void lose_last(void)
{
	struct gpu_part p = gather_all_part();
	uint64_t began;
	int rc;

	wait_until_all_are_done();
	if (rank == nranks - 1)
		_exit(LOST);
	began = monotonic_ms();
	expect("launch", gpu_launch(c, &p));
	rc = gpu_wait(&p);
	if (rc != -ETIMEDOUT && rc != -EIO)
		fail("what the last rank has no part in", rc);
	if (monotonic_ms() - began > stuck_ms + END_MS + 5000)
		fail("what the last rank has no part in", -ETIME);
	collective_nccl.close(c);
	printf("rank %u of %u: the last rank is lost: %s after %u ms\n", rank, nranks,
	       strerror(-rc), (unsigned)(monotonic_ms() - began));
	nranks--;
}

static int be_rank(void)
{
	const char *missing = gpu_open(&gpu), *given = getenv("TEST_STUCK_MS");

	if (missing)
		gpu_give_up("no GPU", missing);
	if (given)
		stuck_ms = strtoull(given, NULL, 10);
	setvbuf(stdout, NULL, _IOLBF, 0);
	device_memory = gpu_alloc(&gpu, (RANKS_MAX + 1) * SIZE);
	host = gpu_pinned(&gpu, (RANKS_MAX + 1) * SIZE);
	connect_ranks(PART_MS);
	operate();
	collective_nccl.close(c);
	connect_ranks(stuck_ms);
	lose_last();
	connect_ranks(PART_MS);
	operate();
	collective_nccl.close(c);
	gpu_unpin(&gpu, host);
	gpu_free(&gpu, device_memory);
	gpu_close(&gpu);
	return 0;
}

/* ---- all ---- */

static void set(const char *name, const char *value)
{
	setenv(name, value, 0);
}

static _Noreturn void become_rank(unsigned r, unsigned n)
{
	char number[16], count[16], host_id[32];

	snprintf(number, sizeof(number), "%u", r);
	snprintf(count, sizeof(count), "%u", n);
	snprintf(host_id, sizeof(host_id), "fragfs%u", r);
	set("NCCL_HOSTID", host_id);
	set("NCCL_NET", "Socket");
	set("NCCL_P2P_DISABLE", "1");
	set("NCCL_SHM_DISABLE", "1");
	set("NCCL_SOCKET_IFNAME", "lo");
	set("NCCL_CUMEM_HOST_ENABLE", "0");
	execl("/proc/self/exe", "test-ranks-gpu", number, count, NULL);
	_exit(1);
}

static int run_ranks(unsigned n)
{
	pid_t pids[RANKS_MAX];
	int status, failed = 0;

	for (unsigned r = 0; r < n; r++) {
		pids[r] = fork();
		if (!pids[r])
			become_rank(r, n);
	}
	for (unsigned r = 0; r < n; r++) {
		waitpid(pids[r], &status, 0);
		failed |= !WIFEXITED(status) || WEXITSTATUS(status) != (r == n - 1 ? LOST : 0);
	}
	return failed;
}

static void enter_folder(char *folder)
{
	const char *above = getenv("TMPDIR");

	snprintf(folder, PATH_MAX, "%s/ranks-XXXXXX", above ? above : "/tmp");
	if (!mkdtemp(folder) || chdir(folder))
		fail(folder, -errno);
}

static void leave_folder(const char *folder)
{
	char name[32];

	for (unsigned i = 0; i < CONNECTIONS; i++) {
		snprintf(name, sizeof(name), "id-%u", i);
		unlink(name);
	}
	for (unsigned r = 0; r < RANKS_MAX; r++) {
		name_done(r, name);
		unlink(name);
	}
	if (chdir("/") || rmdir(folder))
		printf("%s is left\n", folder);
}

static int run_all(void)
{
	int failed = 0;

	for (unsigned n = 2; n <= RANKS_MAX; n++) {
		char folder[PATH_MAX];

		enter_folder(folder);
		failed |= run_ranks(n);
		leave_folder(folder);
	}
	return failed;
}

int main(int argc, char **argv)
{
	const char *missing;

	if (argc == 3) {
		rank = (unsigned)strtoul(argv[1], NULL, 10);
		nranks = (unsigned)strtoul(argv[2], NULL, 10);
		return be_rank();
	}
	missing = gpu_open(&gpu);
	if (missing) {
		printf("skip: no GPU: %s\n", missing);
		return 77;
	}
	gpu_close(&gpu);
	return run_all();
}

#endif
