/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* A process that is one rank of a test's job.  It carries out the commands of stdin, a line
 * each, and answers each with a line on stdout: the command's first word and a result.
 * TEST_STAGE is the ZeRO stage.
 *
 * Every state is filled with bits that follow from parameter, key and element alone, so that
 * any rank can check what it reads from others; all kinds of NaN and -0.0 are among them.
 */

#include "engine/frag.h"

#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NPARAMS = 6, NGROUPS = 2, KEYS = 3, LP = KEYS, SUBS_MAX = 16 };
enum { FP32, EXP_AVG, GRAD }; /* numbers of keys */

static const struct {
	const char *name;
	uint32_t ndim;
	uint64_t shape[2], numel;
	int group;
} params[NPARAMS] = {
	{ "one", 1, { 1 }, 1, 1 },
	{ "embed.weight", 2, { 1001, 263 }, 1001 * 263, 0 },
	{ "up.weight", 2, { 17, 13 }, 17 * 13, 0 },
	{ "up.bias", 1, { 3 }, 3, 1 },
	{ "scalar", 0, { 0 }, 1, 1 },
	{ "down.weight", 2, { 64, 31 }, 64 * 31, 0 },
};

static const char *const keys[KEYS + 1] = { "fp32", "exp_avg", "grad", "lp" };

static struct frag *f;
static int number[NPARAMS];
static int group[NGROUPS];
static int stage;
static void *kept; /* "exp_avg" of group 0, sub-group 0, in this program's memory */
static size_t kept_bytes;
static void *own_grads[NGROUPS][SUBS_MAX]; /* in this program's memory, too */

static uint32_t bits(uint64_t param, uint64_t key, uint64_t element)
{
	uint64_t x = (param << 56 | key << 48 | element) + 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return (uint32_t)(x ^ x >> 31);
}

/* Fills elements [first, first + n) of a state, or of the low-precision parameter. */
static void fill(void *to, uint64_t param, uint64_t key, uint64_t first, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		uint32_t value = bits(param, key, first + i);

		if (key == LP)
			((uint16_t *)to)[i] = (uint16_t)value;
		else
			((uint32_t *)to)[i] = value;
	}
}

static void *room(size_t bytes)
{
	void *memory = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		err(1, "mmap");
	return memory;
}

/* ---- describing ---- */

static void add_param(int i, uint64_t world, uint64_t rank)
{
	struct frag_tensor t = { sizeof(t), .name = params[i].name, .dtype = FRAG_BF16,
				 .ndim = params[i].ndim, .shape = params[i].shape };
	uint64_t numel = params[i].numel, piece = (numel + world - 1) / world,
		 first = piece * rank;

	if (stage < 3) {
		t.lp = room(numel * 2);
		fill(t.lp, (uint64_t)i, LP, 0, numel);
	} else {
		t.lp_shard = room(piece * 2);
		if (first < numel)
			fill(t.lp_shard, (uint64_t)i, LP, first,
			     numel - first < piece ? numel - first : piece);
	}
	number[i] = frag_param(f, &t);
	if (number[i] < 0)
		errx(1, "frag_param: %s", strerror(-number[i]));
}

static void add_group(int g)
{
	struct frag_zero zero = { sizeof(zero), .stage = stage, .sub_group_size = 70000 };
	int members[NPARAMS];
	size_t n = 0;

	for (int i = 0; i < NPARAMS; i++)
		if (params[i].group == g)
			members[n++] = number[i];
	group[g] = frag_group(f, members, n, &zero);
	if (group[g] < 0)
		errx(1, "frag_group: %s", strerror(-group[g]));
}

static void fill_partition(int g, uint32_t sub, uint64_t key, uint32_t *memory)
{
	struct frag_fragment at;

	for (int i = 0; i < NPARAMS; i++)
		if (params[i].group == g && !frag_fragment(f, number[i], &at) && at.sub == sub)
			fill(memory + at.partition_offset, (uint64_t)i, key, at.param_offset,
			     at.numel);
}

