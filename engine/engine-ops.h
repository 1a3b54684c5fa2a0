/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_ENGINE_OPS_H
#define ENGINE_ENGINE_OPS_H

/* The operations behind engine.h, of a job or a checkpoint.  engine_NAME calls the member NAME
 * and promises the same.  A struct engine begins with engine_base, an engine_file and an
 * engine_events with engine_member.
 */

#include "engine/engine.h"

struct engine_ops {
	bool live; /* engine_is_live */
	void (*close)(struct engine *e);
	uint32_t (*nparams)(struct engine *e);
	uint32_t (*nbuffers)(struct engine *e);
	uint32_t (*ngroups)(struct engine *e);
	uint32_t (*nranks)(struct engine *e);
	uint32_t (*nparts)(struct engine *e);
	bool (*part)(struct engine *e, uint32_t part, struct engine_part *out);
	bool (*param)(struct engine *e, uint32_t param, struct engine_param *out);
	bool (*group)(struct engine *e, uint32_t group, struct engine_group *out);
	uint64_t (*epoch)(struct engine *e);
	int (*states)(struct engine *e, uint32_t param, struct engine_state *out, int max);
	int (*rank_states)(struct engine *e, uint32_t rank, uint32_t param,
			   struct engine_state *out, int max);
	int (*partition_states)(struct engine *e, uint32_t rank, uint32_t group, uint32_t sub,
				struct engine_state *out, int max);
	int (*hypers)(struct engine *e, uint32_t group, struct engine_state *out, int max);
	bool (*rank)(struct engine *e, uint32_t rank, struct engine_rank *out);
	void (*job)(struct engine *e, struct engine_job *out);
	/* A checkpoint has none of: changes, waits, rank_text, rank_arena, place, events. */
	uint64_t (*changes)(struct engine *e);
	void (*wait)(struct engine *e, struct engine_wait *wait);
	void (*wait_epoch)(struct engine *e, struct engine_wait *wait);
	void (*wait_cancel)(struct engine *e, struct engine_wait *wait);
	char *(*text)(struct engine *e, const char *what);
	char *(*rank_text)(struct engine *e, uint32_t rank, const char *what);
	int (*rank_arena)(struct engine *e, uint32_t rank);
	int (*place)(struct engine *e, const char *states, const char *tier, bool only_ask);
	uint64_t (*changed_ns)(struct engine *e, const struct engine_address *address);
	void (*fragments)(struct engine *e, uint32_t param, const char *key,
			  void (*see)(void *arg, const struct engine_fragment *f), void *arg);
	int (*events_open)(struct engine *e, struct engine_events **events);
	void (*events_close)(struct engine_events *events);
	size_t (*events_read)(struct engine_events *events, char *out, size_t size);
	bool (*events_ready)(struct engine_events *events);
	int (*file_open)(struct engine *e, const struct engine_address *addresses, uint32_t n,
			 struct engine_file **file, uint64_t *bytes);
	void (*file_close)(struct engine_file *file);
	void (*read)(struct engine *e, struct engine_read *read);
	void (*read_cancel)(struct engine *e, struct engine_read *read);
	int (*sums)(struct engine *e, struct engine_sums *sums); /* NULL: a checkpoint */
	void (*sums_cancel)(struct engine *e, struct engine_sums *sums);
	void (*write)(struct engine *e, struct engine_write *write);
	void (*write_cancel)(struct engine *e, struct engine_write *write);
	void (*freeze)(struct engine *e, struct engine_freeze *freeze);
	void (*freeze_cancel)(struct engine *e, struct engine_freeze *freeze);
};

struct engine_base {
	const struct engine_ops *ops;
};

struct engine_member { /* of an engine: a file, a stream of events */
	struct engine *engine;
};

#endif
