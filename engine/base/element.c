/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/dtype.h"
#include "engine/base/element.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* kept: digits that any decimal number keeps through the dtype, as FLT_DIG of <float.h>;
 * enough: digits that tell all elements apart, as FLT_DECIMAL_DIG.
 */
static const struct {
	uint8_t width, kept, enough;
} texts[] = {
	[FRAG_F32] = { sizeof("-1.17549435e-38") - 1, 6, 9 },
	[FRAG_F64] = { sizeof("-2.2250738585072014e-308") - 1, 15, 17 },
	[FRAG_F16] = { sizeof("-6.1035e-05") - 1, 3, 5 },
	[FRAG_BF16] = { sizeof("-1.175e-38") - 1, 2, 4 },
	[FRAG_F8_E4M3] = { sizeof("-1.17549435e-38") - 1, 6, 9 },
	[FRAG_F8_E5M2] = { sizeof("-1.17549435e-38") - 1, 6, 9 },
	[FRAG_F8_E4M3FNUZ] = { sizeof("-1.17549435e-38") - 1, 6, 9 },
	[FRAG_F8_E5M2FNUZ] = { sizeof("-1.17549435e-38") - 1, 6, 9 },
	[FRAG_F8_E8M0] = { sizeof("-1.17549435e-38") - 1, 6, 9 },
	[FRAG_I8] = { sizeof("-128") - 1, 0, 0 },
	[FRAG_I16] = { sizeof("-32768") - 1, 0, 0 },
	[FRAG_I32] = { sizeof("-2147483648") - 1, 0, 0 },
	[FRAG_I64] = { sizeof("-9223372036854775808") - 1, 0, 0 },
	[FRAG_U8] = { sizeof("255") - 1, 0, 0 },
	[FRAG_BOOL] = { 1, 0, 0 },
	[FRAG_U16] = { sizeof("65535") - 1, 0, 0 },
	[FRAG_U32] = { sizeof("4294967295") - 1, 0, 0 },
	[FRAG_U64] = { sizeof("18446744073709551615") - 1, 0, 0 },
};

size_t element_width(enum frag_dtype dtype)
{
	return dtype > 0 && (size_t)dtype < ARRAY_SIZE(texts) ? texts[dtype].width : 0;
}

static bool is_float8(enum frag_dtype dtype)
{
	return dtype_is_float(dtype) && frag_dtype_size(dtype) == 1;
}

/* ---- integers ---- */

static int64_t signed_of(const void *element, size_t size)
{
	int64_t n = 0;

	memcpy(&n, element, size);
	return (int64_t)((uint64_t)n << (64 - 8 * size)) >> (64 - 8 * size);
}

static uint64_t unsigned_of(const void *element, size_t size)
{
	uint64_t n = 0;

	memcpy(&n, element, size);
	return n;
}

static bool is_signed(enum frag_dtype dtype)
{
	return dtype == FRAG_I8 || dtype == FRAG_I16 || dtype == FRAG_I32 || dtype == FRAG_I64;
}

/* ---- floating point ---- */

static double value_of(enum frag_dtype dtype, const void *element)
{
	float value = 0;
	double wide;

	if (dtype == FRAG_F64)
		memcpy(&wide, element, sizeof(wide));
	else
		dtype_convert(FRAG_F32, &value, dtype, element, 1);
	return dtype == FRAG_F64 ? wide : (double)value;
}

/* Finds the float8 that is nearest to the value, among all of them. */
static int nearest_float8(enum frag_dtype dtype, double value, uint8_t *element)
{
	double best = INFINITY, largest = 0, second = 0, limit;
	int code = -1, last = 0;

	for (int i = 0; i < 256; i++) {
		uint8_t candidate = (uint8_t)i;
		double v, far;
		float wide;

		dtype_convert(FRAG_F32, &wide, dtype, &candidate, 1);
		v = (double)wide;
		far = fabs(v - value);
		if (isfinite(v) && v > largest) {
			second = largest;
			largest = v;
			last = i;
		}
		/* an exact match is nearest; -1: the zero or NaN of the value's own sign */
		if (v == value || (isnan(v) && isnan(value)))
			far = signbit(v) == signbit(value) ? -1 : 0;
		if (far < best || (far == best && far < INFINITY &&
				   (v == 0 ? signbit(v) == signbit(value) : !(i & 1)))) {
			best = far;
			code = i;
		}
	}
	/* half way to the number that would follow the largest, if there were one */
	limit = largest + (largest - second) / 2;
	if (code < 0 ||
	    (isfinite(value) && (last & 1 ? fabs(value) >= limit : fabs(value) > limit)))
		return -ERANGE;
	*element = (uint8_t)code;
	best = value_of(dtype, element);
	if (isfinite(best) && best != 0 && (value == 0 || signbit(best) != signbit(value)))
		return -ERANGE; /* float8_e8m0 has neither zero nor negative numbers */
	return 0;
}

