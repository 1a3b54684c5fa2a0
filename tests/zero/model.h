/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ZERO_MODEL_H
#define ZERO_MODEL_H

/* Parameters of a Llama, and the values of their states: a function of parameter, state and
 * element, so that whoever looks at one knows what it must be.
 */

#include "engine/base/base.h"

enum { MODEL_STATES = 3 };

struct model_param {
	char name[64];
	unsigned ndim;
	uint64_t shape[2];
	uint64_t numel;
};

struct model {
	struct model_param *params;
	unsigned n;
	uint64_t numel;
	bool sparse; /* all values are 0 but the known ones */
};

extern const char *const model_state[MODEL_STATES]; /* fp32, exp_avg, exp_avg_sq */

/* "70b", or one of that form with about so many bytes of fp32. */
void model_init(struct model *m, const char *what);

/* Elements first .. first + n of a state. */
void model_values(const struct model *m, unsigned param, unsigned state, uint64_t first,
		  uint64_t n, float *out);

/* Of a sparse model: the first, one in the middle, and the last. */
enum { MODEL_KNOWN = 3 };
uint64_t model_known(const struct model *m, unsigned param, unsigned i);

#endif
