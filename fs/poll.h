/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_POLL_H
#define FS_POLL_H

/* poll(2) on files whose content changes by itself: step, phase, generation; events, ready
 * while there are some, or none will come.  What a text has is a stamp, a number that is
 * another when the content is.  It is ready while its stamp is not that of its last read at
 * offset 0; the kernel is told, and asks again, when it is not what it was when the kernel
 * asked. However many poll, the engine has one wait.  Any thread.
 */

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include "engine/engine.h"
#include "fs/text.h"

struct poll {                      /* of an open file */
	struct poll *next, **link; /* of polls; link NULL: the kernel does not wait */
	struct fuse_pollhandle *ph;
	struct engine_events *events; /* or, if NULL: */
	uint32_t text;                /* enum text_id */
	uint64_t told;                /* stamp when the kernel asked */
	uint64_t read;                /* stamp of what was read last */
	char content[TEXT_JOB_MAX];
	size_t length; /* of content; 0: nothing was read */
};

struct polls {
	struct engine *engine;
	pthread_mutex_t lock; /* of all polls */
	pthread_cond_t over;
	struct poll *list;
	struct engine_wait wait;
	bool waiting;
	bool stop;
};

void polls_init(struct polls *all, struct engine *engine);
/* The kernel hears of nothing more.  Bounded: the engine gives the wait back. */
void polls_stop(struct polls *all);
void polls_fini(struct polls *all);

/* Whether a file's content changes by itself. */
bool poll_can(struct node n);

/* What read(2) gives: from offset 0 on the text as it is now, then the rest of that. */
size_t poll_read(struct polls *all, struct poll *p, uint64_t offset, size_t size,
		 char out[TEXT_JOB_MAX]);

/* The events that are there.  Takes ph, if not NULL: to be told by. */
unsigned poll_ask(struct polls *all, struct poll *p, struct fuse_pollhandle *ph);
void poll_close(struct polls *all, struct poll *p);

#endif
