/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_NODE_PEER_H
#define ENGINE_NODE_PEER_H

/* One rank of the job, as an engine knows it: its address, its state, its table of states. */

#include "engine/catalog/states.h"
#include "engine/catalog/wire.h"
#include "engine/engine.h"

/* The bulk port of a rank: bulk.h. */
enum peer_bulk {
	PEER_BULK_NONE,    /* no connection */
	PEER_BULK_CALLED,  /* connected, and not heard there yet */
	PEER_BULK_ANSWERS, /* questions for bytes go there */
	PEER_BULK_BROKEN,  /* a send has found that bulk_link is gone */
};

/* A fetch of a rank's table of states. */
enum peer_fetch {
	PEER_FETCH_NONE,
	PEER_FETCH_DUE,  /* the rank has a newer table, or the first one is wanted */
	PEER_FETCH_ASKED /* the rank was asked for it, or for its next part */
};

enum peer_way { PEER_WAY_UNKNOWN, PEER_WAY_MEMORY, PEER_WAY_MESSAGES };

enum {                         /* a second transport to a rank: bulk.h, fabric.h */
       PEER_CALLING_MS = 5000, /* a rank that has not answered there by then is given up */
       PEER_SILENT_MS = 3000,  /* so is one that is heard by message alone for so long */
       PEER_AGAIN_MS = 10000,  /* from then to the next try, doubled up to */
       PEER_AGAIN_MAX_MS = 640000,
};

struct peer {
	struct wire_entry entry; /* of the table of ranks; present 0: the rank has not come */
	uint64_t incarnation;    /* the job's, when the rank's process came */
	enum engine_rank_state state;
	uint64_t since_ms; /* when state changed last */
	time_t since;      /* since_ms in wall clock time */
	char why[128];     /* the reason of the loss */
	int lost;          /* while state is LOST: peers_lost_status */

	/* how the rank is reached */
	bool linked;
	uint32_t link; /* its message peer, if linked */
	enum peer_way way;
	uint32_t attached; /* its memory peer, if way is MEMORY */
	bool wants_staged; /* it cannot copy out of this mount's memory: writer-memory.h */
	bool fabric;       /* its answers may come by the fabric */
	bool wants_bulk;   /* this engine has asked it for bytes */

	/* the bulk port: bulk.h */
	enum peer_bulk bulk;
	uint32_t bulk_link;      /* its message peer there, from CALLED on */
	uint64_t bulk_quiet_ms;  /* since when the rank is heard by message alone; 0: by both */
	uint64_t bulk_pong;      /* number of the newest PING that it answered there */
	uint64_t bulk_heard_ms;  /* when it was last heard there, or connected */
	uint64_t bulk_pinged_ms; /* when it was last sent a PING there */
	uint64_t bulk_again_ms;  /* no connection is tried before */
	uint64_t bulk_pause_ms;  /* from the last failure there to the next try */

	/* when it was last heard */
	uint64_t heard_ms;
	uint64_t pinged_ms;
	uint64_t pong;        /* number of the newest PING that it answered by message */
	uint64_t fabric_pong; /* number of the newest PING that it answered by the fabric */
	bool silent;          /* a request got no answer: the engine thread loses the rank */
	bool silence_told;    /* the silence is logged, until the rank is heard; another
			       * rank's table of states is asked for meanwhile */

	/* its control page */
	struct wire_control control; /* the newest that was seen */
	uint64_t saw_ms;             /* when that was */
	uint64_t moves;    /* grows when boundary, generation, grads, phase or state changes */
	uint64_t moved_ms; /* when moves grew last, or earlier where the page says so */
	uint64_t watched_ms;  /* when its memory was last read to see whether it lives */
	uint64_t followed_ms; /* when peers_follow last asked for the page */
	bool pong_awaited;    /* peers_follow waits for a PONG, which carries the page */
	uint64_t told_moves;  /* moves when the log last said that reads wait for the rank */
	uint64_t told_ms;     /* when that was; 0: never */
	uint64_t ended_moves; /* moves when a read that waited for the rank last failed */
	uint64_t events;      /* number of the newest event that was fetched */

	/* its table of states */
	struct states *states;       /* NULL: not fetched yet */
	uint64_t states_ns;          /* when states was asked for, or known to be the newest */
	uint64_t asked_ns;           /* when the table that is being fetched was asked for */
	struct wire_writer incoming; /* bytes of that table that have come */
	uint32_t nshared;            /* shares of states that the memory transport knows */
	enum peer_fetch fetch;
	uint64_t retry_ms; /* no fetch begins before */
	bool doubted;      /* a reader needs to know whether states is the newest table */
	bool asking;       /* the rank was asked for its epoch, at asking_ns */
	uint64_t asking_ns;

	/* its loss */
	bool wanted;  /* its state was asked for: the engine keeps in touch with the rank */
	bool leaving; /* it leaves in order: LEAVE, or the table of ranks, says so */
	int vanished; /* -errno with which its memory could not be read; 0: it could */
	uint64_t vanished_ms; /* when that was */
	uint32_t witness;     /* a rank whose PONG comes after its LEFT of this rank, if any */
	uint64_t asked_of;    /* number of the witness's PING; 0: not sent yet */
	bool replaced;        /* another process answers at the rank's address */
	bool failing;         /* the engine thread is to end the lost rank's requests */
};

/* Returns the pause to the next try of a second transport; last: the pause before, 0: none. */
static inline uint64_t peer_pause_ms(uint64_t last)
{
	return u64_max(PEER_AGAIN_MS, u64_min(2 * last, PEER_AGAIN_MAX_MS));
}

/* Has the engine thread fetch the table of states, if it does not fetch it already. */
static inline void peer_fetch_states(struct peer *p)
{
	if (p->fetch == PEER_FETCH_NONE)
		p->fetch = PEER_FETCH_DUE;
}

/* Returns true if the rank has not been heard since then (monotonic, ns). */
static inline bool peer_is_silent_since(const struct peer *p, uint64_t ns)
{
	return p->heard_ms < ns / 1000000;
}

static inline bool peer_is_live(const struct peer *p)
{
	return p->entry.present && p->state != ENGINE_RANK_LOST;
}

/* Returns true if the rank has left in order, and its process has ended. */
static inline bool peer_has_left(const struct peer *p)
{
	return p->state == ENGINE_RANK_LOST && p->leaving;
}

#endif