static void add_state(int g, uint32_t sub, uint64_t key)
{
	size_t bytes = frag_partition_numel(f, group[g], sub) * 4;
	void *memory;
	int rc;

	if (key != FP32) {
		memory = room(bytes);
		rc = frag_state_keep(f, group[g], sub, keys[key], FRAG_F32, memory);
		if (key == GRAD)
			own_grads[g][sub] = memory;
		if (key == EXP_AVG && !g && !sub) {
			kept = memory;
			kept_bytes = bytes;
		}
	} else {
		rc = frag_state_alloc(f, group[g], sub, keys[key], FRAG_F32, &memory);
	}
	if (rc)
		errx(1, "state %s: %s", keys[key], strerror(-rc));
	fill_partition(g, sub, key, memory);
}

static int do_ready(const char *grads)
{
	for (int i = 0; i < NPARAMS; i++)
		add_param(i, (uint64_t)frag_world(f), (uint64_t)frag_rank(f));
	for (int g = 0; g < NGROUPS; g++) {
		add_group(g);
		for (uint32_t sub = 0; sub < frag_sub_groups(f, group[g]); sub++)
			for (uint64_t key = 0; key < KEYS; key++)
				add_state(g, sub, key);
	}
	if (strcmp(grads, "later"))
		frag_grads_valid(f, 1.0);
	return frag_ready(f);
}

/* ---- reading ---- */

/* Returns 0, -errno, or 1: the bits differ. */
static int check_one(int param, uint64_t key)
{
	size_t bytes = params[param].numel * (key == LP ? 2 : 4);
	uint8_t *got = malloc(bytes), *want = malloc(bytes);
	int rc = frag_get(f, number[param], keys[key], got, bytes);

	fill(want, (uint64_t)param, key, 0, params[param].numel);
	if (!rc)
		rc = memcmp(got, want, bytes) != 0;
	free(got);
	free(want);
	return rc;
}

static int do_check(const char *key)
{
	int rc = 0;

	for (int i = 0; i < NPARAMS; i++)
		for (uint64_t k = 0; k <= KEYS && !rc; k++)
			if (!*key || !strcmp(key, keys[k]))
				rc = check_one(i, k);
	return rc;
}

/* ---- a child ---- */

static bool is_refused(void)
{
	float out[1];

	return frag_rank(f) == -EINVAL && frag_world(f) == -EINVAL &&
	       frag_step_begin(f) == -EINVAL && frag_step_end(f) == -EINVAL &&
	       frag_safe_point(f) == -EINVAL && frag_grads_valid(f, 1) == -EINVAL &&
	       frag_get(f, 0, "fp32", out, 4) == -EINVAL &&
	       frag_set(f, 0, "fp32", out, 4) == -EINVAL && frag_barrier(f, 1000) == -EINVAL &&
	       frag_peer_read(f, 0, "x", 0, out, 4) == -EINVAL && frag_ready(f) == -EINVAL &&
	       frag_state_drop(f, 0, 0, "fp32") == -EINVAL && !frag_address(f);
}

/* Forks.  Returns the child's process id, or -1: its calls of the library were not refused.
 * The child lives until it is killed.
 */
static int do_fork(void)
{
	int ends[2];
	char word = 0;
	pid_t pid;

	if (pipe(ends))
		err(1, "pipe");
	pid = fork();
	if (!pid) {
		alarm(200); /* in case no test kills it */
		word = is_refused() ? 'y' : 'n';
		frag_close(f);
		if (write(ends[1], &word, 1) != 1)
			_exit(1);
		close(STDIN_FILENO);
		close(STDOUT_FILENO);
		for (;;)
			pause();
	}
	close(ends[1]);
	if (read(ends[0], &word, 1) != 1)
		word = 'n';
	close(ends[0]);
	return word == 'y' ? pid : -1;
}

/* ---- signals ---- */

static volatile sig_atomic_t handled_by;

static void on_term(int sig)
{
	handled_by = gettid();
}

static bool blocks_all(const char *task)
{
	char path[512], line[256];
	unsigned long long mask = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%.200s/status", task);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		sscanf(line, "SigBlk: %llx", &mask);
	if (file)
		fclose(file);
	/* the kernel and libc keep KILL, STOP, 32 and 33 for themselves */
	return (mask | 1ull << 8 | 1ull << 18 | 3ull << 31) == ~0ull;
}

