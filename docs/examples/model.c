/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <math.h>
#include <string.h>

uint64_t mix(uint64_t seed, uint64_t a, uint64_t b)
{
	uint64_t x =
		seed * 0x9e3779b97f4a7c15 + a * 0xd1b54a32d192ed03 + b * 0x8cb92ba72f3d8dd7;

	/* The finalizer of splitmix64, three times. */
	for (int i = 0; i < 3; i++) {
		x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
		x = (x ^ x >> 27) * 0x94d049bb133111eb;
	}
	return x ^ x >> 31;
}

/* 1.7 is about sqrt(3): a weight, uniform in [-spread, spread], has the variance 1 / in. */
static void set_matrix(struct model *m, int p, const char *name, uint64_t in, uint64_t out)
{
	m->param[p] = (struct model_param){ .name = name,
					    .ndim = 2,
					    .shape = { in, out },
					    .numel = in * out,
					    .decay = p != MODEL_EMBED_WEIGHT,
					    .spread = 1.7f / sqrtf((float)in) };
}

static void set_vector(struct model *m, int p, const char *name, uint64_t n, float centre)
{
	m->param[p] = (struct model_param){
		.name = name, .ndim = 1, .shape = { n }, .numel = n, .centre = centre
	};
}

void model_init(struct model *m, uint32_t vocab, uint32_t hidden)
{
	m->vocab = vocab;
	m->hidden = hidden;
	set_matrix(m, MODEL_EMBED_WEIGHT, "embed.weight", vocab, MODEL_EMBED);
	set_matrix(m, MODEL_WEIGHT0, "layers.0.weight", MODEL_CONTEXT * MODEL_EMBED, hidden);
	set_vector(m, MODEL_BIAS0, "layers.0.bias", hidden, 0);
	set_matrix(m, MODEL_WEIGHT1, "layers.1.weight", hidden, hidden);
	set_vector(m, MODEL_BIAS1, "layers.1.bias", hidden, 0);
	set_vector(m, MODEL_SCALE, "head.scale", 1, 1);
	set_matrix(m, MODEL_HEAD_WEIGHT, "head.weight", hidden, vocab);
	set_vector(m, MODEL_HEAD_BIAS, "head.bias", vocab, 0);
	m->param[MODEL_EMBED_WEIGHT].spread = 1;
}

float model_initial(const struct model *m, int param, uint64_t element, uint64_t seed)
{
	const struct model_param *p = &m->param[param];
	double uniform = (double)(mix(seed, (uint64_t)param, element) >> 11) * 0x1p-53;

	return p->centre + p->spread * (float)(2 * uniform - 1);
}

/* ---- layers: forward, and backward from d(loss)/d(out) ---- */

static void dense(float *out, const float *in, uint64_t nin, uint64_t nout, const float *weight,
		  const float *bias)
{
	memcpy(out, bias, nout * sizeof(*out));
	for (uint64_t i = 0; i < nin; i++)
		for (uint64_t o = 0; o < nout; o++)
			out[o] += in[i] * weight[i * nout + o];
}

static void dense_back(float *din, const float *dout, const float *in, uint64_t nin,
		       uint64_t nout, const float *weight, float *dweight, float *dbias)
{
	for (uint64_t o = 0; o < nout; o++)
		dbias[o] += dout[o];
	for (uint64_t i = 0; i < nin; i++) {
		float sum = 0;

		for (uint64_t o = 0; o < nout; o++) {
			dweight[i * nout + o] += in[i] * dout[o];
			sum += weight[i * nout + o] * dout[o];
		}
		din[i] = sum;
	}
}

static void squash(float *x, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		x[i] = tanhf(x[i]);
}

static void squash_back(float *d, const float *y, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		d[i] *= 1 - y[i] * y[i];
}

