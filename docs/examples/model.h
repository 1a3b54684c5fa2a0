/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MODEL_H
#define MODEL_H

/* The model of the example; it knows nothing of ranks or of libfrag.
 *
 * The model predicts a character from the MODEL_CONTEXT characters before it:
 *
 *   characters -> embed -> tanh(. W0 + b0) -> tanh(. W1 + b1) * scale -> . head + b -> softmax
 *
 * Weights are [in, out], float32, C order.
 */

#include <stdbool.h>
#include <stdint.h>

enum { MODEL_CONTEXT = 8, MODEL_EMBED = 19, MODEL_HIDDEN_MAX = 1024, MODEL_VOCAB_MAX = 256 };

enum {
	MODEL_EMBED_WEIGHT,
	MODEL_WEIGHT0,
	MODEL_BIAS0,
	MODEL_WEIGHT1,
	MODEL_BIAS1,
	MODEL_SCALE,
	MODEL_HEAD_WEIGHT,
	MODEL_HEAD_BIAS,
	MODEL_NPARAMS,
};

struct model_param {
	const char *name;
	uint32_t ndim;
	uint64_t shape[2];
	uint64_t numel;
	bool decay;   /* weight decay is for matrices of the layers */
	float centre; /* of the initial values */
	float spread; /* how far the initial values lie from the centre */
};

struct model {
	uint32_t vocab;
	uint32_t hidden;
	struct model_param param[MODEL_NPARAMS];
};

/* vocab 2 .. MODEL_VOCAB_MAX, hidden 1 .. MODEL_HIDDEN_MAX. */
void model_init(struct model *m, uint32_t vocab, uint32_t hidden);

/* Returns the initial value of an element, which is the same on every rank. */
float model_initial(const struct model *m, int param, uint64_t element, uint64_t seed);

/* Returns the loss, in nats, of predicting symbols[MODEL_CONTEXT] from the symbols before it;
 * adds the loss's gradient to `gradient`.  weight and gradient have a pointer to each
 * parameter's elements.
 */
double model_learn(const struct model *m, const uint8_t *symbols, float *const *weight,
		   float *const *gradient);

/* Returns a hash of the arguments, for random numbers that need no state. */
uint64_t mix(uint64_t seed, uint64_t a, uint64_t b);

#endif
