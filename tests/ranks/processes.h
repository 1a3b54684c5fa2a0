/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RANKS_PROCESSES_H
#define RANKS_PROCESSES_H

/* Ranks as processes (tests/ranks/rank.c), told what to do by lines and asked for their
 * answers.  Every wait is bounded, and what was started is killed when the test ends.
 */

#include "engine/base/base.h"

#include <sys/types.h>

enum { PROCESSES_MAX = 8, ANSWER_MS = 100000, SAYS_MS = 60000 };

struct process {
	pid_t pid;
	int in, out;
	char errors[256]; /* path of its stderr */
	char line[256];   /* newest answer, without its first word */
};

/* settings: "NAME=VALUE" to set, ended by NULL; a word without "=" goes before the program
 * ("ip", "netns", "exec", "x").  The launchers' variables of our own environment are not
 * inherited.
 */
void process_start(struct process *p, const char *const *settings);
void process_say(struct process *p, const char *fmt, ...) PRINTF(2, 3);
/* The result of the command that was said before all others.  Fails the test when none comes.
 */
long process_answer(struct process *p);
long process_ask(struct process *p, const char *fmt, ...) PRINTF(2, 3);
/* How many lines it has written to stderr. */
int process_errors(const struct process *p, char *text, size_t size);
/* Returns true if the process has written these words to its stderr. */
bool process_says(const struct process *p, const char *words);
/* Waits until it has.  Fails the test after SAYS_MS. */
void process_until_says(const struct process *p, const char *words);
/* Returns how many of its warnings have these words. */
unsigned process_warnings(const struct process *p, const char *words);
void process_kill(struct process *p);
/* By closing its stdin: its exit status. */
int process_end(struct process *p);

/* A job of n processes: world n, FRAG_JOB_ID and more settings, all ready and met at a barrier.
 */
void processes_start(struct process *p, int n, int stage, const char *const *more);
void processes_say(struct process *p, int n, const char *line);
/* Fails the test where one answers otherwise. */
void processes_expect(struct process *p, int n, long result);
void processes_end(struct process *p, int n);

#endif
