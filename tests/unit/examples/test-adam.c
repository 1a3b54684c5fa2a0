/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Steps of torch's Adam and AdamW (tests/oracle/make-adam.py), from its states to its states.
 */

#include "engine/base/convert.h"
#include "tests/adam.h"
#include "tests/run-suite.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 256, LINE = 512 };

/* torch multiplies and adds in one rounding where the machine can, which is that many last bits
 * of the largest term.
 */
enum { LAST_BITS = 2 };

struct one_case {
	struct adam adam;
	uint64_t step;
	uint32_t before[4][MOST], after[3][MOST]; /* param, exp_avg, exp_avg_sq, grad */
	size_t n;
};

static struct one_case cases[16];
static size_t ncases;

static void read_case(const char *line)
{
	struct one_case *c = &cases[ncases++];
	char kind[16];

	ck_assert_uint_le(ncases, ARRAY_SIZE(cases));
	ck_assert_int_eq(sscanf(line, "case %15s %lf %lf %lf %lf %lf %" SCNu64, kind,
				&c->adam.lr, &c->adam.beta1, &c->adam.beta2, &c->adam.eps,
				&c->adam.weight_decay, &c->step),
			 7);
	c->adam.decoupled = !strcmp(kind, "adamw");
}

static void read_element(const char *line)
{
	struct one_case *c = &cases[ncases - 1];
	size_t i = c->n++;

	ck_assert_uint_lt(i, MOST);
	ck_assert_int_eq(sscanf(line, "%x %x %x %x %x %x %x", &c->before[0][i],
				&c->before[1][i], &c->before[2][i], &c->before[3][i],
				&c->after[0][i], &c->after[1][i], &c->after[2][i]),
			 7);
}

static void read_all(void)
{
	const char *top = getenv("top_srcdir");
	char path[4096], line[LINE];
	FILE *file;

	snprintf(path, sizeof(path), "%s/tests/data/adam/steps", top ? top : ".");
	file = fopen(path, "re");
	ck_assert_msg(file, "%s", path);
	ncases = 0;
	while (fgets(line, sizeof(line), file)) {
		if (!strncmp(line, "case", 4))
			read_case(line);
		else if (line[0] != '#')
			read_element(line);
	}
	fclose(file);
	ck_assert_uint_ge(ncases, 6);
}

static double value_of(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

static double larger(double x, double y)
{
	x = __builtin_fabs(x);
	y = __builtin_fabs(y);
	return x > y ? x : y;
}

/* The largest term of what state i becomes. */
static double largest_term(const struct one_case *c, size_t state, size_t i)
{
	double decay = c->adam.decoupled ? 0 : c->adam.weight_decay;
	double grad = larger(value_of(c->before[3][i]), decay * value_of(c->before[0][i]));
	double old = value_of(c->before[state][i]), new = value_of(c->after[state][i]);

	return larger(larger(old, new), state == 1 ? grad : state == 2 ? grad * grad : 0);
}

struct own {
	float state[4][MOST];
	uint16_t bf16[MOST];
};

static void take_step(const struct one_case *c, struct own *own, size_t n)
{
	struct adam_states s = {
		own->state[0], own->state[1], own->state[2], own->state[3], NULL, own->bf16, n
	};

	memcpy(own->state, c->before, sizeof(own->state));
	adam_step(&c->adam, c->step, &s);
}

static bool is_near(const struct one_case *c, size_t state, size_t i, uint32_t bits)
{
	double apart = value_of(bits) - value_of(c->after[state][i]);

	return __builtin_fabs(apart) <= LAST_BITS * 0x1p-23 * largest_term(c, state, i);
}

START_TEST(a_step_is_torchs)
{
	uint64_t equal = 0, all = 0;

	read_all();
	for (size_t k = 0; k < ncases; k++) {
		const struct one_case *c = &cases[k];
		struct own own;

		take_step(c, &own, c->n);
		for (size_t state = 0; state < 3; state++)
			for (size_t i = 0; i < c->n; i++) {
				uint32_t bits;

				memcpy(&bits, &own.state[state][i], sizeof(bits));
				ck_assert_msg(is_near(c, state, i, bits),
					      "case %zu state %zu element %zu: %08x not %08x",
					      k, state, i, bits, c->after[state][i]);
				equal += bits == c->after[state][i];
				all++;
			}
	}
	printf("%" PRIu64 " of %" PRIu64 " bit for bit\n", equal, all);
	ck_assert_uint_gt(equal, all / 10 * 8);
}
END_TEST

START_TEST(the_low_precision_copy_is_the_rounded_master)
{
	read_all();
	for (size_t k = 0; k < ncases; k++) {
		uint16_t expected[MOST];
		struct own own;

		take_step(&cases[k], &own, cases[k].n);
		convert_f32_to_bf16(expected, (const uint32_t *)(void *)own.state[0],
				    cases[k].n);
		ck_assert(!memcmp(expected, own.bf16, cases[k].n * sizeof(*expected)));
	}
}
END_TEST

START_TEST(a_gradient_of_bf16_is_as_its_float)
{
	struct own own, other;
	uint16_t half[MOST];
	struct adam_states s = { .param = other.state[0],
				 .exp_avg = other.state[1],
				 .exp_avg_sq = other.state[2],
				 .bf16_grad = half };

	read_all();
	for (size_t k = 0; k < ncases; k++) {
		struct one_case c = cases[k];

		convert_f32_to_bf16(half, c.before[3], c.n);
		convert_bf16_to_f32(c.before[3], half, c.n);
		take_step(&c, &own, c.n);
		memcpy(other.state, c.before, sizeof(other.state));
		s.n = c.n;
		adam_step(&c.adam, c.step, &s);
		ck_assert(!memcmp(own.state, other.state, 3 * sizeof(own.state[0])));
	}
}
END_TEST

/* Vectors and what is left over give the same bits, and nothing behind the end is touched. */
START_TEST(every_length_gives_the_same_bits)
{
	struct own whole, part;

	read_all();
	take_step(&cases[2], &whole, cases[2].n);
	for (size_t n = 0; n < cases[2].n; n++) {
		take_step(&cases[2], &part, n);
		for (size_t state = 0; state < 3; state++) {
			ck_assert(!memcmp(part.state[state], whole.state[state], n * 4));
			ck_assert(!memcmp(part.state[state] + n, cases[2].before[state] + n,
					  (cases[2].n - n) * 4));
		}
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("adam");
	TCase *t = tcase_create("adam");

	tcase_add_test(t, a_step_is_torchs);
	tcase_add_test(t, the_low_precision_copy_is_the_rounded_master);
	tcase_add_test(t, a_gradient_of_bf16_is_as_its_float);
	tcase_add_test(t, every_length_gives_the_same_bits);
	return run_suite(s, t);
}
