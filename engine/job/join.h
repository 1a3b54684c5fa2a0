/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_JOB_JOIN_H
#define ENGINE_JOB_JOIN_H

/* How an engine comes to know its job.  A rank: find rank 0, JOIN with what it describes, then,
 * as an observer does: HELLO until all have come, the table of ranks, the catalog.  Rank 0
 * merges.  When rank 0 is lost, the others look for its next process, and join that as they
 * joined the first; when all ranks are lost, an observer looks for the next ones, and takes
 * them for the job's if that is described as it was.
 */

#include "engine/launch/resolver.h"
#include "engine/launch/source.h"
#include "engine/node/node.h"

enum join_phase {
	JOIN_FIND,    /* a rank: looks for the address and key of rank 0 */
	JOIN_ENTER,   /* a rank: JOIN, when frag_ready was called */
	JOIN_UPLOAD,  /* a rank: sends its catalog */
	JOIN_HELLO,   /* asks until the job is complete */
	JOIN_TABLE,   /* fetches the table of ranks */
	JOIN_CATALOG, /* fetches the catalog */
	JOIN_DONE,
};

struct contribution { /* rank 0: one kind of catalog that ranks have sent */
	uint64_t hash;
	uint64_t total;
	struct wire_writer bytes;
	struct catalog *catalog; /* NULL: not complete */
	bool merged;
};

enum { JOIN_NAMED = 16 };

struct join {
	enum join_phase phase;
	bool waiting;                /* for an answer */
	bool described;              /* a rank: frag_ready was called */
	uint64_t retry_ms;           /* nothing before this */
	uint64_t asked_ms;           /* the question that waits */
	uint64_t since_ms;           /* a rank waits for the others, or for rank 0 */
	uint64_t say_ms;             /* after how long to say so */
	char seeds[4096];            /* "tcp://a:1,tcp://b:2"; "" : FIND looks */
	char master_ip[RESOLVER_IP]; /* "": to be resolved, by */
	struct resolver *resolver;
	bool said_unknown;
	int listen_failed; /* the last error, said */
	unsigned seed;     /* which is tried */
	unsigned rounds;   /* of all seeds */
	bool answered;     /* the seed has */
	unsigned refusals; /* seeds that have hung up on us, in this round of all */
	bool said_refused;
	uint32_t link;
	bool linked;
	struct wire_welcome welcome;
	uint32_t missing
		[JOIN_NAMED]; /* [nmissing] ranks that have not come, the first of them */
	uint32_t nmissing;
	uint32_t hellos;
	bool told_of_world;
	uint32_t rows;              /* of the table so far */
	uint64_t membership;        /* of these */
	struct wire_writer catalog; /* so far */
	struct wire_writer own;     /* a rank's, to be sent */
	uint64_t sent;
	struct engine_options
		options;       /* of an observer: its source, NULL: not known; its key */
	uint32_t refresh_from; /* ready: a peer that knows a newer table */
	bool refresh;

	/* rank 0 */
	struct contribution *contributions;
	uint32_t ncontributions;
	uint32_t *contribution_of; /* [world] index + 1; 0: none yet, or told of */
	int refusal;               /* why nobody is taken in, and e->why; 0: they are */
	uint64_t tell_until_ms;
};

enum { JOIN_RETRY_MS = 50 };

int join_start_rank(struct engine *e);
/* seeds: message addresses, "tcp://a:1,tcp://b:2". */
int join_start_observer(struct engine *e, const char *seeds);
/* An observer's, to open the message transport with; wipes it. */
void join_take_key(struct engine *e, struct source_key *key);
/* Where to look for it again.  -ENOMEM. */
int join_keep_options(struct engine *e, const struct engine_options *options);
void join_turn(struct engine *e, uint64_t now);
void join_free(struct engine *e);

/* Where rank 0 is and the job's key: in seeds, has_key, key; then the message transport is
 * open.  False: not found yet.
 */
bool join_find(struct engine *e);

/* Of the seeds, the one that is tried: link_seed connects to it, if need be; next_seed leaves
 * it for the next.
 */
int join_link_seed(struct engine *e);
void join_unlink_seed(struct engine *e);
void join_next_seed(struct engine *e);
/* It does not take our key. */
void join_shut_out(struct engine *e);
/* One that hangs up on us, or is silent, is not waited for. */
void join_look_at_seed(struct engine *e, uint64_t now);
/* Nobody listens at that message peer's address: nor is it waited for, where there are others.
 */
void join_gone(struct engine *e, uint32_t link);
/* A rank whose rank 0 is lost: where its next process is. */
void join_look_for_zero(struct engine *e, uint64_t now);
/* An observer that has lost all ranks: whether the job was started again. */
void join_look_for_job(struct engine *e, uint64_t now);

/* While not all ranks have come.  The first of those that have not, which rank 0 knows; how
 * many.
 */
uint32_t join_missing(const struct engine *e, uint32_t missing[JOIN_NAMED]);
/* How many have. */
uint32_t join_count(const struct engine *e);
/* WELCOME's tail says it to others; why it cannot be used yet is then in e->why. */
void join_take_missing(struct engine *e, const void *tail, size_t size);
void join_note_missing(struct engine *e);
/* A call that waited for them, in a line. */
void join_say_missing(struct engine *e, const char *who);
/* "0 2 5 6 7 and 3 more". */
void join_name_ranks(const uint32_t *ranks, uint32_t named, uint32_t all, char *out,
		     size_t size);
/* A rank says it in a line, again and again, ever later: since it was counted. */
void join_count_wait(struct engine *e, uint64_t now);
void join_say_when_long(struct engine *e, uint64_t now);

/* A rank has described all it has: own is finished.  -ENOMEM, -EOVERFLOW: it cannot be sent. */
int join_described(struct engine *e);
/* An answer of another protocol version came from peer: there is no talking to it. */
void join_other_version(struct engine *e, uint32_t peer, unsigned version);
/* A message said that a newer table of ranks exists. */
void join_newer_membership(struct engine *e, uint32_t peer, uint64_t membership);
void join_fill_entry(struct engine *e, struct wire_entry *entry);
/* A rank that comes back counts on from where another is. */
void join_catch_up(struct engine *e, const struct wire_control *at, uint64_t barrier);
void join_catch_up_grads(struct engine *e, uint64_t grads);
void join_fail(struct engine *e, int status, const char *fmt, ...) PRINTF(3, 4);
/* The job is known: maps own's numbers and wakes who waits.  -errno. */
int join_complete(struct engine *e, struct catalog *catalog);

void join_serve_hello(struct engine *e, uint32_t peer, const struct wire_header *header);
void join_serve_join(struct engine *e, uint32_t peer, const struct wire_header *header,
		     const struct wire_join *join);
void join_serve_put(struct engine *e, uint32_t peer, const struct wire_header *header,
		    const struct wire_catalog *part, const void *bytes, size_t size);
void join_merge_when_complete(struct engine *e);
/* What ranks describe does not fit: rank 0 fails when all others have been told, since it may
 * end then.
 */
void join_fail_when_told(struct engine *e, uint64_t now);

#endif
