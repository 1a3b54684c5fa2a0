/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Traces of DeepSpeed's ContiguousMemoryAllocator (tests/oracle/make-arena-traces.py): the same
 * addresses, figures and maps.  And what is wrong with it, a test each.
 */

#include "tests/run-suite.h"
#include "tests/unit/memory/arena-look.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { IDS = 1024, LINE = 256 };

static const char *const traces[] = { "own-test",    "equal-holes", "small",
				      "equal-sizes", "large",       "full" };

/* ---- a replay ---- */

struct replay {
	struct arena a;
	uint64_t block[IDS];
	uint64_t *bytes; /* a number of each unit's block */
	const char *name;
	unsigned line;
};

static void step_through(struct replay *r)
{
	struct arena_copy copy;

	while (arena_next_copy(&r->a, 4096, &copy) == 1) {
		memmove(r->bytes + copy.to, r->bytes + copy.from,
			copy.size * sizeof(*r->bytes));
		arena_copied(&r->a);
	}
}

static uint64_t address(struct replay *r, uint64_t id)
{
	uint64_t at, run, size, wrong = 0;

	ck_assert_int_eq(arena_find(&r->a, r->block[id], 0, &at, &run), 0);
	ck_assert_int_eq(arena_size(&r->a, r->block[id], &size), 0);
	for (uint64_t i = 0; i < size; i++)
		wrong += r->bytes[at + i] != id;
	ck_assert_msg(!wrong, "%s:%u: %" PRIu64, r->name, r->line, id);
	return at;
}

static void replay_alloc(struct replay *r, const char *line)
{
	uint64_t id, size, expected, at, run, block;
	int moved, rc;

	ck_assert_int_eq(sscanf(line, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %d", &id, &size,
				&expected, &moved),
			 4);
	rc = arena_alloc(&r->a, size, &block);
	ck_assert_msg(rc == (moved ? -EAGAIN : 0), "%s:%u", r->name, r->line);
	if (rc) {
		ck_assert_int_eq(arena_plan_pack(&r->a), 0);
		step_through(r);
		ck_assert_int_eq(arena_alloc(&r->a, size, &block), 0);
	}
	r->block[id] = block;
	ck_assert_int_eq(arena_assign(&r->a, id, block, 0, size), 0);
	ck_assert_int_eq(arena_find(&r->a, block, 0, &at, &run), 0);
	ck_assert_msg(at == expected, "%s:%u: at %" PRIu64, r->name, r->line, at);
	for (uint64_t i = 0; i < size; i++)
		r->bytes[at + i] = id;
}

static void replay_figures(struct replay *r, const char *line)
{
	uint64_t left, largest, most;

	ck_assert_int_eq(
		sscanf(line, "%" SCNu64 " %" SCNu64 " %" SCNu64, &left, &largest, &most), 3);
	ck_assert_msg(arena_total_free(&r->a) == left &&
			      arena_largest_contiguous(&r->a) == largest &&
			      arena_max_allocated(&r->a) == most,
		      "%s:%u", r->name, r->line);
}

static void replay_map(struct replay *r, const char *line)
{
	char *text = NULL;
	size_t size;
	FILE *file = open_memstream(&text, &size);

	ck_assert_int_eq(arena_print(&r->a, (unsigned)r->a.size, file), 0);
	fclose(file);
	ck_assert_msg(!strcmp(text, line), "%s:%u: %s", r->name, r->line, text);
	free(text);
}

static void replay_begin(struct replay *r, const char *line)
{
	struct arena_options options = { .align = 1, .tie = ARENA_OLDEST };

	ck_assert_int_eq(sscanf(line, "%" SCNu64, &options.size), 1);
	ck_assert_int_eq(arena_init(&r->a, &options), 0);
	r->bytes = calloc(options.size, sizeof(*r->bytes));
	ck_assert_ptr_nonnull(r->bytes);
}

static void release_param(struct replay *r, uint64_t param)
{
	uint64_t block, offset, size;

	ck_assert_int_eq(arena_param(&r->a, param, &block, &offset, &size), 0);
	ck_assert_int_eq(arena_release(&r->a, block), 0);
}

