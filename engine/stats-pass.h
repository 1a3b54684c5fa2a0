/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_STATS_PASS_H
#define ENGINE_STATS_PASS_H

/* One pass over an open state, which makes its statistics: the ranks that have its bytes make
 * them (engine_sums), or, where they cannot, a thread adds what has been read, chunk after
 * chunk, while the next chunks are read.
 */

#include "engine/engine.h"
#include "engine/stats/stats.h"

struct stats_run;

/* A request.  The module owns the struct until it calls `done`: once, in a thread of the
 * pass, with 0 and *values or *hash filled, or with the error of a read (engine_read).
 */
struct stats_pass {
	struct engine *engine;
	struct engine_address address;
	struct engine_file *file; /* of the address; all bytes are those of one generation */
	uint64_t bytes;           /* of the file */
	enum frag_dtype dtype;    /* one that stats_has */
	bool with_bins;
	bool nowait;  /* as in struct engine_read */
	pid_t thread; /* as in struct engine_read */
	struct stats *values;
	uint64_t *hash; /* the XXH64 of all bytes is made in place of *values; NULL */
	void (*done)(struct stats_pass *pass, int result);
	void *owner;
	struct stats_run *run; /* private */
};

/* Starts the pass.
 * -ENOMEM.
 * -errno of pthread_create.
 */
int stats_pass_start(struct stats_pass *pass);
/* Makes the pass end soon, with -ECANCELED.  Idempotent; not to be called after `done`. */
void stats_pass_cancel(struct stats_pass *pass);

#endif
