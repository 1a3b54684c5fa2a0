/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_COLLECTIVE_LIFE_H
#define ENGINE_COLLECTIVE_LIFE_H

/* How communicators live that have a thread of their own: they fail once, and end what was launched; an errand is a thread for what may
 * not return: it is waited for no longer than it may take, and then left, with all that it uses.
 *
 *   the port's thread   errand: open ... the implementation's own ... errand: let_go, the rest is told
 */

#include "engine/collective-common.h"

#include <pthread.h>

struct collective_life { /* the first member of struct collective */
	const char *name;
	struct collective_options options;
	/* The thread's; errands.  let_go is of use too when open was left, and returns at last. */
	void *(*run)(void *collective);
	void (*let_go)(struct collective *c);
	/* Something has changed; with the lock.  NULL: who waits, waits for changed. */
	void (*wake)(struct collective *c);

	pthread_mutex_t lock; /* of what follows; the innermost but for the device's */
	pthread_cond_t changed;
	struct collective_about about;
	struct collective_id id;
	bool has_id, stop, told;
	uint64_t open_until_ms, failed_ms;
	struct collective_list launched; /* not ended; the first ends first */
	void (*errand)(struct collective *c);
	bool errand_over, left; /* left: it did not return in time, and uses all this */

	pthread_t thread;
	struct collective *next_left;
};

/* Options are checked; the rest is 0, but for name, run, let_go and wake.  -EAGAIN: no thread; all is as before. */
int collective_life_start(struct collective *c, unsigned rank, unsigned nranks);
/* From close.  Whether nothing is left: the caller frees it; else it is left as it is. */
bool collective_life_stop(struct collective *c);

bool collective_life_has_failed(struct collective *c);
/* With the first error and its text; a line says it. */
void collective_life_fail(struct collective *c, int rc, const char *fmt, ...) PRINTF(3, 4);
/* From opening: it is ready, unless it has failed. */
void collective_life_be_ready(struct collective *c);
/* Whether opening is to end. */
bool collective_life_is_late(struct collective *c);

/* The port's thread. */
void collective_life_do(struct collective *c, void (*errand)(struct collective *c),
			uint64_t until_ms);
/* Lets go, within end_ms, unless something has been left; a line says what is left then. */
void collective_life_let_go(struct collective *c);

/* In launch: unless all were told already that they have failed. */
int collective_life_append(struct collective *c, struct collective_io *io);
struct collective_io *collective_life_first(struct collective *c); /* NULL: none */
/* The first has ended; the caller tells. */
struct collective_io *collective_life_take(struct collective *c, int result);
/* The same with what it has failed with; NULL: there is none.  last: from here on there will be none. */
struct collective_io *collective_life_take_rest(struct collective *c, bool last);

/* The port's operations. */
int collective_life_state(struct collective *c);
int collective_life_id(struct collective *c, struct collective_id *id);
void collective_life_abort(struct collective *c);
bool collective_life_is_over(struct collective *c);
void collective_life_about(struct collective *c, struct collective_about *about);

#endif
