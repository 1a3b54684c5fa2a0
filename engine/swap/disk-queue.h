/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SWAP_DISK_QUEUE_H
#define ENGINE_SWAP_DISK_QUEUE_H

/* Requests that were submitted and have not begun, in order.  Under the disk's lock. */

#include "engine/swap/disk.h"

TAILQ_HEAD(disk_queue, disk_io);

static inline void disk_queue_add(struct disk_queue *q, struct disk_io *io)
{
	io->at = DISK_QUEUED;
	TAILQ_INSERT_TAIL(q, io, next);
}

/* Removes the first request, which begins; NULL: none. */
static inline struct disk_io *disk_queue_take(struct disk_queue *q)
{
	struct disk_io *io = TAILQ_FIRST(q);

	if (!io)
		return NULL;
	TAILQ_REMOVE(q, io, next);
	io->at = DISK_UNDERWAY;
	return io;
}

#endif
