/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/processes.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static const char *const launchers[] = {
	"RANK",
	"WORLD_SIZE",
	"LOCAL_RANK",
	"MASTER_ADDR",
	"MASTER_PORT",
	"TORCHELASTIC_RUN_ID",
	"OMPI_COMM_WORLD_RANK",
	"OMPI_COMM_WORLD_SIZE",
	"OMPI_MCA_ess_base_jobid",
	"PMIX_RANK",
	"PMIX_NAMESPACE",
	"PMI_RANK",
	"PMI_SIZE",
	"SLURM_PROCID",
	"SLURM_NTASKS",
	"SLURM_JOB_ID",
	"SLURM_STEP_ID",
	"SLURM_LAUNCH_NODE_IPADDR",
	"FRAG_RANK",
	"FRAG_WORLD_SIZE",
	"FRAG_MASTER_ADDR",
	"FRAG_PORT",
	"FRAG_JOB_ID",
	"FRAG_RDZV",
	"FRAG_KEY_FILE",
	"FRAG_PLAIN",
	"FRAG_HOST",
	"FRAG_TRANSPORT",
	"FRAG_LOG",
	"FRAG_BULK",
	"FRAG_FABRIC",
	"FRAG_FABRIC_DEVICES",
	"FRAG_FABRIC_OPEN",
};

