/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/stats/block.h"

#ifdef __x86_64__

#include <assert.h>
#include <cpuid.h>
#include <immintrin.h>
#include <string.h>

/* How far ahead memory is prefetched, in bytes: these loops wait for nothing else. */
enum { AHEAD = 8192 };

/* Defines NAME_ISA, a block_fn of elements of `size` bytes: the loop that all ways have.  Each
 * turn adds `step` bytes to a struct acc_ISA by add_NAME_ISA.  The range begins with elements
 * that load_NAME_ISA returns, and memory is prefetched at the end of a turn: either other order
 * is 4 % slower.
 */
#define WAY(target, name, isa, size, step)                                                     \
	target static void name##_##isa(struct block_lanes *to, const void *values,            \
					unsigned n)                                            \
	{                                                                                      \
		const uint8_t *at = values, *end = at + (size)*n;                              \
		struct acc_##isa a = begin_##isa(load_##name##_##isa(at));                     \
                                                                                               \
		for (; at < end; at += (step)) {                                               \
			add_##name##_##isa(&a, at);                                            \
			__builtin_prefetch(at + AHEAD);                                        \
		}                                                                              \
		end_##isa(to, &a);                                                             \
	}

/* ---- AVX-512 ---- */

#define AVX512 __attribute__((target("avx512f,avx512dq,avx512bw")))
#define AVX512_INLINE static inline __attribute__((always_inline)) AVX512

struct acc_512 { /* of two halves of the lanes */
	__m512d sum[2], squares[2];
	/* of all lanes, in two registers, so that one need not wait for the other */
	__m512 min[2], max[2];
	uint64_t zero;
};

AVX512_INLINE struct acc_512 begin_512(__m512 first)
{
	const __m512d zero = _mm512_setzero_pd();

	return (struct acc_512){
		{ zero, zero }, { zero, zero }, { first, first }, { first, first }, 0
	};
}

AVX512_INLINE void add_half_512(struct acc_512 *a, unsigned half, __m256 values)
{
	__m512d v = _mm512_cvtps_pd(values);

	a->sum[half] = _mm512_add_pd(a->sum[half], v);
	a->squares[half] = _mm512_fmadd_pd(v, v, a->squares[half]);
}

AVX512_INLINE __m256 low_512(__m512 v)
{
	return _mm512_castps512_ps256(v);
}

AVX512_INLINE __m256 high_512(__m512 v)
{
	return _mm512_extractf32x8_ps(v, 1);
}

AVX512_INLINE void widen_range_512(struct acc_512 *a, unsigned i, __m512 v)
{
	a->min[i] = _mm512_min_ps(v, a->min[i]);
	a->max[i] = _mm512_max_ps(v, a->max[i]);
}

AVX512_INLINE void add_512(struct acc_512 *a, __m512 v)
{
	widen_range_512(a, 0, v);
	a->zero += (uint64_t)__builtin_popcount(
		_mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_EQ_OQ));
	add_half_512(a, 0, low_512(v));
	add_half_512(a, 1, high_512(v));
}

AVX512_INLINE __m512 load_f32_512(const uint8_t *at)
{
	return _mm512_loadu_ps(at);
}

AVX512_INLINE void add_f32_512(struct acc_512 *a, const uint8_t *at)
{
	add_512(a, load_f32_512(at));
}

AVX512_INLINE __m512 load_f16_512(const uint8_t *at)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)at));
}

AVX512_INLINE void add_f16_512(struct acc_512 *a, const uint8_t *at)
{
	add_512(a, load_f16_512(at));
}

/* Loads the elements of even numbers, which are the lower halves of 32-bit words. */
AVX512_INLINE __m512 load_bf16_512(const uint8_t *at)
{
	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(at), 16));
}

/* Adds bfloat16; half 0 has the sums of elements with even numbers. */
AVX512_INLINE void add_bf16_512(struct acc_512 *a, const uint8_t *at)
{
	__m512i words = _mm512_loadu_si512(at), upper = _mm512_set1_epi32(-65536);
	__m512 even = load_bf16_512(at);
	__m512 odd = _mm512_castsi512_ps(_mm512_and_si512(words, upper));

	widen_range_512(a, 0, even);
	widen_range_512(a, 1, odd);
	a->zero += (uint64_t)__builtin_popcount(
		_mm512_testn_epi16_mask(words, _mm512_set1_epi16(0x7fff)));
	add_half_512(a, 0, low_512(even));
	add_half_512(a, 1, low_512(odd));
	add_half_512(a, 0, high_512(even));
	add_half_512(a, 1, high_512(odd));
}

