/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_CONVERT_H
#define ENGINE_BASE_CONVERT_H

/* Conversions between float32 and the 16-bit formats, and from 8-bit formats and small
 * integers to float32.  Narrowing rounds to nearest even, overflows to infinity, and keeps
 * subnormals; NaN stays NaN (quieted, with its sign and the upper payload bits).  Widening is
 * exact.  All is done on bits, so that no floating-point exception is raised.  Any thread.
 */

#include "engine/base/base.h"

#include <string.h>

void convert_f32_to_bf16(uint16_t *to, const uint32_t *from, size_t n);
void convert_bf16_to_f32(uint32_t *to, const uint16_t *from, size_t n);
void convert_f32_to_f16(uint16_t *to, const uint32_t *from, size_t n);
void convert_f16_to_f32(uint32_t *to, const uint16_t *from, size_t n);

/* float8, as torch.float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz and
 * float8_e8m0fnu.
 */
void convert_e4m3_to_f32(uint32_t *to, const uint8_t *from, size_t n);
void convert_e5m2_to_f32(uint32_t *to, const uint8_t *from, size_t n);
void convert_e4m3fnuz_to_f32(uint32_t *to, const uint8_t *from, size_t n);
void convert_e5m2fnuz_to_f32(uint32_t *to, const uint8_t *from, size_t n);
void convert_e8m0_to_f32(uint32_t *to, const uint8_t *from, size_t n);

void convert_i8_to_f32(uint32_t *to, const int8_t *from, size_t n);
void convert_u8_to_f32(uint32_t *to, const uint8_t *from, size_t n);
void convert_i16_to_f32(uint32_t *to, const int16_t *from, size_t n);
void convert_u16_to_f32(uint32_t *to, const uint16_t *from, size_t n);
/* Any byte but 0 is true. */
void convert_bool_to_f32(uint32_t *to, const uint8_t *from, size_t n);

/* ---- one value, for loops of others, also on a GPU ---- */

#ifdef __CUDACC__
#define CONVERT_ONE static __host__ __device__ inline
#else
#define CONVERT_ONE static inline
#endif

/* All ones when the condition holds. */
CONVERT_ONE uint32_t convert_mask(bool condition)
{
	return -(uint32_t)condition;
}

CONVERT_ONE uint32_t convert_choose(uint32_t which, uint32_t yes, uint32_t no)
{
	return (yes & which) | (no & ~which);
}

CONVERT_ONE uint16_t convert_one_f32_to_bf16(uint32_t f)
{
	uint32_t nan = convert_mask((f & 0x7fffffff) > 0x7f800000);
	uint32_t rounded = (f + 0x7fff + (f >> 16 & 1)) >> 16;

	return (uint16_t)convert_choose(nan, f >> 16 | 0x0040, rounded);
}

CONVERT_ONE uint32_t convert_one_bf16_to_f32(uint32_t b)
{
	return b << 16;
}

enum {
	CONVERT_F16_INFINITY = 0x7c00,
	CONVERT_F16_QUIET = 0x0200,
	CONVERT_F32_LEAST_F16_NORMAL = 0x38800000, /* 2^-14 */
	CONVERT_F32_ABOVE_F16 = 0x47800000,        /* 2^16 */
	CONVERT_F32_INFINITY = 0x7f800000,
	CONVERT_F32_QUIET_NAN = 0x7fc00000,
	CONVERT_F32_REBIAS = 112 << 23, /* between the exponents' biases, 127 and 15 */
};

CONVERT_ONE uint32_t convert_shift_to_even(uint32_t bits, uint32_t shift)
{
	return (bits + (1u << (shift - 1)) - 1 + (bits >> shift & 1)) >> shift;
}

/* Returns a value below 2^-14 in units of 2^-24, those of float16 subnormals, rounded to even.
 * A shift by 25 bits rounds to 0.
 */
CONVERT_ONE uint32_t convert_f16_subnormal_from(uint32_t magnitude)
{
	uint32_t exponent = magnitude >> 23;
	uint32_t seen = convert_mask(exponent - 101 <= 112 - 101);
	uint32_t away = convert_choose(seen, 126 - exponent, 25);

	return convert_shift_to_even((magnitude & 0x7fffff) | 0x800000, away);
}

CONVERT_ONE uint16_t convert_one_f32_to_f16(uint32_t f)
{
	uint32_t magnitude = f & 0x7fffffff;
	uint32_t bits = convert_shift_to_even(magnitude - CONVERT_F32_REBIAS, 13);

	bits = convert_choose(convert_mask(magnitude < CONVERT_F32_LEAST_F16_NORMAL),
			      convert_f16_subnormal_from(magnitude), bits);
	bits = convert_choose(convert_mask(magnitude >= CONVERT_F32_ABOVE_F16),
			      CONVERT_F16_INFINITY, bits);
	bits |= convert_mask(magnitude > CONVERT_F32_INFINITY) &
		(CONVERT_F16_QUIET | (magnitude >> 13 & 0x3ff));
	return (uint16_t)(f >> 16 & 0x8000) | (uint16_t)bits;
}

CONVERT_ONE uint32_t convert_bits_of_int(int32_t integer)
{
	float value = (float)integer;
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/* Returns units * 2^-scale as float32.  units < 2^10 is exact as a float, so that scaling it
 * only lowers its exponent.
 */
CONVERT_ONE uint32_t convert_scaled(uint32_t units, uint32_t scale)
{
	return (convert_bits_of_int((int32_t)units) - (scale << 23)) & convert_mask(units != 0);
}

CONVERT_ONE uint32_t convert_one_f16_to_f32(uint32_t h)
{
	uint32_t magnitude = h & 0x7fff;
	uint32_t bits = (magnitude << 13) + CONVERT_F32_REBIAS;

	bits |= convert_mask(magnitude >= CONVERT_F16_INFINITY) & CONVERT_F32_INFINITY;
	bits = convert_choose(convert_mask(magnitude < 0x0400), convert_scaled(h & 0x3ff, 24),
			      bits);
	return (h & 0x8000) << 16 | bits;
}

#endif
