/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE

/* poll-file HOW FILE MILLISECONDS CHANGES: HOW is poll, pri, select, epoll (edge-triggered), or
 * flips: poll, of what may have changed back before it is read, which does not count.  The file
 * is ready at once; it is read, and then so many times waited for and read again, each time
 * another content, which is printed.  HOW lines: the file is a stream, not ready at first, and
 * waited for so many times; hup: it is read until poll says that it has ended.  Exit status: 0;
 * 3: nothing changed in time; 4: the mount has gone; 1: anything else.
 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <unistd.h>

static const char *how;
static int fd, epoll_fd, timeout_ms;

static void fail(const char *why)
{
	fprintf(stderr, "poll-file: %s\n", why);
	exit(1);
}

static bool ready_by_poll(void)
{
	short events = !strcmp(how, "pri") ? POLLPRI : POLLIN;
	struct pollfd p = { .fd = fd, .events = events };
	int n = poll(&p, 1, timeout_ms);

	if (n == 1 && p.revents & POLLERR)
		exit(4);
	if (n == 1 && p.revents != events)
		fail("poll says what was not asked for");
	return n == 1;
}

static bool ready_by_select(void)
{
	struct timeval t = { timeout_ms / 1000, timeout_ms % 1000 * 1000 };
	fd_set in;

	FD_ZERO(&in);
	FD_SET(fd, &in);
	return select(fd + 1, &in, NULL, NULL, &t) == 1;
}

static bool ready_by_epoll(void)
{
	struct epoll_event event;

	return epoll_wait(epoll_fd, &event, 1, timeout_ms) == 1;
}

static bool ready(void)
{
	if (!strcmp(how, "select"))
		return ready_by_select();
	return strcmp(how, "epoll") ? ready_by_poll() : ready_by_epoll();
}

static void read_file(char out[64])
{
	ssize_t n = pread(fd, out, 63, 0);

	if (n < 0)
		exit(errno == ENOTCONN || errno == ECONNABORTED ? 4 : 1);
	out[n] = '\0';
}

static void read_stream(char out[64])
{
	ssize_t n = read(fd, out, 63);

	if (n < 0)
		fail(strerror(errno));
	out[n] = '\0';
}

static int follow(int times)
{
	char line[64];
	int limit = timeout_ms;

	timeout_ms = 0;
	if (ready())
		fail("ready, and nothing has happened");
	timeout_ms = limit;
	while (times--) {
		if (!ready())
			return 3;
		read_stream(line);
		printf("%s", line);
		fflush(stdout);
	}
	return 0;
}

static int read_to_the_end(void)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char some[64];

	while (poll(&p, 1, timeout_ms) == 1) {
		if (!(p.revents & POLLIN))
			fail("poll says what was not asked for");
		read_stream(some);
		if (!*some)
			return p.revents & POLLHUP ? 0 : 1;
		printf("%s", some);
	}
	return 3;
}

static void open_file(const char *name)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };

	fd = open(name, O_RDONLY);
	if (fd < 0)
		fail(strerror(errno));
	epoll_fd = epoll_create1(0);
	if (!strcmp(how, "epoll") && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event))
		fail(strerror(errno));
}

int main(int argc, char **argv)
{
	char last[64], now[64];

	if (argc != 5)
		fail("HOW FILE MILLISECONDS CHANGES");
	how = argv[1];
	timeout_ms = atoi(argv[3]);
	open_file(argv[2]);
	if (!strcmp(how, "lines"))
		return follow(atoi(argv[4]));
	if (!strcmp(how, "hup"))
		return read_to_the_end();
	if (!ready())
		fail("not ready at once");
	read_file(last);
	printf("%s", last);
	fflush(stdout);
	for (int left = atoi(argv[4]); left > 0; left--) {
		if (!ready())
			return 3;
		read_file(now);
		if (!strcmp(now, last) && strcmp(how, "flips"))
			fail("ready, and nothing has changed");
		left += !strcmp(now, last);
		if (strcmp(now, last))
			printf("%s", now);
		strcpy(last, now);
		fflush(stdout);
	}
	return 0;
}
