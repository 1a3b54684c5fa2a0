/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_ZERO_MATCH_H
#define ENGINE_CHECKPOINT_FORMATS_ZERO_MATCH_H

/* torch's optimizers number their parameters; which name has a number is not in the file.  Each
 * group has its own in the model's order, mostly, but which group a parameter is in, if any,
 * follows only from what fits: shapes, and the first values of masters.  Taken where one way
 * fits, or several that differ in nothing that matters.
 */

#include "engine/base/base.h"

struct zero_match {
	uint32_t nparams; /* of the model, in its order */
	uint32_t ngroups;
	/* Whether param can be what stands at position of a group: of its list, or of its
	 * vector.
	 */
	bool (*fits)(void *arg, uint32_t param, uint32_t group, uint64_t position);
	/* Whether it matters what is at a position. */
	bool (*matters)(void *arg, uint32_t group, uint64_t position);
	void *arg;
	const uint64_t *lengths; /* [nparams]: how far a position goes on behind it */
	const uint64_t *ends;    /* [ngroups], of positions */
	uint32_t *groups;        /* out: [nparams]; ngroups: in none */
	uint64_t *positions;     /* out: [nparams] */
};

/* 0: one way; -ENOENT: none; -EEXIST: several, or too much to look at; -ENOMEM. */
int zero_match(struct zero_match *m);

#endif
