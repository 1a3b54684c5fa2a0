/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FUZZ_SCRIPTED_H
#define FUZZ_SCRIPTED_H

/* A message transport without another side: a test says what comes and looks at what goes.  One
 * at a time; no threads.
 */

#include "engine/catalog/wire.h"
#include "engine/transport/transport.h"

enum { SCRIPTED_PEERS = 8, SCRIPTED_KEPT = 64 };

struct scripted_sent {
	uint32_t peer;
	struct wire_header header;
	uint8_t body[512]; /* its beginning, zeros behind it */
	size_t size;       /* of all, the header too */
};

struct scripted {
	struct scripted_sent
		sent[SCRIPTED_KEPT]; /* the newest; number n at n % SCRIPTED_KEPT */
	uint64_t nsent;
	uint64_t asked[SCRIPTED_PEERS]; /* number of the newest request to each peer */
	uint32_t connected; /* peers 0 to connected - 1 are those the engine connected to */
	size_t large; /* messages of so many bytes or more find the queue full; 0: none do */
	bool full;    /* send says -EAGAIN */
	bool reads_only[SCRIPTED_PEERS]; /* it has but the key for readers */
};

extern struct scripted scripted;
extern const struct transport_ops transport_scripted;

void scripted_reset(void);
/* Comes with the next turn; copied, freed behind the engine exactly at its end. */
void scripted_feed(uint32_t peer, const void *data, size_t size);
/* The newest message of that type that was sent; NULL: none. */
const struct scripted_sent *scripted_last(enum wire_type type);

#endif
