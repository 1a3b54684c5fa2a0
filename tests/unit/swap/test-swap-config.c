/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/swap/swap-config.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char FILE_NAME[] = "swap.json";
static struct swap_config c;
static char why[256];

/* file: NULL: none. */
static int read_with(const char *file, const char *dir, const char *pinned)
{
	clearenv();
	if (file) {
		FILE *f = fopen(FILE_NAME, "w");

		ck_assert_ptr_nonnull(f);
		ck_assert_int_ge(fputs(file, f), 0);
		ck_assert_int_eq(fclose(f), 0);
		setenv("FRAG_SWAP_CONFIG", FILE_NAME, 1);
	}
	if (dir)
		setenv("FRAG_SWAP_DIR", dir, 1);
	if (pinned)
		setenv("FRAG_PINNED_MEM", pinned, 1);
	why[0] = '\0';
	memset(&c, 0x55, sizeof(c));
	return swap_config_read(&c, NULL, why, sizeof(why));
}

START_TEST(without_a_directory_there_is_no_tier)
{
	ck_assert_int_eq(read_with(NULL, NULL, NULL), 0);
	ck_assert_str_eq(c.dir, "");
	ck_assert_int_eq(read_with(NULL, "", "1G"), 0);
	ck_assert_str_eq(c.dir, "");
	ck_assert_int_eq(read_with("{}", NULL, NULL), 0);
	ck_assert_str_eq(c.dir, "");
	ck_assert_int_eq(read_with("{\"offload_optimizer\": {\"device\": \"cpu\", "
				   "\"nvme_path\": \"/x\"}}",
				   NULL, NULL),
			 0);
	ck_assert_str_eq(c.dir, "");
}
END_TEST

START_TEST(the_budget_is_cut_into_equal_buffers)
{
	ck_assert_int_eq(read_with(NULL, "/nvme", NULL), 0);
	ck_assert_str_eq(c.dir, "/nvme");
	ck_assert_uint_eq(c.slice, 16 << 20);
	ck_assert_uint_eq(c.pinned / c.slice, 16);
	ck_assert_int_eq(read_with(NULL, "/nvme", "200K"), 0);
	ck_assert_uint_eq(c.slice, 12288);
	ck_assert_uint_eq(c.pinned / c.slice, 16);
	ck_assert_int_eq(read_with(NULL, "/nvme", "4G"), 0);
	ck_assert_uint_eq(c.slice, 16 << 20);
	ck_assert_uint_eq(c.pinned / c.slice, 256);
	ck_assert_int_eq(read_with(NULL, "/nvme", "0"), 0); /* the default */
	ck_assert_uint_eq(c.pinned, 16 * 16 << 20);
	setenv("FRAG_SWAP_MAX", "0", 1);
	ck_assert_int_eq(swap_config_read(&c, NULL, why, sizeof(why)), 0);
	ck_assert_uint_eq(c.max, 0); /* the place's default */
	ck_assert_int_eq(read_with(NULL, "/nvme", "60K"), -EINVAL);
	ck_assert_msg(strstr(why, "FRAG_PINNED_MEM") != NULL, "%s", why);
}
END_TEST

static bool was_said(const char *what)
{
	static char text[65536];

	log_tail(text, sizeof(text));
	return strstr(text, what);
}

START_TEST(without_a_section_our_defaults_hold)
{
	ck_assert_int_eq(read_with("{}", "/nvme", NULL), 0);
	ck_assert_uint_eq(c.slice, 16 << 20);
	ck_assert_uint_eq(c.pinned / c.slice, 16);
	ck_assert_uint_eq(c.least, 1 << 20);
	ck_assert(!c.chunk && !c.depth && !c.threads && !c.stay);
	ck_assert(!c.unlocked && !c.no_ahead && !c.no_behind);
}
END_TEST

/* Of DeepSpeed 0.19.8: runtime/swap_tensor/constants.py, runtime/zero/offload_config.py; `ours`
 * where it would do harm, as frag(3) says.
 */
