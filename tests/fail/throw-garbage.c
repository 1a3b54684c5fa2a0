/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/wire.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

/* throw-garbage SECONDS SEED PID...: finds every TCP port at which those processes listen,
 * prints how many, and throws at each what strangers throw; many of the connections stay open.
 */

enum { PORTS_MAX = 64, STAY_MAX = 700, GREETING = 64, LARGE = 1 << 16 };

struct port {
	struct in_addr host;
	in_port_t port;
	unsigned long inode;
};

static struct port ports[PORTS_MAX];
static unsigned nports;
static int staying[STAY_MAX];
static unsigned long thrown;

/* ---- who listens ---- */

static bool owns_socket(const char *pid, unsigned long inode)
{
	char path[300], want[64], target[64];
	struct dirent *entry;
	bool found = false;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	snprintf(want, sizeof(want), "socket:[%lu]", inode);
	dir = opendir(path);
	while (dir && !found && (entry = readdir(dir))) {
		ssize_t n = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);

		target[n > 0 ? n : 0] = '\0';
		found = !strcmp(target, want);
	}
	if (dir)
		closedir(dir);
	return found;
}

static void see_line(const char *line, char **pids)
{
	unsigned host, port, state;
	unsigned long inode;

	if (sscanf(line, " %*d: %8X:%4X %*8X:%*4X %2X %*X:%*X %*X:%*X %*X %*u %*u %lu", &host,
		   &port, &state, &inode) != 4 ||
	    state != 0x0a || nports == PORTS_MAX)
		return;
	for (; *pids; pids++)
		if (owns_socket(*pids, inode)) {
			ports[nports++] =
				(struct port){ { host }, htons((uint16_t)port), inode };
			return;
		}
}

static void find_ports(char **pids)
{
	FILE *table = fopen("/proc/net/tcp", "re");
	char line[512];

	if (!table)
		err(2, "/proc/net/tcp");
	while (fgets(line, sizeof(line), table))
		see_line(line, pids);
	fclose(table);
}

/* ---- garbage ---- */

static size_t random_bytes(uint8_t *out, size_t size)
{
	for (size_t i = 0; i < size; i++)
		out[i] = (uint8_t)(rand() >> 7);
	return size;
}

static size_t text(uint8_t *out, const char *what, size_t size)
{
	memcpy(out, what, size);
	return size;
}

static size_t greeting(uint8_t *out, const char *mechanism, uint8_t major, bool server)
{
	memset(out, 0, GREETING);
	out[0] = 0xff;
	out[8] = 1;
	out[9] = 0x7f;
	out[10] = major;
	memcpy(out + 12, mechanism, strlen(mechanism));
	out[32] = server;
	return GREETING;
}

/* A frame of up to 255 bytes of what stands behind its two bytes already. */
static size_t frame(uint8_t *out, uint8_t flags, size_t size)
{
	out[0] = flags;
	out[1] = (uint8_t)size;
	return size + 2;
}

static size_t null_handshake(uint8_t *out)
{
	static const char ready[] = "\5READY\13Socket-Type\0\0\0\6DEALER";
	size_t n = greeting(out, "NULL", 3, false);

	text(out + n + 2, ready, sizeof(ready) - 1);
	return n + frame(out + n, 4, sizeof(ready) - 1);
}

static size_t null_then_noise(uint8_t *out)
{
	size_t n = null_handshake(out);

	return n + random_bytes(out + n, 500);
}

/* Ours in its first bytes, of no job. */
static size_t message(uint8_t *out)
{
	struct wire_header header;
	size_t size = sizeof(header) + (size_t)rand() % 200;

	random_bytes(out + 2, size);
	memcpy(&header, out + 2, sizeof(header));
	header.magic = WIRE_MAGIC;
	header.version = WIRE_VERSION;
	header.type = (uint16_t)(rand() % (WIRE_TYPES + 2));
	header.rank %= 4;
	memcpy(out + 2, &header, sizeof(header));
	return frame(out, 0, size);
}

static size_t plain_messages(uint8_t *out)
{
	size_t n = null_handshake(out);

	for (int i = 0; i < 50; i++)
		n += message(out + n);
	return n;
}

