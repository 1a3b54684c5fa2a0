/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "docs/examples/model.h"
#include "tests/run-suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 11, HIDDEN = 13, SEED = 7 };

static const uint8_t sample[MODEL_CONTEXT + 1] = { 3, 1, 4, 1, 5, 9, 2, 6, 5 };

static struct model model;
static float *weight[MODEL_NPARAMS], *gradient[MODEL_NPARAMS], *ignored[MODEL_NPARAMS];

static void setup(void)
{
	model_init(&model, VOCAB, HIDDEN);
	for (int p = 0; p < MODEL_NPARAMS; p++) {
		uint64_t numel = model.param[p].numel;

		weight[p] = calloc(numel, sizeof(float));
		gradient[p] = calloc(numel, sizeof(float));
		ignored[p] = calloc(numel, sizeof(float));
		for (uint64_t i = 0; i < numel; i++)
			weight[p][i] = model_initial(&model, p, i, SEED);
	}
}

static void teardown(void)
{
	for (int p = 0; p < MODEL_NPARAMS; p++) {
		free(weight[p]);
		free(gradient[p]);
		free(ignored[p]);
	}
}

static double loss_with(float *element, float value)
{
	float saved = *element;
	double loss;

	*element = value;
	loss = model_learn(&model, sample, weight, ignored);
	*element = saved;
	return loss;
}

START_TEST(gradient_is_the_slope_of_the_loss)
{
	const float step = 1e-2f;
	float *w = weight[_i];

	model_learn(&model, sample, weight, gradient);
	for (uint64_t i = 0; i < model.param[_i].numel; i++) {
		double up = loss_with(&w[i], w[i] + step), down = loss_with(&w[i], w[i] - step);

		ck_assert_double_eq_tol((up - down) / (2 * step), gradient[_i][i], 2e-4);
	}
}
END_TEST

START_TEST(every_parameter_has_a_gradient)
{
	double size = 0;

	model_learn(&model, sample, weight, gradient);
	for (uint64_t i = 0; i < model.param[_i].numel; i++)
		size += fabs((double)gradient[_i][i]);
	ck_assert_double_gt(size, 1e-3);
}
END_TEST

START_TEST(gradients_add_up_over_samples)
{
	model_learn(&model, sample, weight, gradient);
	model_learn(&model, sample, weight, ignored);
	model_learn(&model, sample, weight, ignored);
	for (int p = 0; p < MODEL_NPARAMS; p++)
		for (uint64_t i = 0; i < model.param[p].numel; i++)
			ck_assert_float_eq_tol(ignored[p][i], 2 * gradient[p][i], 1e-5f);
}
END_TEST

START_TEST(zero_weights_know_nothing)
{
	for (int p = 0; p < MODEL_NPARAMS; p++)
		memset(weight[p], 0, model.param[p].numel * sizeof(float));
	ck_assert_double_eq_tol(model_learn(&model, sample, weight, gradient), log(VOCAB),
				1e-6);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("model");
	TCase *t = tcase_create("model");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, gradient_is_the_slope_of_the_loss, 0, MODEL_NPARAMS);
	tcase_add_loop_test(t, every_parameter_has_a_gradient, 0, MODEL_NPARAMS);
	tcase_add_test(t, gradients_add_up_over_samples);
	tcase_add_test(t, zero_weights_know_nothing);
	return run_suite(s, t);
}
