/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/stat-text.h"
#include "fs/tree.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct engine *engine;
static struct tree tree;

static void open_fake(const char *source)
{
	struct engine_options options = { .source = source };
	char why[128];

	ck_assert_int_eq(engine_open(&engine, &options, why, sizeof(why)), 0);
	ck_assert_int_eq(tree_init(&tree, engine, true), 0);
}

static void close_fake(void)
{
	tree_fini(&tree);
	engine_close(engine);
}

/* Walks from the root; returns what tree_lookup says. */
static int walk(const char *path, struct tree_entry *entry)
{
	char copy[512], *rest = copy, *name;
	int rc = 0;

	*entry = (struct tree_entry){ .node = { .kind = NODE_ROOT } };
	snprintf(copy, sizeof(copy), "%s", path);
	while (!rc && (name = strsep(&rest, "/")))
		rc = tree_lookup(&tree, entry->node, name, entry);
	return rc;
}

static unsigned visited;

/* Every entry: looked up again, its number led back, its parent and its path right. */
static void visit(struct node dir, const char *path)
{
	struct tree_dir d;
	struct tree_entry e, again;
	uint64_t offset = 0;
	nlink_t dirs = 0;
	struct stat st;

	tree_dir_init(&d, &tree, dir);
	while (tree_dir_get(&d, offset, &e, &offset)) {
		char below[2048], said[2048];
		struct node n;

		dirs += tree_node_is_dir(e.node);
		if (!strcmp(e.name, ".") || !strcmp(e.name, ".."))
			continue;
		visited++;
		snprintf(below, sizeof(below), *path ? "%s/%s" : "%s%s", path, e.name);
		ck_assert_msg(!tree_lookup(&tree, dir, e.name, &again), "%s", below);
		ck_assert_uint_eq(tree_inode(again.node), tree_inode(e.node));
		ck_assert_int_eq(tree_node(&tree, tree_inode(e.node), &n), 0);
		ck_assert_uint_eq(tree_inode(n), tree_inode(e.node));
		ck_assert_uint_eq(tree_inode(tree_parent(&tree, n)), tree_inode(dir));
		ck_assert_int_eq(tree_path(&tree, n, said, sizeof(said)), (int)strlen(below));
		ck_assert_str_eq(said, below);
		ck_assert_int_eq(tree_attr(&tree, n, NULL, &st), 0);
		ck_assert_uint_eq(st.st_ino, tree_inode(n));
		ck_assert_int_eq(S_ISDIR(st.st_mode), tree_node_is_dir(n));
		if (tree_node_is_dir(n))
			visit(n, below);
	}
	ck_assert_int_eq(tree_attr(&tree, dir, NULL, &st), 0);
	ck_assert_msg(st.st_nlink == dirs || st.st_nlink == 1, "%s: %lu links, %lu directories",
		      path, (unsigned long)st.st_nlink, (unsigned long)dirs);
	tree_dir_fini(&d);
}

START_TEST(every_node_is_found_by_name_and_by_number)
{
	open_fake("fake:20");
	visit((struct node){ .kind = NODE_ROOT }, "");
	ck_assert_uint_gt(visited, 500);
	close_fake();
}
END_TEST

START_TEST(statistics_are_found_but_not_listed)
{
	static const char *const below[] = { "params/tail/stats", "now/tail/stats" };
	struct tree_entry e;

	open_fake("fake");
	for (size_t i = 0; i < ARRAY_SIZE(below); i++) {
		ck_assert_int_eq(walk(below[i], &e), 0);
		visited = 0;
		visit(e.node, below[i]);
		ck_assert_uint_ge(visited, 3 * (1 + STATS));
	}
	close_fake();
}
END_TEST

/* A state may have other elements than its parameter: the step of an empty one has one. */
START_TEST(a_nan_has_the_indices_that_elem_takes)
{
	static const struct {
		const char *param;
		uint64_t count, first_nan;
		const char *text;
	} cases[] = {
		{ "layers.0.weight", 512 * 1024, 1025, "1,1\t1025\t" },
		{ "layers.0.weight", 512, 511, "511\t511\t" },
		{ "layers.0.weight", 1, 0, "()\t0\t" },
		{ "empty", 1, 0, "()\t0\n" },
		{ "empty", 9, 8, "8\t8\n" },
	};
	struct stats s = { .nan = 1, .first_inf = STATS_NONE };
	struct tree_entry e;
	char path[128], *text;

	open_fake("fake");
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		snprintf(path, sizeof(path), "params/%s/stats/fp32/first_nan", cases[i].param);
		ck_assert_int_eq(walk(path, &e), 0);
		s.count = cases[i].count;
		s.first_nan = cases[i].first_nan;
		text = stat_text_build(&tree, e.node, &s);
		ck_assert_msg(!strncmp(text, cases[i].text, strlen(cases[i].text)), "%s: %s",
			      path, text);
		free(text);
	}
	close_fake();
}
END_TEST

