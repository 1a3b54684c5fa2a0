/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/torch-pickle.h"

#include "engine/base/base.h"
#include "engine/base/one-line.h"
#include "fs/put-le.h"

#include <math.h>
#include <string.h>

void torch_pickle_begin(FILE *out)
{
	/* PROTO 2 */
	fputs("\x80\x02", out);
}

void torch_pickle_end(FILE *out)
{
	/* STOP */
	putc('.', out);
}

void torch_pickle_dict(FILE *out)
{
	/* EMPTY_DICT, MARK */
	fputs("}(", out);
}

void torch_pickle_dict_end(FILE *out)
{
	/* SETITEMS */
	putc('u', out);
}

void torch_pickle_list(FILE *out)
{
	/* EMPTY_LIST, MARK */
	fputs("](", out);
}

void torch_pickle_list_end(FILE *out)
{
	/* APPENDS */
	putc('e', out);
}

void torch_pickle_text(FILE *out, const char *text)
{
	json_t *utf8 = one_line_json(text);

	if (utf8)
		text = json_string_value(utf8);
	/* BINUNICODE */
	putc('X', out);
	put_le(out, strlen(text), 4);
	fputs(text, out);
	json_decref(utf8);
}

static void put_int(FILE *out, int64_t value)
{
	bool fits = value == (int32_t)value;

	/* BININT, or LONG1 of 8 bytes */
	fputs(fits ? "J" : "\x8a\x08", out);
	put_le(out, (uint64_t)value, fits ? 4 : 8);
}

static void put_float(FILE *out, double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	/* BINFLOAT, whose bytes are big-endian */
	putc('G', out);
	put_le(out, __builtin_bswap64(bits), 8);
}

void torch_pickle_number(FILE *out, double value)
{
	if (value == rint(value) && fabs(value) < 0x1p53)
		put_int(out, (int64_t)value);
	else
		put_float(out, value);
}

void torch_pickle_pair(FILE *out, double first, double second)
{
	put_float(out, first);
	put_float(out, second);
	/* TUPLE2 */
	putc('\x86', out);
}

static void put_sizes(FILE *out, const uint64_t *sizes, uint32_t n)
{
	/* MARK ... TUPLE */
	putc('(', out);
	for (uint32_t i = 0; i < n; i++)
		put_int(out, (int64_t)sizes[i]);
	putc('t', out);
}

void torch_pickle_size(FILE *out, const uint64_t *shape, uint32_t ndim)
{
	/* GLOBAL, MARK ... TUPLE, REDUCE */
	fputs("ctorch\nSize\n(", out);
	put_sizes(out, shape, ndim);
	fputs("tR", out);
}

void torch_pickle_tensor(FILE *out, enum frag_dtype dtype, const uint64_t *shape, uint32_t ndim)
{
	uint64_t strides[FRAG_DIMS_MAX], numel = 1;
	const char *storage = torch_pickle_storage(dtype);

	assert(storage);
	/* As in torch, a dimension of no elements counts as one element in the strides. */
	for (uint32_t d = ndim; d--; numel *= u64_max(shape[d], 1))
		strides[d] = numel;
	for (uint32_t d = 0; d < ndim; d++)
		numel = shape[d] ? numel : 0;
	/* _rebuild_tensor_v2(storage by BINPERSID, offset, size, stride, requires_grad, hooks)
	 */
	fputs("ctorch._utils\n_rebuild_tensor_v2\n((", out);
	torch_pickle_text(out, "storage");
	fprintf(out, "ctorch\n%s\n", storage);
	torch_pickle_text(out, "0");
	torch_pickle_text(out, "cpu");
	put_int(out, (int64_t)numel);
	fputs("tQ", out);
	put_int(out, 0);
	put_sizes(out, shape, ndim);
	put_sizes(out, strides, ndim);
	fputs("\x89"
	      "ccollections\nOrderedDict\n)RtR",
	      out);
}

const char *torch_pickle_storage(enum frag_dtype dtype)
{
	static const char *const names[] = {
		[FRAG_F32] = "FloatStorage",        [FRAG_F64] = "DoubleStorage",
		[FRAG_F16] = "HalfStorage",         [FRAG_BF16] = "BFloat16Storage",
		[FRAG_I8] = "CharStorage",          [FRAG_I16] = "ShortStorage",
		[FRAG_I32] = "IntStorage",          [FRAG_I64] = "LongStorage",
		[FRAG_U8] = "ByteStorage",          [FRAG_BOOL] = "BoolStorage",
		[FRAG_C64] = "ComplexFloatStorage",
	};

	return dtype > 0 && (size_t)dtype < ARRAY_SIZE(names) ? names[dtype] : NULL;
}
