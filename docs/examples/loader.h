/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LOADER_H
#define LOADER_H

/* Reads the training data: a file whose bytes are tokens.  Each place where MODEL_CONTEXT + 1
 * tokens follow one another is a sample.  An epoch has each sample once, in an order of its
 * own; then the data repeat.
 *
 * The samples of the whole job are numbered on and on.  A step takes world * batch of them, and
 * rank r the batch from number (step * world + r) * batch on.  So the samples of a step do not
 * depend on the steps before it: a job that is started again at step N goes on with the data
 * where it stopped, and nothing has to be saved for that.
 */

#include "model.h"

#include <stdint.h>

struct loader {
	const uint8_t *tokens; /* the mapped file */
	uint64_t ntokens;
	uint64_t nsamples;   /* of an epoch */
	uint32_t vocab;      /* different tokens */
	uint8_t symbol[256]; /* token to symbol 0 .. vocab - 1 */
	uint64_t seed;
	uint64_t batch; /* samples of a rank in a step */
	uint32_t rank, world;
};

/* Maps the file, which must not become shorter as long as it is mapped.  The caller sets seed,
 * batch, rank and world before the first sample, and calls loader_close in the end.
 * -EINVAL: the file has no sample, or one different token only.
 * -errno: the file cannot be mapped.
 */
int loader_open(struct loader *l, const char *path);
void loader_close(struct loader *l);

/* Copies sample number `index` (below batch) of this rank's part of a step. */
void loader_sample(const struct loader *l, uint64_t step, uint64_t index,
		   uint8_t symbols[MODEL_CONTEXT + 1]);

#endif