START_TEST(what_is_not_there_is_not_found)
{
	static const char *const missing[] = {
		"x",
		"params/x",
		"params/shard",
		"params/shard@tp=2",
		"params/..x",
		"ranks/3",
		"ranks/00",
		"ranks/-1",
		"ranks/+1",
		"ranks/4294967296",
		"ranks/0/partitions/0.1",
		"ranks/0/partitions/2.0",
		"ranks/0/partitions/0",
		"ranks/0/partitions/0.0.0",
		"ranks/2/partitions/1.0",
		"ranks/2/params/layers.0.weight",
		"groups/2",
		"groups/0/params/layers.0.bias",
		"params/scale/fp32.npy.npy",
		"params/scale/.npy",
		"ranks/0/params/scale/fp32.npy",
		"groups/0/kind.npy",
		"params/keys/a.npy.npy",
		"params/scale/stats/none",
		"params/scale/stats/fp32.npy",
		"params/scale/stats/fp32/none",
		"ranks/0/params/scale/stats",
		"ranks/0/params/scale/elem",
		"ranks/0/params/scale/fp32.bf16",
		"params/scale/fp32.f64",
		"params/scale/fp32[0].npy",
		"params/scale/fp32[",
		"params/scale/fp32x",
		"params/scale/fp32.npy[...]",
		"params/layers.0.weight/fp32[512]",
		"params/layers.0.weight/elem/512,0",
		"params/layers.0.weight/elem/0",
		"params/layers.0.weight/elem/0:1,0",
		"params/layers.0.weight/elem/none/0,0",
		"params/layers.0.weight/elem/fp32.npy",
	};
	struct tree_entry e;

	open_fake("fake");
	for (size_t i = 0; i < ARRAY_SIZE(missing); i++)
		ck_assert_msg(walk(missing[i], &e) == -ENOENT, "%s", missing[i]);
	ck_assert_int_eq(walk("step/x", &e), -ENOTDIR);
	close_fake();
}
END_TEST

START_TEST(numbers_that_are_none_of_ours_are_stale)
{
	struct node n, bad[] = {
		{ .kind = NODE_PARAM, .item = 15 },
		{ .kind = NODE_RANK, .rank = 3 },
		{ .kind = NODE_GROUP, .item = 2 << 16 },
		{ .kind = NODE_STATE, .slot = 1000 },
		{ .kind = NODE_TEXT, .slot = TEXTS },
		{ .kind = NODE_TEXT, .item = 15, .slot = TEXT_SHAPE },
		{ .kind = NODE_RANK_PARAM, .rank = 3 },
		{ .kind = NODE_RANK_PARAM, .item = 15 },
		{ .kind = NODE_GROUP_LINK, .rank = 2 },
		{ .kind = NODE_KINDS },
		{ .kind = NODE_PARTITION, .item = 2 << 16 },
		{ .kind = NODE_STATS, .item = 15 },
		{ .kind = NODE_STATS_STATE, .slot = 1000 },
		{ .kind = NODE_STAT, .stat = STATS },
		{ .kind = NODE_CELLS, .name = 1 },
		{ .kind = NODE_ELEM, .item = 15 },
	};

	open_fake("fake");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_int_eq(tree_node(&tree, tree_inode(bad[i]), &n), -ESTALE);
	ck_assert_int_eq(tree_node(&tree, 0, &n), -ESTALE);
	ck_assert_int_eq(tree_node(&tree, 2, &n), -ESTALE);
	ck_assert_int_eq(tree_node(&tree, UINT64_MAX, &n), -ESTALE);
	close_fake();
}
END_TEST

