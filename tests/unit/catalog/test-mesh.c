/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* The groups of a mesh against those of DeepSpeed: tests/data/mesh/groups, whose format is
 * described in tests/oracle/make-mesh.py.
 */

#include "engine/catalog/mesh.h"
#include "engine/frag.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LINES_MIN = 30 };

static void write_groups(const struct mesh *m, enum mesh_kind kind, char *out, size_t size)
{
	size_t n = 0;

	*out = '\0';
	for (uint32_t group = 0; group < mesh_count(m, kind); group++)
		for (uint32_t i = 0; i < mesh_size(m, kind); i++)
			n += (size_t)snprintf(out + n, size - n, "%s%" PRIu32,
					      i       ? ","
					      : group ? " "
						      : "",
					      mesh_rank(m, kind, group, i));
}

static enum mesh_kind kind_of(const char *name)
{
	enum mesh_kind kind = 0;

	while (kind < MESH_KINDS && strcmp(mesh_kind_name(kind), name) != 0)
		kind++;
	ck_assert_msg(kind < MESH_KINDS, "no kind %s", name);
	return kind;
}

START_TEST(groups_are_those_of_deepspeed)
{
	char path[512], line[1024], got[1024], why[160], kind[32];
	FILE *file;
	int lines = 0;

	snprintf(path, sizeof(path), "%s/tests/data/mesh/groups", getenv("top_srcdir"));
	file = fopen(path, "re");
	ck_assert_msg(file != NULL, "%s", path);
	while (fgets(line, sizeof(line), file)) {
		struct mesh m;
		unsigned data_first;
		int at = 0;

		if (*line == '#')
			continue;
		line[strcspn(line, "\n")] = '\0';
		ck_assert_int_eq(sscanf(line,
					"%" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32
					" %" SCNu32 " %" SCNu32 " %u %31s %n",
					&m.world, &m.pp, &m.sp, &m.tp, &m.ep, &m.hpz,
					&data_first, kind, &at),
				 8);
		m.data_first = data_first;
		ck_assert_msg(!mesh_init(&m, why, sizeof(why)), "%s: %s", line, why);
		write_groups(&m, kind_of(kind), got, sizeof(got));
		ck_assert_msg(!strcmp(got, line + at), "%s\ngot %s", line, got);
		lines++;
	}
	fclose(file);
	ck_assert_int_ge(lines, LINES_MIN);
}
END_TEST

START_TEST(every_kind_has_each_rank_once)
{
	struct mesh m = { .world = 48, .pp = 2, .sp = 2, .tp = 3, .ep = 2, .hpz = 4 };
	char why[160];

	for (int data_first = 0; data_first < 2; data_first++) {
		m.data_first = data_first;
		ck_assert_int_eq(mesh_init(&m, why, sizeof(why)), 0);
		for (enum mesh_kind kind = 0; kind < MESH_KINDS; kind++) {
			bool seen[48] = { false };

			for (uint32_t g = 0; g < mesh_count(&m, kind); g++)
				for (uint32_t i = 0; i < mesh_size(&m, kind); i++) {
					uint32_t rank = mesh_rank(&m, kind, g, i);

					ck_assert_uint_lt(rank, m.world);
					ck_assert(!seen[rank]);
					seen[rank] = true;
				}
			ck_assert_uint_eq(mesh_count(&m, kind) * mesh_size(&m, kind), 48);
		}
	}
}
END_TEST

/* DeepSpeed makes hpZ groups of consecutive ranks of the world, which with tp > 1 share pieces
 * of different tensors, and takes a size above the world for the world.
 */
START_TEST(hpz_groups_lie_in_one_data_group)
{
	struct mesh m = { .world = 8, .tp = 2, .hpz = 2 };
	char why[160], got[256];

	ck_assert_int_eq(mesh_init(&m, why, sizeof(why)), 0);
	write_groups(&m, MESH_HPZ, got, sizeof(got));
	ck_assert_str_eq(got, "0,2 4,6 1,3 5,7");
	m = (struct mesh){ .world = 4, .hpz = 8 };
	ck_assert_int_eq(mesh_init(&m, why, sizeof(why)), -EINVAL);
}
END_TEST

static void refuses(struct mesh m, const char *line)
{
	char why[160] = "";

	ck_assert_int_eq(mesh_init(&m, why, sizeof(why)), -EINVAL);
	ck_assert_str_eq(why, line);
}

START_TEST(sizes_that_do_not_divide_are_told)
{
	refuses((struct mesh){ .world = 6, .tp = 4 },
		"world 6 is not a multiple of sp 1 x tp 4");
	refuses((struct mesh){ .world = 4, .pp = 65536, .sp = 65536, .tp = 65536 },
		"world 4 is not a multiple of pp 65536 x sp 65536 x tp 65536");
	refuses((struct mesh){ .world = 16, .tp = 2, .ep = 3 },
		"8 ranks share a partition (world 16 / tp 2): not a multiple of ep 3");
	/* DeepSpeed checks the stage's 12 ranks, and mixes tensor parts in an expert group. */
	refuses((struct mesh){ .world = 12, .tp = 2, .ep = 4 },
		"6 ranks share a partition (world 12 / tp 2): not a multiple of ep 4");
	refuses((struct mesh){ .world = 6, .hpz = 4 },
		"6 ranks share a partition (world 6): not a multiple of hpz 4");
	refuses((struct mesh){ .world = FRAG_WORLD_MAX + 1 },
		"65537 ranks are more than 65536");
}
END_TEST

START_TEST(coordinates_tell_sizes)
{
	struct mesh m = { .world = 8 };
	const uint32_t data[] = { 1, 3, 5, 7 }, expert_data[] = { 1, 5 }, neither[] = { 1, 2 };
	char why[160];

	mesh_see(&m, "");
	mesh_see(&m, "ep=1,tp=0");
	mesh_see(&m, "tp=1");
	mesh_see(&m, "mp_rank_00,step=7,ep=x,tp=99999999999");
	ck_assert_int_eq(mesh_init(&m, why, sizeof(why)), 0);
	ck_assert(m.pp == 1 && m.tp == 2 && m.ep == 2);
	ck_assert(mesh_has(&m, MESH_DATA, data, 4));
	ck_assert(!mesh_has(&m, MESH_DATA, data, 3));
	ck_assert(mesh_has(&m, MESH_EXPERT_DATA, expert_data, 2));
	ck_assert(!mesh_has(&m, MESH_EXPERT_DATA, neither, 2));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("mesh");
	TCase *t = tcase_create("mesh");

	tcase_add_test(t, groups_are_those_of_deepspeed);
	tcase_add_test(t, every_kind_has_each_rank_once);
	tcase_add_test(t, hpz_groups_lie_in_one_data_group);
	tcase_add_test(t, sizes_that_do_not_divide_are_told);
	tcase_add_test(t, coordinates_tell_sizes);
	return run_suite(s, t);
}
