/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <time.h>
#include <unistd.h>

/* tear-read MOUNT SECONDS LIVED SEED [late]: opens states of tear-job's parameters at random,
 * reads them whole, by sendfile(2) or by random ranges, with pauses, and wants one number in
 * each open file. For SECONDS, and on until LIVED files showed a step yet when the job was at a
 * later one. Prints what it saw.  late: the job stands at times, and reads may end with ETIME.
 */

enum { BUFFER = 1 << 20, MOST_MS = 120000 };

static const char *const keys[] = { "fp32", "exp_avg", "grad" };
static float buffer[BUFFER / sizeof(float)];

static struct {
	unsigned long files, torn, errors, lived, late, sent;
	int error;
} seen;
static bool may_be_late;
static int copy; /* of a file, in memory */

struct file {
	int fd;
	off_t size;
	float first;
	bool any, torn;
};

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void look(struct file *f, ssize_t bytes)
{
	for (size_t i = 0; i < (size_t)bytes / sizeof(float); i++) {
		if (!f->any)
			f->first = buffer[i];
		f->any = true;
		f->torn |= buffer[i] != f->first;
	}
}

static void fail(int error)
{
	if (error == ETIME && may_be_late) {
		seen.late++;
		return;
	}
	seen.errors++;
	seen.error = error;
}

static void pause_at_times(void)
{
	if (rand() % 8 == 0)
		nanosleep(&(struct timespec){ 0, rand() % 10000000 }, NULL);
}

static ssize_t read_at(struct file *f, size_t size, off_t at)
{
	ssize_t n = pread(f->fd, buffer, size, at);

	if (n < 0)
		fail(errno);
	else
		look(f, n);
	pause_at_times();
	return n;
}

static void read_whole(struct file *f)
{
	size_t size = rand() % 2 ? BUFFER : BUFFER / 8;
	ssize_t n = 1;

	for (off_t at = 0; n > 0; at += n)
		n = read_at(f, size, at);
}

/* Copies as shutil.copyfile does: by sendfile(2), which reads through pages of the kernel, or,
 * where its first call is EINVAL, by read(2).
 */
static void send_whole(struct file *f)
{
	off_t at = 0;
	ssize_t n;

	lseek(copy, 0, SEEK_SET);
	while ((n = sendfile(copy, f->fd, &at, BUFFER / 8)) > 0) {
		if (pread(copy, buffer, (size_t)n, at - n) != n)
			fail(EIO);
		look(f, n);
		pause_at_times();
	}
	if (n < 0 && errno != EINVAL)
		fail(errno);
	else if (n < 0 && !at)
		read_whole(f);
	seen.sent += !n;
	f->any =
		false; /* read(2) has the file's own generation, the pages may have another's */
}

static ssize_t read_range(struct file *f)
{
	return read_at(f, sizeof(float) * (size_t)(1 + rand() % 5000),
		       (off_t)sizeof(float) * (rand() % (f->size / (off_t)sizeof(float))));
}

static void read_ranges(struct file *f)
{
	for (int i = 0; i < 20 && read_range(f) >= 0; i++)
		;
}

static double step_now(const char *mount)
{
	char path[512], text[32] = "";
	int fd;

	snprintf(path, sizeof(path), "%s/step", mount);
	fd = open(path, O_RDONLY);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		fail(errno);
	close(fd);
	return atof(text);
}

/* Does it show its old step yet? */
static void read_late(const char *mount, struct file *f)
{
	if (f->any && step_now(mount) > (double)f->first)
		seen.lived += read_range(f) > 0;
}

static void read_one(const char *mount)
{
	struct file f = { 0 };
	char path[512];

	snprintf(path, sizeof(path), "%s/params/p%d/%s", mount, rand() % 5, keys[rand() % 3]);
	f.fd = open(path, O_RDONLY);
	if (f.fd < 0) {
		fail(errno);
		return;
	}
	f.size = lseek(f.fd, 0, SEEK_END);
	switch (rand() % 4) {
	case 0:
		send_whole(&f);
		break;
	case 1:
		read_whole(&f);
		break;
	default:
		read_ranges(&f);
	}
	read_late(mount, &f);
	close(f.fd);
	seen.files++;
	seen.torn += f.torn;
}

int main(int argc, char **argv)
{
	double least, most;
	unsigned long wanted;

	may_be_late = argc == 6 && !strcmp(argv[5], "late");
	if (argc != 5 && !may_be_late)
		return 2;
	least = now_ms() + atof(argv[2]) * 1e3;
	most = least + MOST_MS;
	wanted = (unsigned long)atol(argv[3]);
	srand((unsigned)atoi(argv[4]));
	copy = memfd_create("copy", 0);
	while (!seen.errors && now_ms() < (seen.lived < wanted ? most : least))
		read_one(argv[1]);
	printf("files %lu torn %lu errors %lu (%s) lived %lu late %lu sent %lu\n", seen.files,
	       seen.torn, seen.errors, seen.errors ? strerror(seen.error) : "none", seen.lived,
	       seen.late, seen.sent);
	return seen.torn || seen.errors || seen.lived < wanted;
}
