/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/stats/block.h"

#ifdef __x86_64__

#include <cpuid.h>
#include <immintrin.h>

/* How many bytes ahead memory is asked for: these loops wait for nothing else. */
enum { AHEAD = 8192 };

static void ask_ahead(const uint8_t *at)
{
	__builtin_prefetch(at + AHEAD);
}

/* ---- AVX-512 ---- */

#define AVX512 __attribute__((target("avx512f,avx512dq,avx512bw")))
#define AVX512_INLINE static inline __attribute__((always_inline)) AVX512

struct sums512 {
	__m512d sum, squares;
};

struct range512 {
	__m512 min, max;
};

AVX512_INLINE void add512(struct sums512 *s, __m256 values)
{
	__m512d v = _mm512_cvtps_pd(values);

	s->sum = _mm512_add_pd(s->sum, v);
	s->squares = _mm512_fmadd_pd(v, v, s->squares);
}

AVX512_INLINE __m256 low512(__m512 v)
{
	return _mm512_castps512_ps256(v);
}

AVX512_INLINE __m256 high512(__m512 v)
{
	return _mm512_extractf32x8_ps(v, 1);
}

AVX512_INLINE void widen_range512(struct range512 *r, __m512 v)
{
	r->min = _mm512_min_ps(v, r->min);
	r->max = _mm512_max_ps(v, r->max);
}

AVX512_INLINE uint64_t zeros512(__m512 v)
{
	return (uint64_t)__builtin_popcount(
		_mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_EQ_OQ));
}

AVX512_INLINE void end512(struct block_lanes *to, const struct sums512 s[2],
			  const struct range512 *r, uint64_t zero)
{
	for (unsigned h = 0; h < 2; h++) {
		_mm512_storeu_pd(to->sums + 8 * h, s[h].sum);
		_mm512_storeu_pd(to->squares + 8 * h, s[h].squares);
	}
	_mm512_storeu_ps(to->min, r->min);
	_mm512_storeu_ps(to->max, r->max);
	to->zero = zero;
}

AVX512 static void f32_avx512(struct block_lanes *to, const void *values, unsigned n)
{
	const uint8_t *at = values, *end = at + sizeof(float) * n;
	struct sums512 s[2] = { { _mm512_setzero_pd(), _mm512_setzero_pd() },
				{ _mm512_setzero_pd(), _mm512_setzero_pd() } };
	struct range512 r = { _mm512_loadu_ps(at), _mm512_loadu_ps(at) };
	uint64_t zero = 0;

	for (; at < end; at += 64) {
		__m512 v = _mm512_loadu_ps(at);

		ask_ahead(at);
		widen_range512(&r, v);
		zero += zeros512(v);
		add512(&s[0], low512(v));
		add512(&s[1], high512(v));
	}
	end512(to, s, &r, zero);
}

AVX512 static void f16_avx512(struct block_lanes *to, const void *values, unsigned n)
{
	const uint8_t *at = values, *end = at + sizeof(uint16_t) * n;
	struct sums512 s[2] = { { _mm512_setzero_pd(), _mm512_setzero_pd() },
				{ _mm512_setzero_pd(), _mm512_setzero_pd() } };
	__m512 first = _mm512_cvtph_ps(_mm256_loadu_si256((const void *)at));
	struct range512 r = { first, first };
	uint64_t zero = 0;

	for (; at < end; at += 32) {
		__m512 v = _mm512_cvtph_ps(_mm256_loadu_si256((const void *)at));

		ask_ahead(at);
		widen_range512(&r, v);
		zero += zeros512(v);
		add512(&s[0], low512(v));
		add512(&s[1], high512(v));
	}
	end512(to, s, &r, zero);
}

/* bfloat16 of even numbers are the lower halves of 32-bit words; s[0] has their sums. */
AVX512 static void bf16_avx512(struct block_lanes *to, const void *values, unsigned n)
{
	const uint8_t *at = values, *end = at + sizeof(uint16_t) * n;
	const __m512i upper = _mm512_set1_epi32(-65536), magnitude = _mm512_set1_epi16(0x7fff);
	struct sums512 s[2] = { { _mm512_setzero_pd(), _mm512_setzero_pd() },
				{ _mm512_setzero_pd(), _mm512_setzero_pd() } };
	__m512 first = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(at), 16));
	struct range512 r[2] = { { first, first }, { first, first } };
	uint64_t zero = 0;

	for (; at < end; at += 64) {
		__m512i words = _mm512_loadu_si512(at);
		__m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
		__m512 odd = _mm512_castsi512_ps(_mm512_and_si512(words, upper));

		ask_ahead(at);
		widen_range512(&r[0], even);
		widen_range512(&r[1], odd);
		zero += (uint64_t)__builtin_popcount(_mm512_testn_epi16_mask(words, magnitude));
		add512(&s[0], low512(even));
		add512(&s[1], low512(odd));
		add512(&s[0], high512(even));
		add512(&s[1], high512(odd));
	}
	r[0].min = _mm512_min_ps(r[0].min, r[1].min);
	r[0].max = _mm512_max_ps(r[0].max, r[1].max);
	end512(to, s, &r[0], zero);
}

const struct block_ways *block_avx512(void)
{
	static const struct block_ways ways = { f32_avx512, bf16_avx512, f16_avx512 };

	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
			       __builtin_cpu_supports("avx512bw")
		       ? &ways
		       : NULL;
}

/* ---- AVX2 ---- */