static const struct {
	const char *section, *key, *deepspeed;
	bool ours;
} defaults[] = {
	{ "aio", "block_size", "1048576", false },
	{ "aio", "queue_depth", "8", false },
	{ "aio", "intra_op_parallelism", "1", true },
	{ "aio", "single_submit", "false", false },
	{ "aio", "overlap_events", "true", false },
	{ "aio", "use_gds", "false", false },
	{ "offload_optimizer", "device", "\"none\"", false },
	{ "offload_optimizer", "nvme_path", "null", false },
	{ "offload_optimizer", "buffer_count", "4", true },
	{ "offload_optimizer", "pin_memory", "true", false },
	{ "offload_optimizer", "pipeline_read", "false", true },
	{ "offload_optimizer", "pipeline_write", "false", true },
	{ "offload_optimizer", "fast_init", "false", false },
	{ "offload_optimizer", "ratio", "1.0", false },
	{ "offload_optimizer", "super_offload", "false", false },
	{ "offload_optimizer", "cpuadam_cores_perc", "0.8", false },
	{ "offload_param", "device", "\"none\"", false },
	{ "offload_param", "nvme_path", "null", false },
	{ "offload_param", "buffer_count", "5", true },
	{ "offload_param", "buffer_size", "1e8", true },
	{ "offload_param", "max_in_cpu", "1e9", false },
	{ "offload_param", "pin_memory", "true", false },
};

/* The section with that key alone, or without any; offload_param with a device of its own, so
 * that others count.
 */
static struct swap_config with_key(int i, bool said)
{
	const char *device = !strcmp(defaults[i].section, "offload_param") &&
					     strcmp(defaults[i].key, "device") != 0
				     ? "\"device\": \"nvme\""
				     : "";
	char file[200], pair[100] = "";

	if (said)
		snprintf(pair, sizeof(pair), "%s\"%s\": %s", *device ? ", " : "",
			 defaults[i].key, defaults[i].deepspeed);
	snprintf(file, sizeof(file), "{\"%s\": {%s%s}}", defaults[i].section, device, pair);
	ck_assert_msg(!read_with(file, "/nvme", NULL), "%s: %s", file, why);
	return c;
}

static bool are_same(const struct swap_config *a, const struct swap_config *b)
{
	return !strcmp(a->dir, b->dir) && a->pinned == b->pinned && a->slice == b->slice &&
	       a->least == b->least && a->max == b->max && a->stay == b->stay &&
	       a->chunk == b->chunk && a->depth == b->depth && a->threads == b->threads &&
	       a->unlocked == b->unlocked && a->no_ahead == b->no_ahead &&
	       a->no_behind == b->no_behind && a->fast_init == b->fast_init &&
	       !(a->in_memory < b->in_memory) && !(a->in_memory > b->in_memory);
}

START_TEST(a_key_that_a_section_has_not_is_as_deepspeeds)
{
	struct swap_config without = with_key(_i, false), with = with_key(_i, true);

	ck_assert_msg(are_same(&without, &with) != defaults[_i].ours, "%s.%s",
		      defaults[_i].section, defaults[_i].key);
	ck_assert(!was_said("has no effect"));
}
END_TEST

START_TEST(a_section_alone_has_these_defaults)
{
	ck_assert_int_eq(read_with("{\"aio\": {}, \"offload_optimizer\": {}}", "/nvme", NULL),
			 0);
	ck_assert_uint_eq(c.chunk, 1 << 20);
	ck_assert_uint_eq(c.depth, 8);
	ck_assert(!c.threads && !c.stay && !c.unlocked && !c.no_ahead && !c.no_behind);
	ck_assert_uint_eq(c.slice, 16 << 20);
	ck_assert_uint_eq(c.pinned / c.slice, 16);
	ck_assert_int_eq(read_with("{\"offload_param\": {}}", "/nvme", NULL), 0);
	ck_assert_uint_eq(c.stay, UINT64_MAX);
	ck_assert(!c.chunk && !c.depth);
	ck_assert_int_eq(
		read_with("{\"offload_param\": {\"device\": \"nvme\"}}", "/nvme", NULL), 0);
	ck_assert_uint_eq(c.stay, 1000000000);
}
END_TEST

