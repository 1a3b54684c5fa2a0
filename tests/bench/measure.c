/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Measurements that dd cannot make.
 *
 *   measure random FILE COUNT	4 KiB reads at random places of an open file: median and 99th
 *				percentile, microseconds
 *   measure write FILE		writes the whole file by 1 MiB, in place, and closes it:
 *				seconds of the writes, seconds of the close
 *   measure socket BYTES	gets BYTES from another process by a TCP socket on lo: seconds
 *   measure asks COUNT		asks another process for 4 KiB by a TCP socket on lo: median and
 *				99th percentile, microseconds
 *   measure copy BYTES		memcpy from and to memory in huge pages: seconds
 *   measure time COMMAND...	runs COMMAND without its output: seconds
 *   measure load FILE...	reads the files by O_DIRECT: most MiB of memory in use
 */

#include "engine/base/base.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { PAGE = 4096, BLOCK = 1 << 20, WARM_UP = 200 };

static _Noreturn void fail(const char *what)
{
	fprintf(stderr, "measure: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double seconds_since(uint64_t begin)
{
	return (double)(monotonic_ns() - begin) / 1e9;
}

static uint64_t open_sized(const char *path, int flags, int *fd)
{
	struct stat st;

	*fd = open(path, flags);
	if (*fd < 0 || fstat(*fd, &st))
		fail(path);
	return (uint64_t)st.st_size;
}

static int by_value(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void *aligned(size_t size)
{
	void *memory = aligned_alloc(PAGE, size);

	if (!memory)
		fail("memory");
	memset(memory, 2, size);
	return memory;
}

static void tell_times(uint64_t *ns, int count)
{
	qsort(ns, (size_t)count, sizeof(*ns), by_value);
	printf("%.2f %.2f\n", (double)ns[count / 2] / 1e3,
	       (double)ns[count * 99LL / 100] / 1e3);
}

static int random_reads(const char *path, int count)
{
	uint64_t place = 0, *ns = calloc((size_t)count, sizeof(*ns)), pages;
	void *out = aligned(PAGE);
	int fd;

	pages = open_sized(path, O_RDONLY, &fd) / PAGE;
	if (!ns || !pages || count <= 0)
		fail(path);
	for (int i = -WARM_UP; i < count; i++) {
		uint64_t begin = monotonic_ns();

		place += 0x9e3779b97f4a7c15u;
		if (pread(fd, out, PAGE, (off_t)(place % pages * PAGE)) != PAGE)
			fail(path);
		if (i >= 0)
			ns[i] = monotonic_ns() - begin;
	}
	tell_times(ns, count);
	return 0;
}

static int write_whole(const char *path)
{
	char *block = aligned(BLOCK);
	uint64_t size, begin;
	double writing;
	int fd;

	size = open_sized(path, O_WRONLY, &fd);
	begin = monotonic_ns();
	for (uint64_t at = 0; at < size; at += BLOCK) {
		size_t n = u64_min(BLOCK, size - at);

		if (pwrite(fd, block, n, (off_t)at) != (ssize_t)n)
			fail(path);
	}
	writing = seconds_since(begin);
	begin = monotonic_ns();
	if (close(fd))
		fail(path);
	printf("%.6f %.6f\n", writing, seconds_since(begin));
	return 0;
}

static char *huge_pages(size_t size)
{
	char *memory =
		mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		fail("memory");
	madvise(memory, size, MADV_HUGEPAGE);
	memset(memory, 1, size);
	return memory;
}

static int copy(size_t size)
{
	char *from = huge_pages(size), *to = huge_pages(size);
	uint64_t begin = monotonic_ns();

	memcpy(to, from, size);
	printf("%.6f\n", seconds_since(begin));
	return to[size / 2] != 1;
}

/* ---- a socket ---- */

static void move(int fd, char *bytes, size_t size, bool out)
{
	for (size_t at = 0; at < size;) {
		ssize_t n = out ? send(fd, bytes + at, size - at, MSG_NOSIGNAL)
				: recv(fd, bytes + at, size - at, MSG_WAITALL);

		if (n <= 0)
			fail("socket");
		at += (size_t)n;
	}
}

/* Answers each question, a number, with that many bytes, until the number is 0. */
static _Noreturn void answer(const struct sockaddr_in *at, size_t most)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	char *bytes = huge_pages(most);
	uint64_t size;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (fd < 0 || connect(fd, (const struct sockaddr *)at, sizeof(*at)) ||
	    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)))
		fail("socket");
	for (;;) {
		move(fd, (char *)&size, sizeof(size), false);
		if (!size)
			_exit(0);
		move(fd, bytes, size, true);
	}
}