#define AVX2 __attribute__((target("avx2,fma,f16c")))
#define AVX2_INLINE static inline __attribute__((always_inline)) AVX2

struct sums2 {
	__m256d sum, squares;
};

struct range2 {
	__m256 min, max;
};

AVX2_INLINE void add2(struct sums2 *s, __m128 values)
{
	__m256d v = _mm256_cvtps_pd(values);

	s->sum = _mm256_add_pd(s->sum, v);
	s->squares = _mm256_fmadd_pd(v, v, s->squares);
}

/* Adds 8 elements to two fours of lanes. */
AVX2_INLINE void add_halves2(struct sums2 s[2], __m256 v)
{
	add2(&s[0], _mm256_castps256_ps128(v));
	add2(&s[1], _mm256_extractf128_ps(v, 1));
}

AVX2_INLINE void widen_range2(struct range2 *r, __m256 v)
{
	r->min = _mm256_min_ps(v, r->min);
	r->max = _mm256_max_ps(v, r->max);
}

/* -1 for each element that is 0. */
AVX2_INLINE __m256i zeros2(__m256 v)
{
	return _mm256_castps_si256(_mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_EQ_OQ));
}

AVX2_INLINE void end2(struct block_lanes *to, const struct sums2 s[4], const struct range2 *r,
		      __m256i minus_zeros)
{
	int32_t zeros[8];

	for (unsigned q = 0; q < 4; q++) {
		_mm256_storeu_pd(to->sums + 4 * q, s[q].sum);
		_mm256_storeu_pd(to->squares + 4 * q, s[q].squares);
	}
	for (unsigned h = 0; h < 2; h++) {
		_mm256_storeu_ps(to->min + 8 * h, r->min);
		_mm256_storeu_ps(to->max + 8 * h, r->max);
	}
	_mm256_storeu_si256((void *)zeros, minus_zeros);
	to->zero = 0;
	for (unsigned l = 0; l < 8; l++)
		to->zero -= (uint64_t)(int64_t)zeros[l];
}

AVX2_INLINE void begin2(struct sums2 s[4], struct range2 *r, __m256 first)
{
	for (unsigned q = 0; q < 4; q++)
		s[q].sum = s[q].squares = _mm256_setzero_pd();
	r->min = r->max = first;
}

AVX2 static void f32_avx2(struct block_lanes *to, const void *values, unsigned n)
{
	const uint8_t *at = values, *end = at + sizeof(float) * n;
	__m256i zeros = _mm256_setzero_si256();
	struct sums2 s[4];
	struct range2 r;

	begin2(s, &r, _mm256_loadu_ps((const void *)at));
	for (; at < end; at += 64) {
		__m256 a = _mm256_loadu_ps((const void *)at);
		__m256 b = _mm256_loadu_ps((const void *)(at + 32));

		ask_ahead(at);
		widen_range2(&r, a);
		widen_range2(&r, b);
		zeros = _mm256_add_epi32(zeros, _mm256_add_epi32(zeros2(a), zeros2(b)));
		add_halves2(&s[0], a);
		add_halves2(&s[2], b);
	}
	end2(to, s, &r, zeros);
}

AVX2 static void f16_avx2(struct block_lanes *to, const void *values, unsigned n)
{
	const uint8_t *at = values, *end = at + sizeof(uint16_t) * n;
	__m256i zeros = _mm256_setzero_si256();
	struct sums2 s[4];
	struct range2 r;

	begin2(s, &r, _mm256_cvtph_ps(_mm_loadu_si128((const void *)at)));
	for (; at < end; at += 32) {
		__m256 a = _mm256_cvtph_ps(_mm_loadu_si128((const void *)at));
		__m256 b = _mm256_cvtph_ps(_mm_loadu_si128((const void *)(at + 16)));

		ask_ahead(at);
		widen_range2(&r, a);
		widen_range2(&r, b);
		zeros = _mm256_add_epi32(zeros, _mm256_add_epi32(zeros2(a), zeros2(b)));
		add_halves2(&s[0], a);
		add_halves2(&s[2], b);
	}
	end2(to, s, &r, zeros);
}

/* As bf16_avx512, by 8 words. */
AVX2 static void bf16_avx2(struct block_lanes *to, const void *values, unsigned n)
{
	const uint8_t *at = values, *end = at + sizeof(uint16_t) * n;
	const __m256i upper = _mm256_set1_epi32(-65536);
	__m256i zeros = _mm256_setzero_si256();
	struct sums2 s[4];
	struct range2 r;

	begin2(s, &r,
	       _mm256_castsi256_ps(
		       _mm256_slli_epi32(_mm256_loadu_si256((const void *)at), 16)));
	for (; at < end; at += 32) {
		__m256i words = _mm256_loadu_si256((const void *)at);
		__m256 even = _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
		__m256 odd = _mm256_castsi256_ps(_mm256_and_si256(words, upper));

		ask_ahead(at);
		widen_range2(&r, even);
		widen_range2(&r, odd);
		zeros = _mm256_add_epi32(zeros, _mm256_add_epi32(zeros2(even), zeros2(odd)));
		add_halves2(&s[0], even);
		add_halves2(&s[2], odd);
	}
	end2(to, s, &r, zeros);
}

/* Looks once: a virtual machine takes microseconds for it.  clang 14 has no
 * __builtin_cpu_supports("f16c").
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
	static const struct block_ways ways = { f32_avx2, bf16_avx2, f16_avx2 };

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