AVX512_INLINE void end_512(struct block_lanes *to, const struct acc_512 *a)
{
	for (unsigned h = 0; h < 2; h++) {
		_mm512_storeu_pd(to->sums + 8 * h, a->sum[h]);
		_mm512_storeu_pd(to->squares + 8 * h, a->squares[h]);
	}
	_mm512_storeu_ps(to->min, _mm512_min_ps(a->min[0], a->min[1]));
	_mm512_storeu_ps(to->max, _mm512_max_ps(a->max[0], a->max[1]));
	to->zero = a->zero;
}

WAY(AVX512, f32, 512, sizeof(float), 64)
WAY(AVX512, f16, 512, sizeof(uint16_t), 32)
WAY(AVX512, bf16, 512, sizeof(uint16_t), 64)

const struct block_ways *block_avx512(void)
{
	static const struct block_ways ways = { f32_512, bf16_512, f16_512 };

	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
			       __builtin_cpu_supports("avx512bw")
		       ? &ways
		       : NULL;
}

/* ---- AVX2 ---- */

#define AVX2 __attribute__((target("avx2,fma,f16c")))
#define AVX2_INLINE static inline __attribute__((always_inline)) AVX2

struct sums_256 { /* of four quarters of the lanes */
	__m256d sum[4], squares[4];
};

AVX2_INLINE struct sums_256 begin_sums_256(void)
{
	const __m256d zero = _mm256_setzero_pd();

	return (struct sums_256){ { zero, zero, zero, zero }, { zero, zero, zero, zero } };
}

AVX2_INLINE void add_quarter_256(struct sums_256 *a, unsigned quarter, __m128 values)
{
	__m256d v = _mm256_cvtps_pd(values);

	a->sum[quarter] = _mm256_add_pd(a->sum[quarter], v);
	a->squares[quarter] = _mm256_fmadd_pd(v, v, a->squares[quarter]);
}

AVX2_INLINE void end_sums_256(struct block_lanes *to, const struct sums_256 *a)
{
	for (unsigned q = 0; q < 4; q++) {
		_mm256_storeu_pd(to->sums + 4 * q, a->sum[q]);
		_mm256_storeu_pd(to->squares + 4 * q, a->squares[q]);
	}
}

struct acc_256 {
	struct sums_256 sums;
	__m256 min, max;
	__m256i zeros; /* -1 for each element that is 0 */
};

AVX2_INLINE struct acc_256 begin_256(__m256 first)
{
	return (struct acc_256){ begin_sums_256(), first, first, _mm256_setzero_si256() };
}

AVX2_INLINE __m256i zeros_256(__m256 v)
{
	return _mm256_castps_si256(_mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_EQ_OQ));
}

AVX2_INLINE void widen_range_256(struct acc_256 *a, __m256 v)
{
	a->min = _mm256_min_ps(v, a->min);
	a->max = _mm256_max_ps(v, a->max);
}

/* Adds both halves of the lanes. */
AVX2_INLINE void add_256(struct acc_256 *a, __m256 first, __m256 second)
{
	widen_range_256(a, first);
	widen_range_256(a, second);
	a->zeros = _mm256_add_epi32(a->zeros,
				    _mm256_add_epi32(zeros_256(first), zeros_256(second)));
	add_quarter_256(&a->sums, 0, _mm256_castps256_ps128(first));
	add_quarter_256(&a->sums, 1, _mm256_extractf128_ps(first, 1));
	add_quarter_256(&a->sums, 2, _mm256_castps256_ps128(second));
	add_quarter_256(&a->sums, 3, _mm256_extractf128_ps(second, 1));
}

AVX2_INLINE __m256 load_f32_256(const uint8_t *at)
{
	return _mm256_loadu_ps((const void *)at);
}

AVX2_INLINE void add_f32_256(struct acc_256 *a, const uint8_t *at)
{
	add_256(a, load_f32_256(at), load_f32_256(at + 32));
}

AVX2_INLINE __m256 load_f16_256(const uint8_t *at)
{
	return _mm256_cvtph_ps(_mm_loadu_si128((const void *)at));
}

AVX2_INLINE void add_f16_256(struct acc_256 *a, const uint8_t *at)
{
	add_256(a, load_f16_256(at), load_f16_256(at + 16));
}

AVX2_INLINE void end_256(struct block_lanes *to, const struct acc_256 *a)
{
	int32_t zeros[8];

	end_sums_256(to, &a->sums);
	for (unsigned h = 0; h < 2; h++) {
		_mm256_storeu_ps(to->min + 8 * h, a->min);
		_mm256_storeu_ps(to->max + 8 * h, a->max);
	}
	_mm256_storeu_si256((void *)zeros, a->zeros);
	to->zero = 0;
	for (unsigned l = 0; l < 8; l++)
		to->zero -= (uint64_t)(int64_t)zeros[l];
}

