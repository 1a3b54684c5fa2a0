/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_TABLE_TABLE_TORCH_H
#define ENGINE_CHECKPOINT_TABLE_TABLE_TORCH_H

#include "engine/checkpoint/parse/torchfile.h"
#include "engine/checkpoint/table/table.h"

/* The zip entry that a tensor of f is in, if any, so that edits keep its CRC right.  file: f's
 * number in the table.  For each tensor whose elements become pieces; twice for one storage
 * does no harm.
 */
int table_add_torch_entry(struct table *t, uint32_t file, const struct torchfile *f,
			  const struct torchfile_tensor *x);

#endif
