/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_RANKS_FAULTS_H
#define TESTS_RANKS_FAULTS_H

/* Fault injection: a transport around another one, whose calls are counted.  Rules say which
 * calls fail, and which messages are lost, delayed, cut or changed.  Here the second DECIDE is
 * lost, and the first three gets fail:
 *
 *	job_open(&job, &(struct job_spec){ ..., .messages = faults_over(&transport_loop) });
 *	faults_add(&(struct fault){ FAULT_SEND, .type = WIRE_DECIDE, .nth = 2 });
 *	faults_add(&(struct fault){ FAULT_GET, .nth = 1, .count = 3, .result = -EFAULT });
 *	faults_clear();
 *
 * For tests of one thread.
 */

#include "engine/catalog/wire.h"
#include "engine/transport/transport.h"

enum fault_call { FAULT_OPEN, FAULT_CONNECT, FAULT_SEND, FAULT_ATTACH, FAULT_GET };

struct fault {
	enum fault_call call;
	enum wire_type type;        /* of sent messages; 0: any type */
	const struct transport *of; /* the transport of one engine; NULL: of any */
	unsigned nth;               /* the first matching call that fails, from 1; 0 means 1 */
	unsigned count;             /* how many calls fail in a row; 0 means 1 */
	int result;                 /* -errno; of a send 0: the message is lost */
	unsigned delay;             /* turns of the sender until the message is sent */
	unsigned cut;               /* bytes cut off the end of the message */
	bool acked;                 /* the message is replaced by an ACK with status result */
	bool poked;                 /* poke is written at byte poke_at of the message's body */
	uint32_t poke, poke_at;

	unsigned calls, fired; /* calls that matched, and those that failed by this rule */
};

const struct transport_ops *faults_over(const struct transport_ops *ops);
/* Adds a rule; returns it, for `fired`, until faults_clear. */
const struct fault *faults_add(const struct fault *fault);
/* Removes all rules, and sends the messages that are delayed. */
void faults_clear(void);

#endif
