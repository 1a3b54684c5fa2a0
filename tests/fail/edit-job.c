/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/fail/edit.h"

#include "engine/base/base.h"
#include "engine/frag.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* edit-job STAGE WORLD PAUSE_US [SKEW]: a job of WORLD processes.  Each step adds 1 to all
 * states; each rank R then writes the values it has into the file rank.R (history.h).  All
 * elements of a parameter have one value at any time, on all ranks: a rank that finds another
 * says so and dies.  With FRAG_SWAP_DIR states are on NVMe.  With SKEW, a rank passes SKEW more
 * boundaries after each step, with random pauses, and ranks in turn stand for STAND_US before
 * every STAND_STEPS-th step.  Prints the address to mount, then answers each line of its input:
 *	kill RANK	sends it SIGKILL
 *	fork RANK	the rank forks a child, which outlives it
 *	end		live ranks stop at one boundary; prints the values, the same on all
 */

enum { WORLD_MAX = 8, KEYS = 2, LINE = 256, WAIT_S = 60, LAST_POINTS = 3000 };
enum { STAND_STEPS = 5, STAND_US = 400000 };

static const char *const keys[KEYS] = { "fp32", "exp_avg" };

static struct shared {
	_Atomic bool dead[WORLD_MAX];
	_Atomic uint64_t
		published[WORLD_MAX]; /* the step whose values a rank has told the others */
	_Atomic bool ending;
	_Atomic uint64_t stop; /* the last step */
	_Atomic bool ended[WORLD_MAX];
	_Atomic bool fork[WORLD_MAX];
	struct {
		_Atomic uint64_t step;
		_Atomic float value;
	} values[2][EDIT_PARAMS];
	float last[WORLD_MAX][EDIT_PARAMS]; /* -1: it holds nothing of it */
} * shared;

static uint32_t world, stage;
static long pause_us, skew;

struct rank {
	uint32_t rank;
	struct frag *f;
	int params[EDIT_PARAMS], group;
	void *lp[EDIT_PARAMS];
	uint64_t lp_numel[EDIT_PARAMS];
	float *states[KEYS]; /* swapped: copies */
	bool swapped;
	uint64_t step;
	int log;
};

static _Noreturn void die(const char *why)
{
	fprintf(stderr, "edit-job: %s\n", why);
	exit(1);
}

static uint64_t numel(uint32_t param)
{
	return edit_params[param].shape[0] * edit_params[param].shape[1];
}

static bool is_float(uint32_t param)
{
	return !strcmp(edit_params[param].lp, "lp");
}

/* ---- a rank's memory ---- */

/* Nearest, ties to even. */
static uint16_t bf16(float value)
{
	uint32_t bits, high;

	memcpy(&bits, &value, sizeof(bits));
	high = bits >> 16;
	return (uint16_t)(high + ((bits & 0xffff) + (high & 1) > 0x8000));
}

static void fill_lp(struct rank *r, uint32_t param, float value)
{
	uint16_t half = bf16(value);

	for (uint64_t i = 0; i < r->lp_numel[param]; i++)
		if (is_float(param))
			((float *)r->lp[param])[i] = value;
		else
			((uint16_t *)r->lp[param])[i] = half;
}

static bool lp_is(const struct rank *r, uint32_t param, float value)
{
	uint16_t half = bf16(value);

	for (uint64_t i = 0; i < r->lp_numel[param]; i++)
		if (is_float(param) ? ((const float *)r->lp[param])[i] != value
				    : ((const uint16_t *)r->lp[param])[i] != half)
			return false;
	return true;
}

static bool is_uniform(const float *state, uint64_t n)
{
	for (uint64_t i = 1; i < n; i++)
		if (state[i] != state[0])
			return false;
	return true;
}

