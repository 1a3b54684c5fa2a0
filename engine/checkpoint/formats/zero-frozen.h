/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_ZERO_FROZEN_H
#define ENGINE_CHECKPOINT_FORMATS_ZERO_FROZEN_H

/* Frozen parameters, which frozen_param_shapes names: below stage 3 whole in the model's file,
 * in stage 3 a share in the file of each rank.
 */

#include "engine/checkpoint/formats/model-states.h"
#include "engine/checkpoint/formats/zero-optim.h"

/* Adds the frozen parameters, then calls model_states_add_rest(), with the buffers of all
 * ranks.
 */
int zero_frozen_add_rest(struct model_states *m, const struct folder *f,
			 const struct zero_files *files, uint32_t mp,
			 const struct zero_optim *o);

#endif