/* Starts a process that answers; returns a socket to it. */
static int start_answering(size_t most)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int listener = socket(AF_INET, SOCK_STREAM, 0), fd, on = 1;
	socklen_t size = sizeof(at);
	pid_t pid;

	if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof(at)) ||
	    listen(listener, 1) || getsockname(listener, (struct sockaddr *)&at, &size))
		fail("socket");
	pid = fork();
	if (!pid)
		answer(&at, most);
	fd = pid < 0 ? -1 : accept(listener, NULL, NULL);
	if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)))
		fail("socket");
	close(listener);
	return fd;
}

static void ask(int fd, char *block, uint64_t size)
{
	move(fd, (char *)&size, sizeof(size), true);
	for (uint64_t at = 0; at < size; at += BLOCK)
		move(fd, block, u64_min(BLOCK, size - at), false);
}

static int get_by_socket(size_t size)
{
	int fd = start_answering(size);
	char *block = aligned(BLOCK);
	uint64_t begin;

	ask(fd, block, PAGE); /* after this the other process is there */
	begin = monotonic_ns();
	ask(fd, block, size);
	printf("%.6f\n", seconds_since(begin));
	ask(fd, block, 0);
	return 0;
}

static int asks(int count)
{
	uint64_t *ns = calloc((size_t)count, sizeof(*ns));
	char *block = aligned(BLOCK);
	int fd = start_answering(BLOCK);

	if (!ns || count <= 0)
		fail("asks");
	for (int i = -WARM_UP; i < count; i++) {
		uint64_t begin = monotonic_ns();

		ask(fd, block, PAGE);
		if (i >= 0)
			ns[i] = monotonic_ns() - begin;
	}
	ask(fd, block, 0);
	tell_times(ns, count);
	return 0;
}

static int time_command(char **argv)
{
	uint64_t begin = monotonic_ns();
	pid_t pid = fork();
	int status;

	if (!pid) {
		int null = open("/dev/null", O_WRONLY);

		dup2(null, STDOUT_FILENO);
		execvp(*argv, argv);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		fail(*argv);
	if (status) {
		fprintf(stderr, "measure: %s failed\n", *argv);
		return 1;
	}
	printf("%.6f\n", seconds_since(begin));
	return 0;
}

static void load_file(const char *path)
{
	int fd;
	uint64_t size = open_sized(path, O_RDONLY | O_DIRECT, &fd);
	char *memory = malloc(size ? size : 1);

	if (!memory)
		fail("memory");
	for (uint64_t at = 0; at < size;) {
		ssize_t n = read(fd, memory + at, size - at);

		if (n <= 0)
			fail(path);
		at += (uint64_t)n;
	}
	close(fd);
}

static int load(char **files, int n)
{
	struct rusage usage;

	for (int i = 0; i < n; i++)
		load_file(files[i]);
	getrusage(RUSAGE_SELF, &usage);
	printf("%.1f\n", (double)usage.ru_maxrss / 1024);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "random"))
		return random_reads(argv[2], atoi(argv[3]));
	if (argc == 3 && !strcmp(argv[1], "write"))
		return write_whole(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "copy"))
		return copy(strtoul(argv[2], NULL, 10));
	if (argc == 3 && !strcmp(argv[1], "socket"))
		return get_by_socket(strtoul(argv[2], NULL, 10));
	if (argc == 3 && !strcmp(argv[1], "asks"))
		return asks(atoi(argv[2]));
	if (argc > 2 && !strcmp(argv[1], "time"))
		return time_command(argv + 2);
	if (argc > 2 && !strcmp(argv[1], "load"))
		return load(argv + 2, argc - 2);
	fprintf(stderr, "usage: measure random FILE COUNT | write FILE | copy BYTES |\n"
			"       measure socket BYTES | asks COUNT |\n"
			"       measure time COMMAND... | load FILE...\n");
	return 2;
}
