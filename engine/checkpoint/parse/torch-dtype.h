/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_PARSE_TORCH_DTYPE_H
#define ENGINE_CHECKPOINT_PARSE_TORCH_DTYPE_H

/* The names under which torch writes types of elements.  false: none that we know. */

#include "engine/base/dtype.h"

/* "float32", also "float", as in the GLOBAL "torch float32". */
bool torch_dtype_by_name(const char *name, size_t size, enum frag_dtype *out);

/* "FloatStorage"; an UntypedStorage counts bytes. */
bool torch_dtype_by_storage(const char *name, size_t size, enum frag_dtype *out);

#endif
