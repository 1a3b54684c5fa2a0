/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_ZERO_MATCH_H
#define ENGINE_CHECKPOINT_FORMATS_ZERO_MATCH_H

/* Matches parameters with positions in an optimizer's groups.  torch's optimizers number their
 * parameters, and the file does not have the names.  A group mostly lists its parameters in the
 * model's order, but the group of a parameter, if it has one, follows only from what fits:
 * shapes, and the first values of masters.  A match is accepted if it is the only one, or if
 * all matches are equal at every position that matters.
 */

#include "engine/base/base.h"

struct zero_match {
	uint32_t nparams; /* of the model, in its order */
	uint32_t ngroups;
	/* Whether the parameter can stand at a position of a group's list, or of its vector. */
	bool (*fits)(void *arg, uint32_t param, uint32_t group, uint64_t position);
	/* Whether matches must agree on the parameter at this position. */
	bool (*matters)(void *arg, uint32_t group, uint64_t position);
	void *arg;
	const uint64_t *lengths; /* [nparams]: positions that each takes */
	const uint64_t *ends;    /* [ngroups], of positions */
	uint32_t *groups;        /* out: [nparams]; ngroups: in none */
	uint64_t *positions;     /* out: [nparams] */
};

/* Fills groups and positions.
 * -ENOENT: nothing matches.
 * -EEXIST: several matches differ, or there are too many to try.
 * -ENOMEM.
 */
int zero_match(struct zero_match *m);

#endif
