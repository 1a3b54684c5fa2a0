/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_NODE_H
#define ENGINE_NODE_H

/* The inside of one engine, a rank's or an observer's.  Modules:
 *
 *   join      finds the job, its ranks and its catalog        serve     answers others (a rank)
 *   peers     what is known of each rank                      edits     staged edits (a rank)
 *   rpc       requests that wait for an answer                plan      range -> pieces
 *   reads     engine_read                                     writes    engine_write
 *
 * Threads.  One engine thread calls engine_turn in a loop (tests call it themselves: turned by hand);
 * only it touches the message transport.  Everything below is under `lock` unless said; callbacks of
 * users are called without it.
 */

#include "engine/catalog.h"
#include "engine/control-page.h"
#include "engine/edits.h"
#include "engine/engine.h"
#include "engine/launch.h"
#include "engine/peers.h"
#include "engine/registry.h"
#include "engine/transport.h"
#include "engine/wire.h"

#include <pthread.h>
#include <stdatomic.h>

#define NODE_LOCAL UINT32_MAX /* the peer number of ourselves */

enum {
	NODE_PIECES_MAX = 256,	 /* of one plan */
	NODE_STAGE_WINDOW = 8,	 /* STAGE messages of a write under way */
	NODE_TICK_MS = 5,	 /* while something waits for a condition */
	NODE_IDLE_MS = 500,
	NODE_PING_MS = 1000,
};

struct rpc;
struct transfer;
struct commit;
struct join;
struct message;

struct engine_counters { /* any thread, atomic, relaxed */
	_Atomic uint64_t reads, read_bytes, read_errors;
	_Atomic uint64_t owner_bytes_memory, owner_bytes_messages;
	_Atomic uint64_t writes, write_bytes, write_errors;
	_Atomic uint64_t served_reads, served_bytes, edits_applied;
	_Atomic uint64_t messages_in, messages_out, messages_bad;
	_Atomic uint64_t readahead_hits, readahead_misses;
};

struct engine {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* catalog ready, a states table came, a rank's state changed */

	/* set before the thread starts */
	bool is_rank;
	bool writable; /* an observer that may write */
	bool threaded;
	uint32_t rank; /* WIRE_OBSERVER: an observer */
	pid_t pid;     /* that opened it: a forked child must not touch it */
	unsigned timeout_ms;
	struct launch launch; /* a rank's */
	const struct transport_ops *message_ops;
	const struct transport_ops *memory_ops; /* NULL: never read memory */
	struct transport *memory;
	int wake_fd; /* any thread: write to wake the engine thread */
	pthread_t thread;
	_Atomic bool stop;
	void (*yield)(void *arg); /* tests: turns the other engines of this thread */
	void *yield_arg;

	/* engine thread */
	struct transport *messages; /* NULL: not open yet */

	uint8_t key[32];
	bool has_key;
	char job[128];
	uint64_t job_hash;
	uint64_t incarnation;
	uint64_t membership;
	uint32_t world;
	char address[160]; /* rank 0's "HOST:PORT", or the one an observer reached */

	struct registry registry;  /* a rank's; its own lock */
	struct edits edits;	   /* a rank's; its own lock */
	struct catalog *own;	   /* what this rank described; frozen by frag_ready */
	uint32_t *map_params;	   /* own's numbers to catalog's */
	uint32_t *map_groups;
	struct catalog *catalog;   /* the job's; once set it stays */
	struct wire_writer catalog_bytes; /* its encoding, for others */
	bool ready;		   /* catalog and the table of ranks are there */
	int failure;		   /* why it never will be, -errno */
	char why[200];

	struct peer *peers; /* [world] */
	struct join *join;
	struct rpc *rpcs;
	uint64_t rpc_number;
	struct message *local_first, *local_last; /* to ourselves */

	struct transfer *transfers; /* reads that wait */
	struct commit *commits;
	uint64_t writer_id;   /* random: first half of our transactions' numbers */
	uint64_t transaction; /* second half of the newest */
	_Atomic uint64_t epoch;	     /* engine_epoch */
	_Atomic uint64_t edit_count; /* commits of ours: what was read ahead before is old */

	struct {
		uint64_t wanted, asked, passed; /* this rank's */
		int status;
		uint64_t count; /* rank 0: passed by all */
		uint32_t arrived;
		struct barrier_arrival *arrivals; /* [world] */
	} barrier;
	struct engine_counters counters;
	struct readahead_pool *readahead;
};

