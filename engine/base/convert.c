/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/convert.h"

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
		to[i] = convert_one_bf16_to_f32(from[i]);
}

void convert_f32_to_f16(uint16_t *to, const uint32_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = convert_one_f32_to_f16(from[i]);
}

void convert_f16_to_f32(uint32_t *to, const uint16_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = convert_one_f16_to_f32(from[i]);
}

/* float8_e4m3fn has no infinity: the largest magnitude is NaN, the others of its exponent are
 * numbers.  120 is the difference of the exponents' biases, 127 and 7.
 */
static inline uint32_t e4m3_to(uint32_t b)
{
	uint32_t magnitude = b & 0x7f;
	uint32_t bits = (magnitude << 20) + (120u << 23);

	bits = convert_choose(convert_mask(magnitude < 8), convert_scaled(magnitude, 9), bits);
	bits = convert_choose(convert_mask(magnitude == 0x7f), CONVERT_F32_INFINITY | 1u << 22,
			      bits);
	return (b & 0x80) << 24 | bits;
}

void convert_e4m3_to_f32(uint32_t *to, const uint8_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = e4m3_to(from[i]);
}

/* A float8_e5m2 is the upper byte of a float16. */
void convert_e5m2_to_f32(uint32_t *to, const uint8_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = convert_one_f16_to_f32((uint32_t)from[i] << 8);
}

/* The fnuz formats have neither infinity nor -0; the pattern of -0 is NaN. */
static inline uint32_t fnuz_to(uint32_t b, uint32_t mantissa, uint32_t bias)
{
	uint32_t magnitude = b & 0x7f;
	uint32_t bits = (magnitude << (23 - mantissa)) + ((127 - bias) << 23);

	bits = convert_choose(convert_mask(magnitude < 1u << mantissa),
			      convert_scaled(magnitude, bias - 1 + mantissa), bits);
	return convert_choose(convert_mask(b == 0x80), CONVERT_F32_QUIET_NAN,
			      (b & 0x80) << 24 | bits);
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

/* A float8_e8m0fnu is an exponent alone, biased as a float32's.  Pattern 0 is 2^-127, a
 * subnormal float32; 0xff is NaN.
 */
static inline uint32_t e8m0_to(uint32_t b)
{
	uint32_t bits = convert_choose(convert_mask(b == 0), 1u << 22, b << 23);

	return convert_choose(convert_mask(b == 0xff), CONVERT_F32_QUIET_NAN, bits);
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
		to[i] = convert_bits_of_int(from[i]);
}

void convert_u8_to_f32(uint32_t *to, const uint8_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = convert_bits_of_int(from[i]);
}

void convert_i16_to_f32(uint32_t *to, const int16_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = convert_bits_of_int(from[i]);
}

void convert_u16_to_f32(uint32_t *to, const uint16_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = convert_bits_of_int(from[i]);
}

void convert_bool_to_f32(uint32_t *to, const uint8_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = convert_bits_of_int(from[i] != 0);
}
