/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "docs/examples/loader.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No two samples of the text are equal, so that a sample tells its place. */
static const char text[] = "the quick brown fox jumps over a lazy dog, twice";

enum { SAMPLES = sizeof(text) - 1 - MODEL_CONTEXT };

static int load(struct loader *l, const char *content)
{
	char path[] = "tokens.XXXXXX";
	int fd = mkstemp(path), rc;
	FILE *file = fdopen(fd, "w");

	fputs(content, file);
	fclose(file);
	rc = loader_open(l, path);
	remove(path);
	return rc;
}

static struct loader opened(uint32_t rank, uint32_t world, uint64_t batch)
{
	struct loader l;

	ck_assert_int_eq(load(&l, text), 0);
	l.rank = rank;
	l.world = world;
	l.batch = batch;
	l.seed = 5;
	return l;
}

/* Returns the place in the text where the sample is. */
static unsigned place(const struct loader *l, uint64_t step, uint64_t index)
{
	uint8_t symbols[MODEL_CONTEXT + 1];

	loader_sample(l, step, index, symbols);
	for (unsigned at = 0; at < SAMPLES; at++) {
		int i = 0;

		while (i <= MODEL_CONTEXT &&
		       l->symbol[(uint8_t)text[at + (unsigned)i]] == symbols[i])
			i++;
		if (i > MODEL_CONTEXT)
			return at;
	}
	ck_abort_msg("no sample of the text");
}

START_TEST(tokens_are_numbered_in_their_order)
{
	struct loader l;
	uint8_t symbols[MODEL_CONTEXT + 1];

	ck_assert_int_eq(load(&l, "cab cab c"), 0);
	l.world = 1;
	l.batch = 1;
	ck_assert_uint_eq(l.vocab, 4);
	ck_assert_uint_eq(l.nsamples, 1);
	loader_sample(&l, 0, 0, symbols);
	ck_assert_mem_eq(symbols, "\3\1\2\0\3\1\2\0\3", 9);
	loader_close(&l);
}
END_TEST

/* DeepSpeed's RepeatingLoader ends as its loader does when that is empty. */
START_TEST(a_file_without_a_sample_is_an_error)
{
	struct loader l;

	ck_assert_int_eq(load(&l, ""), -EINVAL);
	ck_assert_int_eq(load(&l, "12345678"), -EINVAL);
	ck_assert_int_eq(load(&l, "aaaaaaaaaaaa"), -EINVAL);
	ck_assert_int_eq(loader_open(&l, "no/such/file"), -ENOENT);
}
END_TEST

START_TEST(an_epoch_has_each_sample_once_in_an_order_of_its_own)
{
	struct loader l = opened(0, 1, 1);
	unsigned moved = 0;

	for (uint64_t epoch = 0; epoch < 3; epoch++) {
		unsigned times[SAMPLES] = { 0 };

		for (uint64_t i = 0; i < SAMPLES; i++) {
			unsigned at = place(&l, epoch * SAMPLES + i, 0);

			times[at]++;
			moved += at != place(&l, (epoch + 1) * SAMPLES + i, 0);
		}
		for (unsigned i = 0; i < SAMPLES; i++)
			ck_assert_uint_eq(times[i], 1);
	}
	ck_assert_uint_gt(moved, 2 * SAMPLES);
	loader_close(&l);
}
END_TEST

START_TEST(ranks_share_the_samples_of_a_step)
{
	struct loader alone = opened(0, 1, 6);

	for (uint32_t rank = 0; rank < 3; rank++) {
		struct loader l = opened(rank, 3, 2);

		for (uint64_t step = 0; step < 40; step++)
			for (uint64_t i = 0; i < 2; i++)
				ck_assert_uint_eq(place(&l, step, i),
						  place(&alone, step, rank * 2 + i));
		loader_close(&l);
	}
	loader_close(&alone);
}
END_TEST

START_TEST(a_step_does_not_depend_on_the_steps_before)
{
	struct loader l = opened(1, 2, 3), later = opened(1, 2, 3);

	for (uint64_t step = 0; step < 20; step++)
		place(&l, step, 2);
	ck_assert_uint_eq(place(&l, 1000, 2), place(&later, 1000, 2));
	loader_close(&l);
	loader_close(&later);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("loader");
	TCase *t = tcase_create("loader");

	tcase_add_test(t, tokens_are_numbered_in_their_order);
	tcase_add_test(t, a_file_without_a_sample_is_an_error);
	tcase_add_test(t, an_epoch_has_each_sample_once_in_an_order_of_its_own);
	tcase_add_test(t, ranks_share_the_samples_of_a_step);
	tcase_add_test(t, a_step_does_not_depend_on_the_steps_before);
	return run_suite(s, t);
}
