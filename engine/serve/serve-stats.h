/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SERVE_SERVE_STATS_H
#define ENGINE_SERVE_SERVE_STATS_H

/* Statistics of ranges of this rank's states, which observers ask for by STATS.  One worker
 * thread of the rank makes them, so that neither the trainer nor the engine thread waits for
 * them; a device sums its own bytes where it can.  A range of a view has the view's bytes;
 * another range has the present ones, which count if the control page says the same before and
 * after.  Engine thread, with the lock.
 */

#include "engine/node/node.h"
#include "engine/stats/stats.h"

/* Returns the sums that a device makes of values of that dtype; DEVICE_COPY: it makes none. */
enum device_what serve_stats_on_device(enum frag_dtype dtype, bool with_bins);
/* Adds a device's sums of n elements, the first of which has the number `first`. */
void serve_stats_add(struct stats *to, const struct device_sums *sums, uint64_t n,
		     uint64_t first);

/* Queues the request; refuses it with -EAGAIN while the queue is full.  A repetition of a
 * queued request takes its place.
 */
void serve_stats(struct engine *e, uint32_t peer, uint64_t request, const void *body,
		 const void *tail, size_t tail_size);
/* Answers the requests that the worker has finished. */
void serve_stats_turn(struct engine *e);
/* Abandons the requests of a peer that has left. */
void serve_stats_gone(struct engine *e, uint32_t peer);
/* Ends the worker.  The engine thread has ended. */
void serve_stats_free(struct engine *e);

#endif
