/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* swap-job full DIR	trains two states, of 8 MiB each, on a file system that has room for
 * little more than one,
 *			until there is room again.  What it has must be right all the time.
 * swap-job faulty DIR	trains them where requests go wrong: what is read is right, or EIO;
 * prints how often
 *			that was, and how many errors were counted.
 * swap-job silent DIR	closes while what is read ahead does not come, for which it would wait
 * for two minutes;
 *			prints how many milliseconds it took.
 */

#include "engine/swap/swapper.h"
#include "tests/unit/swap/read-now.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { STATES = 2, FLOATS = 2 << 20, BALLAST = 8 << 20, FLUSH_MS = 60000 };

static struct swapper *place;
static struct swapper_state *states[STATES];

static void check(bool is, const char *what)
{
	if (is)
		return;
	fprintf(stderr, "swap-job: %s\n", what);
	exit(1);
}

static void fill(struct swapper_state *s, uint32_t value)
{
	struct swapper_sweep *w;
	uint64_t first, numel;
	int rc;

	check(!swapper_sweep_begin(place, &(struct swapper_swept){ s, SWAPPER_WRITE }, 1, &w),
	      "no walk");
	while ((rc = swapper_sweep_next(w, &first, &numel)) == 1)
		for (uint64_t i = 0; i < numel; i++)
			((uint32_t *)swapper_sweep_memory(w, 0))[i] = value;
	check(!rc, "a walk failed");
	swapper_sweep_end(w);
}

static void expect(uint32_t value)
{
	static uint32_t out[FLOATS];

	for (int i = 0; i < STATES; i++) {
		check(!read_now(place, states[i], NULL, 0, sizeof(out), out), "not read");
		check(out[0] == value && !memcmp(out, out + 1, sizeof(out) - 4), "other bytes");
	}
}

static void train(uint32_t from, uint32_t to)
{
	for (uint32_t step = from; step < to; step++) {
		for (int i = 0; i < STATES; i++)
			fill(states[i], step);
		swapper_publish(place);
		expect(step);
	}
}

static void open_all(const char *dir)
{
	const struct swapper_options options = { .dir = dir,
						 .name = "rank0.swap",
						 .budget = 8 << 20,
						 .slice = 1 << 20,
						 .spare = STATES * FLOATS * 4 };
	char why[512];

	if (swapper_open(&place, &options, why, sizeof(why)))
		check(false, why);
	for (int i = 0; i < STATES; i++)
		check(!swapper_add(place, i ? "exp_avg" : "fp32", SWAPPER_STATE, 4, FLOATS,
				   &states[i]),
		      "no state");
}

static void make_ballast(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	check(fd >= 0 && !posix_fallocate(fd, 0, BALLAST), "no ballast");
	close(fd);
}

static void full(const char *dir)
{
	struct swapper_figures f;
	char path[4096];

	snprintf(path, sizeof(path), "%s/ballast", dir);
	make_ballast(path);
	open_all(dir);
	train(1, 4);
	check(swapper_flush(place, FLUSH_MS) == -ENOSPC, "there was room");
	swapper_figures(place, &f);
	check(f.spare && f.error == -ENOSPC, "it is not in memory");
	printf("%" PRIu64 " errors, %" PRIu64 " KiB in memory\n", f.errors, f.spare >> 10);
	unlink(path);
	check(!swapper_flush(place, FLUSH_MS), "there is no room yet");
	expect(3);
	train(4, 6);
	check(!swapper_flush(place, FLUSH_MS), "there is no room any more");
	swapper_figures(place, &f);
	check(!f.spare && f.file.direct, "it stays in memory, or in the page cache");
	swapper_close(place);
}

/* Slice by slice, so that one that cannot be read hides no other. */
static unsigned count_eio(uint32_t value)
{
	static uint32_t out[(1 << 20) / 4];
	unsigned eio = 0;

	for (int i = 0; i < STATES; i++)
		for (uint64_t at = 0; at < FLOATS * 4; at += sizeof(out)) {
			int rc = read_now(place, states[i], NULL, at, sizeof(out), out);

			check(!rc || rc == -EIO, "another errno");
			check(rc || (out[0] == value && !memcmp(out, out + 1, sizeof(out) - 4)),
			      "other bytes");
			eio += rc == -EIO;
		}
	return eio;
}

static void faulty(const char *dir)
{
	struct swapper_figures f;
	unsigned eio = 0;

	open_all(dir);
	for (uint32_t step = 1; step < 6; step++) {
		for (int i = 0; i < STATES; i++)
			fill(states[i], step);
		swapper_publish(place);
		swapper_flush(place, FLUSH_MS);
		eio += count_eio(step);
	}
	swapper_figures(place, &f);
	printf("%u %" PRIu64 " %" PRIu64 "\n", eio, f.errors, f.damaged);
	swapper_close(place);
}

/* The file system has some of what it will not answer. */
static void wait_for_silence(const char *dir)
{
	uint64_t end = monotonic_ms() + 20000;
	char path[4096];

	snprintf(path, sizeof(path), "%s/silent", dir);
	while (access(path, F_OK) && monotonic_ms() < end)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

static void silent(const char *dir)
{
	struct swapper_sweep *w;
	uint64_t begin;

	open_all(dir);
	fill(states[0], 1);
	check(!swapper_publish(place) && !swapper_flush(place, FLUSH_MS), "not written");
	check(!swapper_sweep_begin(place, &(struct swapper_swept){ states[0], SWAPPER_READ }, 1,
				   &w),
	      "no walk");
	wait_for_silence(dir);
	begin = monotonic_ms();
	swapper_sweep_end(w);
	swapper_close(place);
	printf("%" PRIu64 "\n", monotonic_ms() - begin);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	if (!strcmp(argv[1], "full"))
		full(argv[2]);
	else if (!strcmp(argv[1], "silent"))
		silent(argv[2]);
	else
		faulty(argv[2]);
	return 0;
}
