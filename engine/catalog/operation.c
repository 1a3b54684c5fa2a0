/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/dtype.h"
#include "engine/catalog/operation.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { AT_ONCE = 1024 };

bool operation_reads(const char *text)
{
	return *text && strchr("*/+-", *text) && text[1] == '=';
}

int operation_parse(struct operation *o, enum frag_dtype dtype, const char *text)
{
	struct operation parsed = { .sign = '=' };
	char *end;
	int rc = 0;

	if (operation_reads(text)) {
		parsed.sign = *text;
		errno = 0;
		parsed.number = strtod(text + 2, &end);
		if (end == text + 2 || end[strspn(end, " ")])
			return -EINVAL;
		if (errno == ERANGE && (isinf(parsed.number) || parsed.number == 0))
			return -ERANGE;
		if (parsed.sign == '/' && parsed.number == 0)
			return -EDOM;
		rc = operation_apply(&parsed, dtype, NULL, 0);
	} else if (strcmp(text, "zero") != 0) {
		text += *text == '=';
		rc = element_parse(dtype, text, strlen(text), parsed.value);
	}
	if (!rc)
		*o = parsed;
	return rc;
}

void operation_format(const struct operation *o, enum frag_dtype dtype,
		      char out[OPERATION_TEXT_MAX])
{
	static const unsigned char zero[ELEMENT_BYTES_MAX];
	char number[ELEMENT_TEXT_MAX];

	if (o->sign == '=' && !memcmp(o->value, zero, sizeof(zero))) {
		strcpy(out, "zero");
		return;
	}
	if (o->sign == '=')
		element_format(dtype, o->value, number);
	else
		element_format(FRAG_F64, &o->number, number);
	snprintf(out, OPERATION_TEXT_MAX, "%.1s= %s",
		 o->sign == '=' ? "" : (const char[]){ o->sign, '\0' }, number);
}

/* Computes all AT_ONCE values, also those behind the last element, which nobody reads: a loop
 * of a constant length becomes vector instructions.
 */
static void compute(const struct operation *o, double values[AT_ONCE])
{
	const double number = o->number;

	switch (o->sign) {
#define COMPUTE(sign, by)                                                                      \
	case sign:                                                                             \
		for (int i = 0; i < AT_ONCE; i++)                                              \
			values[i] = values[i] by number;                                       \
		break;
		COMPUTE('*', *)
		COMPUTE('/', /)
		COMPUTE('+', +)
		COMPUTE('-', -)
#undef COMPUTE
	}
}

/* The dtype is one that float32 is converted to. */
static void compute_narrow(const struct operation *o, enum frag_dtype dtype, void *elements,
			   uint64_t n, double values[AT_ONCE])
{
	float narrow[AT_ONCE] = { 0 };

	dtype_convert(FRAG_F32, narrow, dtype, elements, n);
	for (int i = 0; i < AT_ONCE; i++)
		values[i] = (double)narrow[i];
	compute(o, values);
	for (int i = 0; i < AT_ONCE; i++)
		narrow[i] = (float)values[i];
	dtype_convert(dtype, elements, FRAG_F32, narrow, n);
}

int operation_apply(const struct operation *o, enum frag_dtype dtype, void *elements,
		    uint64_t n)
{
	size_t size = frag_dtype_size(dtype);
	unsigned char *at = elements;
	double values[AT_ONCE] = { 0 };

	if (o->sign == '=') {
		for (uint64_t i = 0; i < n; i++)
			memcpy(at + i * size, o->value, size);
		return 0;
	}
	if (dtype != FRAG_F64 && dtype_convert(dtype, NULL, FRAG_F32, NULL, 0))
		return -EOPNOTSUPP;
	for (uint64_t count; n; n -= count, at += count * size) {
		count = u64_min(n, AT_ONCE);
		if (dtype != FRAG_F64) {
			compute_narrow(o, dtype, at, count, values);
			continue;
		}
		memcpy(values, at, count * size);
		compute(o, values);
		memcpy(at, values, count * size);
	}
	return 0;
}
