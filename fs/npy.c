/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/npy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PREAMBLE = 10 /* magic, version, length */, ALIGN = 64, GROWTH = 21 };

static const char *const descr[] = {
	[FRAG_F32] = "<f4",         [FRAG_F64] = "<f8",         [FRAG_F16] = "<f2",
	[FRAG_BF16] = "<u2",        [FRAG_F8_E4M3] = "|u1",     [FRAG_F8_E5M2] = "|u1",
	[FRAG_I8] = "|i1",          [FRAG_I16] = "<i2",         [FRAG_I32] = "<i4",
	[FRAG_I64] = "<i8",         [FRAG_U8] = "|u1",          [FRAG_BOOL] = "|b1",
	[FRAG_U16] = "<u2",         [FRAG_U32] = "<u4",         [FRAG_U64] = "<u8",
	[FRAG_C32] = "<u4",         [FRAG_C64] = "<c8",         [FRAG_C128] = "<c16",
	[FRAG_F8_E4M3FNUZ] = "|u1", [FRAG_F8_E5M2FNUZ] = "|u1", [FRAG_F8_E8M0] = "|u1",
};

static void shape_text(const uint64_t *shape, uint32_t ndim, char *out)
{
	*out = '\0';
	for (uint32_t i = 0; i < ndim; i++)
		out += sprintf(out, i + 1 < ndim ? "%" PRIu64 ", " : "%" PRIu64, shape[i]);
	if (ndim == 1)
		strcpy(out, ",");
}

int npy_header(enum frag_dtype dtype, const uint64_t *shape, uint32_t ndim,
	       unsigned char out[NPY_HEADER_MAX])
{
	char dims[FRAG_DIMS_MAX * 22 + 2];
	int length, size;

	if (dtype <= 0 || dtype >= (int)ARRAY_SIZE(descr) || ndim > FRAG_DIMS_MAX)
		return -EINVAL;
	shape_text(shape, ndim, dims);
	length = snprintf((char *)out + PREAMBLE, NPY_HEADER_MAX - PREAMBLE,
			  "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
			  descr[dtype], dims);
	size = PREAMBLE + length + 1;
	if (ndim) /* numpy.save leaves room for the first axis to grow to GROWTH digits */
		size += GROWTH - snprintf(NULL, 0, "%" PRIu64, shape[0]);
	size = (size / ALIGN + 1) * ALIGN;
	memset(out + PREAMBLE + length, ' ', (size_t)(size - PREAMBLE - length));
	out[size - 1] = '\n';
	memcpy(out, "\x93NUMPY\x01\x00", 8);
	out[8] = (unsigned char)(size - PREAMBLE);
	out[9] = (unsigned char)((size - PREAMBLE) >> 8);
	return size;
}