START_TEST(each_key_has_its_effect)
{
	ck_assert_int_eq(read_with("{\"aio\": {\"block_size\": 8000001, \"thread_count\": 3}}",
				   "/nvme", NULL),
			 0);
	ck_assert_uint_eq(c.chunk, 8003584);
	ck_assert_uint_eq(c.least, 8003584);
	ck_assert_uint_eq(c.threads, 3);
	ck_assert_int_eq(read_with("{\"offload_optimizer\": {\"pipeline_read\": false, "
				   "\"pipeline_write\": false, \"pin_memory\": false}}",
				   "/nvme", NULL),
			 0);
	ck_assert(c.unlocked && c.no_ahead && c.no_behind);
	ck_assert_int_eq(
		read_with("{\"offload_optimizer\": {\"buffer_count\": 2}}", "/nvme", "1M"), 0);
	ck_assert_uint_eq(c.slice, 1 << 19);
	ck_assert_int_eq(
		read_with("{\"offload_optimizer\": {\"buffer_count\": 1}}", "/nvme", "1M"),
		-EINVAL);
	ck_assert_str_eq(why,
			 "swap.json: offload_optimizer.buffer_count: is not a whole number "
			 "from 2 to 65536");
	ck_assert_int_eq(read_with("{\"offload_param\": {\"device\": \"cpu\", "
				   "\"buffer_count\": 2, \"buffer_size\": 3000}}",
				   "/nvme", "1G"),
			 0);
	ck_assert_uint_eq(c.slice, 8192);
	ck_assert_uint_eq(c.pinned, 1 << 30);
	ck_assert_uint_eq(c.stay, UINT64_MAX);
	ck_assert(!c.fast_init);
	ck_assert_int_eq(
		read_with("{\"offload_optimizer\": {\"fast_init\": true}}", "/nvme", NULL), 0);
	ck_assert(c.fast_init && !was_said("has no effect"));
	ck_assert_int_eq(read_with("{\"offload_optimizer\": {\"ratio\": 0.75}}", "/nvme", NULL),
			 0);
	ck_assert_double_eq(c.in_memory, 0.25);
}
END_TEST

static const struct {
	const char *file, *line;
} idle[] = {
	{ "{\"aio\": {\"single_submit\": true}}",
	  "aio.single_submit: has no effect: what is asked for together" },
	{ "{\"aio\": {\"overlap_events\": false}}",
	  "aio.overlap_events: has no effect: each request" },
};

START_TEST(what_has_no_effect_is_said)
{
	ck_assert_int_eq(read_with(idle[_i].file, "/nvme", NULL), 0);
	ck_assert(was_said(idle[_i].line));
}
END_TEST

START_TEST(sections_of_deepspeed_are_read)
{
	ck_assert_int_eq(
		read_with("{ \"aio\": { \"block_size\": 1048576, \"queue_depth\": 32,\n"
			  "  \"intra_op_parallelism\": 2, \"single_submit\": false,\n"
			  "  \"overlap_events\": true, \"use_gds\": false },\n"
			  " \"offload_optimizer\": { \"device\": \"nvme\", \"nvme_path\": "
			  "\"/local_nvme\",\n"
			  "  \"buffer_count\": 8, \"pin_memory\": true, \"pipeline_read\": "
			  "true,\n"
			  "  \"pipeline_write\": true, \"fast_init\": false, \"ratio\": 1.0 "
			  "},\n"
			  " \"offload_param\": { \"device\": \"nvme\", \"nvme_path\": "
			  "\"/local_nvme\",\n"
			  "  \"buffer_count\": 5, \"buffer_size\": 1e8, \"max_in_cpu\": 1e9,\n"
			  "  \"pin_memory\": true } }",
			  NULL, NULL),
		0);
	ck_assert_str_eq(c.dir, "/local_nvme");
	ck_assert_uint_eq(c.slice, 200003584); /* 1e8 elements of two bytes, in pages */
	ck_assert_uint_eq(c.pinned / c.slice, 13);
	ck_assert_uint_eq(c.chunk, 1 << 20);
	ck_assert_uint_eq(c.depth, 32);
	ck_assert_uint_eq(c.threads, 2);
	ck_assert_uint_eq(c.stay, 1000000000);
	ck_assert(!c.unlocked && !c.no_ahead && !c.no_behind);
	ck_assert(!was_said("has no effect"));
}
END_TEST

START_TEST(variables_win_over_the_file)
{
	static const char file[] = "{\"offload_optimizer\": {\"device\": \"nvme\", "
				   "\"nvme_path\": \"/a\", \"buffer_count\": 4}}";

	ck_assert_int_eq(read_with(file, "/b", "64M"), 0);
	ck_assert_str_eq(c.dir, "/b");
	ck_assert_uint_eq(c.pinned / c.slice, 4);
	ck_assert_uint_eq(c.slice, 16 << 20);
}
END_TEST

START_TEST(the_config_wins_over_variables)
{
	struct frag_config config = { .size = sizeof(config),
				      .swap_dir = "/c",
				      .pinned_mem = 1 << 20,
				      .swap_max = 5 << 20,
				      .swap_config = FILE_NAME };

	ck_assert_int_eq(read_with("{\"aio\": {}}", "/b", "64M"), 0);
	ck_assert_uint_eq(c.max, 0);
	setenv("FRAG_SWAP_CONFIG", "/nowhere", 1);
	setenv("FRAG_SWAP_MAX", "3M", 1);
	ck_assert_int_eq(swap_config_read(&c, &config, why, sizeof(why)), 0);
	ck_assert_str_eq(c.dir, "/c");
	ck_assert_uint_eq(c.max, 5 << 20);
	ck_assert_uint_eq(c.pinned, 1 << 20);
	config.size = offsetof(struct frag_config, swap_dir);
	unsetenv("FRAG_SWAP_CONFIG");
	ck_assert_int_eq(swap_config_read(&c, &config, why, sizeof(why)), 0);
	ck_assert_str_eq(c.dir, "/b");
	ck_assert_uint_eq(c.max, 3 << 20);
}
END_TEST

