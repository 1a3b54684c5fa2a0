/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Measures the cost of a step that is observed.  A rank alone in its job computes for a
 * millisecond or so between frag_step_begin and frag_step_end: with everything off, against the
 * same without these calls; with FRAG_LOG=trace to /dev/null, with PHASES_A_STEP phases that
 * the timers count, and with these and bpftrace at their probes, against off.  Also measures
 * the cost of counting an operation (FRAG_COMMS).
 */

#include "engine/base/log.h"
#include "engine/base/phase.h"
#include "engine/frag.h"
#include "engine/node/comms.h"
#include "tests/bench/rows.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NUMEL = 1 << 18, STEPS = 20, COUNTS = 100000, PHASES_A_STEP = 10, TRACED_MS = 30000 };

static struct frag *job;
static float *values;
static int errors; /* the standard error that the bench was started with */

/* Returns the thread's time on a core, without the time in which others had the core. */
static uint64_t thread_ns(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static void compute(void)
{
	for (int pass = 0; pass < 50; pass++)
		for (int i = 0; i < NUMEL; i++)
			values[i] = values[i] * 0.999f + 0.001f;
	__asm__ volatile("" : : "r"(values) : "memory");
}

struct kind {
	bool calls;
	/* the highest level that is logged; LOG_INFO: as without FRAG_LOG */
	enum log_level most;
	unsigned phases; /* in a step */
};

static void time_phases(unsigned n)
{
	struct phase_span span = { 0 };

	for (unsigned i = 0; i < n; i++) {
		phase_begin(PHASE_STALL, &span);
		phase_end(PHASE_STALL, &span, 0);
	}
}

/* Returns the milliseconds of a step on a core. */
static double steps(const void *arg)
{
	const struct kind *kind = arg;
	uint64_t begin;

	atomic_store(&log_most, kind->most);
	begin = thread_ns();
	for (int i = 0; i < STEPS; i++) {
		if (kind->calls)
			frag_step_begin(job);
		time_phases(kind->phases);
		compute();
		if (kind->calls)
			frag_step_end(job);
	}
	return (double)(thread_ns() - begin) / STEPS / 1e6;
}

static double counts(const void *arg)
{
	struct comms *c = comms_new();
	uint64_t begin = thread_ns();

	for (int i = 0; i < COUNTS; i++)
		comms_count(c, COMMS_READ, 0, 4096, comms_begin(c) & 0xfffff, "bench");
	comms_free(c);
	return (double)(thread_ns() - begin) / COUNTS;
}

/* Makes bpftrace count this process's phases, and returns when it counts.  Returns its process;
 * -1: there is no bpftrace that works.
 */
static pid_t trace_phases(void)
{
	uint64_t end = monotonic_ms() + TRACED_MS;
	char script[4200], self[4096] = "";
	struct pollfd out;
	int ends[2];
	pid_t child;

	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0 || pipe(ends))
		return -1;
	snprintf(script, sizeof(script),
		 "usdt:%s:fragfs:phase_end { @++; if (@ == 1) { printf(\"here\\n\"); } }",
		 self);
	child = fork();
	if (!child) {
		snprintf(self, sizeof(self), "%d", (int)getppid());
		dup2(ends[1], STDOUT_FILENO);
		close(ends[0]);
		close(ends[1]);
		/* unbuffered, so that the line comes while bpftrace runs */
		execlp("bpftrace", "bpftrace", "-B", "none", "-q", "-p", self, "-e", script,
		       NULL);
		_exit(127);
	}
	close(ends[1]);
	out = (struct pollfd){ .fd = ends[0], .events = POLLIN };
	while (child > 0 && monotonic_ms() < end && !poll(&out, 1, 1))
		time_phases(1);
	if (child > 0 && !(out.revents & POLLIN)) {
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		child = -1;
	}
	return child; /* ends[0] stays open, for the output of bpftrace at its end */
}

static void end_trace(pid_t tracer)
{
	kill(tracer, SIGINT);
	waitpid(tracer, NULL, 0);
}

static void attach(void)
{
	const uint64_t shape[] = { NUMEL };
	char name[64];
	int param;

	snprintf(name, sizeof(name), "bench-observed-%d", (int)getpid());
	setenv("FRAG_JOB_ID", name, 1);
	setenv("FRAG_RANK", "0", 1);
	setenv("FRAG_WORLD_SIZE", "1", 1);
	values = calloc(NUMEL, sizeof(*values));
	if (!values || frag_open(&job, NULL) < 0)
		exit(1);
	param = frag_param(job, &(struct frag_tensor){ .size = sizeof(struct frag_tensor),
						       .name = "w",
						       .dtype = FRAG_F32,
						       .ndim = 1,
						       .shape = shape });
	if (frag_group(job, &param, 1,
		       &(struct frag_zero){ .size = sizeof(struct frag_zero), .stage = 2 }) <
		    0 ||
	    frag_state_keep(job, 0, 0, "fp32", FRAG_F32, values) || frag_ready(job)) {
		dprintf(errors, "bench-observed: %s\n", frag_error());
		exit(1);
	}
}

int main(void)
{
	static const struct kind plain = { false, LOG_INFO, 0 }, off = { true, LOG_INFO, 0 },
				 trace = { true, LOG_TRACE, 0 },
				 timed = { true, LOG_INFO, PHASES_A_STEP };
	struct rows_way ways[] = { WAY(steps, &plain), WAY(steps, &off), WAY(steps, &trace),
				   WAY(steps, &timed), WAY(counts, NULL) };
	struct rows_way traced[] = { WAY(steps, &off), WAY(steps, &timed) };
	unsigned rounds = rows_rounds(31);
	pid_t tracer;

	errors = dup(STDERR_FILENO);
	if (errors < 0 || !freopen("/dev/null", "w", stderr))
		return 1;
	setenv("FRAG_LOG", "trace", 1);
	attach();
	/* for the cost of counts: the job was opened without FRAG_COMMS */
	setenv("FRAG_COMMS", "1", 1);
	rows_run(ways, ARRAY_SIZE(ways), rounds);
	rows_compare(&(struct row){ "step of a rank on a core, observed by nothing", "ms",
				    "no calls of frag.h", true, 1.00 },
		     ways[1].measured, ways[0].measured, rounds);
	rows_compare(&(struct row){ "step of a rank on a core, FRAG_LOG=trace", "ms", "off",
				    true, 0 },
		     ways[2].measured, ways[1].measured, rounds);
	rows_compare(&(struct row){ "step of a rank on a core, 10 phases timed", "ms", "off",
				    true, 0 },
		     ways[3].measured, ways[1].measured, rounds);
	tracer = trace_phases();
	if (tracer > 0) {
		rows_run(traced, ARRAY_SIZE(traced), rounds);
		end_trace(tracer);
		rows_compare(
			&(struct row){ "step of a rank on a core, 10 phases timed, probes on",
				       "ms", "off", true, 0 },
			traced[1].measured, traced[0].measured, rounds);
	}
	rows_print(&(struct row){ "an operation that FRAG_COMMS counts", "ns", NULL, true, 0 },
		   rows_median(ways[4].measured, rounds), 0, NULL, rounds);
	frag_close(job);
	return 0;
}
