/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_NODE_PEERS_H
#define ENGINE_NODE_PEERS_H

/* The ranks of a job, as an engine knows them.  All with the lock; engine thread where it says
 * so.
 */

#include "engine/node/rpc.h"

void peers_set_entry(struct engine *e, const struct wire_entry *entry);
/* A message came from it; control NULL: without one. */
void peers_heard(struct engine *e, uint32_t rank, const struct wire_control *control);
/* Its control page, however it was seen. */
void peers_saw(struct engine *e, uint32_t rank, const struct wire_control *control);
void peers_lose(struct engine *e, uint32_t rank, const char *why);
/* A get of its memory failed with `why`, -ESRCH or -ESTALE: it is to be lost, or has left. */
void peers_vanished(struct engine *e, uint32_t rank, int why);
/* What a request for a lost rank ends with: -EIO, or -ETIMEDOUT while it is but silent. */
int peers_lost_status(const struct engine *e, uint32_t rank);
/* Nobody listens any more where that message peer was. */
void peers_gone(struct engine *e, uint32_t link);
/* Its control page as it is now, where that costs no message; else it is kept in touch with. */
void peers_look(struct engine *e, uint32_t rank);
/* The same again when every_ms have gone by, by message too.  Engine thread. */
void peers_follow(struct engine *e, uint32_t rank, uint64_t every_ms, uint64_t now);
/* For how long it has been where it is, as far as is known: by the clock on the wall since its
 * last boundary.
 */
uint64_t peers_stood_ms(const struct peer *p);
/* None is linked to. */
void peers_unlink(struct engine *e);
/* What is known of all those that are lost, by now. */
void peers_say_of_lost(struct engine *e, const char *why);
/* All have said that they end, and have. */
bool peers_all_left(const struct engine *e);
/* WIRE_OBSERVER: none lives. */
uint32_t peers_first_live(const struct engine *e);
/* Whether it is a process of this host: its memory may be in reach. */
bool peers_same_host(const struct engine *e, uint32_t rank);
/* Links and attaches as needed; peers_lost_status: it is lost or has not come.  Engine thread.
 */
int peers_reach(struct engine *e, uint32_t rank);
/* Reaches the rank and asks it: rpc_call.  Engine thread. */
int peers_call(struct engine *e, uint32_t rank, enum wire_type type, const void *body,
	       const void *tail, size_t tail_size, rpc_done done, void *owner, uint64_t tag);
/* Whether a rank that is silent, and was not heard to end, can be read without its help: its
 * memory is in reach, and the last table of its states is here.
 */
bool peers_is_readable(const struct engine *e, uint32_t rank);
/* Fetches a missing or stale table in the background.  0: it is there; -EAGAIN;
 * peers_lost_status.
 */
int peers_want_states(struct engine *e, uint32_t rank);
/* Pings, fetches.  Engine thread. */
void peers_turn(struct engine *e, uint64_t now);
void peers_free(struct engine *e);

#endif