static void replay_line(struct replay *r, const char *word, const char *rest)
{
	uint64_t id = 0, second = 0, block;
	int n = sscanf(rest, "%" SCNu64 " %" SCNu64, &id, &second);

	if (!strcmp(word, "arena"))
		replay_begin(r, rest);
	else if (!strcmp(word, "figures"))
		replay_figures(r, rest);
	else if (!strcmp(word, "map"))
		replay_map(r, rest);
	else if (n < 1 || id >= IDS)
		ck_abort_msg("%s:%u: %s", r->name, r->line, word);
	else if (!strcmp(word, "alloc"))
		replay_alloc(r, rest);
	else if (!strcmp(word, "full"))
		ck_assert_int_eq(arena_alloc(&r->a, second, &block), -ENOSPC);
	else if (!strcmp(word, "release"))
		release_param(r, id);
	else if (!strcmp(word, "at"))
		ck_assert_msg(address(r, id) == second, "%s:%u", r->name, r->line);
	else
		ck_abort_msg("%s:%u: %s", r->name, r->line, word);
}

static void replay(const char *name)
{
	struct replay r = { .name = name };
	char path[4096], line[LINE], word[16];
	const char *top = getenv("top_srcdir");
	FILE *file;
	int skip;

	snprintf(path, sizeof(path), "%s/tests/data/arena/%s.trace", top ? top : ".", name);
	file = fopen(path, "re");
	ck_assert_msg(file, "%s", path);
	while (fgets(line, sizeof(line), file)) {
		r.line++;
		if (line[0] == '#')
			continue;
		ck_assert_int_eq(sscanf(line, "%15s %n", word, &skip), 1);
		replay_line(&r, word, line + skip);
		ck_assert(arena_check(&r.a));
	}
	fclose(file);
	ck_assert_uint_gt(r.line, 10);
	arena_fini(&r.a);
	free(r.bytes);
}

START_TEST(deepspeeds_traces_give_its_addresses)
{
	replay(traces[_i]);
}
END_TEST

/* ---- what is wrong with DeepSpeed's ---- */

static struct arena arena;

static void setup(void)
{
	ck_assert_int_eq(arena_init(&arena, &(struct arena_options){ 1000, .align = 1 }), 0);
}

static void teardown(void)
{
	ck_assert(arena_check(&arena));
	arena_fini(&arena);
}

static uint64_t alloc(uint64_t size)
{
	uint64_t block = 0;

	ck_assert_int_eq(arena_alloc(&arena, size, &block), 0);
	return block;
}

static unsigned run_plan(uint64_t most, uint64_t *units)
{
	struct arena_copy copy;
	unsigned n = 0;

	*units = 0;
	for (; arena_next_copy(&arena, most, &copy) == 1; n++) {
		*units += copy.size;
		arena_copied(&arena);
	}
	return n;
}

/* KeyError after bytes were moved; its own test fails by it. */
START_TEST(a_tensor_of_no_parameter_is_moved_as_well)
{
	uint64_t a = alloc(256), b = alloc(256), at, run, units;

	alloc(488);
	ck_assert_int_eq(arena_release(&arena, a), 0);
	ck_assert_int_eq(arena_plan_pack(&arena), 0);
	run_plan(100, &units);
	ck_assert_uint_eq(units, 256 + 488);
	ck_assert_int_eq(arena_find(&arena, b, 0, &at, &run), 0);
	ck_assert(at == 0 && run == 256);
}
END_TEST

/* max_allocated() is a number where a method should be: TypeError. */
START_TEST(max_allocated_can_be_asked)
{
	uint64_t a = alloc(700);

	ck_assert_int_eq(arena_release(&arena, a), 0);
	alloc(1);
	ck_assert_uint_eq(arena_max_allocated(&arena), 700);
}
END_TEST

/* A tensor of no elements shares the next one's address, and releasing either is a KeyError. */
START_TEST(nothing_is_not_allocated)
{
	uint64_t block = 77;

	ck_assert_int_eq(arena_alloc(&arena, 0, &block), -EINVAL);
	ck_assert_uint_eq(block, 77);
	ck_assert_uint_eq(arena_total_free(&arena), 1000);
}
END_TEST

/* Addresses are what the sizes before make them. */
START_TEST(addresses_are_aligned)
{
	uint64_t block, at, run;

	arena_fini(&arena);
	ck_assert_int_eq(arena_init(&arena, &(struct arena_options){ 1 << 20, .align = 4096 }),
			 0);
	for (uint64_t size = 1; size < 5000; size += 999) {
		ck_assert_int_eq(arena_alloc(&arena, size, &block), 0);
		ck_assert_int_eq(arena_find(&arena, block, 0, &at, &run), 0);
		ck_assert_uint_eq(at % 4096, 0);
	}
}
END_TEST

