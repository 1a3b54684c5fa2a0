/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_PARSE_TORCH_DTYPE_H
#define ENGINE_CHECKPOINT_PARSE_TORCH_DTYPE_H

/* torch's names of dtypes.  Functions return false for unknown names. */

#include "engine/base/dtype.h"

/* Finds a dtype by the name in a pickle's global "torch float32", also by "float". */
bool torch_dtype_by_name(const char *name, size_t size, enum frag_dtype *out);

/* Finds a dtype by the class of a storage, "FloatStorage"; an UntypedStorage is of bytes. */
bool torch_dtype_by_storage(const char *name, size_t size, enum frag_dtype *out);

#endif
