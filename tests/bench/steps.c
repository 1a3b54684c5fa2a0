/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Measures the steps of a running trainer under two loads, A and B, in windows of some steps,
 * in the order A B B A A B B A ...
 *
 *   steps PAIRS PID,PID... N RATE A... -- B...
 *
 * Lines of the trainer's rank 0 ("step ... MS ms/step") come to stdin; PIDs are its ranks.  N
 * readers loop over the files A, then over the files B, each at RATE bytes a second (0: as fast
 * as they can) or slower where they must wait. N 0: A and B are a shell command each, run
 * before each window.
 *
 * Prints lines of a name, the median of A's windows, that of B's, the median of the pairs'
 * quotients, and how far from that median the true one may be (95 %).
 *   step   ms		cpu    ms of a trainer's thread in a step
 *   other  ms of a rank's other threads in a step	read   bytes a second
 * and "steps" with their number.
 */

#include "tests/bench/rows.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum {
	WINDOW = 8,
	SETTLE = 2,
	RANKS_MAX = 16,
	PAIRS_MAX = ROWS_ROUNDS_MAX,
	PATIENCE_MS = 60000,
	BLOCK = 1 << 20
};
enum { STEP, CPU, OTHER, READ, NMETRICS };

static const char *const metric_name[NMETRICS] = { "step", "cpu", "other", "read" };

struct arm {
	char **what;
	int n;
	double value[NMETRICS][PAIRS_MAX];
	unsigned long steps; /* all steps, also those that are not measured */
};

static struct arm arms[2];
static int ranks[RANKS_MAX], nranks, nreaders;

/* memory that the readers share */
static struct shared {
	_Atomic int arm;
	_Atomic uint64_t bytes;
} * shared;

static void fail(const char *what)
{
	fprintf(stderr, "steps: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* ---- a reader ---- */

static uint64_t read_whole(const char *path, char *block)
{
	int fd = open(path, O_RDONLY);
	uint64_t bytes = 0;
	ssize_t n = 1;

	if (fd < 0)
		fail(path);
	while (n > 0) {
		n = read(fd, block, BLOCK);
		if (n < 0)
			fail(path);
		bytes += (uint64_t)n;
		atomic_fetch_add(&shared->bytes, (uint64_t)n);
	}
	close(fd);
	return bytes;
}

/* Sleeps until the bytes are due.  A reader that is more than a second late does not make up
 * for it.
 */
static void pace(double *due, uint64_t bytes, double rate)
{
	double now = (double)monotonic_ns() / 1e9;
	struct timespec until;

	if (rate <= 0)
		return;
	*due = fmax(*due + (double)bytes / rate, now - 1);
	until = (struct timespec){ (time_t)*due, (long)(fmod(*due, 1) * 1e9) };
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

static void reader(int number, double rate)
{
	double due = (double)monotonic_ns() / 1e9;
	char *block = malloc(BLOCK);
	int i = arms[0].n * number / nreaders;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!block)
		fail("memory");
	for (;; i = (i + 1) % arms[0].n)
		pace(&due, read_whole(arms[atomic_load(&shared->arm)].what[i], block), rate);
}

static void start_readers(double rate)
{
	int flags = MAP_SHARED | MAP_ANONYMOUS;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, flags, -1, 0);
	if (shared == MAP_FAILED)
		fail("memory");
	for (int i = 0; i < nreaders; i++) {
		pid_t pid = fork();

		if (!pid)
			reader(i, rate);
		if (pid < 0)
			fail("fork");
	}
}

static void look_after_readers(void)
{
	if (waitpid(-1, NULL, WNOHANG) > 0) {
		fprintf(stderr, "steps: a reader ended\n");
		exit(1);
	}
}

static void switch_to(int arm)
{
	if (nreaders)
		atomic_store(&shared->arm, arm);
	else if (system(arms[arm].what[0]))
		fail(arms[arm].what[0]);
}

/* ---- the trainer ---- */

static bool a_line_waits(int timeout_ms)
{
	struct pollfd p = { STDIN_FILENO, POLLIN, 0 };

	return poll(&p, 1, timeout_ms) > 0;
}

/* Returns the milliseconds in the next line of the trainer. */
static double next_step(int arm)
{
	char line[256], *ms;
	size_t n = 0;

	do {
		if (!a_line_waits(PATIENCE_MS) || n + 1 == sizeof(line) ||
		    read(STDIN_FILENO, line + n, 1) != 1) {
			fprintf(stderr, "steps: the trainer does not step\n");
			exit(1);
		}
	} while (line[n++] != '\n');
	line[n] = '\0';
	arms[arm].steps++;
	ms = strstr(line, "loss ");
	return ms ? strtod(ms + strcspn(ms + 5, " ") + 5, NULL) : 0;
}

struct used {
	/* ms on a core of all ranks: of all threads, and of threads other than the trainers' */
	double rank, other;
	uint64_t bytes;
	uint64_t at_ns;
};

static double process_ms(int pid)
{
	clockid_t clock;
	struct timespec t;

	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t))
		fail("clock of a rank");
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Returns a thread's time on a core, as of the kernel's last tick, or when the thread slept. */
static double thread_ms(int pid, int thread)
{
	char path[64];
	double ns = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", pid, thread);
	f = fopen(path, "r");
	if (!f || fscanf(f, "%lf", &ns) != 1)
		fail(path);
	fclose(f);
	return ns / 1e6;
}

