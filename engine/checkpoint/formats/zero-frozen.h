/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_ZERO_FROZEN_H
#define ENGINE_CHECKPOINT_FORMATS_ZERO_FROZEN_H

/* Parameters that are not trained, of frozen_param_shapes: in stage 2 whole in the model's
 * file, in stage 3 a share in each rank's.
 */

#include "engine/checkpoint/formats/zero-shards.h"

/* These, then model_states_add_rest, with the buffers of all ranks. */
int zero_frozen_add_rest(struct model_states *m, const struct folder *f,
			 const struct zero_files *files, uint32_t mp,
			 const struct zero_optim *o);

#endif
