/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_ADAM_H
#define TESTS_ADAM_H

/* One step of Adam over flat float32 states: what torch.optim.Adam and AdamW do, in their
 * order, each operation rounded by itself, so that every machine gives the same bits.  Any
 * thread.
 */

#include "engine/base/base.h"

struct adam {
	double lr, beta1, beta2, eps, weight_decay;
	bool decoupled; /* AdamW: the weight decays; else the gradient is changed */
};

/* All of n elements, of which none overlap. */
struct adam_states {
	float *param, *exp_avg, *exp_avg_sq;
	const float *grad;         /* or */
	const uint16_t *bf16_grad; /* where grad is NULL */
	uint16_t *bf16_param;      /* out; NULL: not wanted */
	size_t n;
};

/* step: 1 for the first. */
void adam_step(const struct adam *adam, uint64_t step, const struct adam_states *states);

#endif
