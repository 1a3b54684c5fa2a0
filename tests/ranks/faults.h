/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_RANKS_FAULTS_H
#define TESTS_RANKS_FAULTS_H

/* A transport that fails by rule, around another one: its calls are counted, and the n-th of a
 * kind fails, is lost, comes late, is cut short or is another one.
 *
 *	job_open(&job, &(struct job_spec){ ..., .messages = faults_over(&transport_loop) });
 *	faults_add(&(struct fault){ FAULT_SEND, .type = WIRE_DECIDE, .nth = 2 });		 the second one is lost
 *	faults_add(&(struct fault){ FAULT_GET, .nth = 1, .count = 3, .result = -EFAULT });
 *	faults_clear();										 and forgets them
 *
 * One thread.
 */

#include "engine/catalog/wire.h"
#include "engine/transport/transport.h"

enum fault_call { FAULT_OPEN, FAULT_CONNECT, FAULT_SEND, FAULT_ATTACH, FAULT_GET };

struct fault {
	enum fault_call call;
	enum wire_type type;        /* send: of such messages; 0: of any */
	const struct transport *of; /* this engine's; NULL: of any */
	unsigned nth;               /* of the calls that fit, from 1; 0 is 1 */
	unsigned count;             /* so many in a row; 0: one */
	int result;                 /* -errno; send: 0, it is lost */
	unsigned delay;             /* send: delivered so many turns of the sender later */
	unsigned cut;               /* send: without so many bytes of its end */
	bool acked;                 /* send: an ACK of result comes instead */
	bool poked;                 /* send: with poke in a word of its body */
	uint32_t poke, poke_at;

	unsigned calls, fired; /* how often it fitted, and was applied */
};

const struct transport_ops *faults_over(const struct transport_ops *ops);
/* Returns the rule, in which `fired` can be looked at, until faults_clear. */
const struct fault *faults_add(const struct fault *fault);
void faults_clear(void);

#endif
