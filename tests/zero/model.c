/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/zero/model.h"
#include "tests/zero/torch-writer.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *const model_state[MODEL_STATES] = { "fp32", "exp_avg", "exp_avg_sq" };

static void add(struct model *m, uint64_t rows, uint64_t columns, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

static void add(struct model *m, uint64_t rows, uint64_t columns, const char *format, ...)
{
	struct model_param *p;
	va_list args;

	m->params = reallocarray(m->params, m->n + 1, sizeof(*m->params));
	if (!m->params)
		writer_fail("memory");
	p = &m->params[m->n++];
	*p = (struct model_param){ .ndim = columns ? 2 : 1,
				   .shape = { rows, columns },
				   .numel = rows * (columns ? columns : 1) };
	va_start(args, format);
	vsnprintf(p->name, sizeof(p->name), format, args);
	va_end(args);
	m->numel += p->numel;
}

static void add_layer(struct model *m, int i, uint64_t width, uint64_t kv, uint64_t inner)
{
	add(m, width, width, "model.layers.%d.self_attn.q_proj.weight", i);
	add(m, kv, width, "model.layers.%d.self_attn.k_proj.weight", i);
	add(m, kv, width, "model.layers.%d.self_attn.v_proj.weight", i);
	add(m, width, width, "model.layers.%d.self_attn.o_proj.weight", i);
	add(m, inner, width, "model.layers.%d.mlp.gate_proj.weight", i);
	add(m, inner, width, "model.layers.%d.mlp.up_proj.weight", i);
	add(m, width, inner, "model.layers.%d.mlp.down_proj.weight", i);
	add(m, width, 0, "model.layers.%d.input_layernorm.weight", i);
	add(m, width, 0, "model.layers.%d.post_attention_layernorm.weight", i);
}

static void add_all(struct model *m, int layers, uint64_t width, uint64_t vocabulary)
{
	add(m, vocabulary, width, "model.embed_tokens.weight");
	for (int i = 0; i < layers; i++)
		add_layer(m, i, width, width / 8, width / 2 * 7);
	add(m, width, 0, "model.norm.weight");
	add(m, vocabulary, width, "lm_head.weight");
}

void model_init(struct model *m, const char *what)
{
	/* 16 layers: 16 * 12.75 width^2, and 8 width^2 for both ends */
	double width = sqrt(strtod(what, NULL) / sizeof(float) / 212);

	*m = (struct model){ .n = 0 };
	if (!strcmp(what, "70b"))
		add_all(m, 80, 8192, 32000);
	else
		add_all(m, 16, u64_max(8, (uint64_t)width / 8 * 8),
			u64_max(32, (uint64_t)width / 8 * 32));
}

static uint32_t salt_of(unsigned param, unsigned state)
{
	return (param * MODEL_STATES + state + 1) * 0x9e3779b1u;
}

/* Between 0.5 and 1, of either sign. */
static float value_of(uint32_t salt, uint64_t element)
{
	uint32_t x = (uint32_t)element * 0x85ebca6bu + salt;
	float value;

	x ^= x >> 15;
	x *= 0xc2b2ae35u;
	x = (x & 0x807fffffu) | 0x3f000000u;
	memcpy(&value, &x, sizeof(value));
	return value;
}

uint64_t model_known(const struct model *m, unsigned param, unsigned i)
{
	return i ? (m->params[param].numel - 1) / (MODEL_KNOWN - i) : 0;
}

void model_values(const struct model *m, unsigned param, unsigned state, uint64_t first,
		  uint64_t n, float *out)
{
	uint32_t salt = salt_of(param, state);

	for (uint64_t i = 0; i < n; i++)
		out[i] = value_of(salt, first + i);
}