/* What is on NVMe, into its copies, or from there. */
static void visit(const struct rank *r, bool write)
{
	struct frag_swept swept[KEYS] = { { keys[0], FRAG_READ_ONLY },
					  { keys[1], FRAG_READ_ONLY } };
	struct frag_sweep *sweep;
	uint64_t first, n;
	void *memory[KEYS];
	int rc;

	if (!r->swapped)
		return;
	for (int k = 0; k < KEYS && write; k++)
		swept[k].flags = FRAG_WRITE_ONLY;
	if (frag_sweep_begin(r->f, r->group, 0, swept, KEYS, &sweep))
		die("frag_sweep_begin");
	while ((rc = frag_sweep_next(sweep, &first, &n, memory)) == 1)
		for (int k = 0; k < KEYS; k++)
			memcpy(write ? memory[k] : r->states[k] + first,
			       write ? r->states[k] + first : memory[k], n * sizeof(float));
	if (rc)
		die("frag_sweep_next");
	frag_sweep_end(sweep);
}

/* The parameter's one value on this rank; -1: it holds nothing that tells. */
static float value_of(const struct rank *r, uint32_t param)
{
	struct frag_fragment at;
	const float *state;

	if (frag_fragment(r->f, r->params[param], &at))
		return is_float(param) && r->lp_numel[param] ? *(const float *)r->lp[param]
							     : -1;
	state = r->states[0] + at.partition_offset;
	if (!is_uniform(state, at.numel))
		die("half of an edit");
	return *state;
}

static void check(const struct rank *r, uint32_t param, float value)
{
	uint16_t *half = r->lp[param];

	if (value >= 0 && !lp_is(r, param, value))
		die("the low-precision copy has another value");
	for (uint64_t i = 1; value < 0 && i < r->lp_numel[param]; i++)
		if (half[i] != half[0])
			die("half of an edit in the low-precision copy");
}

static void look(struct rank *r, float *values)
{
	visit(r, false);
	for (uint32_t p = 0; p < EDIT_PARAMS; p++) {
		values[p] = value_of(r, p);
		check(r, p, values[p]);
	}
}

/* ---- attaching ---- */

static uint64_t lp_piece(uint32_t rank, uint32_t param)
{
	uint64_t n = numel(param), piece = u64_div_ceil(n, world);

	if (stage < 3)
		return n;
	return piece * rank < n ? u64_min(piece, n - piece * rank) : 0;
}

static void add_param(struct rank *r, uint32_t p)
{
	char name[8];
	struct frag_tensor t = { sizeof(t), .name = name,
				 .dtype = is_float(p) ? FRAG_F32 : FRAG_BF16, .ndim = 2,
				 .shape = edit_params[p].shape };

	snprintf(name, sizeof(name), "p%u", p);
	r->lp_numel[p] = lp_piece(r->rank, p);
	r->lp[p] = calloc(numel(p), sizeof(float));
	*(stage < 3 ? &t.lp : &t.lp_shard) = r->lp[p];
	r->params[p] = frag_param(r->f, &t);
}

static void describe(struct rank *r)
{
	void *memory;

	for (uint32_t p = 0; p < EDIT_PARAMS; p++)
		add_param(r, p);
	r->group = frag_group(
		r->f, r->params, EDIT_PARAMS,
		&(struct frag_zero){ sizeof(struct frag_zero), .stage = (int)stage });
	for (int k = 0; k < KEYS; k++) {
		if (r->swapped
			    ? frag_state_swap(r->f, r->group, 0, keys[k], FRAG_F32)
			    : frag_state_alloc(r->f, r->group, 0, keys[k], FRAG_F32, &memory))
			die("frag_state_alloc");
		if (r->swapped)
			memory = calloc(frag_partition_numel(r->f, r->group, 0), sizeof(float));
		r->states[k] = memory;
	}
}

static void attach(struct rank *r)
{
	struct frag_config config = { sizeof(config), .world = world };
	char number[16], name[32];

	snprintf(number, sizeof(number), "%u", r->rank);
	snprintf(name, sizeof(name), "edits-%d", (int)getppid());
	config.rank = number;
	config.job = name;
	if (frag_open(&r->f, &config))
		die("frag_open");
	r->swapped = getenv("FRAG_SWAP_DIR");
	describe(r);
	if (frag_ready(r->f) || frag_barrier(r->f, WAIT_S * 1000))
		die("the others have not come");
}

