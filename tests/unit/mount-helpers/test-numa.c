/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Lists of cores, and the lines for numactl, against those of DeepSpeed: tests/data/numa/lines,
 * whose format is described in tests/oracle/make-numa.py.
 */

#include "mount-helpers/numa.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { WORDS_MAX = 32, LINES_MIN = 50 };

static char why[256];

static struct cpus cpus_of(const char *text)
{
	struct cpus c = { { 0 } };

	if (*text != '.')
		ck_assert_msg(!cpus_parse(&c, text, why, sizeof(why)), "%s", why);
	return c;
}

/* Makes a machine of "0-3/4-7/.": the cores of each node. */
static struct numa machine_of(const char *text)
{
	struct numa m = { .nodes = calloc(8, sizeof(*m.nodes)) };
	char copy[256], *save;

	snprintf(copy, sizeof(copy), "%s", text);
	for (char *at = strtok_r(copy, "/", &save); at; at = strtok_r(NULL, "/", &save)) {
		struct numa_node *node = &m.nodes[m.nnodes];

		ck_assert_uint_lt(m.nnodes, 8);
		*node = (struct numa_node){ .number = m.nnodes++,
					    .cpus = cpus_of(at),
					    .memory_alone = *at == '.',
					    .near = -1 };
		for (size_t i = 0; i < ARRAY_SIZE(m.cores.word); i++)
			m.cores.word[i] |= node->cpus.word[i];
	}
	m.allowed = m.cores;
	return m;
}

static const char *line_of(const struct numa *m, const char *cores, unsigned procs,
			   unsigned rank)
{
	static char line[CPUS_TEXT];
	struct cpus list = cpus_of(*cores == '-' ? "." : cores);
	struct numa_place p;

	ck_assert_msg(
		!numa_place(&p, m, *cores == '-' ? NULL : &list, procs, rank, why, sizeof(why)),
		"%s", why);
	return numa_line(&p, line, sizeof(line));
}

static void check_list(const char *rest)
{
	char text[64], numbers[256] = "", back[CPUS_TEXT];
	struct cpus c, back_again;
	int at;

	ck_assert_int_eq(sscanf(rest, "%63s %n", text, &at), 1);
	c = cpus_of(text);
	for (unsigned i = cpus_next(&c, 0); i < CPUS_MAX; i = cpus_next(&c, i + 1))
		sprintf(numbers + strlen(numbers), "%s%u", *numbers ? " " : "", i);
	ck_assert_str_eq(numbers, rest + at);
	ck_assert(
		!cpus_parse(&back_again, cpus_text(&c, back, sizeof(back)), why, sizeof(why)));
	ck_assert(cpus_are_equal(&back_again, &c));
}

static void check_line(const char *rest)
{
	char nodes[128], cores[128];
	unsigned procs, rank;
	struct numa m;
	int at;

	ck_assert_int_eq(sscanf(rest, "%127s %127s %u %u %n", nodes, cores, &procs, &rank, &at),
			 4);
	m = machine_of(nodes);
	ck_assert_msg(!strcmp(line_of(&m, cores, procs, rank), rest + at), "%s: got %s", rest,
		      line_of(&m, cores, procs, rank));
	numa_fini(&m);
}

START_TEST(lines_are_those_of_deepspeed)
{
	char path[512], line[512];
	struct cpus c;
	FILE *file;
	int lines = 0;

	snprintf(path, sizeof(path), "%s/tests/data/numa/lines", getenv("top_srcdir"));
	file = fopen(path, "re");
	ck_assert_msg(file != NULL, "%s", path);
	for (; fgets(line, sizeof(line), file); lines++) {
		line[strcspn(line, "\n")] = '\0';
		if (!strncmp(line, "list ", 5))
			check_list(line + 5);
		else if (!strncmp(line, "line ", 5))
			check_line(line + 5);
		else if (!strncmp(line, "bad ", 4))
			ck_assert_msg(cpus_parse(&c, line + 4, why, sizeof(why)) == -EINVAL,
				      "%s", line);
	}
	fclose(file);
	ck_assert_int_ge(lines, LINES_MIN);
}
END_TEST

