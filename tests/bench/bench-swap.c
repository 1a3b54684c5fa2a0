/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Swapping to the disk under the build folder (BENCH_DIR: elsewhere), checksums on, beside the
 * best of fio, beside DeepNVMe's strategy (swap-reference.h), and an optimizer's step beside
 * its bound.  Each way runs once in each round, in another order in each; a ratio is the median
 * of the rounds' ratios.
 */

#include "engine/swap/swapper.h"
#include "tests/adam.h"
#include "tests/bench/rows.h"
#include "tests/bench/swap-reference.h"
#include "tests/unit/swap/read-now.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

enum {
	ROUNDS = 5,
	STATES = 16,
	SMALL = 64 << 10,
	SMALL_MIB = 1024,
	GROUPS = 6, /* sub-groups of a step, each with a state of each kind */
	SLOTS = 12, /* buffers as large as a state: three groups of four states */
#ifndef SLICES
	SLICES = 4, /* slices of a state: of 16 MiB, the engine's default */
#endif
	ROOM_GIB = 12
};
#define MIB ((uint64_t)1 << 20)
#define STATE (64 * MIB)
#define TOTAL (STATES * STATE)
#define NUMEL (STATE / sizeof(float))
#define SMALLS (SMALL_MIB * MIB / SMALL)

static char dir[4096];
static struct swapper *place;
static const char *pages;

static _Noreturn void fail(const char *what, int rc)
{
	fprintf(stderr, "bench-swap: %s: %s\n", what, strerror(-rc));
	exit(1);
}

static void must(const char *what, int rc)
{
	if (rc < 0)
		fail(what, rc);
}

/* ---- a way to do it, and its rounds ---- */

struct way {
	const char *name;
	double (*run)(const struct way *w); /* returns seconds; 0: the way is not there */
	uint64_t bytes;
	bool write;
	const void *how;
	double seconds[ROUNDS], cpu[ROUNDS];
};

static double now(void)
{
	return (double)monotonic_ns() / 1e9;
}