/* ---- training ---- */

/* Waits until all that live have published the step: what has one that died since, stays. */
static void gather(uint64_t step)
{
	for (uint32_t i = 0; i < world; i++)
		while (!atomic_load(&shared->dead[i]) &&
		       atomic_load(&shared->published[i]) < step)
			usleep(50);
}

/* None passes a step that another has not published: whoever first sees that it is to end, ends
 * it for all.
 */
static void agree_on_end(const struct rank *r)
{
	uint64_t none = UINT64_MAX;

	if (atomic_load(&shared->ending))
		atomic_compare_exchange_strong(&shared->stop, &none, r->step + 1);
}

static void publish(struct rank *r)
{
	struct frag_fragment at;

	for (uint32_t p = 0; p < EDIT_PARAMS; p++) {
		if (frag_fragment(r->f, r->params[p], &at))
			continue;
		atomic_store(&shared->values[r->step % 2][p].value,
			     r->states[0][at.partition_offset]);
		atomic_store(&shared->values[r->step % 2][p].step, r->step);
	}
	agree_on_end(r);
	atomic_store(&shared->published[r->rank], r->step);
}

/* What no owner has told, they being dead, is one more. */
static void refresh(struct rank *r)
{
	for (uint32_t p = 0; p < EDIT_PARAMS; p++)
		if (atomic_load(&shared->values[r->step % 2][p].step) == r->step)
			fill_lp(r, p, atomic_load(&shared->values[r->step % 2][p].value));
		else if (is_float(p) && r->lp_numel[p])
			fill_lp(r, p, *(const float *)r->lp[p] + 1);
}

static void train(struct rank *r)
{
	uint64_t n = frag_partition_numel(r->f, r->group, 0);

	visit(r, false);
	for (int k = 0; k < KEYS; k++)
		for (uint64_t i = 0; i < n; i++)
			r->states[k][i] += 1;
	visit(r, true);
	publish(r);
	gather(r->step);
	refresh(r);
}

static void record(struct rank *r)
{
	float v[EDIT_PARAMS];
	long long now = edit_now();

	look(r, v);
	dprintf(r->log, "S %llu %lld %.0f %.0f %.0f %.0f\n", (unsigned long long)r->step, now,
		v[0], v[1], v[2], v[3]);
}

/* No state changes there, but by edits: ranks need not meet. */
static void skew_by_chance(const struct rank *r)
{
	for (long i = 0; i < skew; i++) {
		usleep((unsigned)(rand() % (2 * pause_us)));
		if (frag_safe_point(r->f))
			die("frag_safe_point");
	}
	if (skew && r->step % STAND_STEPS == 0 && r->step / STAND_STEPS % world == r->rank)
		usleep(STAND_US);
}

static void step(struct rank *r)
{
	r->step++;
	if (frag_step_begin(r->f))
		die("frag_step_begin");
	train(r);
	dprintf(r->log, "B %llu %lld\n", (unsigned long long)r->step, edit_now());
	if (frag_step_end(r->f))
		die("frag_step_end");
	record(r);
	usleep((unsigned)pause_us);
	skew_by_chance(r);
}

static int launcher[2]; /* a pipe that it alone writes to */

/* As a data loader's: it has what its parent had, and outlives it, until the launcher ends. */
static void have_child(void)
{
	char none;

	if (fork())
		return;
	_exit(read(launcher[0], &none, 1) != 0);
}

/* So many boundaries, on all alike, that what was agreed on before lies behind them. */
static void stand(struct rank *r)
{
	for (int i = 0; i < LAST_POINTS; i++)
		if (frag_safe_point(r->f))
			die("frag_safe_point");
	look(r, shared->last[r->rank]);
	atomic_store(&shared->ended[r->rank], true);
}

