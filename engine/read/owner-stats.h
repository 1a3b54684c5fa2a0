/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_READ_OWNER_STATS_H
#define ENGINE_READ_OWNER_STATS_H

/* Statistics of states, asked of the owners of their bytes: a request has many states, and one
 * STATS to a rank asks for all of its pieces of them.
 *
 *   PLANS --tables of states are here--> ASKS --SUMS of each rank--> joined in file order
 */

#include "engine/node/file.h"

/* As engine_sums, engine_sums_cancel. */
int owner_stats_start(struct engine *e, struct engine_sums *sums);
void owner_stats_cancel(struct engine *e, struct engine_sums *sums);

/* Engine thread, with the lock: one step of each request.  Moves those that have ended to
 * finished, for owner_stats_finish, which is called without the lock.
 */
void owner_stats_turn(struct engine *e, uint64_t now, struct owner_stats_list *finished);
void owner_stats_finish(struct owner_stats_list *finished);
/* Ends all requests with -ECANCELED, when the engine thread has ended. */
void owner_stats_abandon(struct engine *e);

#endif
