/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/node/permissions.h"

#include <errno.h>

enum right { WRITES, LOOKS, IS_RANK, ANSWERS }; /* a type that is not named here writes */

static const uint8_t needs[WIRE_TYPES] = {
	[WIRE_REFUSE] = ANSWERS,      [WIRE_ACK] = ANSWERS,
	[WIRE_HELLO] = LOOKS,         [WIRE_WELCOME] = ANSWERS,
	[WIRE_JOIN] = WRITES, /* join.c refuses an observer, with a reason */
	[WIRE_JOINED] = ANSWERS,      [WIRE_LEAVE] = IS_RANK,
	[WIRE_TABLE_GET] = LOOKS,     [WIRE_TABLE] = ANSWERS,
	[WIRE_CATALOG_PUT] = IS_RANK, [WIRE_CATALOG_GET] = LOOKS,
	[WIRE_CATALOG] = ANSWERS,     [WIRE_STATES_GET] = LOOKS,
	[WIRE_STATES] = ANSWERS,      [WIRE_READ] = LOOKS,
	[WIRE_DATA] = ANSWERS,        [WIRE_APPLIED] = ANSWERS,
	[WIRE_PING] = LOOKS,          [WIRE_PONG] = ANSWERS,
	[WIRE_BARRIER] = IS_RANK,     [WIRE_ACCEPTED] = ANSWERS,
	[WIRE_PREPARE] = IS_RANK,     [WIRE_VOTE] = ANSWERS,
	[WIRE_ARRIVED] = IS_RANK,     [WIRE_OUTCOME] = WRITES,
	[WIRE_KNOWN] = ANSWERS,       [WIRE_VIEW_OPEN] = LOOKS,
	[WIRE_VIEW] = ANSWERS,        [WIRE_VIEW_CLOSE] = LOOKS,
	[WIRE_WAIT] = LOOKS,          [WIRE_CHANGED] = ANSWERS,
	[WIRE_PASSED] = ANSWERS,      [WIRE_DROPPED] = IS_RANK,
	[WIRE_RANK_QUERY] = LOOKS,    [WIRE_RANK_TEXT] = ANSWERS,
	[WIRE_ROUND] = IS_RANK,       [WIRE_INVITE] = IS_RANK,
	[WIRE_FORM] = IS_RANK,        [WIRE_DISBAND] = IS_RANK,
	[WIRE_RENDEZVOUS] = IS_RANK,  [WIRE_RENDEZVOUS_OVER] = ANSWERS,
	[WIRE_FABRIC] = IS_RANK,      [WIRE_PREFETCH] = LOOKS,
	[WIRE_LANDED] = ANSWERS,      [WIRE_LEFT] = IS_RANK,
	[WIRE_STATS] = LOOKS,         [WIRE_SUMS] = ANSWERS,
	[WIRE_CHECKED] = IS_RANK,
};

bool permissions_is_answer(enum wire_type type)
{
	return type < WIRE_TYPES && needs[type] == ANSWERS;
}

bool permissions_reads_only(const struct engine *e, uint32_t peer)
{
	const struct node_port *port = node_port_of(e, peer);

	return peer != NODE_LOCAL && port->ops->reads_only &&
	       port->ops->reads_only(port->transport, peer);
}

int permissions_check(struct engine *e, uint32_t peer, struct wire_header *header)
{
	enum right need = needs[header->type];

	assert(node_is_engine_thread(e));
	if (permissions_reads_only(e, peer)) {
		header->rank = WIRE_OBSERVER;
		header->membership = 0; /* else the peer's table of ranks would be fetched */
		if (need != LOOKS && header->type != WIRE_ACK) { /* LEFT is acknowledged */
			log_once(LOG_WARN,
				 "refused a message of kind %u from one who may only read",
				 header->type);
			return -EACCES;
		}
	}
	return need == IS_RANK && header->rank >= e->world ? -EACCES : 0;
}