static size_t tls_hello(uint8_t *out)
{
	text(out, "\x16\3\1\2\0\1\0\1\xfc\3\3", 11);
	return 11 + random_bytes(out + 11, 506);
}

static size_t endless_frame(uint8_t *out)
{
	size_t n = greeting(out, "CURVE", 3, false);

	out[n] = 6; /* a command, its length in 8 bytes */
	memset(out + n + 1, 0x3f, 8);
	return n + 9 + random_bytes(out + n + 9, 1000);
}

static size_t curve_hello(uint8_t *out)
{
	size_t n = greeting(out, "CURVE", 3, rand() % 2);

	random_bytes(out + n + 2, 200);
	text(out + n + 2, "\5HELLO\1\0", 8);
	return n + frame(out + n, 4, 200);
}

static size_t plain_hello(uint8_t *out)
{
	size_t n = greeting(out, "PLAIN", 3, false);

	text(out + n + 2, "\5HELLO\5admin\5admin", 18);
	return n + frame(out + n, 4, 18);
}

enum { KINDS = 13 };

static size_t fill(unsigned kind, uint8_t *out)
{
	switch (kind) {
	case 0:
		return random_bytes(out, 1 + (size_t)rand() % (LARGE - 1));
	case 1:
		return greeting(out, "CURVE", 3, false) / 2;
	case 2:
		return text(out, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 35);
	case 3:
		return tls_hello(out);
	case 4:
		return null_then_noise(out);
	case 5:
		return plain_hello(out);
	case 6:
		return curve_hello(out);
	case 7: /* ZMTP 2 */
		return text(out, "\xff\0\0\0\0\0\0\0\1\x7f\1\5\0\0", 14);
	case 8: /* ZMTP 1 */
		return text(out, "\1\0\5\1hello", 9);
	case 9:
		return endless_frame(out);
	case 10:
		return plain_messages(out);
	default: /* silence; or gone at once */
		return 0;
	}
}

/* ---- throwing ---- */

static int come(const struct port *to)
{
	struct sockaddr_in name = { .sin_family = AF_INET,
				    .sin_port = to->port,
				    .sin_addr = to->host };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct pollfd p = { .fd = fd, .events = POLLOUT };

	if (!to->host.s_addr)
		name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0)
		err(2, "socket");
	if (connect(fd, (struct sockaddr *)&name, sizeof(name)) && errno != EINPROGRESS)
		errx(1, "port %d does not listen any more: %s", ntohs(to->port),
		     strerror(errno));
	poll(&p, 1, 1000);
	return fd;
}

static void leave_by_reset(int fd)
{
	struct linger none = { .l_onoff = 1, .l_linger = 0 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
	close(fd);
}

static void throw_one(const struct port *to)
{
	static uint8_t garbage[LARGE + 1024];
	unsigned kind = (unsigned)rand() % KINDS, stay = (unsigned)rand() % STAY_MAX;
	size_t size = fill(kind, garbage);
	int fd = come(to);

	if (kind != 4 && kind != 10 && rand() % 8 == 0) /* by halves */
		size /= 2;
	if (size && send(fd, garbage, size, MSG_NOSIGNAL) < 0 && errno != EAGAIN &&
	    errno != EPIPE && errno != ECONNRESET && errno != ENOTCONN)
		err(2, "send");
	thrown++;
	if (kind == KINDS - 1) {
		leave_by_reset(fd);
		return;
	}
	if (staying[stay])
		leave_by_reset(staying[stay]);
	staying[stay] = fd;
}

int main(int argc, char **argv)
{
	struct timespec now, end;

	if (argc < 4)
		return 2;
	srand((unsigned)atoi(argv[2]));
	find_ports(argv + 3);
	printf("ports %u\n", nports);
	fflush(stdout);
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += atoi(argv[1]);
	for (now = (struct timespec){ 0 }; nports && now.tv_sec < end.tv_sec;) {
		for (unsigned i = 0; i < nports; i++)
			throw_one(&ports[i]);
		nanosleep(&(struct timespec){ 0, 500000 }, NULL);
		clock_gettime(CLOCK_MONOTONIC, &now);
	}
	printf("thrown %lu\n", thrown);
	return 0;
}
