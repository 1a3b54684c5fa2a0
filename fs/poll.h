/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_POLL_H
#define FS_POLL_H

/* poll(2) on files whose content changes by itself: step, phase, generation, and events.
 *
 * A text has a stamp, a number that differs when the content does.  The file is ready while its
 * stamp differs from that of its last read at offset 0.  When the stamp has changed since the
 * kernel's last POLL, the kernel is notified, and polls again.  /events is ready while there
 * are lines, and when the job has ended.
 *
 * All polls of a mount share one wait in the engine.  Any thread.
 */

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include "engine/base/queue.h"
#include "engine/engine.h"
#include "fs/text.h"

/* The polls of one open file. */
struct poll {
	LIST_ENTRY(poll) entry; /* in polls->list while ph is set */
	/* handle to notify the kernel with; NULL: the kernel does not wait */
	struct fuse_pollhandle *ph;
	struct engine_events *events; /* of /events; NULL: a text */
	uint32_t text;                /* enum text_id */
	uint64_t told;                /* stamp at the kernel's last POLL */
	uint64_t read;                /* stamp of the last read */
	char content[TEXT_JOB_MAX];
	size_t length; /* bytes of content; 0: content was not read yet */
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

/* Copies size bytes at offset for read(2): at offset 0 of the text as it is now, at later
 * offsets of the text that was read at offset 0.  Returns the count of bytes.
 */
size_t poll_read(struct polls *all, struct poll *p, uint64_t offset, size_t size,
		 char out[TEXT_JOB_MAX]);

/* Returns poll(2)'s events that are there now.  Takes ph, unless it is NULL, to notify the
 * kernel when others come.
 */
unsigned poll_ask(struct polls *all, struct poll *p, struct fuse_pollhandle *ph);
void poll_close(struct polls *all, struct poll *p);

#endif