/* Rounds a number to the dtype.  float32 is parsed by the caller: its value is exact here. */
static int narrow(enum frag_dtype dtype, double value, void *element)
{
	if (is_float8(dtype))
		return nearest_float8(dtype, value, element);
	return dtype == FRAG_F64 ? (memcpy(element, &value, sizeof(value)), 0)
				 : dtype_round(dtype, element, FRAG_F64, &value, 1);
}

static int parse_float(enum frag_dtype dtype, const char *text, const char **end, void *element)
{
	char *e;
	double value, got;
	int rc;

	errno = 0;
	value = dtype == FRAG_F32 ? (double)strtof(text, &e) : strtod(text, &e);
	*end = e;
	if (e == text)
		return -EINVAL;
	if (errno == ERANGE && isinf(value)) /* 1e999; but 1e-400 is 0 */
		return -ERANGE;
	rc = narrow(dtype, value, element);
	got = rc ? 0 : value_of(dtype, element);
	return rc || (isinf(got) && !isinf(value)) ? -ERANGE : 0;
}

static int parse_integer(enum frag_dtype dtype, const char *text, const char **end,
			 void *element)
{
	size_t size = frag_dtype_size(dtype);
	bool is_negative = text[strspn(text, " \t")] == '-';
	uint64_t n;
	char *e;

	errno = 0;
	/* strtoull takes -1 for the greatest number: is_negative refuses that */
	n = is_signed(dtype) ? (uint64_t)strtoll(text, &e, 10) : strtoull(text, &e, 10);
	*end = e;
	if (e == text)
		return -EINVAL;
	memcpy(element, &n, size);
	if (errno ||
	    (is_signed(dtype) ? signed_of(element, size) != (int64_t)n
			      : unsigned_of(element, size) != n || (is_negative && n) ||
					(dtype == FRAG_BOOL && n > 1)))
		return -ERANGE;
	return 0;
}

int element_parse(enum frag_dtype dtype, const char *text, size_t length, void *element)
{
	unsigned char parsed[ELEMENT_BYTES_MAX];
	char copy[128];
	const char *end;
	int rc;

	if (!element_width(dtype))
		return -EOPNOTSUPP;
	if (length >= sizeof(copy) || memchr(text, '\0', length))
		return -EINVAL;
	memcpy(copy, text, length);
	copy[length] = '\0';
	rc = dtype_is_float(dtype) ? parse_float(dtype, copy, &end, parsed)
				   : parse_integer(dtype, copy, &end, parsed);
	while (rc != -EINVAL && isspace((unsigned char)*end))
		end++;
	if (rc != -EINVAL && *end)
		rc = -EINVAL;
	if (!rc)
		memcpy(element, parsed, frag_dtype_size(dtype));
	return rc;
}

/* ---- texts ---- */

static bool reads_as(enum frag_dtype dtype, const char *text, double value, const void *element)
{
	unsigned char back[ELEMENT_BYTES_MAX];

	if (dtype == FRAG_F64)
		return strtod(text, NULL) == value;
	if (dtype == FRAG_F32 || is_float8(dtype))
		return strtof(text, NULL) == (float)value;
	return !element_parse(dtype, text, strlen(text), back) &&
	       !memcmp(back, element, frag_dtype_size(dtype));
}

/* A number of `kept` digits reads as itself from the text that %g makes of its element, so no
 * shorter text needs to be tried; subnormals have fewer digits.
 */
static size_t format_float(enum frag_dtype dtype, const void *element,
			   char out[ELEMENT_TEXT_MAX])
{
	double value = value_of(dtype, element);
	double least_normal = dtype == FRAG_F64   ? 0x1p-1022
			      : dtype == FRAG_F16 ? 0x1p-14
						  : 0x1p-126;
	unsigned digits = fabs(value) < least_normal ? 1 : texts[dtype].kept;
	int length;

	if (isnan(value))
		return (size_t)sprintf(out, "nan");
	do
		length = snprintf(out, ELEMENT_TEXT_MAX, "%.*g", digits, value);
	while (digits++ < texts[dtype].enough && !reads_as(dtype, out, value, element));
	return (size_t)length;
}

size_t element_format(enum frag_dtype dtype, const void *element, char out[ELEMENT_TEXT_MAX])
{
	size_t size = frag_dtype_size(dtype);

	assert(element_width(dtype));
	if (dtype_is_float(dtype))
		return format_float(dtype, element, out);
	if (is_signed(dtype))
		return (size_t)sprintf(out, "%" PRId64, signed_of(element, size));
	return (size_t)sprintf(out, "%" PRIu64,
			       dtype == FRAG_BOOL ? !!*(const uint8_t *)element
						  : unsigned_of(element, size));
}
