/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_NODE_NODE_H
#define ENGINE_NODE_NODE_H

/* struct engine, which the modules of a rank's or an observer's engine share, and the sending
 * of messages.
 *
 * Threads.  The engine thread calls loop_turn in a loop, and it alone touches the message
 * transport; an engine of a test may have no thread: the test calls loop_turn.  engine.lock
 * guards all fields of struct engine for which no comment says otherwise.  Callbacks of users
 * are called without it.
 */

/* The locks of engine/, in the order in which they are taken: a thread that holds one takes
 * only those of later rows.  Two locks of one row are held together only where an arrow stands.
 *
 *   0  cut_read.lock                   read: one user's read, while its parts are cancelled
 *      stats_run.lock                  stats-pass.c: one pass, while the owners' is cancelled
 *   1  engine.lock                     struct engine: peers, requests, all that waits
 *   2  rounds.lock                     rounds: this rank's list and what it has launched
 *   3  communicator.lock               rounds: the communicator in use
 *      participant.lock                rank: edits staged, promised, decided; its lease
 *      view_owner.lock                 rank: views that observers have of this rank's states
 *      arena_memory.lock               rank: the arena, while its blocks are moved or listed
 *   4  registry.lock                   rank: the table of states and their addresses
 *   5  devices.lock                    rank: copies under way from and to devices, marks
 *      swapper.lock                    swap: blocks and versions of one state on NVMe
 *      serve_pending.lock              serve: which reads' sources have come
 *      stats_server.lock               serve: statistics that were asked for
 *      tier_fetch.lock                 serve: one fetch of bytes that statistics are made of
 *   6  swap_file.lock -> io's lock     swap: room in a file; the parts of one request
 *      pinned.lock                     memory: free buffers
 *   7  disk's lock (uring, threads)    swap: the queue of requests
 *      swap_sum_threads.lock           swap: the queue of chunks whose checksums are computed
 *   8  NCCL's calls -> its lock        collective: calls of NCCL; what is launched
 *        -> its warnings' lock         the text of the newest warning
 *      collective-host's lock          collective: all communicators of this process
 *   9  a device's lock (host, cuda)    device: ranges, events, blocks of its pool
 *      streams' lock (host)            device: streams of the host's device
 *      device_queue.lock               device: finished copies and the end of its thread
 *  10  the journal of the log          base: lines that were said last; any thread, any time;
 *                                      held in syslog(3), which may wait
 *      the times of phases             base: histograms; any thread, any time
 *      comms.lock                      node: counts of operations on ranks; any thread
 *
 * A thread that takes one of these holds no other lock, or engine.lock alone, and takes none
 * inside:
 *   transport-host's lock              the table of processes that are attached
 *   a struct process's rwlock          transport-host: its memory, while bytes are copied
 *   transport-loop's lock              tests' transport: all its ends
 *   readahead_pool.lock                read: streams of readers; let go while bytes are copied
 *   the waits of reads.c, devices.c and the swapper: one call's result, on its stack
 *   gather_run.lock                    gather.c: one request; let go in calls of the engine
 *
 * tls-context's gate is locked for reading around calls of OpenSSL, whatever else is held: its
 * only writer, in exit(3), tries and never blocks.
 *
 * An open checkpoint has no struct engine; its locks are checkpoint.lock -> fetch.lock, and,
 * each held alone, those of editor and rwgate.
 */

#include "engine/base/queue.h"
#include "engine/catalog/catalog.h"
#include "engine/catalog/control-page.h"
#include "engine/catalog/wire.h"
#include "engine/engine-ops.h"
#include "engine/engine.h"
#include "engine/launch/launch.h"
#include "engine/launch/source.h"
#include "engine/node/peer.h"
#include "engine/rank/participant.h"
#include "engine/rank/registry.h"
#include "engine/rank/view-owner.h"
#include "engine/transport/transport.h"

#include <pthread.h>
#include <stdatomic.h>

#define NODE_LOCAL UINT32_MAX /* the message peer that is this engine itself */

enum {
	NODE_PIECES_MAX = 256,   /* in one plan */
	NODE_STAGE_WINDOW = 8,   /* STAGE messages of one write that wait for an ACK */
	NODE_COPIED_WINDOW = 16, /* such STAGEs where ranks copy the bytes themselves */
	/* between two turns of the engine thread, which a message or node_wake ends: */
	NODE_TICK_MS = 5,       /* something is polled */
	NODE_READ_TICK_MS = 2,  /* a read is under way */
	NODE_WAIT_TICK_MS = 10, /* all reads have waited for trainers for 0.1 s */
	NODE_IDLE_MS = 500,
	NODE_PING_MS = 1000, /* between two PINGs of a rank */
};

LIST_HEAD(transaction_list, transaction);
LIST_HEAD(remote_read_list, remote_read);
LIST_HEAD(owner_stats_list, owner_stats);
LIST_HEAD(round_list, round);

