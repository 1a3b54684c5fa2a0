/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* bits-job LAYOUT WORLD SET: a job of WORLD processes.  The job knows each bit that its tensors
 * ought to have, the expected ones.  LAYOUT: 0 to 3 (ZeRO's stages), fsdp2, cuts (fsdp2, where
 * parameters are cut along other dimensions than rows).  SET of parameters:
 * small (one element to some thousand), large (256 MiB of fp32 alone), some (a few MiB), even
 * (all elements of a parameter have one value), frozen (two of four small parameters are in no
 * group).
 *
 * Prints the address to mount, then answers each line of its input by "ok" or by what is wrong:
 *	expect PARAM KEY FILE          writes the expected tensor to FILE
 *	change PARAM KEY OFFSET FILE   expects FILE's bytes from now on, and their lp
 *	check                          every rank compares its memory with the expected bits
 *	views MNT                      every rank compares what MNT shows of it with its memory
 *	ranges FILE PARAM KEY N SEED   compares N random ranges of FILE
 *	train N                        every rank begins N steps, each of which adds 1 to all
 *	kill RANK                      sends it SIGKILL
 *	restart RANK                   a new process of a killed rank, with the expected memory
 *	fork RANK                      the rank forks a child, which outlives it
 *	pass RANK N                    the rank passes N boundaries
 *	meet                           every rank waits at a barrier for the others
 */

#include "tests/mount/bits.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static struct bits_rank_process {
	pid_t pid;
	int in, out;
} ranks[BITS_WORLD_MAX];

static struct bits_job job;

static void launch(uint32_t rank)
{
	int in[2], out[2];

	if (pipe(in) || pipe(out))
		bits_fail("pipe");
	ranks[rank] = (struct bits_rank_process){ fork(), in[1], out[0] };
	if (ranks[rank].pid < 0)
		bits_fail("fork");
	if (!ranks[rank].pid) {
		for (uint32_t i = 0; i < job.world; i++) {
			if (!ranks[i].pid && i != rank)
				continue;
			close(ranks[i].in);
			close(ranks[i].out);
		}
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		exit(bits_be_rank(&job, rank, in[0], out[1]));
	}
	close(in[0]);
	close(out[1]);
}

/* One line of a rank's; false: it has gone, or is silent. */
static bool hear(uint32_t rank, char *line)
{
	struct pollfd p = { .fd = ranks[rank].out, .events = POLLIN };
	size_t n = 0;

	while (n < BITS_LINE - 1) {
		if (poll(&p, 1, BITS_WAIT_MS) <= 0 || read(p.fd, line + n, 1) != 1)
			break;
		if (line[n++] == '\n') {
			line[n - 1] = '\0';
			return true;
		}
	}
	snprintf(line, BITS_LINE, "rank %u: no answer", rank);
	return false;
}

static void tell(uint32_t rank, const char *line)
{
	if (write(ranks[rank].in, line, strlen(line)) < 0)
		fprintf(stderr, "rank %u does not listen\n", rank);
}

static void tell_all(const char *line)
{
	for (uint32_t i = 0; i < job.world; i++)
		if (ranks[i].pid)
			tell(i, line);
}

/* What the first that has something to say says; else ok. */
static void hear_all(char *answer)
{
	char line[BITS_LINE];

	strcpy(answer, "ok");
	for (uint32_t i = 0; i < job.world; i++) {
		if (!ranks[i].pid)
			continue;
		hear(i, line);
		if (strcmp(line, "ok") && !strcmp(answer, "ok"))
			strcpy(answer, line);
	}
}

static void kill_rank(uint32_t rank, char *answer)
{
	strcpy(answer, "ok");
	kill(ranks[rank].pid, SIGKILL);
	waitpid(ranks[rank].pid, NULL, 0);
	ranks[rank].pid = 0;
	close(ranks[rank].in);
	close(ranks[rank].out);
	job.shared->dead[rank] = true;
}

static void restart(uint32_t rank, char *answer)
{
	launch(rank);
	if (hear(rank, answer))
		strcpy(answer, "ok");
	job.shared->dead[rank] = false;
}

static void obey(const char *line, char *answer)
{
	char word[16], a[BITS_LINE], b[32], c[BITS_LINE];
	unsigned long long n = 0, seed = 0;

	a[0] = b[0] = c[0] = '\0';
	if (sscanf(line, "%15s", word) != 1)
		strcpy(word, "?");
	if (!strcmp(word, "check") || !strcmp(word, "views") || !strcmp(word, "meet")) {
		tell_all(line);
		hear_all(answer);
	} else if (!strcmp(word, "train")) {
		tell_all(line);
		strcpy(answer, "ok");
	} else if (sscanf(line, "kill %llu", &n) == 1 && n < job.world && ranks[n].pid) {
		kill_rank((uint32_t)n, answer);
	} else if (sscanf(line, "restart %llu", &n) == 1 && n < job.world && !ranks[n].pid) {
		restart((uint32_t)n, answer);
	} else if ((sscanf(line, "fork %llu", &n) == 1 || sscanf(line, "pass %llu", &n) == 1) &&
		   n < job.world && ranks[n].pid) {
		tell((uint32_t)n, line);
		hear((uint32_t)n, answer);
	} else if (sscanf(line, "expect %255s %31s %255s", a, b, c) == 3) {
		bits_expect(&job, a, b, c, answer);
	} else if (sscanf(line, "change %255s %31s %llu %255s", a, b, &n, c) == 4) {
		bits_change(&job, a, b, n, c, answer);
	} else if (sscanf(line, "ranges %255s %255s %31s %llu %llu", a, c, b, &n, &seed) == 5) {
		bits_ranges(&job, a, c, b, n, seed, answer);
	} else {
		snprintf(answer, BITS_LINE, "what is '%.200s'", line);
	}
}

static int finish(void)
{
	int status, result = 0;

	alarm(200);
	for (uint32_t i = 0; i < job.world; i++)
		if (ranks[i].pid)
			close(ranks[i].in);
	for (uint32_t i = 0; i < job.world; i++)
		if (ranks[i].pid && (waitpid(ranks[i].pid, &status, 0) < 0 || status))
			result = 1;
	return result;
}

int main(int argc, char **argv)
{
	char line[BITS_LINE * 3], answer[BITS_LINE], address[BITS_LINE] = "";

	if (argc != 4)
		bits_fail("usage: bits-job LAYOUT WORLD SET");
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	bits_new(&job, argv[1], (uint32_t)atoi(argv[2]), argv[3]);
	for (uint32_t i = 0; i < job.world; i++)
		launch(i);
	for (uint32_t i = 0; i < job.world; i++)
		if (!hear(i, i ? answer : address))
			bits_fail(i ? answer : address);
	puts(address);
	while (fgets(line, sizeof(line), stdin)) {
		obey(line, answer);
		puts(answer);
	}
	return finish();
}
