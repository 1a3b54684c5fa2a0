/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/commands.h"
#include "mount-helpers/progress.h"
#include "mount-helpers/state-file.h"
#include "mount-helpers/target.h"

#include "engine/base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 1 << 20, SMALL = 4096, AREA = 64 << 20, TIME_MS = 1000, STATES_MAX = 256 };

enum {
	COLUMN_WHAT,
	COLUMN_BYTES,
	COLUMN_SECONDS,
	COLUMN_RATE,
	COLUMN_OF_MEMCPY,
	COLUMN_LATENCY
};

const struct listing_column bench_columns[] = {
	[COLUMN_WHAT] = { "what", LISTING_TEXT },
	[COLUMN_BYTES] = { "bytes", LISTING_BYTES },
	[COLUMN_SECONDS] = { "seconds", LISTING_REAL },
	[COLUMN_RATE] = { "bytes_per_s", LISTING_BYTES },
	[COLUMN_OF_MEMCPY] = { "of_memcpy", LISTING_REAL },
	[COLUMN_LATENCY] = { "us_each", LISTING_REAL },
	{ NULL },
};

struct bench {
	struct listing *t;
	double memcpy_rate; /* bytes/s */
	char *from, *to;    /* AREA bytes each */
	struct progress progress;
};

enum { PASSES = 5 }; /* each pass adds a row */

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void add_row(struct bench *b, const char *what, uint64_t bytes, uint64_t times,
		    double seconds)
{
	double rate = (double)bytes / seconds;

	listing_row(b->t);
	listing_text(b->t, COLUMN_WHAT, what);
	listing_number(b->t, COLUMN_BYTES, bytes);
	listing_real(b->t, COLUMN_SECONDS, seconds);
	listing_number(b->t, COLUMN_RATE, (uint64_t)rate);
	listing_real(b->t, COLUMN_LATENCY, seconds / (double)times * 1e6);
	if (!b->memcpy_rate)
		b->memcpy_rate = rate;
	listing_real(b->t, COLUMN_OF_MEMCPY, rate / b->memcpy_rate);
}

static void begin_pass(struct bench *b)
{
	progress_step(&b->progress, json_array_size(b->t->rows), PASSES);
}

static void bench_memcpy(struct bench *b)
{
	double began = now(), seconds;
	uint64_t bytes = 0, times = 0;

	begin_pass(b);
	do {
		for (size_t at = 0; at < AREA; at += BLOCK)
			memcpy(b->to + at, b->from + at, BLOCK);
		times += AREA / BLOCK;
		bytes += AREA;
		seconds = now() - began;
	} while (seconds < TIME_MS / 1e3);
	add_row(b, "memcpy", bytes, times, seconds);
}

/* Reads the named files again and again, in requests of `size`.  Each is opened anew each time,
 * because an open file of a mount keeps one generation.
 */
static int bench_files(struct bench *b, const char *what, char *const *names, size_t n,
		       size_t size)
{
	double began = now(), seconds = 0;
	uint64_t bytes = 0, times = 0;

	begin_pass(b);
	for (size_t i = 0; n && seconds < TIME_MS / 1e3; i = (i + 1) % n) {
		CLEANUP(close) int fd = open(names[i], O_RDONLY | O_CLOEXEC);
		off_t at = 0;
		ssize_t got;

		if (fd < 0)
			return call_fail("%s: %s", names[i], strerror(errno));
		do {
			got = pread(fd, b->to, size, at);
			if (got < 0)
				return call_fail("%s: %s", names[i], strerror(errno));
			at += got;
			bytes += (uint64_t)got;
			times += got > 0;
			seconds = now() - began;
		} while (got > 0 && seconds < TIME_MS / 1e3);
	}
	if (bytes)
		add_row(b, what, bytes, times, seconds);
	return 0;
}

static int bench_plain(struct bench *b)
{
	const char *folder = getenv("TMPDIR");
	char path[PATH_MAX], *names[] = { path };
	int fd, rc = 0;

	snprintf(path, sizeof(path), "%s/fragctl.XXXXXX", folder && *folder ? folder : "/tmp");
	fd = mkstemp(path);
	if (fd < 0)
		return call_fail("%s: %s", path, strerror(errno));
	for (size_t at = 0; !rc && at < AREA; at += BLOCK)
		if (write(fd, b->from + at, BLOCK) != BLOCK)
			rc = call_fail("%s: %s", path, strerror(errno));
	close(fd);
	if (!rc)
		rc = bench_files(b, "plain file, 1M", names, 1, BLOCK);
	if (!rc)
		rc = bench_files(b, "plain file, 4K", names, 1, SMALL);
	unlink(path);
	return rc;
}

static int by_size(const void *a, const void *b)
{
	struct stat x = { 0 }, y = { 0 };

	stat(*(char *const *)a, &x);
	stat(*(char *const *)b, &y);
	return x.st_size > y.st_size ? -1 : x.st_size < y.st_size;
}

/* Adds the file of the parameter's main state.  Returns the exit status. */
static int add_main(char **names, size_t *n, const char *mountpoint, const struct param *param)
{
	char **states = params_states(mountpoint, param);
	struct stat st;
	int rc = 0;

	if (!states)
		return target_fail(mountpoint, param->name, errno);
	if (*states && asprintf(&names[*n], "%s/%s/%s", mountpoint, param->path,
				state_file_main(states)) < 0)
		rc = call_fail("%s", strerror(ENOMEM));
	else if (*states && (stat(names[*n], &st) || st.st_size))
		++*n;
	else if (*states)
		free(names[*n]); /* an empty state: no read of it moves a byte */
	params_free_names(states);
	return rc;
}

/* Reads the main states of the parameters, the largest first.  *failed: the exit status where
 * states of some cannot be listed, which are left out.
 */
static int bench_mount(struct bench *b, const char *mountpoint, const struct params *params,
		       int *failed)
{
	char *names[STATES_MAX];
	size_t n = 0;
	int rc;

	for (size_t i = 0; i < params->n && n < STATES_MAX; i++)
		*failed |= add_main(names, &n, mountpoint, &params->list[i]);
	if (!n && *failed)
		return *failed;
	if (!n)
		return call_fail("%s: there is nothing to read: no parameter has bytes",
				 target_name(mountpoint));
	qsort(names, n, sizeof(*names), by_size);
	rc = bench_files(b, "mount, 1M", names, n, BLOCK);
	if (!rc)
		rc = bench_files(b, "mount, 4K", names, n, SMALL);
	while (n)
		free(names[--n]);
	return rc;
}

int bench_run(const struct call *call)
{
	struct bench b = { .from = malloc(AREA), .to = malloc(AREA) };
	char mountpoint[TARGET_PATH_MAX];
	struct params params = { 0 };
	struct listing t;
	int rc = listing_init(&t, call, bench_columns), failed = 0;

	if (rc)
		return rc;
	b.t = &t;
	rc = b.from && b.to ? target_open(call->job, false, mountpoint)
			    : call_fail("%s", strerror(ENOMEM));
	if (!rc)
		rc = params_read(&params, mountpoint, call->words);
	if (!rc) {
		progress_begin(&b.progress, "passes");
		memset(b.from, 1, AREA);
		bench_memcpy(&b);
		rc = bench_plain(&b);
	}
	if (!rc)
		rc = bench_mount(&b, mountpoint, &params, &failed);
	progress_end(&b.progress);
	if (!rc) {
		rc = listing_print(&t, "rates");
		rc = rc ? rc : failed;
	}
	params_free(&params);
	listing_fini(&t);
	free(b.from);
	free(b.to);
	return rc;
}