static void become(const struct process *p, const int in[2], const int out[2],
		   const char *const *settings)
{
	const char *top = getenv("top_builddir"), *argv[16];
	char program[512];
	int n = 0, fd = open(p->errors, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(in[0], STDIN_FILENO);
	dup2(out[1], STDOUT_FILENO);
	dup2(fd, STDERR_FILENO);
	for (size_t i = 0; i < ARRAY_SIZE(launchers); i++)
		unsetenv(launchers[i]);
	for (; *settings; settings++) {
		if (strchr(*settings, '='))
			putenv((char *)(uintptr_t)*settings);
		else
			argv[n++] = *settings;
	}
	snprintf(program, sizeof(program), "%s/tests/ranks/rank", top ? top : ".");
	argv[n++] = program;
	argv[n] = NULL;
	execvp(argv[0], (char **)(uintptr_t)argv);
	perror(argv[0]);
	_exit(127);
}

void process_start(struct process *p, const char *const *settings)
{
	const char *folder = getenv("TMPDIR");
	static unsigned count;
	int in[2], out[2];

	memset(p, 0, sizeof(*p));
	snprintf(p->errors, sizeof(p->errors), "%s/rank-%d-%u.err", folder ? folder : "/tmp",
		 (int)getpid(), count++);
	ck_assert_int_eq(pipe2(in, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
	p->pid = fork();
	ck_assert_int_ge(p->pid, 0);
	if (!p->pid)
		become(p, in, out, settings);
	close(in[0]);
	close(out[1]);
	p->in = in[1];
	p->out = out[0];
}

static void say(struct process *p, const char *fmt, va_list ap)
{
	char line[256];
	int n = vsnprintf(line, sizeof(line) - 1, fmt, ap);

	line[n++] = '\n';
	ck_assert_int_eq(write(p->in, line, (size_t)n), n);
}

void process_say(struct process *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(p, fmt, ap);
	va_end(ap);
}

static void complain(const struct process *p, const char *what)
{
	char text[2048];

	process_errors(p, text, sizeof(text));
	ck_abort_msg("process %d %s: %s", (int)p->pid, what, text);
}

static void read_line(struct process *p)
{
	uint64_t deadline = monotonic_ms() + ANSWER_MS;
	size_t n = 0;

	while (n < sizeof(p->line) - 1) {
		struct pollfd poller = { .fd = p->out, .events = POLLIN };
		uint64_t now = monotonic_ms();

		if (now >= deadline || poll(&poller, 1, (int)(deadline - now)) < 1)
			complain(p, "does not answer");
		if (read(p->out, p->line + n, 1) != 1)
			complain(p, "is gone");
		if (p->line[n] == '\n')
			break;
		n++;
	}
	p->line[n] = '\0';
}

long process_answer(struct process *p)
{
	char *space;

	read_line(p);
	space = strchr(p->line, ' ');
	ck_assert_ptr_nonnull(space);
	memmove(p->line, space + 1, strlen(space));
	return atol(p->line);
}

long process_ask(struct process *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(p, fmt, ap);
	va_end(ap);
	return process_answer(p);
}

int process_errors(const struct process *p, char *text, size_t size)
{
	CLEANUP(close) int fd = open(p->errors, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, size - 1);
	int lines = 0;

	text[n > 0 ? n : 0] = '\0';
	for (const char *c = text; *c; c++)
		lines += *c == '\n';
	return lines;
}

bool process_says(const struct process *p, const char *words)
{
	char text[8192];

	process_errors(p, text, sizeof(text));
	return strstr(text, words);
}

void process_until_says(const struct process *p, const char *words)
{
	uint64_t deadline = monotonic_ms() + SAYS_MS;
	char text[8192];

	while (!process_says(p, words)) {
		process_errors(p, text, sizeof(text));
		ck_assert_msg(monotonic_ms() < deadline, "no \"%s\": %s", words, text);
		usleep(10000);
	}
}

unsigned process_warnings(const struct process *p, const char *words)
{
	char text[8192], *line = text, *next;
	unsigned n = 0;

	process_errors(p, text, sizeof(text));
	while ((next = strchr(line, '\n'))) {
		*next = '\0';
		n += strstr(line, "warn: ") && strstr(line, words);
		line = next + 1;
	}
	return n;
}

static void forget(struct process *p)
{
	close(p->in);
	close(p->out);
	unlink(p->errors);
	p->pid = 0;
}

void process_kill(struct process *p)
{
	kill(p->pid, SIGKILL);
	waitpid(p->pid, NULL, 0);
	forget(p);
}

int process_end(struct process *p)
{
	int status = -1;
	uint64_t deadline = monotonic_ms() + ANSWER_MS;

	close(p->in);
	p->in = open("/dev/null", O_WRONLY | O_CLOEXEC);
	while (waitpid(p->pid, &status, WNOHANG) == 0) {
		struct pollfd poller = { .fd = p->out };

		if (monotonic_ms() >= deadline)
			complain(p, "does not end");
		poll(&poller, 1, 5); /* until the process hangs up */
	}
	forget(p);
	return status;
}

/* ---- a job ---- */

void processes_say(struct process *p, int n, const char *line)
{
	for (int i = 0; i < n; i++)
		process_say(&p[i], "%s", line);
}

void processes_expect(struct process *p, int n, long result)
{
	for (int i = 0; i < n; i++) {
		long got = process_answer(&p[i]);

		if (got != result) {
			char what[64];

			snprintf(what, sizeof(what), "(%d of %d) answers %ld, not %ld", i, n,
				 got, result);
			complain(&p[i], what);
		}
	}
}

void processes_start(struct process *p, int n, int stage, const char *const *more)
{
	static unsigned jobs;
	char rank[32], world[32], zero[32], job[64];
	const char *settings[32] = { rank, world, zero, job };

	snprintf(world, sizeof(world), "WORLD_SIZE=%d", n);
	snprintf(zero, sizeof(zero), "TEST_STAGE=%d", stage);
	snprintf(job, sizeof(job), "FRAG_JOB_ID=processes-%d-%u", (int)getpid(), jobs++);
	for (int i = 0; more && more[i]; i++)
		settings[4 + i] = more[i];
	for (int i = 0; i < n; i++) {
		snprintf(rank, sizeof(rank), "RANK=%d", i);
		process_start(&p[i], settings);
	}
	processes_say(p, n, "open");
	processes_say(p, n, "ready");
	processes_say(p, n, "barrier 30000");
	for (int i = 0; i < 3; i++)
		processes_expect(p, n, 0);
}

void processes_end(struct process *p, int n)
{
	for (int i = 0; i < n; i++)
		ck_assert_int_eq(process_end(&p[i]), 0);
}
