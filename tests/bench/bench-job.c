/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* bench-job RANKS BYTES PARAMS [kept]: a job to measure.  RANKS processes share BYTES of
 * float32 state of PARAMS equal parameters in a group of stage 1: fp32 in memory of the engine;
 * with `kept` also exp_avg in memory of the trainer's in huge pages and exp_avg_sq in its pages
 * of 4 KiB. One parameter is called "state", many "layers.000000.weight" and so on.
 *
 * Prints the address to mount.  Then each line of its input sets what the ranks do and is
 * answered by "ok": idle (nothing at all), commit (a safe point each millisecond), train (a
 * step each PERIOD_MS that changes TOUCH bytes of the rank's fp32).  At the input's end the job
 * ends too.
 *
 * The launcher tells all ranks of each step and waits until all have made it, as ranks do that
 * reduce gradients: none is ever more than one step ahead, and all are at the same step when
 * the job is idle.
 */

#include "engine/base/base.h"
#include "engine/frag.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { RANKS_MAX = 64, PERIOD_MS = 100, TOUCH = 16 << 20, HUGE = 2 << 20, WAIT_MS = 120000 };

struct rank {
	pid_t pid;
	int command; /* the rank's input */
	int answer;
};

static struct {
	unsigned ranks;
	uint64_t bytes;
	unsigned params;
	bool kept;
	struct rank rank[RANKS_MAX];
} job;

static void fail(const char *what)
{
	fprintf(stderr, "bench-job: %s\n", what);
	exit(1);
}

static void need(int rc, const char *what)
{
	if (rc < 0) {
		fprintf(stderr, "bench-job: %s: %s\n", what, strerror(-rc));
		exit(1);
	}
}

/* ---- a rank ---- */

struct trainer {
	struct frag *frag;
	int group;
	uint64_t numel; /* elements of its partition */
	uint64_t at;    /* element where the next step begins */
	float *fp32;
};

static void describe(struct trainer *t)
{
	uint64_t numel = job.bytes / sizeof(float) / job.params;
	CLEANUP(free) int *params = calloc(job.params, sizeof(*params));
	struct frag_zero zero = { sizeof(zero), .stage = 1 };
	char name[64] = "state";

	for (unsigned i = 0; params && i < job.params; i++) {
		struct frag_tensor tensor = { sizeof(tensor), .name = name, .dtype = FRAG_F32,
					      .ndim = 1, .shape = &numel };

		if (job.params > 1)
			snprintf(name, sizeof(name), "layers.%06u.weight", i);
		params[i] = frag_param(t->frag, &tensor);
		need(params[i], "frag_param");
	}
	t->group = params ? frag_group(t->frag, params, job.params, &zero) : -1;
	need(t->group, "frag_group");
	t->numel = frag_partition_numel(t->frag, t->group, 0);
}

static void fill(float *memory, uint64_t numel)
{
	for (uint64_t i = 0; i < numel; i++)
		memory[i] = (float)(i % 8191);
}

static void keep(struct trainer *t, const char *key, int advice)
{
	uint64_t size = u64_div_ceil(t->numel * sizeof(float), HUGE) * HUGE;
	char *memory = mmap(NULL, size + HUGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		fail("no memory");
	memory += -(uintptr_t)memory % HUGE;
	madvise(memory, size, advice);
	fill((float *)memory, t->numel);
	need(frag_state_keep(t->frag, t->group, 0, key, FRAG_F32, memory), key);
}

static void attach(struct trainer *t, unsigned rank)
{
	struct frag_config config = { sizeof(config), .world = job.ranks };
	char text[16], name[64];
	void *memory;

	snprintf(text, sizeof(text), "%u", rank);
	snprintf(name, sizeof(name), "bench-%d", (int)getppid());
	config.rank = text;
	config.job = name;
	need(frag_open(&t->frag, &config), "frag_open");
	describe(t);
	need(frag_state_alloc(t->frag, t->group, 0, "fp32", FRAG_F32, &memory), "fp32");
	t->fp32 = memory;
	fill(t->fp32, t->numel);
	if (job.kept) {
		keep(t, "exp_avg", MADV_HUGEPAGE);
		keep(t, "exp_avg_sq", MADV_NOHUGEPAGE);
	}
	need(frag_ready(t->frag), "frag_ready");
	need(frag_barrier(t->frag, WAIT_MS), "frag_barrier");
}

static void step(struct trainer *t)
{
	uint64_t n = u64_min(TOUCH / sizeof(float), t->numel);

	frag_step_begin(t->frag);
	if (t->at + n > t->numel)
		t->at = 0;
	for (uint64_t i = t->at; i < t->at + n; i++)
		t->fp32[i] = t->fp32[i] * 0.999f + 1;
	t->at += n;
	frag_step_end(t->frag);
}

/* Runs a turn for each byte of commands: 't' trains a step, 'c' only passes a boundary. */
static void train(struct trainer *t, int commands, int answers)
{
	char mode;

	while (read(commands, &mode, 1) == 1) {
		if (mode == 't')
			step(t);
		else
			frag_safe_point(t->frag);
		if (write(answers, "k", 1) != 1)
			return;
	}
}

static int be_rank(unsigned rank, int commands, int answers)
{
	struct trainer t = { 0 };
	char address[160] = "";

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	attach(&t, rank);
	if (frag_address(t.frag))
		snprintf(address, sizeof(address), "%s", frag_address(t.frag));
	if (write(answers, address, sizeof(address)) != sizeof(address))
		return 1;
	train(&t, commands, answers);
	frag_close(t.frag);
	return 0;
}

/* ---- the launcher of the ranks ---- */

static void launch(unsigned i)
{
	struct rank *r = &job.rank[i];
	int commands[2], answers[2];

	if (pipe(commands) || pipe(answers))
		fail("pipe");
	r->pid = fork();
	if (r->pid < 0)
		fail("fork");
	if (!r->pid) {
		for (unsigned before = 0; before < i; before++)
			close(job.rank[before].command);
		close(commands[1]);
		close(answers[0]);
		exit(be_rank(i, commands[0], answers[1]));
	}
	close(commands[0]);
	close(answers[1]);
	r->command = commands[1];
	r->answer = answers[0];
}

static void collect(void *out, size_t size)
{
	for (unsigned i = 0; i < job.ranks; i++) {
		char *to = out;
		size_t n = 0;

		while (n < size) {
			ssize_t got = read(job.rank[i].answer, to + n, size - n);

			if (got <= 0)
				fail("a rank has gone");
			n += (size_t)got;
		}
		if (!i && size > 1)
			puts(out);
	}
}

static void turn(char mode)
{
	char ok;

	for (unsigned i = 0; i < job.ranks; i++)
		if (write(job.rank[i].command, &mode, 1) != 1)
			fail("a rank has gone");
	collect(&ok, 1);
}

/* Makes turns of the mode until there is input. */
static void turn_until_told(char mode)
{
	struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
	int period_ms = mode == 'i' ? -1 : mode == 'c' ? 1 : PERIOD_MS;

	while (!poll(&input, 1, period_ms))
		turn(mode);
}

static void lead(void)
{
	char line[64], mode = 'i';

	for (;;) {
		turn_until_told(mode);
		if (!fgets(line, sizeof(line), stdin))
			return;
		mode = line[0];
		puts("ok");
	}
}

static int finish(void)
{
	int status, result = 0;

	alarm(30); /* ranks end by themselves; one that hangs does not keep the launcher */
	for (unsigned i = 0; i < job.ranks; i++)
		close(job.rank[i].command);
	for (unsigned i = 0; i < job.ranks; i++) {
		if (waitpid(job.rank[i].pid, &status, 0) < 0 || status)
			result = 1;
	}
	return result;
}

static void parse(int argc, char **argv)
{
	if (argc < 4 || argc > 5)
		fail("usage: bench-job RANKS BYTES PARAMS [kept]");
	job.ranks = (unsigned)strtoul(argv[1], NULL, 10);
	job.bytes = strtoull(argv[2], NULL, 10);
	job.params = (unsigned)strtoul(argv[3], NULL, 10);
	job.kept = argc == 5 && !strcmp(argv[4], "kept");
	if (!job.ranks || job.ranks > RANKS_MAX || !job.params || job.bytes / 4 < job.params)
		fail("numbers out of range");
}

int main(int argc, char **argv)
{
	char address[160];

	parse(argc, argv);
	setvbuf(stdout, NULL, _IOLBF, 0);
	setvbuf(stdin, NULL, _IONBF, 0); /* unbuffered, so that poll(2) sees each line */
	signal(SIGPIPE, SIG_IGN);
	for (unsigned i = 0; i < job.ranks; i++)
		launch(i);
	collect(address, sizeof(address));
	lead();
	return finish();
}