WAY(AVX2, f32, 256, sizeof(float), 64)
WAY(AVX2, f16, 256, sizeof(uint16_t), 32)

/* ---- bfloat16 by AVX2 ---- */

enum { SIGN = 0x8000 };

/* The range is that of the elements' bits, sixteen at a time.  As signed integers those of
 * elements without a sign are in their order, and above the others; as unsigned integers all
 * are in the order of their magnitudes, those with a sign above the others.
 */
struct acc_bits {
	__m256i signed_max, unsigned_max, unsigned_min;
	__m256i zeros;        /* counts of 16 bits */
	struct sums_256 sums; /* last: as the first member it makes gcc's code 4 % slower */
};

AVX2_INLINE struct acc_bits begin_bits(__m256i first)
{
	return (struct acc_bits){ first, first, first, _mm256_setzero_si256(),
				  begin_sums_256() };
}

AVX2_INLINE void widen_range_bits(struct acc_bits *a, __m256i bits)
{
	__m256i no_sign = _mm256_add_epi16(bits, bits);

	a->signed_max = _mm256_max_epi16(a->signed_max, bits);
	a->unsigned_max = _mm256_max_epu16(a->unsigned_max, bits);
	a->unsigned_min = _mm256_min_epu16(a->unsigned_min, bits);
	a->zeros =
		_mm256_sub_epi16(a->zeros, _mm256_cmpeq_epi16(no_sign, _mm256_setzero_si256()));
}

AVX2_INLINE __m256i load_bf16_bits(const uint8_t *at)
{
	return _mm256_loadu_si256((const void *)at);
}

/* Loads each half once more: that is cheaper than to take it out of the register of both. */
AVX2_INLINE void add_bf16_bits(struct acc_bits *a, const uint8_t *at)
{
	__m128i first = _mm_loadu_si128((const void *)at);
	__m128i second = _mm_loadu_si128((const void *)(at + 16));
	__m128i upper = _mm_set1_epi32(-65536);

	widen_range_bits(a, load_bf16_bits(at));
	add_quarter_256(&a->sums, 0, _mm_castsi128_ps(_mm_slli_epi32(first, 16)));
	add_quarter_256(&a->sums, 1, _mm_castsi128_ps(_mm_slli_epi32(second, 16)));
	add_quarter_256(&a->sums, 2, _mm_castsi128_ps(_mm_and_si128(first, upper)));
	add_quarter_256(&a->sums, 3, _mm_castsi128_ps(_mm_and_si128(second, upper)));
}

static float of_bits(uint16_t bits)
{
	uint32_t wide = (uint32_t)bits << 16;
	float value;

	memcpy(&value, &wide, sizeof(value));
	return value;
}

AVX2_INLINE void end_bits(struct block_lanes *to, const struct acc_bits *a)
{
	uint16_t signed_max[BLOCK_LANES], unsigned_max[BLOCK_LANES], unsigned_min[BLOCK_LANES];
	uint16_t zeros[BLOCK_LANES];
	static_assert(BLOCK_MAX / BLOCK_LANES <= UINT16_MAX, "zeros of 16 bits");

	end_sums_256(to, &a->sums);
	_mm256_storeu_si256((void *)signed_max, a->signed_max);
	_mm256_storeu_si256((void *)unsigned_max, a->unsigned_max);
	_mm256_storeu_si256((void *)unsigned_min, a->unsigned_min);
	_mm256_storeu_si256((void *)zeros, a->zeros);
	to->zero = 0;
	for (unsigned l = 0; l < BLOCK_LANES; l++) {
		bool all_have_sign = signed_max[l] & SIGN, none_has = !(unsigned_max[l] & SIGN);

		to->min[l] = of_bits(none_has ? unsigned_min[l] : unsigned_max[l]);
		to->max[l] = of_bits(all_have_sign ? unsigned_min[l] : signed_max[l]);
		to->zero += zeros[l];
	}
}

WAY(AVX2, bf16, bits, sizeof(uint16_t), 32)

/* Asks CPUID once: it traps in a virtual machine, and takes microseconds there.  clang 14 has
 * no __builtin_cpu_supports("f16c").
 */
static bool has_f16c(void)
{
	static _Atomic int known; /* 1: has it; -1: has it not */
	unsigned a, b, c, d;

	if (!known)
		known = __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C ? 1 : -1;
	return known > 0;
}

const struct block_ways *block_avx2(void)
{
	static const struct block_ways ways = { f32_256, bf16_bits, f16_256 };

	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()
		       ? &ways
		       : NULL;
}

#else

const struct block_ways *block_avx512(void)
{
	return NULL;
}

const struct block_ways *block_avx2(void)
{
	return NULL;
}

#endif