START_TEST(states_have_their_attributes)
{
	struct tree_entry e;
	struct stat st;

	open_fake("fake");
	ck_assert_int_eq(walk("params/tail/fp32", &e), 0);
	ck_assert_int_eq(tree_attr(&tree, e.node, &e.state, &st), 0);
	ck_assert_int_eq(st.st_size, 4 * (786432 + 250));
	ck_assert_int_eq(st.st_blocks, (st.st_size + 511) / 512);
	ck_assert_int_eq(st.st_blksize, 1 << 20);
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0644);
	ck_assert_int_eq(walk("params/tail/bf16", &e), 0);
	ck_assert_int_eq(tree_attr(&tree, e.node, &e.state, &st), 0);
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0444);
	ck_assert_int_eq(walk("params/tail/fp32.npy", &e), 0);
	ck_assert_int_eq(tree_attr(&tree, e.node, NULL, &st), 0);
	ck_assert_int_eq(st.st_size, 128 + 4 * (786432 + 250));
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0644);
	close_fake();
}
END_TEST

START_TEST(views_are_found_until_they_are_forgotten)
{
	static const struct {
		const char *path;
		off_t size;
		mode_t mode;
	} views[] = {
		{ "params/tail/fp32.bf16", 2 * (786432 + 250), 0444 },
		{ "params/tail/bf16.f32", 4 * (786432 + 250), 0444 },
		{ "params/layers.0.weight/fp32[3,:2].txt", 2 * 16, 0444 },
		{ "params/layers.0.weight/fp32[1:3].npy", 128 + 8192, 0644 },
		{ "params/layers.0.weight/fp32[:,5].npy", 128 + 2048, 0644 },
		{ "params/layers.0.weight/bf16[-1]", 2048, 0444 },
		{ "params/layers.0.weight/elem/3,-4", 0, 0644 },
		{ "params/layers.0.weight/elem/bf16/3,4", 0, 0444 },
		{ "params/scale/elem/()", 0, 0644 },
		{ "params/scale/fp32[...].npy", 132, 0644 },
		{ "params/empty/fp32.txt", 0, 0444 },
		{ "params/keys/%73hape[1:]", 4, 0644 },
		{ "now/tail/fp32.bf16", 2 * (786432 + 250), 0444 },
		{ "now/layers.0.weight/elem/3,4", 0, 0444 },
	};
	struct tree_entry e, again;
	char path[512];
	struct stat st;
	struct node n;

	open_fake("fake");
	for (size_t i = 0; i < ARRAY_SIZE(views); i++) {
		ck_assert_msg(!walk(views[i].path, &e), "%s", views[i].path);
		ck_assert_int_eq(tree_node(&tree, tree_inode(e.node), &n), 0);
		ck_assert_int_eq(tree_attr(&tree, n, NULL, &st), 0);
		ck_assert_msg(st.st_size == views[i].size, "%s: %ld", views[i].path,
			      (long)st.st_size);
		ck_assert_msg(st.st_mode == (S_IFREG | views[i].mode), "%s", views[i].path);
		tree_path(&tree, n, path, sizeof(path));
		ck_assert_str_eq(path, views[i].path);
		ck_assert_int_eq(walk(views[i].path, &again), 0);
		ck_assert_uint_eq(tree_inode(again.node), tree_inode(e.node));
		e.node.alias = 5;
		tree_forget(&tree, tree_inode(e.node), 2);
		ck_assert_int_eq(tree_node(&tree, tree_inode(e.node), &n), -ESTALE);
	}
	ck_assert_uint_eq(tree.found->used, 0);
	close_fake();
}
END_TEST

START_TEST(a_directory_can_be_read_on_from_any_entry)
{
	struct tree_entry e, first;
	struct tree_dir d;
	struct node params = { .kind = NODE_PARAMS };
	uint64_t offset = 0, next;

	open_fake("fake:100");
	tree_dir_init(&d, &tree, params);
	while (tree_dir_get(&d, offset, &first, &next)) {
		struct tree_dir other;

		tree_dir_init(&other, &tree, params);
		ck_assert(tree_dir_get(&other, offset, &e, &next));
		tree_dir_fini(&other);
		ck_assert_str_eq(e.name, first.name);
		offset = next;
	}
	tree_dir_fini(&d);
	ck_assert_uint_eq(offset, 2 + 115);
	close_fake();
}
END_TEST

static void on_written(struct engine_write *write, int result)
{
	ck_assert_int_eq(result, 0);
	sem_post(write->owner);
}

