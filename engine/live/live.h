/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_LIVE_LIVE_H
#define ENGINE_LIVE_LIVE_H

/* The operations of a live job (engine/engine-ops.h), for observers; ranks open files by them
 * too.  live_states does engine_states of engine/engine.h, and so on.
 */

#include "engine/node/node.h"

extern const struct engine_ops live_ops;

/* Joins options->source as an observer.  With an error, why has one line. */
int live_open(struct engine **e, const struct engine_options *options, char *why,
	      size_t whysize);

int live_file_open(struct engine *e, const struct engine_address *addresses, uint32_t n,
		   struct engine_file **file, uint64_t *bytes);
void live_file_close(struct engine_file *file);

int live_states(struct engine *e, uint32_t param, struct engine_state *out, int max);
int live_rank_arena(struct engine *e, uint32_t rank);
int live_rank_states(struct engine *e, uint32_t rank, uint32_t param, struct engine_state *out,
		     int max);
int live_partition_states(struct engine *e, uint32_t rank, uint32_t group, uint32_t sub,
			  struct engine_state *out, int max);
int live_hypers(struct engine *e, uint32_t group, struct engine_state *out, int max);

bool live_rank(struct engine *e, uint32_t rank, struct engine_rank *out);
void live_job(struct engine *e, struct engine_job *out);
uint64_t live_changed_ns(struct engine *e, const struct engine_address *a);
char *live_text(struct engine *e, const char *what);

#endif
