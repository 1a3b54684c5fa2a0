/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CONVERT_H
#define ENGINE_CONVERT_H

/* Between float32 and the 16-bit formats, and from those of 8 bits and small integers: round to nearest even, overflow to infinity,
 * subnormals kept; NaN stays NaN (quieted, sign and the upper payload bits kept).
 * Widening is exact.  Bits, not values: no floating-point exception is raised.  Any thread.
 */

#include "engine/base.h"

void convert_f32_to_bf16(uint16_t *to, const uint32_t *from, size_t n);
void convert_bf16_to_f32(uint32_t *to, const uint16_t *from, size_t n);
void convert_f32_to_f16(uint16_t *to, const uint32_t *from, size_t n);
void convert_f16_to_f32(uint32_t *to, const uint16_t *from, size_t n);

/* float8, as torch.float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz and float8_e8m0fnu. */
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

/* ---- one value, for loops of others ---- */

/* All ones when the condition holds. */
static inline uint32_t convert_mask(bool condition)
{
	return -(uint32_t)condition;
}

static inline uint32_t convert_choose(uint32_t which, uint32_t yes, uint32_t no)
{
	return (yes & which) | (no & ~which);
}

static inline uint16_t convert_one_f32_to_bf16(uint32_t f)
{
	uint32_t nan = convert_mask((f & 0x7fffffff) > 0x7f800000);
	uint32_t rounded = (f + 0x7fff + (f >> 16 & 1)) >> 16;

	return (uint16_t)convert_choose(nan, f >> 16 | 0x0040, rounded);
}

#endif
