/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/parse/torch-dtype.h"

#include <string.h>

struct name {
	const char *name;
	enum frag_dtype dtype;
};

/* torch's other names, beside those that frag_dtype_name has. */
static const struct name other_names[] = {
	{ "float", FRAG_F32 },  { "double", FRAG_F64 },   { "half", FRAG_F16 },
	{ "short", FRAG_I16 },  { "int", FRAG_I32 },      { "long", FRAG_I64 },
	{ "cfloat", FRAG_C64 }, { "cdouble", FRAG_C128 }, { "chalf", FRAG_C32 },
};

static const struct name storages[] = {
	{ "FloatStorage", FRAG_F32 },        { "DoubleStorage", FRAG_F64 },
	{ "HalfStorage", FRAG_F16 },         { "BFloat16Storage", FRAG_BF16 },
	{ "LongStorage", FRAG_I64 },         { "IntStorage", FRAG_I32 },
	{ "ShortStorage", FRAG_I16 },        { "CharStorage", FRAG_I8 },
	{ "ByteStorage", FRAG_U8 },          { "BoolStorage", FRAG_BOOL },
	{ "ComplexFloatStorage", FRAG_C64 }, { "ComplexDoubleStorage", FRAG_C128 },
	{ "UntypedStorage", FRAG_U8 },       { "QInt8Storage", FRAG_I8 },
	{ "QUInt8Storage", FRAG_U8 },        { "QInt32Storage", FRAG_I32 },
};

static bool is_text(const char *a, const char *b, size_t size)
{
	return strlen(a) == size && !memcmp(a, b, size);
}

static bool find_name(const struct name *names, size_t n, const char *name, size_t size,
		      enum frag_dtype *out)
{
	for (size_t i = 0; i < n; i++)
		if (is_text(names[i].name, name, size)) {
			*out = names[i].dtype;
			return true;
		}
	return false;
}

bool torch_dtype_by_name(const char *name, size_t size, enum frag_dtype *out)
{
	for (int dtype = 1; frag_dtype_size(dtype); dtype++)
		if (is_text(frag_dtype_name(dtype), name, size)) {
			*out = dtype;
			return true;
		}
	return find_name(other_names, ARRAY_SIZE(other_names), name, size, out);
}

bool torch_dtype_by_storage(const char *name, size_t size, enum frag_dtype *out)
{
	return find_name(storages, ARRAY_SIZE(storages), name, size, out);
}