START_TEST(a_config_of_deepspeed_is_read_as_it_is)
{
	ck_assert_int_eq(
		read_with("{\"train_batch_size\": 8, \"bf16\": {\"enabled\": true},"
			  " \"aio\": {\"queue_depth\": 32},"
			  " \"zero_optimization\": {\"stage\": 3, \"offload_optimizer\":"
			  " {\"device\": \"nvme\", \"nvme_path\": \"/nvme\"}}}",
			  NULL, NULL),
		0);
	ck_assert_str_eq(c.dir, "/nvme");
	ck_assert_uint_eq(c.depth, 32);
	ck_assert_int_eq(read_with("{\"zero_optimization\": 3}", NULL, NULL), -EINVAL);
	ck_assert_msg(strstr(why, "zero_optimization: is not an object") != NULL, "%s", why);
	ck_assert_int_eq(read_with("{\"zero_optimization\": {\"offload_param\": {\"x\": 1}}}",
				   NULL, NULL),
			 -EINVAL);
	ck_assert_msg(strstr(why, "offload_param.x: no such key") != NULL, "%s", why);
}
END_TEST

START_TEST(the_directory_may_be_named_elsewhere)
{
	ck_assert_int_eq(read_with("{\"offload_optimizer\": {\"device\": \"nvme\"},"
				   " \"offload_param\": {\"device\": \"nvme\","
				   " \"nvme_path\": \"/other\"}}",
				   "/nvme", NULL),
			 0);
	ck_assert_str_eq(c.dir, "/nvme");
}
END_TEST

static const struct {
	const char *file, *why;
} bad[] = {
	{ "{\"aio\": {\"block_sise\": 1}}", "aio.block_sise: no such key" },
	{ "{\"aio\": {\"nvme_path\": 1}}", "aio.nvme_path: no such key" },
	{ "{\"ai\": {}}", "ai: no such section" },
	{ "{\"aio\": 3}", "aio: is not an object" },
	{ "[]", "is not an object" },
	{ "{\n\"aio\": {,}}", "line 2" },
	{ "{\"aio\": {}, \"aio\": {}}", "duplicate" },
	{ "{\"aio\": {\"queue_depth\": 0}}", "aio.queue_depth: is not a whole number from 1" },
	{ "{\"aio\": {\"queue_depth\": 1.5}}", "aio.queue_depth" },
	{ "{\"aio\": {\"queue_depth\": -1}}", "aio.queue_depth" },
	{ "{\"aio\": {\"queue_depth\": \"8\"}}", "aio.queue_depth" },
	{ "{\"aio\": {\"block_size\": 1e99}}", "aio.block_size" },
	{ "{\"aio\": {\"single_submit\": 1}}", "aio.single_submit: is neither true nor false" },
	{ "{\"aio\": {\"use_gds\": true}}", "aio.use_gds: there is no such way" },
	{ "{\"offload_param\": {\"device\": \"disk\"}}", "offload_param.device: is none of" },
	{ "{\"offload_param\": {\"device\": 1}}", "offload_param.device: is not a text" },
	{ "{\"offload_optimizer\": {\"ratio\": 1.5}}",
	  "offload_optimizer.ratio: is not from 0 to 1" },
	{ "{\"offload_optimizer\": {\"ratio\": -0.1}}", "offload_optimizer.ratio: is not" },
	{ "{\"offload_optimizer\": {\"ratio\": \"1\"}}", "offload_optimizer.ratio: is not" },
	{ "{\"offload_optimizer\": {\"cpuadam_cores_perc\": 2}}",
	  "offload_optimizer.cpuadam_cores_perc: is not from 0 to 1" },
	{ "{\"offload_optimizer\": {\"device\": \"nvme\"}}",
	  "offload_optimizer.nvme_path: is missing" },
	{ "{\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": null}}",
	  "offload_param.nvme_path: is missing" },
	{ "{\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/a\"},"
	  " \"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"/b\"}}",
	  "offload_param.nvme_path: is not offload_optimizer's" },
	{ "{\"offload_optimizer\": {\"pin_memory\": true},"
	  " \"offload_param\": {\"pin_memory\": false}}",
	  "offload_param.pin_memory: is not offload_optimizer's" },
	{ "{\"offload_optimizer\": {\"super_offload\": true}}",
	  "offload_optimizer.super_offload: there is no such way" },
};