/* Turns logits into d(loss)/d(logits); returns the loss. */
static double cross_entropy(float *logit, uint32_t n, uint32_t target)
{
	float top = logit[0];
	double sum = 0, loss;

	/* The greatest logit is subtracted, so that exp() does not overflow. */
	for (uint32_t i = 1; i < n; i++)
		top = fmaxf(top, logit[i]);
	for (uint32_t i = 0; i < n; i++)
		sum += exp(logit[i] - top);
	loss = log(sum) - (logit[target] - top);
	for (uint32_t i = 0; i < n; i++)
		logit[i] = (float)(exp(logit[i] - top) / sum);
	logit[target] -= 1;
	return loss;
}

static void embed(float *out, const uint8_t *symbols, const float *weight)
{
	for (int c = 0; c < MODEL_CONTEXT; c++)
		memcpy(out + c * MODEL_EMBED, weight + symbols[c] * MODEL_EMBED,
		       MODEL_EMBED * sizeof(*out));
}

static void embed_back(const float *dout, const uint8_t *symbols, float *dweight)
{
	for (int c = 0; c < MODEL_CONTEXT; c++)
		for (int i = 0; i < MODEL_EMBED; i++)
			dweight[symbols[c] * MODEL_EMBED + i] += dout[c * MODEL_EMBED + i];
}

static void scale_back(float *d, const float *in, float scale, float *dscale, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		*dscale += d[i] * in[i];
		d[i] *= scale;
	}
}

/* ---- the model ---- */

struct activations {
	float x[MODEL_CONTEXT * MODEL_EMBED];
	float h0[MODEL_HIDDEN_MAX];
	float h1[MODEL_HIDDEN_MAX];
	float scaled[MODEL_HIDDEN_MAX];
	float logit[MODEL_VOCAB_MAX];
};

static void forward(const struct model *m, const uint8_t *symbols, float *const *w,
		    struct activations *a)
{
	uint32_t n = m->hidden;

	embed(a->x, symbols, w[MODEL_EMBED_WEIGHT]);
	dense(a->h0, a->x, MODEL_CONTEXT * MODEL_EMBED, n, w[MODEL_WEIGHT0], w[MODEL_BIAS0]);
	squash(a->h0, n);
	dense(a->h1, a->h0, n, n, w[MODEL_WEIGHT1], w[MODEL_BIAS1]);
	squash(a->h1, n);
	for (uint32_t i = 0; i < n; i++)
		a->scaled[i] = a->h1[i] * w[MODEL_SCALE][0];
	dense(a->logit, a->scaled, n, m->vocab, w[MODEL_HEAD_WEIGHT], w[MODEL_HEAD_BIAS]);
}

/* Adds d(loss)/d(parameter) to dw; a->logit has d(loss)/d(logit). */
static void backward(const struct model *m, const uint8_t *symbols, float *const *w,
		     const struct activations *a, float *const *dw)
{
	float dx[MODEL_CONTEXT * MODEL_EMBED], d0[MODEL_HIDDEN_MAX], d1[MODEL_HIDDEN_MAX];
	uint32_t n = m->hidden;

	dense_back(d1, a->logit, a->scaled, n, m->vocab, w[MODEL_HEAD_WEIGHT],
		   dw[MODEL_HEAD_WEIGHT], dw[MODEL_HEAD_BIAS]);
	scale_back(d1, a->h1, w[MODEL_SCALE][0], dw[MODEL_SCALE], n);
	squash_back(d1, a->h1, n);
	dense_back(d0, d1, a->h0, n, n, w[MODEL_WEIGHT1], dw[MODEL_WEIGHT1], dw[MODEL_BIAS1]);
	squash_back(d0, a->h0, n);
	dense_back(dx, d0, a->x, MODEL_CONTEXT * MODEL_EMBED, n, w[MODEL_WEIGHT0],
		   dw[MODEL_WEIGHT0], dw[MODEL_BIAS0]);
	embed_back(dx, symbols, dw[MODEL_EMBED_WEIGHT]);
}

double model_learn(const struct model *m, const uint8_t *symbols, float *const *weight,
		   float *const *gradient)
{
	struct activations a;
	double loss;

	forward(m, symbols, weight, &a);
	loss = cross_entropy(a.logit, m->vocab, symbols[MODEL_CONTEXT]);
	backward(m, symbols, weight, &a, gradient);
	return loss;
}
