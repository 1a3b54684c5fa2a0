/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* arena-read MOUNT SECONDS SEED: reads files of arena-job in random pieces, for so long and at
 * least four, some of them slowly, and wants to find in each nothing but the parameter's own
 * value.  Prints how many files it has read.
 */

enum { PARAMS = 24, PIECE = 200000, LEAST = 4 };

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int fail(const char *path, const char *what, off_t at)
{
	fprintf(stderr, "arena-read: %s: %s at %lld\n", path, what, (long long)at);
	return 1;
}

static int is_all(const uint16_t *values, ssize_t n, uint16_t value)
{
	for (ssize_t i = 0; i < n / 2; i++)
		if (values[i] != value)
			return 0;
	return 1;
}

static int read_file(const char *mount, int param)
{
	static uint16_t values[PIECE];
	char path[4096];
	off_t at = 0, pause_at = random() % 4 ? -1 : random() % 400000;
	ssize_t n = 1;
	int fd;

	snprintf(path, sizeof(path), "%s/params/p%d/bf16", mount, param);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		return fail(path, strerror(errno), 0);
	while ((n = pread(fd, values, (size_t)(random() % PIECE + 2) & ~1UL, at)) > 0) {
		if (!is_all(values, n, (uint16_t)(param + 1)))
			return fail(path, "another's value", at);
		at += n;
		if (pause_at >= 0 && at > pause_at) {
			nanosleep(&(struct timespec){ 0, 20000000 }, NULL);
			pause_at = -1;
		}
	}
	close(fd);
	return n < 0 ? fail(path, strerror(errno), at) : !at;
}

int main(int argc, char **argv)
{
	double end = now() + (argc > 2 ? atof(argv[2]) : 1);
	unsigned files = 0;

	srandom(argc > 3 ? (unsigned)atoi(argv[3]) : 1);
	for (; now() < end || files < LEAST; files++)
		if (read_file(argv[1], (int)(random() % PARAMS)))
			return 1;
	printf("%u\n", files);
	return 0;
}
