/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SERVE_SERVE_PENDING_H
#define ENGINE_SERVE_SERVE_PENDING_H

/* READs of what is not in this process's memory: a disk or a device is asked, for which the
 * engine thread does not wait, and whose thread wakes it to answer.  Engine thread, with the
 * lock, but where said.
 */

#include "engine/node/node.h"
#include "engine/rank/devices.h"
#include "engine/swap/swapper.h"

struct pending_reads;

/* What a READ is to show: the source's. */
struct pending_found {
	struct registry_hold *hold; /* serve-swap.c */
	uint64_t at;
	struct view_look look; /* serve-device.c */
	struct devices_mark *mark;
};

enum { PENDING_READS_ASKED_MAX = 4 };

struct pending_read {
	struct pending_read *next;
	struct pending_reads *of;
	uint32_t peer;
	struct wire_read asked;
	uint64_t requests[PENDING_READS_ASKED_MAX]; /* that are to have the answer */
	unsigned nrequests;
	uint64_t began_ms;
	bool answered; /* it took too long, or who asked has left */
	bool ended;    /* under the lock of later, as status */
	int status;
	const struct pending_source *source;
	struct pending_found found;
	struct swapper_read io;   /* serve-swap.c */
	struct devices_copy copy; /* serve-device.c */
	uint8_t bytes[];          /* of asked.size */
};

struct pending_source {
	/* What there is now; or an errno, and there is nothing to put. */
	int (*find)(struct engine *e, const struct wire_read *read, struct pending_found *f);
	void (*put)(struct engine *e, struct pending_found *f);
	/* Of one READ: would the bytes be the same? */
	bool (*same)(const struct pending_found *a, const struct pending_found *b);
	/* pending_reads_came is called when the bytes have come, or not; or an errno, and
	 * nothing has begun.
	 */
	int (*begin)(struct engine *e, struct pending_read *r);
	/* Nobody waits for it any more; it ends all the same.  NULL: there is no way. */
	void (*cancel)(struct pending_read *r);
	/* What has come, or not: is it still what was asked for?  0, or an errno. */
	int (*check)(struct engine *e, struct pending_read *r);
};

extern const struct pending_source serve_swap_source, serve_device_source;

/* Trainer's thread, with the lock: before the first row that is not in memory.  Called again:
 * nothing.  -ENOMEM.
 */
int pending_reads_init(struct engine *e);
/* Cancels what is under way, and waits for it; what a disk keeps all the same for
 * SWAPPER_END_MS ends without it.
 */
void pending_reads_free(struct engine *e);

/* READ.  False: the row is in memory. */
bool pending_reads_start(struct engine *e, uint32_t peer, uint64_t request,
			 const struct wire_read *read);
/* Any thread: r's bytes have come. */
void pending_reads_came(struct pending_read *r, int status);
/* A reader has left: nobody waits for its reads. */
void pending_reads_gone(struct engine *e, uint32_t peer);
/* Answers what has come. */
void pending_reads_turn(struct engine *e, uint64_t now);

#endif
