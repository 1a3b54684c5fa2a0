/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_NODE_PEER_H
#define ENGINE_NODE_PEER_H

/* What an engine knows of one rank of its job: where it is, whether it lives, what it holds. */

#include "engine/catalog/states.h"
#include "engine/catalog/wire.h"
#include "engine/engine.h"

enum peer_way { PEER_WAY_UNKNOWN, PEER_WAY_MEMORY, PEER_WAY_MESSAGES };

struct peer {
	struct wire_entry entry; /* entry.present 0: not known yet */
	enum engine_rank_state state;
	uint64_t since_ms;
	time_t since; /* the same by the clock on the wall */
	char why[128];
	int lost; /* when it is: -EIO, its end is known; -ETIMEDOUT, it is silent */
	bool linked;
	uint32_t link; /* message peer */
	enum peer_way way;
	uint32_t attached; /* memory peer, when way is MEMORY */
	uint64_t heard_ms;
	uint64_t pinged_ms;
	uint64_t pong;               /* newest PING that it has answered */
	uint64_t fabric_pong;        /* the same by the fabric */
	bool fabric;                 /* answers may come so: engine/node/fabric.h */
	bool wants_bulk;             /* bytes were asked of it */
	uint64_t events;             /* number of the last that was fetched */
	uint64_t watched_ms;         /* when its memory was last looked at */
	struct wire_control control; /* newest seen */
	uint64_t moves;        /* grows when it is seen elsewhere than before, or is lost */
	uint64_t moved_ms;     /* when that last was */
	uint64_t saw_ms;       /* when its control page was last seen */
	uint64_t followed_ms;  /* when its page was last asked for, for those who wait for it */
	bool pong_awaited;     /* it was asked for by message */
	uint64_t told_moves;   /* the log tells who waits for it since then */
	uint64_t told_ms;      /* when it last did; 0: never */
	uint64_t ended_moves;  /* and that such a read has ended */
	struct states *states; /* NULL: not fetched */
	uint64_t states_ns;    /* when they were asked for */
	uint64_t asked_ns;     /* the same of those being fetched */
	uint32_t nshared;      /* of states' shares, given to the memory transport */
	bool states_stale;
	bool fetching;
	bool wanted;  /* somebody asked how it is: keep in touch */
	bool leaving; /* its process said that it ends */
	int vanished; /* -errno of a look at its memory: its process is gone; 0: it is not */
	uint64_t vanished_ms;
	/* the rank then asked for a PONG, before which its messages about this rank arrive */
	uint32_t witness;
	uint64_t asked_of; /* number of that PING; 0: none yet */
	bool replaced;     /* another process answers at its address: for peers_turn */
	bool silent;       /* a request was not answered: it is to be lost */
	bool silence_told; /* the log tells that it does not answer, since it was last heard */
	bool failing;      /* lost: its requests are to be ended */
	uint64_t retry_ms; /* no fetch before this */
	struct wire_writer incoming; /* of the table being fetched */
};

static inline bool peer_is_live(const struct peer *p)
{
	return p->entry.present && p->state != ENGINE_RANK_LOST;
}

/* Its process said that it ends, and has. */
static inline bool peer_has_left(const struct peer *p)
{
	return p->state == ENGINE_RANK_LOST && p->leaving;
}

#endif
