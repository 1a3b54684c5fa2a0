/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/convert.h"
#include "engine/base/dtype.h"

#include <errno.h>
#include <string.h>

static const struct {
	uint8_t size;
	const char *name;
	const char *key;
} dtypes[] = {
	[FRAG_F32] = { 4, "float32", "lp" },
	[FRAG_F64] = { 8, "float64", "fp64" },
	[FRAG_F16] = { 2, "float16", "fp16" },
	[FRAG_BF16] = { 2, "bfloat16", "bf16" },
	[FRAG_F8_E4M3] = { 1, "float8_e4m3fn", "fp8_e4m3" },
	[FRAG_F8_E5M2] = { 1, "float8_e5m2", "fp8_e5m2" },
	[FRAG_I8] = { 1, "int8", "int8" },
	[FRAG_I16] = { 2, "int16", "int16" },
	[FRAG_I32] = { 4, "int32", "int32" },
	[FRAG_I64] = { 8, "int64", "int64" },
	[FRAG_U8] = { 1, "uint8", "uint8" },
	[FRAG_BOOL] = { 1, "bool", "bool" },
	[FRAG_U16] = { 2, "uint16", "uint16" },
	[FRAG_U32] = { 4, "uint32", "uint32" },
	[FRAG_U64] = { 8, "uint64", "uint64" },
	[FRAG_C32] = { 4, "complex32", "complex32" },
	[FRAG_C64] = { 8, "complex64", "complex64" },
	[FRAG_C128] = { 16, "complex128", "complex128" },
	[FRAG_F8_E4M3FNUZ] = { 1, "float8_e4m3fnuz", "fp8_e4m3fnuz" },
	[FRAG_F8_E5M2FNUZ] = { 1, "float8_e5m2fnuz", "fp8_e5m2fnuz" },
	[FRAG_F8_E8M0] = { 1, "float8_e8m0fnu", "fp8_e8m0" },
};

static bool known(enum frag_dtype dtype)
{
	return dtype > 0 && (size_t)dtype < ARRAY_SIZE(dtypes);
}

size_t frag_dtype_size(enum frag_dtype dtype)
{
	return known(dtype) ? dtypes[dtype].size : 0;
}

const char *frag_dtype_name(enum frag_dtype dtype)
{
	return known(dtype) ? dtypes[dtype].name : "?";
}

const char *dtype_lp_key(enum frag_dtype dtype)
{
	return known(dtype) ? dtypes[dtype].key : "?";
}

bool dtype_is_lp_key(enum frag_dtype dtype, const char *key)
{
	return !strcmp(key, "lp") || !strcmp(key, dtype_lp_key(dtype));
}

bool dtype_is_float(enum frag_dtype dtype)
{
	return strstr(frag_dtype_name(dtype), "float");
}

/* Widens values of a dtype that float32 holds exactly. */
static int widen(uint32_t *to, enum frag_dtype dtype, const void *from, uint64_t n)
{
	switch (dtype) {
#define WIDEN(dtype, convert)                                                                  \
	case dtype:                                                                            \
		convert(to, from, n);                                                          \
		return 0;
		WIDEN(FRAG_BF16, convert_bf16_to_f32)
		WIDEN(FRAG_F16, convert_f16_to_f32)
		WIDEN(FRAG_F8_E4M3, convert_e4m3_to_f32)
		WIDEN(FRAG_F8_E5M2, convert_e5m2_to_f32)
		WIDEN(FRAG_F8_E4M3FNUZ, convert_e4m3fnuz_to_f32)
		WIDEN(FRAG_F8_E5M2FNUZ, convert_e5m2fnuz_to_f32)
		WIDEN(FRAG_F8_E8M0, convert_e8m0_to_f32)
		WIDEN(FRAG_I8, convert_i8_to_f32)
		WIDEN(FRAG_U8, convert_u8_to_f32)
		WIDEN(FRAG_I16, convert_i16_to_f32)
		WIDEN(FRAG_U16, convert_u16_to_f32)
		WIDEN(FRAG_BOOL, convert_bool_to_f32)
#undef WIDEN
	default:
		return -EOPNOTSUPP;
	}
}