static double cpu_now(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void run_round(struct way *ways, unsigned n, int round)
{
	for (unsigned i = 0; i < n; i++) {
		struct way *w = &ways[(i + (unsigned)(round + 1)) % n];
		double cpu = cpu_now(), seconds = w->run(w);

		/* A first write is slower than an overwrite, so two rounds warm up. */
		if (round < 0)
			continue;
		w->seconds[round] = seconds;
		w->cpu[round] = cpu_now() - cpu;
	}
}

static void run_rounds(struct way *ways, unsigned n)
{
	for (int round = -2; round < ROUNDS; round++)
		run_round(ways, n, round);
}

/* ---- rows ---- */

static void print(struct row r, double value, double of, const double *ratios)
{
	char name[140];

	snprintf(name, sizeof(name), "swap, %s", r.name);
	r.name = name;
	rows_print(&r, value, of, ratios, ROUNDS);
}

static double gb_per_second(const struct way *w)
{
	return (double)w->bytes / rows_median(w->seconds, ROUNDS) / 1e9;
}

/* Prints a row of rates: more is better. */
static void compare_rates(const char *what, const struct way *ours, const struct way *other,
			  double goal)
{
	const struct row r = {
		.name = what, .unit = "GB/s", .reference = other->name, .goal = goal
	};
	double ratios[ROUNDS];

	if (other->seconds[0] <= 0)
		return;
	for (int i = 0; i < ROUNDS; i++)
		ratios[i] = other->seconds[i] / ours->seconds[i];
	print(r, gb_per_second(ours), gb_per_second(other), ratios);
}

static void compare_times(const char *what, const struct way *ours, const char *other,
			  const double of[ROUNDS], bool inverse, double goal)
{
	const struct row r = {
		.name = what, .unit = "s", .reference = other, .less = !inverse, .goal = goal
	};
	double ratios[ROUNDS];

	for (int i = 0; i < ROUNDS; i++)
		ratios[i] = inverse ? of[i] / ours->seconds[i] : ours->seconds[i] / of[i];
	print(r, rows_median(ours->seconds, ROUNDS), rows_median(of, ROUNDS), ratios);
}

static void compare_cpu(const char *what, const struct way *ours, const struct way *other)
{
	const struct row r = {
		.name = what, .unit = "s/GB", .reference = other->name, .less = true
	};
	double ratios[ROUNDS], gb = (double)ours->bytes / 1e9;

	for (int i = 0; i < ROUNDS; i++)
		ratios[i] = ours->cpu[i] / other->cpu[i];
	print(r, rows_median(ours->cpu, ROUNDS) / gb, rows_median(other->cpu, ROUNDS) / gb,
	      ratios);
}

/* ---- files and memory ---- */

static void path_of(char *path, size_t size, const char *kind, unsigned i)
{
	snprintf(path, size, "%s/%s-%u", dir, kind, i);
}

static void *memory_of(bool huge)
{
	uint8_t *map = mmap(NULL, STATE + (2 << 20), PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t state = 1;

	if (map == MAP_FAILED)
		fail("memory", -errno);
	map += (2 << 20) - (uintptr_t)map % (2 << 20);
	madvise(map, STATE, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	for (uint64_t i = 0; i < STATE / 8; i++) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		((uint64_t *)map)[i] = state;
	}
	mlock(map, STATE);
	return map;
}

static void *small_pages, *huge_pages;

static void remove_all(void)
{
	char command[4200];

	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	if (*dir && system(command))
		fprintf(stderr, "bench-swap: %s is left\n", dir);
}

/* ---- the swapper ---- */

static struct swapper_state *states[STATES];

static double swap_out(const struct way *way)
{
	double begin = now();

	(void)way;
	for (unsigned i = 0; i < STATES * SLICES; i++) {
		struct swapper_lent *l;

		must("bring", swapper_swap_in(place, states[i / SLICES], i % SLICES,
					      SWAPPER_WRITE, 60000, &l));
		must("send", swapper_swap_out(place, l));
	}
	must("flush", swapper_flush(place, 60000));
	begin = now() - begin;
	swapper_publish(place);
	return begin;
}

enum { AHEAD = 3 * SLICES };

static double swap_in(const struct way *way)
{
	struct swapper_lent *l[STATES * SLICES];
	double begin = now();
	void *memory;

	(void)way;
	for (unsigned i = 0; i < STATES * SLICES + AHEAD; i++) {
		if (i < STATES * SLICES)
			must("bring", swapper_swap_in(place, states[i / SLICES], i % SLICES,
						      SWAPPER_READ, 60000, &l[i]));
		if (i < AHEAD)
			continue;
		must("wait", swapper_wait(place, l[i - AHEAD], &memory));
		swapper_return(place, l[i - AHEAD]);
	}
	return now() - begin;
}

static struct swapper_state *packed;

static double walk_packed(const struct way *way)
{
	const struct swapper_swept walked = { packed,
					      way->write ? SWAPPER_WRITE : SWAPPER_READ };
	struct swapper_sweep *w;
	uint64_t first, numel;
	double begin = now();
	int rc;

	must("walk", swapper_sweep_begin(place, &walked, 1, &w));
	while ((rc = swapper_sweep_next(w, &first, &numel)) == 1)
		;
	must("walk", rc);
	swapper_sweep_end(w);
	if (way->write)
		must("flush", swapper_flush(place, 60000));
	begin = now() - begin;
	swapper_publish(place);
	return begin;
}

/* ---- DeepNVMe's strategy ---- */

struct how {
	struct reference r;
	void *const *memory;
};

static double by_reference(const struct way *way)
{
	const struct how *how = way->how;
	double begin = now();
	char path[4200];

	for (unsigned i = 0; i < STATES; i++) {
		path_of(path, sizeof(path), "tensor", i);
		reference_run(&how->r, path, way->write, *how->memory, STATE);
	}
	return now() - begin;
}

static double file_per_tensor(const struct way *way)
{
	const struct how *how = way->how;
	double begin = now();
	char path[4200];

	for (unsigned i = 0; i < SMALLS; i++) {
		path_of(path, sizeof(path), "small", i);
		reference_run(&how->r, path, way->write,
			      (uint8_t *)*how->memory + i % 1024 * SMALL, SMALL);
	}
	return now() - begin;
}

/* ---- fio ---- */

/* Returns field n, from 1, of a line of fio --output-format=terse: KiB/s. */
static double field(const char *line, unsigned n)
{
	while (--n && line)
		line = (line = strchr(line, ';')) ? line + 1 : NULL;
	return line ? atof(line) : 0;
}

static double fio_rate(const char *block, unsigned depth, bool write)
{
	char command[8192], line[16384] = "";
	FILE *out;

	snprintf(command, sizeof(command),
		 "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 fio --name=x --filename='%s/fio' "
		 "--rw=%s "
		 "--bs=%s --iodepth=%u --size=%" PRIu64
		 " --ioengine=io_uring --direct=1 --fixedbufs --registerfiles "
		 "--overwrite=1 --mem=malloc --refill_buffers=0 --output-format=terse "
		 "2>/dev/null",
		 dir, write ? "write" : "read", block, depth, TOTAL);
	out = popen(command, "r");
	if (!out)
		return 0;
	while (fgets(line, sizeof(line), out) && line[0] != '3')
		line[0] = '\0';
	pclose(out);
	return field(line, write ? 48 : 7) * 1024;
}

static double fio_best(const struct way *way)
{
	static const struct {
		const char *block;
		unsigned depth;
	} settings[] = { { "1m", 16 }, { "4m", 8 }, { "1m", 32 } };
	double best = 0;

	for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
		double rate = fio_rate(settings[i].block, settings[i].depth, way->write);

		best = rate > best ? rate : best;
	}
	return best > 0 ? (double)TOTAL / best : 0;
}

/* ---- an optimizer's step ---- */

static const struct adam adam = { 1e-3, 0.9, 0.999, 1e-8, 0.01, true };
static struct swapper_state *step_states[4]; /* param, exp_avg, exp_avg_sq, grad */
static uint16_t *bf16;
static float *array[4]; /* ordinary memory of one slice */

static void compute(float *const a[4], uint64_t n)
{
	adam_step(&adam, 10,
		  &(struct adam_states){ .param = a[0],
					 .exp_avg = a[1],
					 .exp_avg_sq = a[2],
					 .grad = a[3],
					 .bf16_param = bf16,
					 .n = n });
}

static double step(const struct way *way)
{
	struct swapper_swept walked[4];
	struct swapper_sweep *w;
	uint64_t first, numel;
	double begin = now();
	int rc;

	for (unsigned i = 0; i < 4; i++)
		walked[i] = (struct swapper_swept){ step_states[i],
						    i < 3 ? SWAPPER_READ | SWAPPER_WRITE
							  : SWAPPER_READ };
	must("walk", swapper_sweep_begin(place, walked, 4, &w));
	while ((rc = swapper_sweep_next(w, &first, &numel)) == 1) {
		float *a[4];

		for (unsigned i = 0; i < 4; i++)
			a[i] = swapper_sweep_memory(w, i);
		if (way->how)
			compute(a, numel);
	}
	must("walk", rc);
	swapper_sweep_end(w);
	must("flush", swapper_flush(place, 60000));
	begin = now() - begin;
	swapper_publish(place);
	return begin;
}

/* Bytes that Adam reads and writes for an element: four floats, three floats, and a bf16. */
enum { ADAM_BYTES = 7 * sizeof(float) + sizeof(uint16_t) };
#define PASS_BYTES (GROUPS * NUMEL * ADAM_BYTES)

static double compute_only(const struct way *way)
{
	double begin = now();

	(void)way;
	for (unsigned i = 0; i < GROUPS; i++)
		compute(array, NUMEL);
	return now() - begin;
}

static float *triad[3];

#ifndef __clang__
__attribute__((optimize("O3")))
#endif
static void
run_triad(float *restrict to, const float *restrict a, const float *restrict b, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		to[i] = a[i] + 0.5f * b[i];
}

static double triad_only(const struct way *way)
{
	double begin = now();
	uint64_t n;

	for (uint64_t left = way->bytes / (3 * sizeof(float)); left; left -= n) {
		n = u64_min(left, NUMEL);
		run_triad(triad[0], triad[1], triad[2], n);
	}
	return now() - begin;
}

static struct swapper_state *groups[GROUPS][4];

static void walked_of(unsigned group, struct swapper_swept *walked)
{
	for (unsigned i = 0; i < 4; i++)
		walked[i] = (struct swapper_swept){ groups[group][i],
						    i < 3 ? SWAPPER_READ | SWAPPER_WRITE
							  : SWAPPER_READ };
}

static void step_group(struct swapper_sweep *w)
{
	uint64_t first, numel;
	float *a[4];
	int rc;

	while ((rc = swapper_sweep_next(w, &first, &numel)) == 1) {
		for (unsigned i = 0; i < 4; i++)
			a[i] = swapper_sweep_memory(w, i);
		compute(a, numel);
	}
	must("walk", rc);
	swapper_sweep_end(w);
}

/* Steps each sub-group in a sweep of its own; with way->how the first slices of the next
 * sub-group are read while the last slices of this one are computed.
 */
static double step_groups(const struct way *way)
{
	struct swapper_swept walked[4];
	struct swapper_sweep *w = NULL, *next;
	double begin = now();

	for (unsigned i = 0; i < GROUPS; i++, w = next) {
		next = NULL;
		walked_of(i, walked);
		if (!w)
			must("walk", swapper_sweep_begin(place, walked, 4, &w));
		if (way->how && i + 1 < GROUPS) {
			walked_of(i + 1, walked);
			must("walk", swapper_sweep_then(w, walked, 4, &next));
		}
		step_group(w);
	}
	must("flush", swapper_flush(place, 60000));
	begin = now() - begin;
	swapper_publish(place);
	return begin;
}

/* Reads, computes and writes one sub-group after the other, which is DeepSpeed's default. */
static double serial(const struct way *way)
{
	const struct how *how = way->how;
	double begin = now();
	char path[4200];

	for (unsigned i = 0; i < GROUPS; i++) {
		for (unsigned k = 0; k < 4; k++) {
			path_of(path, sizeof(path), "group", 4 * i + k);
			reference_run(&how->r, path, false, array[k], STATE);
		}
		compute(array, NUMEL);
		for (unsigned k = 0; k < 3; k++) {
			path_of(path, sizeof(path), "group", 4 * i + k);
			reference_run(&how->r, path, true, array[k], STATE);
		}
	}
	return now() - begin;
}

/* Fills with numbers from 1 to 2: a disk may treat zeros, and a core denormal numbers, in a way
 * of their own.
 */
static void fill(float *to, uint64_t n)
{
	uint32_t state = 1;

	for (uint64_t i = 0; i < n; i++) {
		state = state * 1664525 + 1013904223;
		to[i] = 1 + (float)(state >> 8) / (1 << 24);
	}
}

/* Writes all states: blocks that were never written would not be read from the disk. */
static void write_states(struct swapper_state *const *of)
{
	struct swapper_swept walked = { NULL, SWAPPER_WRITE };
	struct swapper_sweep *w;
	uint64_t first, numel;
	char path[4200];

	for (unsigned i = 0; i < 4; i++) {
		walked.state = of[i];
		must("walk", swapper_sweep_begin(place, &walked, 1, &w));
		while (swapper_sweep_next(w, &first, &numel) == 1)
			fill(swapper_sweep_memory(w, 0), numel);
		swapper_sweep_end(w);
	}
	swapper_publish(place);
	for (unsigned i = 0; i < 4 * GROUPS; i++) {
		path_of(path, sizeof(path), "group", i);
		reference_run(&(struct reference){ MIB, 8, 1 }, path, true, array[0], STATE);
	}
}

/* ---- all of it ---- */

static void open_place(void)
{
	struct swapper_options options = { .dir = dir,
					   .name = "rank0.swap",
					   .budget = SLOTS * STATE,
					   .slice = STATE / SLICES };
	struct swapper_figures f;
	char why[512];

	if (swapper_open(&place, &options, why, sizeof(why))) {
		fprintf(stderr, "bench-swap: %s\n", why);
		exit(1);
	}
	swapper_figures(place, &f);
	pages = f.pinned.pages == PINNED_SMALL ? "4 KiB pages" : "huge pages";
	fprintf(stderr, "bench-swap: %s, %s, buffers in %s, %slocked, %sregistered\n", f.disk,
		f.file.direct ? "O_DIRECT" : "page cache", pages, f.pinned.locked ? "" : "not ",
		f.registered ? "" : "not ");
}

static struct swapper_state *add(const char *name, uint64_t numel)
{
	struct swapper_state *s;

	must("state", swapper_add(place, name, SWAPPER_STATE, 4, numel, &s));
	return s;
}

static const struct how defaults = { { MIB, 8, 1 }, &small_pages };
static const struct how tuned = { { MIB, 32, 2 }, &small_pages };
static const struct how our_buffers = { { MIB, 8, 1 }, &huge_pages };

static void large_states(bool write)
{
	struct way w[] = {
		{ "ours", write ? swap_out : swap_in, TOTAL, write, NULL, { 0 }, { 0 } },
		{ "fio's best, huge pages", fio_best, TOTAL, write, NULL, { 0 }, { 0 } },
		{ "DeepNVMe's way, 4 KiB pages",
		  by_reference,
		  TOTAL,
		  write,
		  &defaults,
		  { 0 },
		  { 0 } },
		{ "its best, 4 KiB pages", by_reference, TOTAL, write, &tuned, { 0 }, { 0 } },
		{ "same I/O by libaio, our buffers",
		  by_reference,
		  TOTAL,
		  write,
		  &our_buffers,
		  { 0 },
		  { 0 } },
	};
	const double goals[] = { 0, 0.95, 1.8, 1.4, 0.98 };
	char what[100];

	snprintf(what, sizeof(what), "64 MiB states %s, %s", write ? "out" : "in", pages);
	run_rounds(w, ARRAY_SIZE(w));
	for (size_t i = 1; i < ARRAY_SIZE(w); i++)
		compare_rates(what, &w[0], &w[i], goals[i]);
	snprintf(what, sizeof(what), "64 MiB states %s, CPU", write ? "out" : "in");
	compare_cpu(what, &w[0], &w[2]);
	if (w[1].seconds[0] <= 0 && write)
		fprintf(stderr, "bench-swap: beside fio: skipped: no fio with io_uring\n");
}

static void small_tensors(bool write)
{
	struct way w[] = {
		{ "ours", walk_packed, SMALL_MIB * MIB, write, NULL, { 0 }, { 0 } },
		{ "a file each, libaio, 4 KiB pages",
		  file_per_tensor,
		  SMALL_MIB * MIB,
		  write,
		  &defaults,
		  { 0 },
		  { 0 } },
		{ "fio's best, huge pages", fio_best, TOTAL, write, NULL, { 0 }, { 0 } },
	};
	char what[100];

	snprintf(what, sizeof(what), "64 KiB tensors packed, %s, %s", write ? "out" : "in",
		 pages);
	run_rounds(w, ARRAY_SIZE(w));
	compare_rates(what, &w[0], &w[1], 0);
	compare_rates(what, &w[0], &w[2], 0.95);
}

static void optimizer_step(void)
{
	struct way w[] = {
		{ "ours", step, 7 * GROUPS * STATE, true, &adam, { 0 }, { 0 } },
		{ "its I/O", step, 7 * GROUPS * STATE, true, NULL, { 0 }, { 0 } },
		{ "its compute", compute_only, 0, false, NULL, { 0 }, { 0 } },
		{ "DeepSpeed's order",
		  serial,
		  7 * GROUPS * STATE,
		  true,
		  &defaults,
		  { 0 },
		  { 0 } },
	};
	double bound[ROUNDS];

	write_states(step_states);
	run_rounds(w, ARRAY_SIZE(w));
	for (int i = 0; i < ROUNDS; i++)
		bound[i] =
			w[1].seconds[i] > w[2].seconds[i] ? w[1].seconds[i] : w[2].seconds[i];
	compare_times("a step, pipelined", &w[0], "its I/O or compute", bound, false, 1.05);
	compare_times("a step, pipelined, times faster", &w[0],
		      "DeepSpeed's order and way, 4 KiB pages", w[3].seconds, true, 1.6);
}

static void adam_pass(void)
{
	struct way w[] = {
		{ "ours", compute_only, PASS_BYTES, true, NULL, { 0 }, { 0 } },
		{ "a triad of as many bytes",
		  triad_only,
		  PASS_BYTES,
		  true,
		  NULL,
		  { 0 },
		  { 0 } },
	};

	for (unsigned i = 0; i < 3; i++) {
		triad[i] = memory_of(false);
		fill(triad[i], NUMEL);
	}
	run_rounds(w, ARRAY_SIZE(w));
	compare_rates("Adam of a step, one thread, 4 KiB pages", &w[0], &w[1], 0.9);
	for (unsigned i = 0; i < 3; i++)
		munmap(triad[i], STATE);
}

static void steps_of_groups(void)
{
	struct way w[] = {
		{ "ours", step_groups, 7 * GROUPS * STATE, true, &adam, { 0 }, { 0 } },
		{ "alone", step_groups, 7 * GROUPS * STATE, true, NULL, { 0 }, { 0 } },
	};

	for (unsigned i = 0; i < GROUPS; i++) {
		for (unsigned k = 0; k < 4; k++)
			groups[i][k] = add("group", NUMEL);
		write_states(groups[i]);
	}
	run_rounds(w, ARRAY_SIZE(w));
	compare_times("a step of sub-groups, read ahead across them, times faster", &w[0],
		      "each by itself", w[1].seconds, true, 1);
	for (unsigned i = 0; i < GROUPS; i++)
		for (unsigned k = 0; k < 4; k++)
			swapper_drop(place, groups[i][k]);
}

/* Returns the bytes that this process has read from disks, as the kernel counts them, without
 * page caches.
 */
static uint64_t device_bytes_read(void)
{
	FILE *f = fopen("/proc/self/io", "re");
	char line[128];
	uint64_t n = 0;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "read_bytes: %" SCNu64, &n) == 1)
			break;
	if (f)
		fclose(f);
	return n;
}

