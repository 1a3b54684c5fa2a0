/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_NPY_H
#define FS_NPY_H

/* The header of NumPy's format 1.0, byte for byte what numpy.save (since 1.23) writes. */

#include "engine/base/base.h"
#include "engine/frag.h"

enum { NPY_HEADER_MAX = 512 };

/* Writes the header and returns its size, a multiple of 64.  dtypes that NumPy does not have,
 * bfloat16 and the 8-bit floats, are shown as unsigned integers of their size.
 * -EINVAL: no such dtype, or too many dimensions.
 */
int npy_header(enum frag_dtype dtype, const uint64_t *shape, uint32_t ndim,
	       unsigned char out[NPY_HEADER_MAX]);

#endif