/* The comment above each machine's lines quotes the line that DeepSpeed 0.19.8 makes. */
START_TEST(faults_are_put_right)
{
	struct numa m = machine_of("0,2,4,6/1,3,5,7");

	/* "numactl -C 0-3": half of each node */
	ck_assert_str_eq(line_of(&m, "-", 2, 0), "numactl -m 0 -C 0,2,4,6");
	ck_assert_str_eq(line_of(&m, "-", 2, 1), "numactl -m 1 -C 1,3,5,7");
	numa_fini(&m);

	/* "numactl -C 0-3": where any node is fake, others get no memory */
	m = machine_of("0-3/4-7/4-7");
	ck_assert_str_eq(line_of(&m, "-", 2, 0), "numactl -m 0 -C 0-3");
	/* "numactl -m 0 -C 0-3": fake nodes are seen if they are neighbours alone */
	numa_fini(&m);
	m = machine_of("0-3/4-7/0-3/4-7");
	ck_assert_str_eq(line_of(&m, "-", 2, 0), "numactl -m 0,2 -C 0-3");
	numa_fini(&m);

	/* "numactl -p 2 -C 0-3": the first memory for the first node, wherever it is */
	m = machine_of("0-3/4-7/./.");
	m.nodes[2].near = 1;
	m.nodes[3].near = 0;
	ck_assert_str_eq(line_of(&m, "-", 2, 0), "numactl -p 3 -C 0-3");

	/* nodes 0 and 4: "available: 2 nodes" is taken for 0 and 1, and 4 is not seen */
	m.nnodes = 2;
	m.nodes[1].number = 4;
	ck_assert_str_eq(line_of(&m, "-", 2, 1), "numactl -m 4 -C 4-7");
	numa_fini(&m);
}
END_TEST

START_TEST(forbidden_cores_make_no_node_of_memory_alone)
{
	struct numa m = machine_of("0-3/4-7");

	m.cores = m.allowed = cpus_of("0-3");
	ck_assert_str_eq(line_of(&m, "-", 2, 0), "numactl -m 0 -C 0-1");
	numa_fini(&m);

	/* not even where nothing is known of the node's cores */
	m = machine_of("0-3/.");
	ck_assert_str_eq(line_of(&m, "-", 2, 0), "numactl -p 1 -C 0-1");
	m.nodes[1].memory_alone = false;
	ck_assert_str_eq(line_of(&m, "-", 2, 0), "numactl -m 0 -C 0-1");
	numa_fini(&m);
}
END_TEST

START_TEST(what_cannot_be_given_is_told)
{
	struct numa m = machine_of("0-3/4-7");
	struct cpus cores = cpus_of("6-9");
	struct numa_place p;

	ck_assert_int_eq(numa_place(&p, &m, NULL, 9, 0, why, sizeof(why)), -EINVAL);
	ck_assert_str_eq(why, "8 cores are not one for each of 9 ranks");
	ck_assert_int_eq(numa_place(&p, &m, NULL, 0, 0, why, sizeof(why)), -EINVAL);
	ck_assert_int_eq(numa_place(&p, &m, NULL, 2, 2, why, sizeof(why)), -EINVAL);
	ck_assert_str_eq(why, "rank 2 is not below 2");
	ck_assert_int_eq(numa_place(&p, &m, &cores, 2, 0, why, sizeof(why)), -EINVAL);
	ck_assert_str_eq(why, "this process may not use processor 8, or it has none");
	numa_fini(&m);
	ck_assert_int_eq(cpus_parse(&cores, "8192", why, sizeof(why)), -EINVAL);
	ck_assert_int_eq(cpus_parse(&cores, "8191", why, sizeof(why)), 0);
	ck_assert_int_eq(cpus_parse(&cores, "99999999999999999999", why, sizeof(why)), -EINVAL);
}
END_TEST

START_TEST(long_lists_fit)
{
	static char text[CPUS_TEXT];
	struct cpus c = { { 0 } };
	char cut[6];

	for (unsigned i = 0; i < CPUS_MAX; i++)
		if (i % 3 < 2)
			cpus_add(&c, i);
	cpus_text(&c, text, sizeof(text));
	ck_assert_str_eq(text + strlen(text) - 10, ",8190-8191");
	ck_assert_str_eq(cpus_text(&c, cut, sizeof(cut)), "0-1");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("numa");
	TCase *t = tcase_create("numa");

	tcase_add_test(t, lines_are_those_of_deepspeed);
	tcase_add_test(t, faults_are_put_right);
	tcase_add_test(t, forbidden_cores_make_no_node_of_memory_alone);
	tcase_add_test(t, what_cannot_be_given_is_told);
	tcase_add_test(t, long_lists_fit);
	return run_suite(s, t);
}
