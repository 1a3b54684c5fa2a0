/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/fail/edit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

/* edit-client read|write|fork MOUNT ID SEED LOG: until SIGTERM, or the mount is gone, reads
 * states of edit-job's parameters, or sets whole parameters, and writes what it did and saw
 * into LOG (history.h).  fork: as write, and while it commits a child has the file too.  ID, 0
 * to 3, tells the writers' values apart.  edit-client kill PID WHAT LOG: SIGKILL, and its line
 * in LOG. edit-client agree SIZE FILE...: those files that there are have one value, of SIZE
 * bytes, all the same.
 */

enum { BUFFER = 1 << 20, WRITERS = 4, KEYS = 2 };

static char buffer[BUFFER];
static const char *mount;
static unsigned id;
static int history;
static volatile sig_atomic_t stop;

static void on_term(int signal)
{
	stop = 1;
}

static void nap(long us)
{
	nanosleep(&(struct timespec){ us / 1000000, us % 1000000 * 1000 }, NULL);
}

/* One write(2): a line is whole, whenever we are killed. */
static __attribute__((format(printf, 1, 2))) void note(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vdprintf(history, format, ap);
	va_end(ap);
}

static const char *state_path(unsigned param, unsigned key)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/params/p%u/%s", mount, param,
		 key ? edit_params[param].lp : "fp32");
	return path;
}

static size_t element(unsigned param, unsigned key)
{
	return key && !strcmp(edit_params[param].lp, "bf16") ? 2 : 4;
}

static off_t bytes_of(unsigned param, unsigned key)
{
	return (off_t)(edit_params[param].shape[0] * edit_params[param].shape[1] *
		       element(param, key));
}

/* ---- reading ---- */

