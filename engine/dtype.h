/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_DTYPE_H
#define ENGINE_DTYPE_H

#include "engine/base.h"
#include "engine/frag.h"

/* The key, and file name, of a low-precision parameter of this dtype: "bf16", "fp16" ...; "lp" for
 * float32, since "fp32" is the master.
 */
const char *dtype_lp_key(enum frag_dtype dtype);

#endif