static void small_read(void)
{
	const struct row r = { .name = "device bytes for a read of 4 KiB",
			       .unit = "B",
			       .less = true,
			       .goal = 8192 };
	uint64_t before = device_bytes_read();
	uint8_t block[4096];

	if (!before) {
		fprintf(stderr,
			"bench-swap: device bytes: skipped: the kernel does not count them\n");
		return;
	}
	for (uint64_t i = 0; i < 100; i++)
		must("read", read_now(place, states[i % STATES], NULL,
				      i * 1234567 % (STATE - 4096), sizeof(block), block));
	print(r, (double)(device_bytes_read() - before) / 100, 0, NULL);
}

static void make_dir(void)
{
	const char *given = getenv("BENCH_DIR");
	struct statvfs s;

	snprintf(dir, sizeof(dir), "%s/bench-swap-XXXXXX", given ? given : ".");
	if (!mkdtemp(dir))
		fail(dir, -errno);
	atexit(remove_all);
	if (!statvfs(dir, &s) && s.f_bavail * s.f_frsize >= (uint64_t)ROOM_GIB << 30)
		return;
	fprintf(stderr, "bench-swap: skipped: needs %d GiB of disk\n", ROOM_GIB);
	exit(77);
}

int main(void)
{
	setenv("FRAG_LOG", "error", 1);
	rows_go_first("bench-swap");
	make_dir();
	small_pages = memory_of(false);
	huge_pages = memory_of(true);
	open_place();
	for (unsigned i = 0; i < STATES; i++)
		states[i] = add("state", NUMEL);
	large_states(true);
	large_states(false);
	small_read();
	for (unsigned i = 0; i < 4; i++) {
		step_states[i] = add("step", GROUPS * NUMEL);
		array[i] = memory_of(false);
		fill(array[i], NUMEL);
	}
	bf16 = malloc(NUMEL * sizeof(*bf16));
	if (!bf16)
		fail("memory", -ENOMEM);
	adam_pass();
	optimizer_step();
	steps_of_groups();
	packed = add("packed", SMALL_MIB * MIB / 4);
	small_tensors(true);
	small_tensors(false);
	swapper_close(place);
	return 0;
}
