/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RANKS_PROCESSES_H
#define RANKS_PROCESSES_H

/* Ranks as processes (tests/ranks/rank.c), which get their orders as lines and answer each one.
 * Every wait is bounded, and processes that were started are killed when the test ends.
 */

#include "engine/base/base.h"

#include <sys/types.h>

enum { PROCESSES_MAX = 8, ANSWER_MS = 100000, SAYS_MS = 60000 };

struct process {
	pid_t pid;
	int in, out;
	char errors[256]; /* path of its stderr */
	char line[256];   /* the newest answer, without its first word */
};

/* settings: "NAME=VALUE" to set, ended by NULL; a word without "=" goes before the program
 * ("ip", "netns", "exec", "x").  The variables of launchers in this environment are not
 * inherited.
 */
void process_start(struct process *p, const char *const *settings);
void process_say(struct process *p, const char *fmt, ...) PRINTF(2, 3);
/* Returns the result of the oldest command that is not answered yet.  Fails the test when no
 * answer comes.
 */
long process_answer(struct process *p);
long process_ask(struct process *p, const char *fmt, ...) PRINTF(2, 3);
/* Returns how many lines the process has written to stderr. */
int process_errors(const struct process *p, char *text, size_t size);
/* Returns true if the process has written these words to its stderr. */
bool process_says(const struct process *p, const char *words);
/* Waits until process_says is true.  Fails the test after SAYS_MS. */
void process_until_says(const struct process *p, const char *words);
/* Returns how many of its warnings have these words. */
unsigned process_warnings(const struct process *p, const char *words);
void process_kill(struct process *p);
/* Ends a process by closing its stdin; returns its exit status. */
int process_end(struct process *p);

/* Starts a job of n processes: world n, FRAG_JOB_ID and more settings; all are ready, and meet
 * at a barrier.
 */
void processes_start(struct process *p, int n, int stage, const char *const *more);
void processes_say(struct process *p, int n, const char *line);
/* Fails the test if a process answers otherwise. */
void processes_expect(struct process *p, int n, long result);
void processes_end(struct process *p, int n);

#endif