static double other_ms(int pid)
{
	char path[64];
	struct dirent *d;
	double ms = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	if (!dir)
		fail(path);
	while ((d = readdir(dir)))
		if (*d->d_name != '.' && atoi(d->d_name) != pid)
			ms += thread_ms(pid, atoi(d->d_name));
	closedir(dir);
	return ms;
}

static struct used used_now(void)
{
	struct used u = { .bytes = nreaders ? atomic_load(&shared->bytes) : 0,
			  .at_ns = monotonic_ns() };

	for (int i = 0; i < nranks; i++) {
		u.rank += process_ms(ranks[i]);
		u.other += other_ms(ranks[i]);
	}
	return u;
}

static void measure(int arm, int pair)
{
	struct used before, after;
	double ms = 0, each = WINDOW * nranks, other;

	switch_to(arm);
	while (a_line_waits(0))
		next_step(arm);
	for (int i = 0; i < SETTLE; i++)
		next_step(arm);
	before = used_now();
	for (int i = 0; i < WINDOW; i++)
		ms += next_step(arm);
	after = used_now();
	look_after_readers();
	other = after.other - before.other;
	arms[arm].value[STEP][pair] = ms / WINDOW;
	arms[arm].value[CPU][pair] = (after.rank - before.rank - other) / each;
	arms[arm].value[OTHER][pair] = other / each;
	arms[arm].value[READ][pair] = (double)(after.bytes - before.bytes) * 1e9 /
				      (double)(after.at_ns - before.at_ns);
}

/* ---- results ---- */

static void tell(int metric, unsigned pairs)
{
	double *a = arms[0].value[metric], *b = arms[1].value[metric], ratio[PAIRS_MAX], middle;

	for (unsigned i = 0; i < pairs; i++)
		ratio[i] = a[i] / b[i];
	middle = rows_median(ratio, pairs);
	printf("%s %.6g %.6g %.6g %.6g\n", metric_name[metric], rows_median(a, pairs),
	       rows_median(b, pairs), middle, rows_spread(ratio, pairs));
}

static void read_ranks(char *list)
{
	for (char *p = strtok(list, ","); p && nranks < RANKS_MAX; p = strtok(NULL, ","))
		ranks[nranks++] = atoi(p);
}

static bool read_arms(int argc, char **argv)
{
	int split = 0;

	while (split < argc && strcmp(argv[split], "--") != 0)
		split++;
	arms[0].what = argv;
	arms[0].n = split;
	arms[1].what = argv + split + 1;
	arms[1].n = argc - split - 1;
	return split && arms[0].n == arms[1].n;
}

int main(int argc, char **argv)
{
	int pairs = argc > 5 ? atoi(argv[1]) : 0;

	if (pairs < 1 || pairs > PAIRS_MAX || !read_arms(argc - 5, argv + 5)) {
		fprintf(stderr, "usage: steps PAIRS PID,PID... N RATE A... -- B...\n");
		return 2;
	}
	read_ranks(argv[2]);
	nreaders = atoi(argv[3]);
	if (nreaders)
		start_readers(atof(argv[4]));
	for (int i = 0; i < pairs; i++) {
		measure(i % 2, i);
		measure(1 - i % 2, i);
	}
	for (int m = 0; m < NMETRICS; m++)
		if (m != READ || nreaders)
			tell(m, (unsigned)pairs);
	printf("steps %lu %lu\n", arms[0].steps, arms[1].steps);
	return 0;
}