int dtype_convert(enum frag_dtype to_dtype, void *to, enum frag_dtype from_dtype,
		  const void *from, uint64_t n)
{
	if (to_dtype == from_dtype && n)
		memcpy(to, from, n * frag_dtype_size(to_dtype));
	else if (to_dtype == from_dtype)
		return 0;
	else if (to_dtype == FRAG_BF16 && from_dtype == FRAG_F32)
		convert_f32_to_bf16(to, from, n);
	else if (to_dtype == FRAG_F16 && from_dtype == FRAG_F32)
		convert_f32_to_f16(to, from, n);
	else if (to_dtype == FRAG_F32)
		return widen(to, from_dtype, from, n);
	else
		return -EOPNOTSUPP;
	return 0;
}

int dtype_round_to_f32(float *to, enum frag_dtype from_dtype, const void *from, uint64_t n)
{
	switch (from_dtype) {
#define ROUND(dtype, type)                                                                     \
	case dtype:                                                                            \
		for (uint64_t i = 0; i < n; i++)                                               \
			to[i] = (float)((const type *)from)[i];                                \
		return 0;
		ROUND(FRAG_F64, double)
		ROUND(FRAG_I32, int32_t)
		ROUND(FRAG_I64, int64_t)
		ROUND(FRAG_U32, uint32_t)
		ROUND(FRAG_U64, uint64_t)
#undef ROUND
	default:
		return -EOPNOTSUPP;
	}
}

/* Rounds to float32 by von Neumann's rule: what is not exact gets an odd last bit.  Rounding
 * the result once more, to at least two bits less, is then as rounding the value itself.
 */
static float round_to_odd(double value)
{
	float nearest = (float)value;
	uint32_t bits;

	memcpy(&bits, &nearest, sizeof(bits));
	if ((double)nearest == value || value != value)
		return nearest;
	if ((nearest > value) == (value > 0)) /* rounded away from zero: truncate instead */
		bits--;
	bits |= 1;
	memcpy(&nearest, &bits, sizeof(nearest));
	return nearest;
}

/* Rounds an integer's magnitude to odd likewise, since float64 may not hold it exactly. */
static double odd_magnitude(uint64_t n)
{
	/* float64 has 53 bits: the lowest 11 of 64 become one odd bit */
	uint64_t low = n & 0x7ff;

	return n >> 53 ? (double)((n - low) >> 11 | !!low) * 2048 : (double)n;
}

static double odd_double(enum frag_dtype dtype, const void *from, uint64_t i)
{
	switch (dtype) {
	case FRAG_F64:
		return ((const double *)from)[i];
	case FRAG_I32:
		return ((const int32_t *)from)[i];
	case FRAG_U32:
		return ((const uint32_t *)from)[i];
	case FRAG_U64:
		return odd_magnitude(((const uint64_t *)from)[i]);
	default: { /* FRAG_I64 */
		int64_t n = ((const int64_t *)from)[i];
		double magnitude = odd_magnitude(n < 0 ? -(uint64_t)n : (uint64_t)n);

		return n < 0 ? -magnitude : magnitude;
	}
	}
}

static int round_block(enum frag_dtype to_dtype, void *to, enum frag_dtype from_dtype,
		       const void *from, uint64_t n, float *wide)
{
	if (dtype_convert(FRAG_F32, wide, from_dtype, from, n)) {
		if (dtype_round_to_f32(wide, from_dtype, from, 0))
			return -EOPNOTSUPP;
		for (uint64_t i = 0; i < n; i++)
			wide[i] = round_to_odd(odd_double(from_dtype, from, i));
	}
	return dtype_convert(to_dtype, to, FRAG_F32, wide, n);
}

int dtype_round(enum frag_dtype to_dtype, void *to, enum frag_dtype from_dtype,
		const void *from, uint64_t n)
{
	enum { BLOCK = 512 };
	size_t to_size = frag_dtype_size(to_dtype), from_size = frag_dtype_size(from_dtype);
	float wide[BLOCK];
	int rc = 0;

	if (to_dtype != FRAG_F32 && to_dtype != FRAG_F16 && to_dtype != FRAG_BF16)
		return -EOPNOTSUPP;
	if (!dtype_convert(to_dtype, to, from_dtype, from, n) ||
	    (to_dtype == FRAG_F32 && !dtype_round_to_f32(to, from_dtype, from, n)))
		return 0;
	/* n 0 goes round once too: it asks whether the dtypes are a pair */
	for (uint64_t done = 0; !rc && (!done || done < n); done += BLOCK)
		rc = round_block(to_dtype, (char *)to + done * to_size, from_dtype,
				 (const char *)from + done * from_size,
				 u64_min(BLOCK, n - done), wide);
	return rc;
}
