/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_READ_PREFETCH_H
#define ENGINE_READ_PREFETCH_H

/* Prefetch by a mount: bytes of a file's view that lie in memory of devices, or of other hosts,
 * are brought some way ahead of the reader, by rounds, to a rank of this host
 * (engine/rounds/landing.h) and copied from there.  Bytes that do not come, or not in time, are
 * read by message.
 *
 *   view  |--- window, there ---|--- window, asked for ---|--- window, asked for ---|
 *             ^ read: copied        ^ read: waits, for so long at most
 */

#include "engine/node/file.h"

#include <stdio.h>

enum prefetch_how {
	PREFETCH_NOT_ASKED, /* no mount's engine */
	PREFETCH_AUTO,
	PREFETCH_ALWAYS,
	PREFETCH_NEVER,
};

struct prefetch { /* of an engine, with its lock; of a file: struct file_prefetch */
	enum prefetch_how how;
	uint64_t min;                /* bytes that are left to read; fewer are not worth it */
	uint64_t window;             /* bytes asked for at a time */
	unsigned wait_ms;            /* for a boundary, and as long for the bytes after it */
	uint64_t retry_ms;           /* nothing is asked for before this time */
	unsigned failures;           /* in a row */
	enum wire_fallback fallback; /* the reason of the last failure */
	struct engine_file *wanting; /* files whose readers have done with a window */
};

/* how: "auto", "nccl" or "host"; NULL: auto.  -EINVAL: another word. */
int prefetch_init(struct engine *e, const char *how);

enum prefetch_next {
	PREFETCH_NONE,  /* the bytes are not prefetched */
	PREFETCH_WAIT,  /* they are on their way */
	PREFETCH_THERE, /* prefetch_copy has them */
};

/* Says where the bytes of a read are, of a file whose view is READY, and asks for more bytes
 * ahead of the reader if that is worth it.  Engine thread, with the lock.
 */
enum prefetch_next prefetch_turn(struct engine *e, struct engine_file *f, uint64_t offset,
				 uint64_t size, uint64_t now);

/* Asks for the next bytes of files whose readers go on.  Engine thread, with the lock. */
void prefetch_go_on(struct engine *e, uint64_t now);

/* Copies bytes from offset on and returns how many; 0: they are not here.  Any thread, without
 * the lock.
 */
uint64_t prefetch_copy(struct engine *e, struct engine_file *f, uint64_t offset, void *out,
		       uint64_t size);

/* Ends the prefetch of a file that is closed.  With the lock. */
void prefetch_close(struct engine *e, struct engine_file *f);

/* Writes how many bytes came by rounds, and why not more.  Any thread. */
void prefetch_describe(struct engine *e, FILE *out);

#endif
