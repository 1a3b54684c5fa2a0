/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_DTYPE_H
#define ENGINE_BASE_DTYPE_H

#include "engine/base/base.h"
#include "engine/frag.h"

/* The key, and file name, of a low-precision parameter of this dtype: "bf16", "fp16" ...; "lp"
 * for float32, since "fp32" is the master.
 */
const char *dtype_lp_key(enum frag_dtype dtype);

bool dtype_is_float(enum frag_dtype dtype);

/* n elements: copied between equal dtypes, converted between float32 and float16 or bfloat16,
 * and from float8 and integers of at most 16 bits to float32, as engine/base/convert.h says.
 * -EOPNOTSUPP: no other pair; n 0 only asks.  Any thread.
 */
int dtype_convert(enum frag_dtype to_dtype, void *to, enum frag_dtype from_dtype,
		  const void *from, uint64_t n);
/* n elements of larger numbers, each to the float32 next to it, as C does.  -EOPNOTSUPP: no
 * such pair.
 */
int dtype_round_to_f32(float *to, enum frag_dtype from_dtype, const void *from, uint64_t n);

#endif