static float value_at(const char *at, size_t size)
{
	uint32_t bits;
	uint16_t half;
	float value;

	if (size == sizeof(value)) {
		memcpy(&value, at, sizeof(value));
		return value;
	}
	memcpy(&half, at, sizeof(half));
	bits = (uint32_t)half << 16;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

struct reading {
	unsigned param, key;
	long long begun;
	bool any;
	float value;
};

static void see(struct reading *r, ssize_t bytes)
{
	size_t size = element(r->param, r->key);

	if (!r->any) {
		r->any = true;
		r->value = value_at(buffer, size);
		/* a bfloat16 is the value of several edits and steps */
		note(size == 2 ? "U %u %u %.0f %lld %lld\n" : "R %u %u %.0f %lld %lld\n",
		     r->param, r->key, r->value, r->begun, edit_now());
	}
	for (ssize_t i = 0; i < bytes; i += (ssize_t)size)
		if (value_at(buffer + i, size) != r->value) {
			note("T %u %u %.0f %.0f\n", r->param, r->key, r->value,
			     value_at(buffer + i, size));
			return;
		}
}

static bool read_at(struct reading *r, int fd, size_t size, off_t at)
{
	ssize_t n = pread(fd, buffer, size, at);

	if (n > 0)
		see(r, n);
	else
		note("F %u %u %d %lld\n", r->param, r->key, n ? errno : EIO, edit_now());
	return n > 0;
}

/* By random ranges of whole elements; the last is the file's end. */
static void read_ranges(struct reading *r, int fd)
{
	off_t size = (off_t)element(r->param, r->key), n = bytes_of(r->param, r->key) / size;

	for (int i = 0; i < 5; i++) {
		off_t first = rand() % n, most = i == 4 ? BUFFER / size : 1 + rand() % 5000;

		if (!read_at(r, fd, (size_t)((n - first < most ? n - first : most) * size),
			     first * size))
			return;
		if (rand() % 8 == 0)
			nap(rand() % 8000);
	}
}

static void read_state(unsigned param, unsigned key)
{
	struct reading r = { param, key, edit_now(), false, 0 };
	int fd = open(state_path(param, key), O_RDONLY);

	if (fd < 0) {
		stop |= errno == ENOTCONN;
		note("F %u %u %d %lld\n", param, key, errno, edit_now());
		return;
	}
	if (rand() % 2)
		read_at(&r, fd, BUFFER, 0);
	read_ranges(&r, fd);
	close(fd);
}

static void read_generation(void)
{
	long long begun = edit_now();
	char text[32], path[512];
	ssize_t n;

	snprintf(path, sizeof(path), "%s/params/p0/fp32", mount);
	n = getxattr(path, "user.frag.generation", text, sizeof(text) - 1);
	if (n < 0)
		return; /* the mount is gone: reads say so */
	text[n] = '\0';
	note("G %s %lld %lld\n", text, begun, edit_now());
}

static void be_reader(void)
{
	while (!stop) {
		if (rand() % 4 == 0)
			read_generation();
		read_state((unsigned)rand() % EDIT_PARAMS, (unsigned)rand() % KEYS);
		nap(rand() % 3000);
	}
}

/* ---- writing ---- */

static int write_whole(int fd, unsigned param, float value)
{
	off_t bytes = bytes_of(param, 0);
	size_t piece = rand() % 2 ? BUFFER : 4096 * (size_t)(1 + rand() % 20);

	for (size_t i = 0; i < BUFFER / sizeof(value); i++)
		memcpy(buffer + i * sizeof(value), &value, sizeof(value));
	for (off_t at = 0; at < bytes;) {
		size_t rest = (size_t)(bytes - at);
		ssize_t n = pwrite(fd, buffer, rest < piece ? rest : piece, at);

		if (n <= 0)
			return n ? errno : EIO;
		at += n;
	}
	return 0;
}

static pid_t child_of(bool wanted)
{
	pid_t pid = wanted ? fork() : -1;

	if (pid)
		return pid;
	signal(SIGTERM, SIG_DFL);
	alarm(200);
	for (;;)
		pause();
}

/* close(2) tries once more what fsync(2) could not do, unless the mount is gone, which may have
 * done it.
 */
static int commit(int fd)
{
	int synced = rand() % 2 ? (fsync(fd) ? errno : 0) : EINTR;
	int closed = close(fd) ? errno : 0;

	return synced == 0 || synced == ECONNABORTED ? synced : closed;
}

static int edit(unsigned param, float value, bool forks)
{
	int fd = open(state_path(param, 0), O_WRONLY | (rand() % 2 ? O_TRUNC : 0)), rc;
	pid_t child;

	if (fd < 0)
		return errno;
	rc = write_whole(fd, param, value);
	child = child_of(forks);
	if (rc)
		close(fd);
	else
		rc = commit(fd);
	if (child > 0) {
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	return rc;
}

static void be_writer(bool forks)
{
	for (unsigned n = 1 + id; n < EDIT_STEPS && !stop; n += WRITERS) {
		unsigned param = (unsigned)rand() % EDIT_PARAMS;
		int rc;

		note("W %u %u %lld\n", param, n, edit_now());
		rc = edit(param, (float)(n * EDIT_STEPS), forks);
		note("D %u %u %lld %d\n", param, n, edit_now(), rc);
		stop |= rc == ENOTCONN;
		if (!rc)
			read_state(param, (unsigned)rand() % KEYS);
		nap(rand() % 20000);
	}
}

static int kill_one(char **argv)
{
	history = open(argv[4], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	note("K %lld %s\n", edit_now(), argv[3]);
	return kill(atoi(argv[2]), SIGKILL) != 0;
}

struct common {
	size_t size;
	int files;
	bool any;
	char value[4];
};

static bool has_value(struct common *c, const char *path, ssize_t bytes)
{
	if (!c->any)
		memcpy(c->value, buffer, c->size);
	c->any = true;
	for (char *at = buffer; at < buffer + bytes; at += c->size) {
		if (!memcmp(c->value, at, c->size))
			continue;
		printf("%s has %.0f, where another has %.0f\n", path, value_at(at, c->size),
		       value_at(c->value, c->size));
		return false;
	}
	return true;
}

/* A rank may hold nothing of a parameter. */
static bool agrees(struct common *c, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : 1;
	bool same = true;

	while (same && n > 0)
		if ((n = read(fd, buffer, BUFFER)) > 0)
			same = has_value(c, path, n);
	if (n < 0 && (fd >= 0 || errno != ENOENT)) {
		printf("%s: %s\n", path, strerror(errno));
		same = false;
	}
	c->files += fd >= 0;
	if (fd >= 0)
		close(fd);
	return same;
}

static int agree(size_t size, char **files)
{
	struct common c = { .size = size };

	for (; *files; files++)
		if (!agrees(&c, *files))
			return 1;
	printf("%d\n", c.files);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 3 && !strcmp(argv[1], "agree"))
		return agree(atoi(argv[2]) == 2 ? 2 : 4, argv + 3);
	if (argc == 5 && !strcmp(argv[1], "kill"))
		return kill_one(argv);
	if (argc != 6)
		return 2;
	mount = argv[2];
	id = (unsigned)atoi(argv[3]);
	srand((unsigned)atoi(argv[4]) + id);
	history = open(argv[5], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (history < 0)
		return 2;
	signal(SIGTERM, on_term);
	if (!strcmp(argv[1], "read"))
		be_reader();
	else
		be_writer(!strcmp(argv[1], "fork"));
	return 0;
}
