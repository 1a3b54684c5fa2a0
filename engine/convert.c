/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/convert.h"

#include <string.h>

/* Every function is a plain loop over a branchless body, so that compilers vectorise it: cases
 * are all computed and then selected.
 */

void convert_f32_to_bf16(uint16_t *to, const uint32_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = convert_one_f32_to_bf16(from[i]);
}

void convert_bf16_to_f32(uint32_t *to, const uint16_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = (uint32_t)from[i] << 16;
}

enum {
	F16_INFINITY = 0x7c00,
	F16_QUIET = 0x0200,
	F32_LEAST_F16_NORMAL = 0x38800000, /* 2^-14 */
	F32_ABOVE_F16 = 0x47800000,        /* 2^16 */
	F32_INFINITY = 0x7f800000,
	F32_QUIET_NAN = 0x7fc00000,
	F32_REBIAS = 112 << 23, /* between the exponents' biases, 127 and 15 */
};

static inline uint32_t shift_to_even(uint32_t bits, uint32_t shift)
{
	return (bits + (1u << (shift - 1)) - 1 + (bits >> shift & 1)) >> shift;
}

/* A value below 2^-14 in units of 2^-24, where 16-bit subnormals count; 25 bits away is
 * nothing. */
static inline uint32_t f16_subnormal_from(uint32_t magnitude)
{
	uint32_t exponent = magnitude >> 23;
	uint32_t seen = convert_mask(exponent - 101 <= 112 - 101);
	uint32_t away = convert_choose(seen, 126 - exponent, 25);

	return shift_to_even((magnitude & 0x7fffff) | 0x800000, away);
}

static inline uint16_t f16_from(uint32_t f)
{
	uint32_t magnitude = f & 0x7fffffff;
	uint32_t bits = shift_to_even(magnitude - F32_REBIAS, 13);

	bits = convert_choose(convert_mask(magnitude < F32_LEAST_F16_NORMAL),
			      f16_subnormal_from(magnitude), bits);
	bits = convert_choose(convert_mask(magnitude >= F32_ABOVE_F16), F16_INFINITY, bits);
	bits |= convert_mask(magnitude > F32_INFINITY) &
		(F16_QUIET | (magnitude >> 13 & 0x3ff));
	return (uint16_t)(f >> 16 & 0x8000) | (uint16_t)bits;
}

void convert_f32_to_f16(uint16_t *to, const uint32_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = f16_from(from[i]);
}

static inline uint32_t bits_of_int(int32_t integer)
{
	float value = (float)integer;
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/* Units of 2^-scale, below 2^10: exact as a float, so scaling it is moving its exponent. */
static inline uint32_t scaled(uint32_t units, uint32_t scale)
{
	return (bits_of_int((int32_t)units) - (scale << 23)) & convert_mask(units != 0);
}

static inline uint32_t f16_to(uint32_t h)
{
	uint32_t magnitude = h & 0x7fff;
	uint32_t bits = (magnitude << 13) + F32_REBIAS;

	bits |= convert_mask(magnitude >= F16_INFINITY) & F32_INFINITY;
	bits = convert_choose(convert_mask(magnitude < 0x0400), scaled(h & 0x3ff, 24), bits);
	return (h & 0x8000) << 16 | bits;
}

void convert_f16_to_f32(uint32_t *to, const uint16_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = f16_to(from[i]);
}

/* Without infinity: the largest pattern is NaN, the others of its exponent are numbers. */
static inline uint32_t e4m3_to(uint32_t b)
{
	uint32_t magnitude = b & 0x7f;
	uint32_t bits = (magnitude << 20) + (120u << 23);

	bits = convert_choose(convert_mask(magnitude < 8), scaled(magnitude, 9), bits);
	bits = convert_choose(convert_mask(magnitude == 0x7f), F32_INFINITY | 1u << 22, bits);
	return (b & 0x80) << 24 | bits;
}

void convert_e4m3_to_f32(uint32_t *to, const uint8_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = e4m3_to(from[i]);
}

/* The upper half of a float16. */
void convert_e5m2_to_f32(uint32_t *to, const uint8_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = f16_to((uint32_t)from[i] << 8);
}

/* Without infinity and -0, whose pattern is NaN. */
static inline uint32_t fnuz_to(uint32_t b, uint32_t mantissa, uint32_t bias)
{
	uint32_t magnitude = b & 0x7f;
	uint32_t bits = (magnitude << (23 - mantissa)) + ((127 - bias) << 23);

	bits = convert_choose(convert_mask(magnitude < 1u << mantissa),
			      scaled(magnitude, bias - 1 + mantissa), bits);
	return convert_choose(convert_mask(b == 0x80), F32_QUIET_NAN, (b & 0x80) << 24 | bits);
}

void convert_e4m3fnuz_to_f32(uint32_t *to, const uint8_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = fnuz_to(from[i], 3, 8);
}

void convert_e5m2fnuz_to_f32(uint32_t *to, const uint8_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = fnuz_to(from[i], 2, 16);
}

/* An exponent alone, as that of a float32, whose lowest is that of subnormals; the highest is NaN. */
static inline uint32_t e8m0_to(uint32_t b)
{
	uint32_t bits = convert_choose(convert_mask(b == 0), 1u << 22, b << 23);

	return convert_choose(convert_mask(b == 0xff), F32_QUIET_NAN, bits);
}

void convert_e8m0_to_f32(uint32_t *to, const uint8_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = e8m0_to(from[i]);
}

/* ---- integers of at most 16 bits ---- */

void convert_i8_to_f32(uint32_t *to, const int8_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = bits_of_int(from[i]);
}

void convert_u8_to_f32(uint32_t *to, const uint8_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = bits_of_int(from[i]);
}

void convert_i16_to_f32(uint32_t *to, const int16_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = bits_of_int(from[i]);
}

void convert_u16_to_f32(uint32_t *to, const uint16_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = bits_of_int(from[i]);
}

void convert_bool_to_f32(uint32_t *to, const uint8_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = bits_of_int(from[i] != 0);
}
