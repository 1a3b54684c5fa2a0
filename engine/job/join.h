/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_JOB_JOIN_H
#define ENGINE_JOB_JOIN_H

/* Membership: how an engine learns its job's ranks and catalog.  There are three roles:
 *
 *   join-rank.c      a rank finds rank 0, sends JOIN and what it describes, and then asks HELLO
 *   join-zero.c      rank 0 admits the others and merges what all describe
 *   join-observer.c  an observer asks HELLO at the addresses it was given
 *
 * Ranks and observers then fetch the table of ranks and the catalog alike (join.c), from one of
 * several addresses (join-seeds.c).  Ranks that lose rank 0 look for its next process and join
 * that.  An observer that loses all ranks looks for the job's next processes, and accepts them
 * if they describe the same catalog.
 *
 * With the lock; engine thread unless a comment says otherwise.
 */

#include "engine/node/node.h"

struct source_key;

/* Begins to join as a rank.  seed: the message address of rank 0; NULL: join_turn finds it.
 * -ENOMEM
 */
int join_start_rank(struct engine *e, const char *seed);
/* Begins to join as an observer.  seeds: message addresses, "tcp://a:1,tcp://b:2".
 * -EINVAL: seeds is too long.
 * -ENOMEM
 */
int join_start_observer(struct engine *e, const char *seeds);
/* Moves an observer's key into the engine, and wipes *key. */
void join_take_key(struct engine *e, struct source_key *key);
/* Keeps a copy of options, by which an observer finds the key of the job's next processes.
 * -ENOMEM.
 */
int join_keep_options(struct engine *e, const struct engine_options *options);
/* Waits until the engine has joined.  Any thread but the engine's.
 * -ETIMEDOUT: it has not joined by the deadline (ms).
 * Other errors: e->job.failure.
 */
int join_wait(struct engine *e, uint64_t deadline);
void join_turn(struct engine *e, uint64_t now);
void join_free(struct engine *e);

/* Notes that this rank's description, e->own, is complete.  Trainer's thread.
 * -ENOMEM
 * -EOVERFLOW: the description is too large for a message.
 */
int join_described(struct engine *e);
/* Trainer's thread: logs, after "caller: ", why the call that waited for all ranks ended. */
void join_say_missing(struct engine *e, const char *caller);
/* Writes the `named` numbers in ranks, of `all`: "0 2 5 6 7 and 3 more". */
void join_name_ranks(const uint32_t *ranks, uint32_t named, uint32_t all, char *out,
		     size_t size);
/* Any thread: another rank counts its window of gradients as `grads`; this rank, which came
 * back, continues from there.
 */
void join_catch_up_grads(struct engine *e, uint64_t grads);

/* Notes that the transport could not reach message peer `link`: if it is the current seed, the
 * next is tried.
 */
void join_gone(struct engine *e, uint32_t link);
/* Notes that a message of another protocol version, with this header, came from message peer
 * `peer`.  A rank that looks for its rank 0 passes over another job.
 */
void join_other_version(struct engine *e, uint32_t peer, const struct wire_header *header);
/* Notes that a message of `peer` named an epoch of the table of ranks: a newer table is
 * fetched.
 */
void join_newer_membership(struct engine *e, uint32_t peer, uint64_t membership);

/* Fills *entry with this rank's row of the table of ranks. */
void join_fill_entry(struct engine *e, struct wire_entry *entry);
/* Answers HELLO, as every rank does. */
void join_serve_hello(struct engine *e, uint32_t peer, const struct wire_header *header);
/* Answer JOIN and CATALOG_PUT, as rank 0 does. */
void join_serve_join(struct engine *e, uint32_t peer, const struct wire_header *header,
		     const struct wire_join *join);
void join_serve_put(struct engine *e, uint32_t peer, const struct wire_header *header,
		    const struct wire_catalog *part, const void *bytes, size_t size);

#endif
