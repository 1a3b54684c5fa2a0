/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CATALOG_OPERATION_H
#define ENGINE_CATALOG_OPERATION_H

/* An operation on elements of a tensor: all get one value, or each is computed from itself and
 * a number.  Any thread.
 */

#include "engine/base/element.h"

enum { OPERATION_TEXT_MAX = 40 };

struct operation {
	char sign; /* '=': value; '*', '/', '+', '-': with number */
	double number;
	unsigned char value[ELEMENT_BYTES_MAX];
};

/* Returns true for the text of an operation that computes elements from themselves. */
bool operation_reads(const char *text);
/* Parses "zero", a number, "= NUMBER", or "*=", "/=", "+=" or "-=" and a number, for elements
 * of that dtype.
 * -EINVAL: the text is none of these.
 * -EDOM: it divides by zero.
 * -ERANGE: the dtype has no such number.
 * -EOPNOTSUPP: the dtype has no arithmetic (operation_apply), or is complex.
 */
int operation_parse(struct operation *o, enum frag_dtype dtype, const char *text);
/* Writes the operation as operation_parse reads it. */
void operation_format(const struct operation *o, enum frag_dtype dtype,
		      char out[OPERATION_TEXT_MAX]);

/* Computes n elements in place, each in float64, and rounds it to float32 and then to the
 * dtype, or, of float64, not at all.  With n 0 it only checks the dtype.
 * -EOPNOTSUPP: the operation is arithmetic, and the dtype none of float64, float32, bfloat16
 * and float16; the elements are as they were.
 */
int operation_apply(const struct operation *o, enum frag_dtype dtype, void *elements,
		    uint64_t n);

#endif
