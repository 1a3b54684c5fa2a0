/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_NODE_PEERS_H
#define ENGINE_NODE_PEERS_H

/* The ranks of a job, as an engine knows them: the table engine.peers, which engine.lock
 * guards.  The caller of every function but peers_free holds engine.lock, and is the engine
 * thread where the comment says so.
 */

#include "engine/node/rpc.h"

void peers_set_entry(struct engine *e, const struct wire_entry *entry);
/* Notes a message of the rank, and the control page that came with it; NULL: none came. */
void peers_heard(struct engine *e, uint32_t rank, const struct wire_control *control);
/* Notes the rank's control page, which came by message or was read from its memory. */
void peers_saw(struct engine *e, uint32_t rank, const struct wire_control *control);
/* Notes that the rank is lost.
 * -EIO: its process is gone.
 * -ETIMEDOUT: it is only silent; a later loss of its process counts.
 */
void peers_lose(struct engine *e, uint32_t rank, int status, const char *why);
/* Notes that a get of the rank's memory failed with why.  The engine thread finds out whether
 * the rank is lost or has left.
 * -ESRCH: its process is gone.
 * -ESTALE: another process has its pid.
 */
void peers_vanished(struct engine *e, uint32_t rank, int why);
/* Returns how a request to a lost rank ends:
 * -EIO: its process is gone.
 * -ETIMEDOUT: it is only silent.
 */
int peers_lost_status(const struct engine *e, uint32_t rank);
/* Returns true if the rank is lost because its process is gone. */
bool peers_has_ended(const struct engine *e, uint32_t rank);
/* Loses the rank of a message peer at whose address nobody listens any more. */
void peers_gone(struct engine *e, uint32_t link);
/* Reads the rank's control page, if its memory is in reach; else the rank is pinged from now
 * on.
 */
void peers_look(struct engine *e, uint32_t rank);
/* Reads the rank's control page, by memory or by PING, if the last peers_follow is every_ms
 * ago.  Engine thread.
 */
void peers_follow(struct engine *e, uint32_t rank, uint64_t every_ms, uint64_t now);
/* Returns for how many ms the rank has stood at its boundary: since its clock passed it, or
 * since it was seen there, if that is longer.
 */
uint64_t peers_stood_ms(const struct peer *p);
/* Drops the links to all ranks. */
void peers_unlink(struct engine *e);
/* Puts line behind the cause of each lost rank's loss, such as that another job has its address
 * by now; logs line if it is new for one of these ranks.
 */
void peers_say_of_lost(struct engine *e, const char *line);
/* Returns true if all ranks have said that they end, and have ended. */
bool peers_all_left(const struct engine *e);
/* Returns the lowest live rank; WIRE_OBSERVER: no rank lives. */
uint32_t peers_first_live(const struct engine *e);
/* Returns true if the rank is a process of this host, so that its memory may be in reach. */
bool peers_same_host(const struct engine *e, uint32_t rank);
/* Returns the live rank of this host whose training thread has that number in this pid
 * namespace, as far as the ranks' pages were seen; WIRE_OBSERVER: none.
 */
uint32_t peers_find_trainer(struct engine *e, pid_t thread);
/* Links to the rank and attaches to its memory, as needed.  Engine thread.
 * peers_lost_status: the rank is lost or has not come.
 */
int peers_reach(struct engine *e, uint32_t rank);
/* Reaches the rank and asks it by rpc_call.  Engine thread. */
#define peers_call(...) peers_call_from(LOG_PLACE, __VA_ARGS__)
int peers_call_from(const char *caller, struct engine *e, uint32_t rank, enum wire_type type,
		    const void *body, const void *tail, size_t tail_size, rpc_done done,
		    void *owner, uint64_t tag);
/* Returns true if a rank that has not answered for silence_ms is as good as lost to a read that
 * waits for limit_ms.  From half of limit_ms on the rank is sent a PING, which a live rank
 * answers at once, however slow its disk is.  Engine thread.
 */
bool peers_is_mute(struct engine *e, uint32_t rank, uint64_t silence_ms, uint64_t limit_ms);
/* Returns true if a rank that is silent, and has not said that it ends, can be read without
 * its help: its memory is in reach, and the last table of its states is here.
 */
bool peers_is_readable(const struct engine *e, uint32_t rank);
/* Fetches the rank's table of states in the background, if it is missing or stale.  The owner
 * of these requests is the rank's struct peer.
 * 0: the table is there.
 * -EAGAIN: it is on its way.
 * peers_lost_status: the rank is lost.
 */
int peers_want_states(struct engine *e, uint32_t rank);
/* Finds out in the background whether the rank's table of states, which is here, is still the
 * newest: its time (struct peer, states_ns) then grows, or a newer one is fetched.
 */
void peers_doubt_states(struct engine *e, uint32_t rank);
/* Pings ranks, fetches tables, loses ranks that are gone.  Engine thread. */
void peers_turn(struct engine *e, uint64_t now);
/* Frees the table, when the engine thread has ended. */
void peers_free(struct engine *e);

#endif