static _Noreturn void be_rank(uint32_t rank)
{
	struct rank r = { .rank = rank };
	char name[16];

	snprintf(name, sizeof(name), "rank.%u", rank);
	r.log = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	attach(&r);
	dprintf(r.log, "E %ld\n", EDIT_BOUNDARIES + skew);
	srand(rank + (unsigned)getppid());
	if (!rank && printf("%s\n", frag_address(r.f)) > 0)
		fflush(stdout);
	while (r.step < atomic_load(&shared->stop)) {
		if (atomic_exchange(&shared->fork[rank], false))
			have_child();
		step(&r);
	}
	stand(&r);
	for (;;)
		pause(); /* its memory can be read */
}

/* ---- the launcher ---- */

static pid_t ranks[WORLD_MAX];

static void launch(uint32_t rank)
{
	ranks[rank] = fork();
	if (ranks[rank] < 0)
		die("fork");
	if (ranks[rank])
		return;
	close(STDIN_FILENO);
	close(launcher[1]);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	be_rank(rank);
}

static void kill_rank(uint32_t rank)
{
	FILE *log = fopen("kill.rank", "we");

	if (!log || fprintf(log, "K %lld rank\n", edit_now()) < 0 || fclose(log))
		die("kill.rank cannot be written");
	kill(ranks[rank], SIGKILL);
	waitpid(ranks[rank], NULL, 0);
	ranks[rank] = 0;
	atomic_store(&shared->dead[rank], true);
	puts("ok");
}

static bool is_gone(uint32_t rank)
{
	return ranks[rank] && waitpid(ranks[rank], NULL, WNOHANG) == ranks[rank];
}

static bool wait_for_end(uint32_t rank)
{
	for (long long until = edit_now() + WAIT_S * 1000000000LL; edit_now() < until;
	     usleep(1000))
		if (atomic_load(&shared->ended[rank]))
			return true;
		else if (is_gone(rank))
			break;
	printf("rank %u has not come to its end\n", rank);
	return false;
}

static void end(void)
{
	float value[EDIT_PARAMS] = { -1, -1, -1, -1 };

	atomic_store(&shared->ending, true);
	for (uint32_t i = 0; i < world; i++)
		if (ranks[i] && !wait_for_end(i))
			return;
	for (uint32_t i = 0; i < world * EDIT_PARAMS; i++) {
		uint32_t rank = i / EDIT_PARAMS, p = i % EDIT_PARAMS;

		if (!ranks[rank] || shared->last[rank][p] < 0)
			continue;
		if (value[p] >= 0 && value[p] != shared->last[rank][p]) {
			printf("p%u is %.0f on rank %u, %.0f on another\n", p,
			       shared->last[rank][p], rank, value[p]);
			return;
		}
		value[p] = shared->last[rank][p];
	}
	printf("ok %.0f %.0f %.0f %.0f\n", value[0], value[1], value[2], value[3]);
}

static void obey(const char *line)
{
	uint32_t rank;

	if (sscanf(line, "kill %u", &rank) == 1 && rank < world && ranks[rank])
		kill_rank(rank);
	else if (sscanf(line, "fork %u", &rank) == 1 && rank < world)
		puts(atomic_exchange(&shared->fork[rank], true) ? "again" : "ok");
	else if (!strcmp(line, "end\n"))
		end();
	else
		puts("what?");
}

int main(int argc, char **argv)
{
	char line[LINE];

	if (argc < 4 || argc > 5)
		die("usage: edit-job STAGE WORLD PAUSE_US [SKEW]");
	stage = (uint32_t)atoi(argv[1]);
	world = (uint32_t)atoi(argv[2]);
	pause_us = atol(argv[3]);
	skew = argc > 4 ? atol(argv[4]) : 0;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	if (shared == MAP_FAILED || !world || world > WORLD_MAX || pipe(launcher))
		die("no memory, or too many ranks");
	atomic_store(&shared->stop, UINT64_MAX);
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (uint32_t i = 0; i < world; i++)
		launch(i);
	while (fgets(line, sizeof(line), stdin))
		obey(line);
	return 0; /* its ranks end with it */
}