START_TEST(what_is_wrong_in_the_file_is_named)
{
	ck_assert_int_eq(read_with(bad[_i].file, NULL, NULL), -EINVAL);
	ck_assert_msg(strstr(why, FILE_NAME) != NULL, "%s", why);
	ck_assert_msg(strstr(why, bad[_i].why) != NULL, "%s", why);
	ck_assert_uint_eq(c.slice, 0x5555555555555555); /* untouched */
}
END_TEST

START_TEST(what_is_wrong_elsewhere_is_named)
{
	char path[2000];

	ck_assert_int_eq(read_with(NULL, "/nvme", "1T"), -EINVAL);
	ck_assert_msg(strstr(why, "FRAG_PINNED_MEM=1T") != NULL, "%s", why);
	setenv("FRAG_SWAP_DEBUG", "yes", 1);
	unsetenv("FRAG_PINNED_MEM");
	ck_assert_int_eq(swap_config_read(&c, NULL, why, sizeof(why)), -EINVAL);
	ck_assert_msg(strstr(why, "FRAG_SWAP_DEBUG=yes") != NULL, "%s", why);
	setenv("FRAG_SWAP_DEBUG", "1", 1);
	ck_assert_int_eq(swap_config_read(&c, NULL, why, sizeof(why)), 0);
	ck_assert(c.debug);
	setenv("FRAG_SWAP_MAX", "all", 1);
	unsetenv("FRAG_PINNED_MEM");
	ck_assert_int_eq(swap_config_read(&c, NULL, why, sizeof(why)), -EINVAL);
	ck_assert_msg(strstr(why, "FRAG_SWAP_MAX=all") != NULL, "%s", why);
	memset(path, 'a', sizeof(path));
	path[sizeof(path) - 1] = '\0';
	ck_assert_int_eq(read_with(NULL, path, NULL), -EINVAL);
	ck_assert_msg(strstr(why, "FRAG_SWAP_DIR") != NULL, "%s", why);
	clearenv();
	setenv("FRAG_SWAP_CONFIG", "/nowhere/x", 1);
	ck_assert_int_eq(swap_config_read(&c, NULL, why, sizeof(why)), -ENOENT);
	ck_assert_msg(strstr(why, "/nowhere/x") != NULL, "%s", why);
	setenv("FRAG_SWAP_CONFIG", "/", 1);
	ck_assert_int_eq(swap_config_read(&c, NULL, why, sizeof(why)), -EISDIR);
	ck_assert_int_eq(mkfifo("a-fifo", 0600), 0); /* which nobody writes to */
	setenv("FRAG_SWAP_CONFIG", "a-fifo", 1);
	ck_assert_int_eq(swap_config_read(&c, NULL, why, sizeof(why)), -EINVAL);
	ck_assert_str_eq(why, "the swap config a-fifo: is no regular file");
	unlink("a-fifo");
	ck_assert_int_eq(read_with("", "/nvme", NULL), -EINVAL);
	ck_assert_str_eq(why, "the swap config swap.json: is empty");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("swap-config");
	TCase *t = tcase_create("swap-config");

	if (chdir(getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp"))
		return 1;
	tcase_add_test(t, without_a_directory_there_is_no_tier);
	tcase_add_test(t, the_budget_is_cut_into_equal_buffers);
	tcase_add_test(t, without_a_section_our_defaults_hold);
	tcase_add_loop_test(t, a_key_that_a_section_has_not_is_as_deepspeeds, 0,
			    (int)ARRAY_SIZE(defaults));
	tcase_add_test(t, a_section_alone_has_these_defaults);
	tcase_add_test(t, each_key_has_its_effect);
	tcase_add_loop_test(t, what_has_no_effect_is_said, 0, (int)ARRAY_SIZE(idle));
	tcase_add_test(t, sections_of_deepspeed_are_read);
	tcase_add_test(t, a_config_of_deepspeed_is_read_as_it_is);
	tcase_add_test(t, the_directory_may_be_named_elsewhere);
	tcase_add_test(t, variables_win_over_the_file);
	tcase_add_test(t, the_config_wins_over_variables);
	tcase_add_loop_test(t, what_is_wrong_in_the_file_is_named, 0, (int)ARRAY_SIZE(bad));
	tcase_add_test(t, what_is_wrong_elsewhere_is_named);
	return run_suite(s, t);
}