struct message { /* from an engine to itself */
	STAILQ_ENTRY(message) entry;
	size_t size;
	uint8_t data[];
};

struct node_port {                       /* a transport that an engine has opened */
	const struct transport_ops *ops; /* NULL: this engine never uses one */
	struct transport *transport;     /* NULL: not open yet */
};

struct engine_counters { /* any thread; memory order relaxed */
	_Atomic uint64_t reads, read_bytes, read_errors;
	_Atomic uint64_t owner_bytes_memory, owner_bytes_messages, owner_bytes_rounds;
	_Atomic uint64_t owner_reads_memory, owner_reads_messages, owner_reads_rounds;
	_Atomic uint64_t rounds_fallback[WIRE_FALLBACKS]; /* reads without a round, by reason */
	_Atomic uint64_t writes, write_bytes, write_errors;
	_Atomic uint64_t staged_memory, staged_messages; /* bytes that holders have got */
	_Atomic uint64_t messages_in, messages_out, messages_bad;
	_Atomic uint64_t readahead_hits, readahead_misses;
};

struct engine {
	struct engine_base door; /* first */
	pthread_mutex_t lock;
	pthread_cond_t changed; /* signalled when what node_wait waits for may have come */

	/* set before the engine thread starts */
	bool is_rank;  /* false: an observer */
	uint32_t rank; /* WIRE_OBSERVER: an observer */
	unsigned timeout_ms;
	struct launch launch; /* a rank's */

	struct { /* the engine thread */
		pthread_t id;
		bool started; /* false: tests turn the engine by hand */
		_Atomic bool stop;
		uint64_t hot_ns;  /* when bytes of a state were last asked for, or came */
		uint64_t look_ns; /* until then the thread polls before it sleeps */
		uint64_t cold_ns; /* until then the thread sleeps without polling */
		/* the bulk port alone woke the engine thread, and ZeroMQ, a look at which takes
		 * ten system calls, has had its turn in this millisecond, turned_ms
		 */
		bool only_bulk;
		uint64_t turned_ms;
		int wake_fd;                    /* any thread: node_wake writes to it */
		STAILQ_HEAD(, message) to_self; /* what the engine sends to itself */
		void (*yield)(void *arg);       /* tests: turns the thread's other engines */
		void *yield_arg;
	} thread;

	struct node_port messages; /* engine thread */
	struct node_port bulk;     /* engine thread; engine/node/bulk.h */
	bool bulk_told;            /* the log has warned of a bulk port that does not answer */
	struct node_port memory;   /* reads memory of this host's processes */
	struct fabric *fabric;     /* NULL: none */

	struct { /* the job, and what the modules of engine/job/ keep of it */
		char name[128];
		uint64_t hash;                /* wire_hash of the name */
		_Atomic uint64_t incarnation; /* differs when the job was started again */
		uint64_t membership;          /* epoch of the table of ranks */
		char address[160]; /* "HOST:PORT" of rank 0, or of an observer's seed */
		struct source_key key;
		uint64_t engine_id; /* random; begins the ids that this engine makes */

		bool ready;    /* the catalog and the table of ranks are there */
		int failure;   /* -errno: why `ready` will never be true */
		char why[200]; /* failure in words; or which ranks have not joined yet */
		/* a rank's: numbers of own's parameters and groups in catalog */
		uint32_t *map_params, *map_groups;
		/* a rank's: catalog, encoded at the first request */
		struct wire_writer catalog_bytes;
		/* a rank's: newest window of gradients known of other ranks */
		_Atomic uint64_t grads_elsewhere;

		struct join *join; /* NULL: not begun */
		struct leave *leave;
		struct barrier *barrier;
		struct rendezvous *rendezvous;
		bool is_leaving; /* this rank is to tell the others that it ends */
	} job;
	uint32_t world; /* ranks of the job, read without the lock; 0: not known yet */

	/* a rank's, each with a lock of its own */
	struct registry registry;
	struct participant participant;
	struct view_owner view_owner;
	struct arena_memory *arena;    /* NULL: none.  The trainer's thread sets it */
	struct trainer_state *trainer; /* engine/api/ */
	struct leaves *leaves; /* of own; the trainer's thread sets them, under lock; or NULL */

	struct catalog *own;     /* what this rank described; frozen by frag_ready */
	struct catalog *catalog; /* the job's; once set it stays */
	struct peer *peers;      /* [world], by rank; a message's `peer` is peers[].link */

	struct rpc_table *rpc;
	struct event_log *event_log;