/* Lets the state "extra" of parameter 0 come, or go. */
static void set_extra(double value)
{
	struct engine_address a = { .kind = ENGINE_HYPER, .key = "extra_state" };
	struct engine_extent x = { .size = sizeof(value), .data = &value };
	struct engine_write write = { .extents = &x, .nextents = 1, .done = on_written };
	uint64_t bytes;
	sem_t done;

	sem_init(&done, 0, 0);
	write.owner = &done;
	ck_assert_int_eq(engine_file_open(engine, &a, &write.file, &bytes), 0);
	engine_write(engine, &write);
	sem_wait(&done);
	sem_destroy(&done);
	engine_file_close(write.file);
}

enum { LISTED_MAX = 64 };

/* Lists a folder, an entry at a time, as requests with little room are answered; before entry
 * number `at` the state comes or goes.
 */
static void list_while_it_changes(struct node dir, bool there, unsigned at)
{
	char names[LISTED_MAX][NAMES_FILE_MAX + 1];
	unsigned n = 0, extra = 0;
	struct tree_entry e;
	struct tree_dir d;
	uint64_t offset = 0;

	set_extra(there);
	for (tree_dir_init(&d, &tree, dir); tree_dir_get(&d, offset, &e, &offset);
	     tree_dir_init(&d, &tree, dir)) {
		ck_assert_uint_lt(n, LISTED_MAX);
		for (unsigned i = 0; i < n; i++)
			ck_assert_msg(strcmp(names[i], e.name), "%s twice", e.name);
		strcpy(names[n++], e.name);
		extra += !strncmp(e.name, "extra", 5);
		if (n == at)
			set_extra(!there);
		tree_dir_fini(&d);
	}
	tree_dir_fini(&d);
	set_extra(0);
	for (tree_dir_init(&d, &tree, dir), offset = 0;
	     tree_dir_get(&d, offset, &e, &offset);) {
		unsigned i = 0;

		while (i < n && strcmp(names[i], e.name) != 0)
			i++;
		ck_assert_msg(i < n, "%s is left out", e.name);
	}
	tree_dir_fini(&d);
	ck_assert_uint_le(extra, dir.kind == NODE_PARAM ? 2 : 1);
}

START_TEST(a_state_that_comes_or_goes_hides_and_doubles_no_other)
{
	static const char *const folders[] = { "params/layers.0.weight",
					       "params/layers.0.weight/stats" };
	struct tree_entry e;

	open_fake("fake");
	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		ck_assert_int_eq(walk(folders[i], &e), 0);
		for (unsigned at = 1; at < LISTED_MAX; at++) {
			list_while_it_changes(e.node, false, at);
			list_while_it_changes(e.node, true, at);
		}
	}
	close_fake();
}
END_TEST

START_TEST(all_of_many_states_have_files)
{
	static const char *const folders[] = { "params/layers.0.weight",
					       "params/layers.0.weight/stats",
					       "export/universal/zero/layers.0.weight" };
	enum { MANY = 300 };
	struct tree_entry e, dir;
	struct tree_dir d;

	open_fake("fake");
	set_extra(MANY);
	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		unsigned n = 0, forms = i ? 1 : 2;
		uint64_t offset = 0;

		ck_assert_int_eq(walk(folders[i], &dir), 0);
		tree_dir_init(&d, &tree, dir.node);
		while (tree_dir_get(&d, offset, &e, &offset))
			n += !strncmp(e.name, "extra", 5);
		ck_assert_uint_eq(n, forms * MANY);
		tree_dir_fini(&d);
	}
	ck_assert_int_eq(walk("params/layers.0.weight/extra299.npy", &e), 0);
	ck_assert_int_eq(walk("params/layers.0.weight/extra299[1,1]", &e), 0);
	close_fake();
}
END_TEST

