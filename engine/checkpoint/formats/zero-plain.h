/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_ZERO_PLAIN_H
#define ENGINE_CHECKPOINT_FORMATS_ZERO_PLAIN_H

/* Reads the model_states.pt of a run without ZeRO into the table: the model, and the state of
 * torch's optimizer.
 */

#include "engine/checkpoint/table/folder.h"
#include "engine/checkpoint/table/table.h"

int zero_plain_fill(struct table *t, const struct folder *f, const char *name, uint32_t rank);

#endif