	/* what the modules of each folder above node/ keep; no pointer is NULL unless said */
	struct {
		struct coordinator *coordinator;
		LIST_HEAD(, orphan) orphans; /* promised transactions of lost coordinators */
		LIST_HEAD(, freeze) freezes; /* that this engine asked for */
		uint64_t newest;             /* second half of the newest transaction's id */
	} commit;
	struct {
		struct communicator *communicator; /* NULL: this rank takes part in no rounds */
		_Atomic bool one_queue; /* CUDA_DEVICE_MAX_CONNECTIONS=1: no communicator */
		struct rounds *table;   /* set with the communicator, by the trainer's thread */
		struct landing *landing; /* NULL: rounds bring nothing to mounts */
	} rounds;
	struct {
		struct remote_read_list remote;
		struct owner_stats_list stats;
		uint64_t stats_number;        /* the id of the newest STATS */
		struct readahead_pool *ahead; /* NULL: no read-ahead */
		bool asks_ahead; /* by message; set before the first file is opened */
		struct prefetch *prefetch;
		SLIST_HEAD(, closed_view) closed; /* views whose owners are to be told */
		uint64_t view_number;             /* second half of the newest view's id */
		_Atomic unsigned nwhole; /* files with `whole` of more than ENGINE_READ_MAX */
	} read;
	struct {
		bool allowed;           /* a rank, or an observer that may write */
		bool local_allowed;     /* also to one rank's copy alone, under ranks/ */
		bool by_memory;         /* ranks of this host copy edits: writer-memory.h */
		uint64_t word[2];       /* writer-memory.h */
		_Atomic uint64_t edits; /* made here; bytes read ahead before one are old */
		struct transaction_list transactions;
	} write;
	struct watch *watch;
	struct {
		struct serve *state;
		struct readers *readers;         /* observers that this rank hears */
		LIST_HEAD(, pending_wait) waits; /* of observers, to be answered */
		struct serve_pending *pending;   /* NULL: all states are in memory */
		struct stats_server *stats;      /* NULL: nobody has asked yet */
		struct checks *checks; /* the trainer's thread's; NULL: no watch yet */
		/* This rank's states, an edit or a freeze were asked for: by a rank, or by an
		 * observer that has been heard since.  Any thread, atomic.
		 */
		_Atomic bool asked;
		uint64_t asked_until_ms; /* when asked ends by silence; UINT64_MAX: never */
		int asked_fd;            /* serve_tell_asked writes to it once; 0: to none */
	} serve;
	struct engine_counters counters;
	struct comms *comms; /* NULL: operations are not counted */
};

/* Returns the life of a rank's process, a number in its messages; its next process has another.
 */
static inline uint32_t node_life(const uint64_t cookie[2])
{
	return (uint32_t)(cookie[0] ^ cookie[1]);
}

/* Returns true if the calling thread may do what the engine thread alone does: it is that
 * thread, or the engine has no thread now.
 */
bool node_is_engine_thread(const struct engine *e);

/* Makes the engine thread take its next turn now.  Any thread, without the lock. */
void node_wake(struct engine *e);
/* Lets a test turn its engines while a call waits in an engine without a thread.  Without the
 * lock.
 */
void node_yield(struct engine *e);

/* Waits until e->changed is signalled, or the monotonic deadline; the caller then tests its
 * condition again.  With the lock, which is released meanwhile.
 * -ETIMEDOUT: the deadline has passed.
 */
int node_wait(struct engine *e, uint64_t deadline_ms);

/* Returns true if a caller whose attempt ended with rc is to try again: rc is -EAGAIN, and the
 * call has waited 0.1 s at most for an answer before the deadline.
 */
bool node_ask_again(struct engine *e, int rc, uint64_t deadline_ms);

/* Wakes the engine thread, which sends the caller's question, and does node_wait.
 * -EAGAIN: the calling thread may not wait (engine_hurry).
 */
int node_wait_answer(struct engine *e, uint64_t deadline_ms);

/* Counts a read whose result is a number of bytes, or -errno.  Any thread, without the lock. */
void node_count_read(struct engine *e, const struct engine_read *read, int64_t result);

void node_header(const struct engine *e, struct wire_header *header, enum wire_type type,
		 uint64_t request);
/* Sends header, body and tail to a message peer, or NODE_LOCAL.  Engine thread, with the lock.
 * Errors of the transport's send.
 */
int node_send(struct engine *e, uint32_t peer, enum wire_type type, uint64_t request,
	      const void *body, const void *tail, size_t tail_size);
/* Send an ACK, or a REFUSE with a line of text.  An answer that cannot be sent is dropped. */
void node_ack(struct engine *e, uint32_t peer, uint64_t request, int status);
void node_refuse(struct engine *e, uint32_t peer, uint64_t request, int status, const char *fmt,
		 ...) PRINTF(5, 6);
int node_open_messages(struct engine *e, const char *bind);
/* Returns the port whose transport gave the message peer its number. */
const struct node_port *node_port_of(const struct engine *e, uint32_t peer);

/* Fills *observer with this process. */
void node_observer(const struct engine *e, struct wire_observer *observer);
/* Fills origin with this process, which writes or freezes. */
void node_origin(const struct engine *e, struct wire_origin *origin);

#endif
