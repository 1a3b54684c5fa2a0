/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_PROGRESS_H
#define MOUNT_HELPERS_PROGRESS_H

/* A line on standard error, if that is a terminal, that says how much of a long operation is
 * done and how long it has lasted: after its first second, ten times a second.  A thread shows
 * the line, because the operation may wait in one system call.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct progress {
	const char *what;
	uint64_t began_ms;
	pthread_t thread;
	bool has_thread;
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t over_cond;
	uint64_t done, total;
	bool over;
};

/* what: a plural, "states", of which progress_step counts how many are done, or an activity if
 * progress_step is not called.  Valid until progress_end, which must be called before anything
 * but an error (call_fail) is printed, and before fork.
 */
void progress_begin(struct progress *p, const char *what);
/* total 0: not known. */
void progress_step(struct progress *p, uint64_t done, uint64_t total);
/* Takes the line away.  A second call does nothing. */
void progress_end(struct progress *p);

#endif
