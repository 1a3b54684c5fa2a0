/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RANKS_ANSWERED_BY_H
#define RANKS_ANSWERED_BY_H

/* Ranks whose memory is out of each other's reach, and which answer each other's reads by
 * another connection than that of control messages: checks that hold when a rank fails,
 * whatever that connection is.
 */

#include "tests/ranks/processes.h"

struct answered_by {
	const char *name;            /* the connection, as the log names it */
	const char *const *settings; /* of every rank; FRAG_LOG=info is among them */
	bool ends_silently; /* a rank that ends causes no warning about the connection */
};

/* Makes every rank read the states of all ranks, which connects it to the others; then, when
 * its log says of each that it answers by this connection, makes it read them all again.
 */
void answered_by_check(const struct answered_by *by, struct process *p, int n);

void answered_by_killed_rank(const struct answered_by *by);
/* Kills rank `victim`, 1 or 2, while all ranks read. */
void answered_by_rank_killed_while_all_read(const struct answered_by *by, int victim);
void answered_by_stopped_rank(const struct answered_by *by);

#endif
