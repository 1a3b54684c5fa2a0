/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SWAP_DISK_QUEUE_H
#define ENGINE_SWAP_DISK_QUEUE_H

/* What was submitted and has not begun, in order.  Under the disk's lock. */

#include "engine/swap/disk.h"

struct disk_queue {
	struct disk_io *first, **end; /* end NULL: it was never used */
};

static inline void disk_queue_add(struct disk_queue *q, struct disk_io *io)
{
	io->next = NULL;
	io->at = DISK_QUEUED;
	*(q->first ? q->end : &q->first) = io;
	q->end = &io->next;
}

static inline void disk_queue_remove(struct disk_queue *q, struct disk_io *io)
{
	struct disk_io **at = &q->first;

	while (*at != io)
		at = &(*at)->next;
	*at = io->next;
	if (!io->next)
		q->end = at;
}

/* The first, which begins; NULL: there is none. */
static inline struct disk_io *disk_queue_take(struct disk_queue *q)
{
	struct disk_io *io = q->first;

	if (!io)
		return NULL;
	disk_queue_remove(q, io);
	io->at = DISK_UNDERWAY;
	return io;
}

#endif
