/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_ZERO_PLAIN_H
#define ENGINE_CHECKPOINT_FORMATS_ZERO_PLAIN_H

/* A model_states.pt of a run without ZeRO: the model, and in it torch's own state of the
 * optimizer.
 */

#include "engine/checkpoint/table/folder.h"
#include "engine/checkpoint/table/table.h"

int zero_plain_fill(struct table *t, const struct folder *f, const char *name, uint32_t rank);

#endif