/* Returns how many threads there are beside this one; -1: one of them takes signals. */
static int do_mask(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	int n = 0;

	while (dir && n >= 0 && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.' || atoi(entry->d_name) == getpid())
			continue;
		n = blocks_all(entry->d_name) ? n + 1 : -1;
	}
	if (dir)
		closedir(dir);
	return n;
}

/* Waits for the handler.  Returns -1: it did not run, 0: it ran in another thread, 1: in this
 * one.
 */
static int do_handled(void)
{
	for (int i = 0; i < 2000 && !handled_by; i++)
		usleep(5000);
	return handled_by ? handled_by == getpid() : -1;
}

/* ---- commands ---- */

/* Gives the gradients of one partition other memory with the same values; nothing else comes to
 * the old memory's address for a while.
 */
static int move_grads(int g, uint32_t sub)
{
	size_t bytes = frag_partition_numel(f, group[g], sub) * 4;
	void *memory = room(bytes);
	int rc;

	fill_partition(g, sub, GRAD, memory);
	rc = frag_state_move(f, group[g], sub, keys[GRAD], memory);
	munmap(own_grads[g][sub], bytes ? bytes : 1);
	own_grads[g][sub] = memory;
	return rc;
}

/* Opens that many windows of gradients, each in other memory and for readers for a while. */
static int do_renew(int windows)
{
	int rc = 0;

	for (; windows > 0 && !rc; windows--) {
		rc = frag_grads_gone(f);
		for (int g = 0; g < NGROUPS; g++)
			for (uint32_t sub = 0; sub < frag_sub_groups(f, group[g]) && !rc; sub++)
				rc = move_grads(g, sub);
		rc = rc ? rc : frag_grads_valid(f, 1);
		usleep(2000);
	}
	return rc;
}

/* Frees memory that was to stay, as the library was told; nothing else comes to its address. */
static int do_free(void)
{
	munmap(kept, kept_bytes);
	return mmap(kept, kept_bytes, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == kept
		       ? 0
		       : -errno;
}

static int set_first(const char *key)
{
	float value = 42;

	return frag_set(f, number[4], key, &value, sizeof(value));
}

static int do_one(const char *word, const char *argument)
{
	if (!strcmp(word, "open"))
		return frag_open(&f, NULL);
	if (!strcmp(word, "ready"))
		return do_ready(argument);
	if (!strcmp(word, "barrier"))
		return frag_barrier(f, (unsigned)atoi(argument));
	if (!strcmp(word, "check"))
		return do_check(argument);
	if (!strcmp(word, "set"))
		return set_first(argument);
	if (!strcmp(word, "step"))
		return frag_step_begin(f) ? -1 : frag_step_end(f);
	if (!strcmp(word, "gone"))
		return frag_grads_gone(f);
	if (!strcmp(word, "valid"))
		return frag_grads_valid(f, 1);
	if (!strcmp(word, "renew"))
		return do_renew(atoi(argument));
	if (!strcmp(word, "drop"))
		return frag_state_drop(f, group[0], 0, argument);
	if (!strcmp(word, "free"))
		return do_free();
	if (!strcmp(word, "fork"))
		return do_fork();
	if (!strcmp(word, "term"))
		return sigaction(
			SIGTERM,
			&(struct sigaction){ .sa_handler = on_term, .sa_flags = SA_RESTART },
			NULL);
	if (!strcmp(word, "mask"))
		return do_mask();
	if (!strcmp(word, "handled"))
		return do_handled();
	if (!strcmp(word, "rank"))
		return frag_rank(f);
	if (!strcmp(word, "close"))
		frag_close(f);
	return 0;
}

int main(void)
{
	char line[256], word[32], argument[32];
	const char *text = getenv("TEST_STAGE");

	stage = text ? atoi(text) : 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (fgets(line, sizeof(line), stdin)) {
		argument[0] = '\0';
		if (sscanf(line, "%31s %31s", word, argument) < 1)
			continue;
		if (!strcmp(word, "address"))
			printf("address %s\n", frag_address(f) ? frag_address(f) : "-");
		else
			printf("%s %d\n", word, do_one(word, argument));
		fflush(stdout);
	}
	frag_close(f);
	return 0;
}
