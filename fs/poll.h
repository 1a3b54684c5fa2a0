/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_POLL_H
#define FS_POLL_H

/* poll(2) on files whose content changes by itself: step, phase, generation, and events.
 *
 * A text has a stamp, a number that differs when the content does.  The file is ready while its
 * stamp differs from that of its last read at offset 0.  When the stamp differs from what it
 * was when the kernel asked, the kernel is notified, and asks again.  events is ready while
 * there are lines, and when the job has ended.
 *
 * All polls of a mount share one wait in the engine.  Any thread.
 */

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include "engine/base/queue.h"
#include "engine/engine.h"
#include "fs/text.h"

/* An open file's part. */
struct poll {
	LIST_ENTRY(poll) entry;       /* in polls->list while ph is set */
	struct fuse_pollhandle *ph;   /* to notify the kernel by; NULL: it does not wait */
	struct engine_events *events; /* of /events; NULL: a text */
	uint32_t text;                /* enum text_id */
	uint64_t told;                /* stamp when the kernel asked */
	uint64_t read;                /* stamp of the last read */
	char content[TEXT_JOB_MAX];
	size_t length; /* of content; 0: it was not read */
};

struct polls {
	struct engine *engine;
	pthread_mutex_t lock; /* of all polls */
	pthread_cond_t over;
	LIST_HEAD(, poll) list;
	struct engine_wait wait;
	bool waiting;
	bool stop;
};

void polls_init(struct polls *all, struct engine *engine);
/* Notifies the kernel no more.  Waits, bounded, until the engine gives the wait back. */
void polls_stop(struct polls *all);
void polls_fini(struct polls *all);

/* Returns true if a file can be polled: whether its content changes by itself. */
bool poll_can(struct node n);

/* Copies what read(2) is to give: at offset 0 of the text as it is now, later of that same
 * text.  Returns the bytes.
 */
size_t poll_read(struct polls *all, struct poll *p, uint64_t offset, size_t size,
		 char out[TEXT_JOB_MAX]);

/* Returns poll(2)'s events that are there now.  Takes ph, unless it is NULL, to notify the
 * kernel by when there are more.
 */
unsigned poll_ask(struct polls *all, struct poll *p, struct fuse_pollhandle *ph);
void poll_close(struct polls *all, struct poll *p);

#endif
