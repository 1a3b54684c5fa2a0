/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_READS_H
#define ENGINE_READS_H

/* engine_read's two ways: at once, in the caller's thread, where every piece is memory of this host;
 * else as a transfer that the engine thread carries on.
 */

#include "engine/node.h"

#include <stdio.h>

enum { AHEAD_MAX = 3 };

enum ahead_state { AHEAD_EMPTY, AHEAD_QUEUED, AHEAD_FILLING, AHEAD_READY, AHEAD_SERVING };

struct ahead { /* one request read ahead; under the pool's lock */
	struct ahead *next_queued;
	struct engine_file *file;
	enum ahead_state state;
	uint64_t offset;
	size_t size;
	int64_t result;
	uint64_t filled_ms;
	uint64_t edits; /* engine's edit_count when it was filled */
	void *buffer;
};

struct engine_file {
	struct engine *engine;
	struct engine_address address;
	uint64_t bytes;
	enum frag_dtype dtype;
	bool is_grad;
	_Atomic bool fast; /* the last read was served at once */
	/* under the pool's lock */
	uint64_t next_offset;
	unsigned streak;
	struct ahead ahead[AHEAD_MAX];
};

/* Bytes at once, into out.  -EAGAIN: not possible at once (or gradients are not valid now): make it a
 * transfer.  Any thread, without the lock.
 */
int reads_now(struct engine *e, const struct engine_address *address, bool is_grad, uint64_t offset,
	      void *out, size_t size);

/* A line for each waiting transfer.  With the lock. */
void reads_describe(struct engine *e, FILE *out);

/* Ends every transfer with -ECANCELED; the engine thread is gone. */
void reads_abandon(struct engine *e);

/* ---- read-ahead (engine/readahead.c): one worker thread for all files of an engine ---- */

int readahead_new(struct engine *e);
void readahead_free(struct engine *e);
/* A slot with exactly these bytes, fresh: lent until readahead_served; NULL: none. */
struct ahead *readahead_take(struct engine_file *f, uint64_t offset, size_t size);
void readahead_served(struct ahead *s);
/* Notes a request, and queues the next ones of a sequential reader. */
void readahead_note(struct engine_file *f, uint64_t offset, size_t size);
void readahead_drop(struct engine_file *f);

#endif
