/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_FILE_H
#define ENGINE_FILE_H

#include "engine/node.h"

enum { AHEAD_MAX = 4 };

enum ahead_state { AHEAD_EMPTY, AHEAD_QUEUED, AHEAD_FILLING, AHEAD_READY };

struct ahead { /* one request read ahead; under the read-ahead pool's lock */
	struct ahead *next_queued;
	struct engine_file *file;
	enum ahead_state state;
	uint64_t offset;
	size_t size;
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
	int streak; /* requests in sequence; below 0: of one too slow to read ahead for */
	struct ahead ahead[AHEAD_MAX];
};

#endif
