/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/convert.h"
#include "tests/adam.h"

#include <string.h>

/* The loop is plain, for compilers to vectorise (more flags are in tests.am), and compiled for
 * several machines.
 */
#ifndef __clang__
#pragma GCC optimize("O3")
#endif

struct factors {
	float decay;           /* of the weight */
	float grad_decay;      /* of the weight, added to the gradient */
	float toward;          /* of gradient less average, from ... */
	bool from_grad;        /* ... the gradient; else from the average */
	float keep_sq, add_sq; /* of the average of squares, of the square */
	float correction_sqrt, eps, minus_step;
};

/* Beta to the power of step. */
static double power(double base, uint64_t exponent)
{
	double result = 1;

	for (; exponent; exponent >>= 1, base *= base)
		if (exponent & 1)
			result *= base;
	return result;
}

static struct factors factors_of(const struct adam *a, uint64_t step)
{
	float weight = (float)(1 - a->beta1);

	return (struct factors){
		.decay = a->decoupled ? (float)(1 - a->lr * a->weight_decay) : 1,
		.grad_decay = a->decoupled ? 0 : (float)a->weight_decay,
		.toward = weight < 0.5f ? weight : weight - 1,
		.from_grad = weight >= 0.5f,
		.keep_sq = (float)a->beta2,
		.add_sq = (float)(1 - a->beta2),
		.correction_sqrt = (float)__builtin_sqrt(1 - power(a->beta2, step)),
		.eps = (float)a->eps,
		.minus_step = (float)-(a->lr / (1 - power(a->beta1, step))),
	};
}

static inline float float_of(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

static inline uint32_t bits_of(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	return bits;
}

/* Constant where it is inlined: which gradient, and whether bf16 is wanted. */
static inline __attribute__((always_inline)) void update(const struct factors *factors,
							 const struct adam_states *s,
							 bool bf16_grad, bool bf16_param)
{
	const struct factors f = *factors;
	float *restrict param = s->param;
	float *restrict exp_avg = s->exp_avg;
	float *restrict exp_avg_sq = s->exp_avg_sq;
	const float *restrict grad = s->grad;
	const uint16_t *restrict half_grad = s->bf16_grad;
	uint16_t *restrict half_param = s->bf16_param;

	for (size_t i = 0; i < s->n; i++) {
		float g = bf16_grad ? float_of((uint32_t)half_grad[i] << 16) : grad[i];
		float p = param[i] * f.decay, m = exp_avg[i], v, denominator;

		g += f.grad_decay * p;
		m = (f.from_grad ? g : m) + f.toward * (g - m);
		v = exp_avg_sq[i] * f.keep_sq + f.add_sq * g * g;
		denominator = __builtin_sqrtf(v) / f.correction_sqrt + f.eps;
		p += f.minus_step * m / denominator;
		exp_avg[i] = m;
		exp_avg_sq[i] = v;
		param[i] = p;
		if (bf16_param)
			half_param[i] = convert_one_f32_to_bf16(bits_of(p));
	}
}

static inline __attribute__((always_inline)) void update_any(const struct factors *f,
							     const struct adam_states *s)
{
	if (s->grad && s->bf16_param)
		update(f, s, false, true);
	else if (s->grad)
		update(f, s, false, false);
	else if (s->bf16_param)
		update(f, s, true, true);
	else
		update(f, s, true, false);
}

static void update_plain(const struct factors *f, const struct adam_states *s)
{
	update_any(f, s);
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void update_avx2(const struct factors *f,
							const struct adam_states *s)
{
	update_any(f, s);
}

#ifdef __clang__
#define AVX512 "avx512f,avx512bw,avx512vl,avx512dq"
#else
#define AVX512 "avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512"
#endif

__attribute__((target(AVX512))) static void update_avx512(const struct factors *f,
							  const struct adam_states *s)
{
	update_any(f, s);
}
#endif

void adam_step(const struct adam *adam, uint64_t step, const struct adam_states *states)
{
	struct factors f = factors_of(adam, step);

#ifdef __x86_64__
	if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
	    __builtin_cpu_supports("avx512dq")) {
		update_avx512(&f, states);
		return;
	}
	if (__builtin_cpu_supports("avx2")) {
		update_avx2(&f, states);
		return;
	}
#endif
	update_plain(&f, states);
}