START_TEST(states_of_more_keys_than_the_table_takes_have_no_files_and_a_line_says_so)
{
	struct tree_entry e, again, dir;
	struct tree_dir d;
	unsigned n = 0;
	uint64_t offset = 0;
	int file = memfd_create("stderr", 0), before = dup(STDERR_FILENO);
	char said[4096];
	ssize_t size;

	open_fake("fake");
	set_extra(2 * TREE_KEYS_MAX);
	ck_assert_int_ge(dup2(file, STDERR_FILENO), 0);
	ck_assert_int_eq(walk("params/layers.0.weight", &dir), 0);
	for (tree_dir_init(&d, &tree, dir.node); tree_dir_get(&d, offset, &e, &offset);) {
		bool is_view = strstr(e.name, ".npy");

		n += !is_view && !strncmp(e.name, "extra", 5);
		if (*e.name != '.')
			ck_assert_int_eq(tree_lookup(&tree, dir.node, e.name, &again), 0);
	}
	tree_dir_fini(&d);
	ck_assert_int_eq(walk("params/layers.0.weight/extra2047", &e), -ENOSPC);
	ck_assert_int_eq(walk("params/layers.0.weight/fp32", &e), 0);
	dup2(before, STDERR_FILENO);
	ck_assert_uint_gt(n, TREE_KEYS_MAX - 32); /* the others' keys */
	ck_assert_uint_lt(n, TREE_KEYS_MAX);
	size = pread(file, said, sizeof(said) - 1, 0);
	ck_assert_int_gt(size, 0);
	said[size] = '\0';
	ck_assert_ptr_nonnull(strstr(said, "states have more than 1024 keys: extra"));
	ck_assert_ptr_eq(strchr(said, '\n'), said + size - 1); /* once */
	close(file);
	close(before);
	close_fake();
}
END_TEST

START_TEST(any_offset_can_be_read_on_from)
{
	struct tree_entry e, dir;
	struct tree_dir d;
	uint64_t next;

	open_fake("fake");
	ck_assert_int_eq(walk("params/layers.0.weight", &dir), 0);
	for (unsigned i = 0; i < 64; i++) {
		tree_dir_init(&d, &tree, dir.node);
		for (uint64_t offset = UINT64_MAX >> i, n = 0;
		     tree_dir_get(&d, offset, &e, &next); offset = next)
			ck_assert_uint_lt(n++, LISTED_MAX);
		tree_dir_fini(&d);
	}
	for (uint64_t offset = 0; offset < 10000; offset++) {
		tree_dir_init(&d, &tree, dir.node);
		tree_dir_get(&d, offset, &e, &next);
		tree_dir_fini(&d);
	}
	close_fake();
}
END_TEST

START_TEST(addresses_say_what_the_path_says)
{
	struct engine_address a;
	struct tree_entry e;

	open_fake("fake");
	ck_assert_int_eq(walk("ranks/1/partitions/1.0/fp32", &e), 0);
	a = tree_address(&tree, e.node);
	ck_assert(a.kind == ENGINE_RANK_PARTITION && a.rank == 1 && a.group == 1 && !a.sub);
	ck_assert_str_eq(a.key, "fp32");
	ck_assert_int_eq(walk("ranks/1/params/scale/grad", &e), 0);
	a = tree_address(&tree, e.node);
	ck_assert(a.kind == ENGINE_RANK_PARAM && a.rank == 1 && a.param == 2);
	ck_assert_int_eq(walk("groups/0/%6Bind", &e), 0);
	a = tree_address(&tree, e.node);
	ck_assert(a.kind == ENGINE_HYPER && !a.group);
	ck_assert_str_eq(a.key, "kind");
	ck_assert_int_eq(walk("params/keys/%73hape.npy", &e), 0);
	a = tree_address(&tree, e.node);
	ck_assert(a.kind == ENGINE_PARAM && a.param == 14);
	ck_assert_str_eq(a.key, "shape");
	close_fake();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tree");
	TCase *t = tcase_create("tree");

	tcase_add_test(t, every_node_is_found_by_name_and_by_number);
	tcase_add_test(t, statistics_are_found_but_not_listed);
	tcase_add_test(t, a_nan_has_the_indices_that_elem_takes);
	tcase_add_test(t, what_is_not_there_is_not_found);
	tcase_add_test(t, numbers_that_are_none_of_ours_are_stale);
	tcase_add_test(t, states_have_their_attributes);
	tcase_add_test(t, views_are_found_until_they_are_forgotten);
	tcase_add_test(t, a_directory_can_be_read_on_from_any_entry);
	tcase_add_test(t, a_state_that_comes_or_goes_hides_and_doubles_no_other);
	tcase_add_test(t, all_of_many_states_have_files);
	tcase_add_test(
		t, states_of_more_keys_than_the_table_takes_have_no_files_and_a_line_says_so);
	tcase_add_test(t, any_offset_can_be_read_on_from);
	tcase_add_test(t, addresses_say_what_the_path_says);
	return run_suite(s, t);
}
