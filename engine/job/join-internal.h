/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_JOB_JOIN_INTERNAL_H
#define ENGINE_JOB_JOIN_INTERNAL_H

/* The state of join.h, and what its files call of each other. */

#include "engine/base/vec.h"
#include "engine/job/join.h"
#include "engine/launch/resolver.h"
#include "engine/node/rpc.h"

enum { JOIN_NAMED = 16, JOIN_RETRY_MS = 50, JOIN_REFUSED_RETRY_MS = 1000 };

enum join_state {
	JOIN_FIND,    /* a rank: looks for the address and key of rank 0 */
	JOIN_ENTER,   /* a rank: JOIN, once frag_ready was called */
	JOIN_UPLOAD,  /* a rank: CATALOG_PUT */
	JOIN_HELLO,   /* HELLO until the job is complete */
	JOIN_TABLE,   /* TABLE_GET */
	JOIN_CATALOG, /* CATALOG_GET */
	JOIN_DONE,
};

struct join_seeds {       /* addresses at which the job may be; one is tried at a time */
	char list[4096];  /* "tcp://a:1,tcp://b:2"; "": a rank has not found rank 0 */
	unsigned current; /* index of the address that is tried */
	unsigned passes;  /* how often all were tried */
	bool of_job_file; /* the list is what the job file says */
	bool linked;      /* the current address has a message peer, link */
	uint32_t link;
	bool answered;     /* the current address has answered */
	unsigned refusals; /* addresses that refused this engine's key in this pass */
	bool said_refused; /* a refusal was logged */
};

struct join_rank {                   /* a rank's search for rank 0, and what it sends there */
	char master_ip[RESOLVER_IP]; /* "": not resolved yet */
	bool said_unknown;           /* the log has said that the master's name is unknown */
	bool said_world;             /* the log has told of a job file of another world size */
	int listen_failed;           /* the last -errno of listening, which was logged */
	bool described;              /* frag_ready was called */
	struct wire_writer own;      /* e->own, encoded */
	uint64_t sent;               /* bytes of own that rank 0 has */
	uint32_t hellos;             /* answered before the job was complete */
	uint64_t since_ms;           /* since when the rank waits for rank 0, or for others */
	uint64_t say_ms;             /* how long it waits until it logs that next */
	uint64_t look_ms;            /* when the job file is looked at next */
};

struct contribution { /* one catalog, which one or several ranks describe */
	uint64_t hash;
	uint64_t total;           /* bytes encoded */
	struct wire_writer bytes; /* those that have come */
	struct catalog *catalog;  /* NULL: not all bytes have come, or the job is ready */
	bool is_own;              /* catalog is rank 0's own */
	bool merged;
};

struct join_zero {            /* rank 0: the ranks it admits */
	struct vec catalogs;  /* of struct contribution */
	uint32_t *catalog_of; /* [world] index in catalogs + 1; 0: none, or was refused */
	int refusal; /* not 0: the catalogs do not fit (e->job.why): all ranks are refused */
	uint64_t refuse_until_ms; /* when rank 0 itself fails, at the latest */
};

struct join {
	enum join_state state;
	bool waiting;                 /* for the answer of the current state, or of a refresh */
	uint64_t asked_ms;            /* when the current state's question was sent */
	uint64_t retry_ms;            /* nothing is asked before this */
	struct wire_welcome welcome;  /* the newest */
	uint32_t missing[JOIN_NAMED]; /* the first ranks that have not come */
	uint32_t nmissing;
	uint32_t rows;              /* of the table of ranks, fetched so far */
	uint64_t membership;        /* the table's epoch */
	struct wire_writer catalog; /* bytes fetched so far */
	bool refresh;               /* a newer table of ranks exists */
	uint32_t refresh_from;      /* the message peer that has the newer table */
	struct join_seeds seeds;
	struct join_rank rank;
	struct join_zero zero;
	struct engine_options options; /* an observer's; source NULL: not known */
	const char *place;             /* in options.source: the host that is resolved next */
	struct resolver *resolver;     /* of the master, or of that host */
};

/* join.c */

/* Sends the question of the current state to the current seed. */
void join_ask(struct engine *e, enum wire_type type, const void *body, const void *tail,
	      size_t size);
/* Ends the engine's attempt to join with status and a line. */
void join_fail(struct engine *e, int status, const char *fmt, ...) PRINTF(3, 4);
/* Makes the engine ready, and wakes all that wait for that.  Takes the job's catalog, but not
 * on error.
 * -EINVAL: this rank describes more than catalog has.
 * -ENOMEM
 * -EOVERFLOW
 */
int join_complete(struct engine *e, struct catalog *catalog);
/* Puts "job J: 3 of 8 ranks have joined; not yet: 0 2" into e->job.why. */
void join_note_missing(struct engine *e);

/* join-seeds.c */

/* Connects to the current seed, unless that is done.
 * -errno of the transport's connect.
 */
int join_link_seed(struct engine *e);
void join_unlink_seed(struct engine *e);
void join_next_seed(struct engine *e);
unsigned join_count_seeds(const struct join_seeds *s);
/* Adds an address, unless the list has it. */
void join_add_seed(struct join_seeds *s, const char *address);
/* The current seed refuses this engine's key: tries the next, or looks for another key. */
void join_shut_out(struct engine *e);
/* Leaves the current seed for the next if it refuses our key, or is one of several and slow. */
void join_look_at_seed(struct engine *e, uint64_t now);

/* join-rank.c */

/* Finds rank 0 and the job's key, and opens the message transport; false: not found yet. */
bool join_find(struct engine *e);
/* Forgets key and address of rank 0, which are found anew. */
void join_find_anew(struct engine *e);
/* Finds rank 0 anew if the job file that named it is another one now, or is gone. */
void join_look_at_job_file(struct engine *e, uint64_t now);
void join_turn_enter(struct engine *e);
void join_turn_upload(struct engine *e);
int join_take_joined(struct engine *e, const struct answer *answer);
int join_take_upload_ack(struct engine *e, const struct answer *answer);
/* Looks for the next process of rank 0, which is lost, and joins that. */
void join_look_for_zero(struct engine *e, uint64_t now);
/* Continues the counts of this process, a rank's that came back, from those of the job: `at`,
 * and `barrier` barriers that were passed.
 */
void join_catch_up(struct engine *e, const struct wire_control *at, uint64_t barrier);
/* Begins a wait for other ranks, which join_say_when_long logs, ever less often. */
void join_count_wait(struct engine *e, uint64_t now);
void join_say_when_long(struct engine *e, uint64_t now);

/* join-zero.c */

/* Gives the first ranks that have not come, by rank 0's table; returns their number. */
uint32_t join_missing(const struct engine *e, uint32_t missing[JOIN_NAMED]);
/* Returns how many ranks have come. */
uint32_t join_count(const struct engine *e);
/* Rank 0 adds its own description. */
int join_describe_zero(struct engine *e);
/* Fails rank 0, which has refused, once all others have been told, because its process may end
 * then.
 */
void join_fail_when_told(struct engine *e, uint64_t now);
void join_free_zero(struct join_zero *z);

/* join-observer.c */

/* Asks whether the job, all of whose ranks are lost, was started again. */
void join_look_for_job(struct engine *e, uint64_t now);
/* Takes the key that the options lead to now, if it is another: the job that was started again
 * has refused the present one.
 */
void join_try_new_key(struct engine *e);
/* Says in the lost ranks' lines that WELCOME is of another job, or of one that has changed. */
void join_say_other(struct engine *e, const struct wire_welcome *w);

#endif
