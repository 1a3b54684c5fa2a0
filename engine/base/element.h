/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_ELEMENT_H
#define ENGINE_BASE_ELEMENT_H

/* One element of a tensor as text, of any dtype but the complex ones.  Any thread. */

#include "engine/base/base.h"
#include "engine/frag.h"

enum { ELEMENT_TEXT_MAX = 32, ELEMENT_BYTES_MAX = 16 };

/* Returns the length of the longest text that element_format writes; 0: a complex dtype. */
size_t element_width(enum frag_dtype dtype);

/* Writes the text with the fewest digits that reads as the same element, and a NUL; returns its
 * length.  A NaN is "nan", whatever its sign and payload.  Texts of float8 are those of the
 * same float32.
 */
size_t element_format(enum frag_dtype dtype, const void *element, char out[ELEMENT_TEXT_MAX]);

/* Reads a number, "nan" or "inf", rounded to the nearest element, ties to even, as numpy and
 * ml_dtypes do; spaces may follow.
 * -EINVAL: the text does not begin with a number, or goes on behind it; or, for an integer
 * dtype, the number is no integer.
 * -ERANGE: the number would be rounded to infinity or NaN, or the dtype has no such number.
 * -EOPNOTSUPP: the dtype is complex.
 */
int element_parse(enum frag_dtype dtype, const char *text, size_t length, void *element);

#endif