/* A rank's engine (launch and key already there) or an observer's; no thread yet.  -errno. */
int node_new(struct engine **e, const struct transport_ops *messages,
	     const struct transport_ops *memory);
int node_start_thread(struct engine *e);
void node_free(struct engine *e);

/* One round: messages, timers, waiting requests.  wait_ms: how long to wait for something to do.
 * Engine thread, or the test's.
 */
void engine_turn(struct engine *e, int wait_ms);
void node_wake(struct engine *e);
/* Where a call waits and nobody else turns this engine. */
void node_yield(struct engine *e);

/* Everything below: engine thread, with the lock, unless said. */

/* Sends header, body and tail to a message peer (NODE_LOCAL: to ourselves). */
int node_send(struct engine *e, uint32_t peer, enum wire_type type, uint64_t request,
	      const void *body, const void *tail, size_t tail_size);
int node_open_messages(struct engine *e, const char *bind);

/* The outcome of an answer: its type and parts, or a status < 0 and nothing else. */
struct answer {
	int status; /* 0, -errno of an ACK or REFUSE, -ETIMEDOUT, -EIO: the rank is lost */
	enum wire_type type;
	const void *body;
	const void *tail;
	size_t tail_size;
	uint32_t peer;
};

/* Returns true: more answers of this request will come, keep it. */
typedef bool (*rpc_done)(struct engine *e, void *owner, uint64_t tag, const struct answer *answer);

/* Asks rank (its link is made when needed).  done is called exactly once (or until it returns false),
 * never from inside.  On error (-EAGAIN: queue full) it is not called.
 */
int rpc_call(struct engine *e, uint32_t rank, enum wire_type type, const void *body, const void *tail,
	     size_t tail_size, rpc_done done, void *owner, uint64_t tag);
/* The same to a message peer that has no rank yet. */
int rpc_call_peer(struct engine *e, uint32_t peer, enum wire_type type, const void *body,
		  const void *tail, size_t tail_size, rpc_done done, void *owner, uint64_t tag);
void rpc_answer(struct engine *e, const struct wire_header *header, const struct answer *answer);
void rpc_expire(struct engine *e, uint64_t now);
/* Ends all requests to the rank with status. */
void rpc_fail_rank(struct engine *e, uint32_t rank, int status);
/* Forgets all requests of owner. */
void rpc_forget(struct engine *e, const void *owner);
void rpc_free(struct engine *e);

int join_start_rank(struct engine *e);
/* seeds: message addresses, "tcp://a:1,tcp://b:2". */
int join_start_observer(struct engine *e, const char *seeds);
void join_turn(struct engine *e, uint64_t now);
void join_free(struct engine *e);

void serve_request(struct engine *e, uint32_t peer, const struct wire_header *header,
		   const void *body, const void *tail, size_t tail_size);
/* Tells writers that their edits were applied; asks for and ends barriers. */
void serve_turn(struct engine *e, uint64_t now);

/* One run of bytes on one rank. */
struct piece {
	uint32_t rank;
	uint32_t row;
	uint64_t offset; /* bytes in the row */
	uint64_t at;	 /* bytes in what was asked */
	uint64_t size;
};

struct plan {
	struct piece pieces[NODE_PIECES_MAX];
	unsigned n;
	uint64_t covered; /* bytes from the start that the pieces give */
};

/* Pieces of [offset, offset + size) of what address names, from one live holder each.
 * -EAGAIN: a table of states is being fetched; -EIO: lost; -ENOENT; -EINVAL: past the end.
 */
int plan_read(struct engine *e, const struct engine_address *address, uint64_t offset, uint64_t size,
	      struct plan *plan);
/* The same, from every holder: replicas too.  Calls see for each piece. */
typedef int (*plan_see)(void *arg, const struct piece *piece);
int plan_write(struct engine *e, const struct engine_address *address, uint64_t offset, uint64_t size,
	       plan_see see, void *arg);
/* dtype, bytes of the whole; -ENOENT, -EAGAIN. */
int plan_describe(struct engine *e, const struct engine_address *address, struct engine_state *out);

void reads_turn(struct engine *e, uint64_t now, struct transfer **finished);
void reads_finish(struct transfer *finished); /* without the lock */
void writes_turn(struct engine *e, uint64_t now, struct commit **finished);
void writes_finish(struct commit *finished); /* without the lock */

/* Blocks the calling thread (not the engine's, without the lock) until the bytes are at out. */
int engine_get(struct engine *e, const struct engine_address *address, uint64_t offset, void *out,
	       uint64_t size);

#endif
