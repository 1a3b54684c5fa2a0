/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_DTYPE_H
#define ENGINE_BASE_DTYPE_H

/* The dtypes of frag.h: their names, and conversions between their elements.  Any thread. */

#include "engine/base/base.h"
#include "engine/frag.h"

/* The key, and so the file name, of a low-precision parameter of this dtype: "bf16", "fp16"
 * ...; for float32 it is "lp", since "fp32" is the master.
 */
const char *dtype_lp_key(enum frag_dtype dtype);
/* Returns true for that key, and for "lp", which names any low-precision parameter. */
bool dtype_is_lp_key(enum frag_dtype dtype, const char *key);

bool dtype_is_float(enum frag_dtype dtype);

/* Copies n elements between equal dtypes; converts them between float32 and float16 or
 * bfloat16, and from float8 and integers of at most 16 bits to float32, as convert.h says.
 * With n 0 it only checks the dtypes.
 * -EOPNOTSUPP: another pair of dtypes.
 */
int dtype_convert(enum frag_dtype to_dtype, void *to, enum frag_dtype from_dtype,
		  const void *from, uint64_t n);
/* Rounds n elements of a wider dtype to the nearest float32, as C does.
 * -EOPNOTSUPP: another dtype.
 */
int dtype_round_to_f32(float *to, enum frag_dtype from_dtype, const void *from, uint64_t n);

/* Rounds n elements of any dtype but the complex ones to the nearest, ties to even, of
 * float32, float16 or bfloat16.  NaN stays NaN.  With n 0 it only checks the dtypes.
 * -EOPNOTSUPP: another dtype.
 */
int dtype_round(enum frag_dtype to_dtype, void *to, enum frag_dtype from_dtype,
		const void *from, uint64_t n);

#endif