/* One parameter a tensor: a second is an assertion. */
START_TEST(a_block_has_many_parameters)
{
	uint64_t a = alloc(100);

	ck_assert_int_eq(arena_assign(&arena, 1, a, 0, 50), 0);
	ck_assert_int_eq(arena_assign(&arena, 2, a, 50, 50), 0);
}
END_TEST

/* A block is copied in pieces of the hole's size: a million copies behind a hole of one
 * element.
 */
START_TEST(behind_a_small_hole_is_not_a_million_copies)
{
	enum { LARGE = 1 << 20 };
	uint64_t a, b, units;

	arena_fini(&arena);
	ck_assert_int_eq(arena_init(&arena, &(struct arena_options){ LARGE + 2, .align = 1 }),
			 0);
	a = alloc(1);
	b = alloc(LARGE);
	ck_assert_int_eq(arena_release(&arena, a), 0);
	ck_assert_int_eq(arena_plan(&arena, 2), 0);
	ck_assert_uint_eq(run_plan(LARGE, &units), 1);
	ck_assert_uint_eq(units, LARGE);
	ck_assert_int_eq(arena_release(&arena, b), 0);
}
END_TEST

/* Nearly the whole buffer is moved whatever is asked for. */
START_TEST(room_for_a_little_moves_a_little)
{
	uint64_t block[100], units;

	for (int i = 0; i < 100; i++)
		block[i] = alloc(i == 50 ? 9 : 10);
	for (int i = 0; i < 100; i += 10)
		ck_assert_int_eq(arena_release(&arena, block[i]), 0);
	ck_assert_int_eq(arena_release(&arena, block[49]), 0);
	ck_assert_int_eq(arena_release(&arena, block[51]), 0);
	ck_assert_int_eq(arena_plan(&arena, 31), 0);
	run_plan(1000, &units);
	ck_assert_uint_eq(units, 10);
	ck_assert_uint_ge(arena_largest_contiguous(&arena), 31);
}
END_TEST

/* total_free has changed when a later step raises. */
START_TEST(a_refusal_changes_nothing)
{
	uint64_t a = alloc(400), b = alloc(200), c = alloc(400), none;

	ck_assert_int_eq(arena_release(&arena, a), 0);
	ck_assert_int_eq(arena_release(&arena, c), 0);
	ck_assert_int_eq(arena_alloc(&arena, 500, &none), -EAGAIN);
	ck_assert_int_eq(arena_alloc(&arena, 900, &none), -ENOSPC);
	ck_assert_int_eq(arena_release(&arena, a), -ENOENT);
	ck_assert_int_eq(arena_assign(&arena, 1, b, 0, 201), -EINVAL);
	ck_assert_uint_eq(arena_total_free(&arena), 800);
	ck_assert_uint_eq(arena_largest_contiguous(&arena), 400);
	ck_assert_uint_eq(arena_max_allocated(&arena), 1000);
}
END_TEST

/* Every call prints a line, a defragmentation two maps. */
START_TEST(nothing_is_printed_unasked)
{
	FILE *file = tmpfile();
	int out = dup(STDOUT_FILENO);
	uint64_t units;

	fflush(stdout);
	ck_assert(file && dup2(fileno(file), STDOUT_FILENO) == STDOUT_FILENO);
	ck_assert_int_eq(arena_release(&arena, alloc(100)), 0);
	ck_assert_int_eq(arena_plan_pack(&arena), 0);
	run_plan(10, &units);
	fflush(stdout);
	dup2(out, STDOUT_FILENO);
	close(out);
	ck_assert_int_eq(lseek(fileno(file), 0, SEEK_END), 0);
	fclose(file);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("arena and DeepSpeed");
	TCase *t = tcase_create("traces"), *faults = tcase_create("faults");

	tcase_set_timeout(t, 100);
	tcase_add_loop_test(t, deepspeeds_traces_give_its_addresses, 0, ARRAY_SIZE(traces));
	suite_add_tcase(s, t);
	tcase_add_checked_fixture(faults, setup, teardown);
	tcase_add_test(faults, a_tensor_of_no_parameter_is_moved_as_well);
	tcase_add_test(faults, max_allocated_can_be_asked);
	tcase_add_test(faults, nothing_is_not_allocated);
	tcase_add_test(faults, addresses_are_aligned);
	tcase_add_test(faults, a_block_has_many_parameters);
	tcase_add_test(faults, behind_a_small_hole_is_not_a_million_copies);
	tcase_add_test(faults, room_for_a_little_moves_a_little);
	tcase_add_test(faults, a_refusal_changes_nothing);
	tcase_add_test(faults, nothing_is_printed_unasked);
	return run_suite(s, faults);
}
