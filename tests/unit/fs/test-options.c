/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/formats/format.h"
#include "fs/options.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <string.h>

static struct options parsed;
static char why[256];

/* The words of line after "fragfs". */
static int parse(const char *line)
{
	static char copy[256];
	char *argv[16] = { (char *)"fragfs" }, *rest = copy;
	int argc = 1;

	snprintf(copy, sizeof(copy), "%s", line);
	*why = '\0';
	while ((argv[argc] = strsep(&rest, " ")))
		argc++;
	return options_parse(&parsed, argc, argv, why, sizeof(why));
}

static void check_refused(const char *line, const char *text)
{
	ck_assert_int_eq(parse(line), -EINVAL);
	ck_assert_msg(strstr(why, text) && !strchr(why, '\n'), "%s: %s", line, why);
	options_fini(&parsed);
}

/* One -o whose word may have spaces. */
static void check_refused_word(const char *option, const char *text)
{
	char *argv[] = { (char *)"fragfs", (char *)"a",    (char *)"/m",
			 (char *)"-o",     (char *)option, NULL };

	ck_assert_int_eq(options_parse(&parsed, 5, argv, why, sizeof(why)), -EINVAL);
	ck_assert_msg(strstr(why, text), "%s: %s", option, why);
	options_fini(&parsed);
}

START_TEST(what_is_not_given_has_a_default)
{
	ck_assert_int_eq(parse("node0:21017 /frag"), 0);
	ck_assert_str_eq(parsed.source, "node0:21017");
	ck_assert_str_eq(parsed.mountpoint, "/frag");
	ck_assert(!parsed.writable && !parsed.foreground && !parsed.plain);
	ck_assert_uint_eq(parsed.timeout_ms, OPTIONS_TIMEOUT_MS);
	ck_assert_uint_eq(parsed.stage_mem, OPTIONS_STAGE_MEM);
	ck_assert_ptr_null(parsed.key);
	ck_assert_str_eq(parsed.passed, "");
	options_fini(&parsed);
}
END_TEST

START_TEST(options_may_stand_anywhere)
{
	ck_assert_int_eq(parse("-o rw -f a:1 -onoatime,timeout=0.5 /m -o "
			       "stage_mem=3k,transport=zmq,gather=nccl"),
			 0);
	ck_assert_str_eq(parsed.source, "a:1");
	ck_assert_str_eq(parsed.mountpoint, "/m");
	ck_assert(parsed.writable && parsed.foreground && !parsed.debug);
	ck_assert_uint_eq(parsed.timeout_ms, 500);
	ck_assert_uint_eq(parsed.stage_mem, 3072);
	ck_assert_str_eq(parsed.transport, "zmq");
	ck_assert_str_eq(parsed.gather, "nccl");
	ck_assert_str_eq(parsed.passed, "noatime");
	options_fini(&parsed);
}
END_TEST

START_TEST(behind_two_dashes_there_are_no_options)
{
	ck_assert_int_eq(parse("-f -- -c -o"), 0);
	ck_assert_str_eq(parsed.source, "-c");
	ck_assert_str_eq(parsed.mountpoint, "-o");
	ck_assert(parsed.foreground);
	options_fini(&parsed);
	check_refused("-- a:1", "source and a mountpoint");
}
END_TEST

START_TEST(a_comma_behind_a_backslash_does_not_end_an_option)
{
	ck_assert_int_eq(parse("a /m -o key=/x\\,y\\\\,rw,context=u:c1\\,c2,noatime"), 0);
	ck_assert_str_eq(parsed.key, "/x,y\\");
	ck_assert(parsed.writable);
	ck_assert_str_eq(parsed.passed, "context=u:c1\\,c2,noatime");
	options_fini(&parsed);
	check_refused("a /m -o key=/x\\,ro=1,y", "'y'");
}
END_TEST

START_TEST(an_overlay_is_written_to)
{
	ck_assert_int_eq(parse("d /m -o overlay=o"), 0);
	ck_assert(parsed.writable && !parsed.read_only);
	options_fini(&parsed);
	check_refused("d /m -o overlay=o,ro", "not ro");
	check_refused("d /m -o ro,overlay=o", "not ro");
}
END_TEST

START_TEST(one_ranks_own_is_written_where_all_may_be)
{
	ck_assert_int_eq(parse("a:1 /m -o rw"), 0);
	ck_assert(!parsed.local);
	options_fini(&parsed);
	ck_assert_int_eq(parse("a:1 /m -o local,rw"), 0);
	ck_assert(parsed.writable && parsed.local);
	options_fini(&parsed);
	check_refused("a:1 /m -o local", "option local is for a mount that is rw");
	check_refused("a:1 /m -o rw,local,ro", "option local is for a mount that is rw");
}
END_TEST

START_TEST(the_last_of_rw_and_ro_counts)
{
	ck_assert_int_eq(parse("a:1 /m -o rw,ro"), 0);
	ck_assert(!parsed.writable);
	options_fini(&parsed);
	ck_assert_int_eq(parse("a:1 /m -o ro,defaults,,rw"), 0);
	ck_assert(parsed.writable);
	options_fini(&parsed);
}
END_TEST

START_TEST(allow_other_brings_permissions)
{
	ck_assert_int_eq(parse("a:1 /m -o allow_other"), 0);
	ck_assert_str_eq(parsed.passed, "allow_other,default_permissions");
	options_fini(&parsed);
}
END_TEST

START_TEST(sizes_have_units)
{
	static const struct {
		const char *line;
		uint64_t bytes;
	} good[] = { { "a /m -o stage_mem=0", 0 },
		     { "a /m -o stage_mem=512", 512 },
		     { "a /m -o stage_mem=2M", 2 << 20 },
		     { "a /m -o stage_mem=3g", 3ull << 30 },
		     { "a /m -o stage_mem=1T", 1ull << 40 } };

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		ck_assert_int_eq(parse(good[i].line), 0);
		ck_assert_uint_eq(parsed.stage_mem, good[i].bytes);
		options_fini(&parsed);
	}
	check_refused("a /m -o stage_mem=99999999999999999999", "stage_mem");
	check_refused("a /m -o stage_mem=17179869184G", "stage_mem");
	check_refused("a /m -o stage_mem=1KB", "stage_mem");
	check_refused_word("stage_mem=1 ", "stage_mem");
}
END_TEST

START_TEST(what_a_value_may_be_is_said)
{
	static const struct {
		const char *name, *allowed;
		const char *wrong[8];
	} cases[] = {
		{ "timeout",
		  "seconds, 0.001 to 4294967",
		  { "foo", "-1", "0", "1s", "1e9", "4294968", "nan", "0.0001" } },
		{ "stage_mem",
		  "bytes, or with K, M, G or T, below 2^64",
		  { "foo", "-1", "1GB", "1.5G", "G", "+1", "17179869184G" } },
		{ "max_read",
		  "bytes, or with K, M or G, 4096 to 4294967295",
		  { "foo", "-1", "4095", "4K ", "4G", "1T" } },
		{ "source",
		  "auto|dcp|safetensors|universal|zero|torch",
		  { "foo", "Zero", "-1", "zero|torch" } },
		{ "transport", "auto|zmq", { "ib", "ZMQ", "0" } },
		{ "gather", "auto|nccl|host", { "1", "hosts" } },
		{ "coherent", "on|off", { "yes", "0", "offf" } },
	};
	char option[64], line[160];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		snprintf(line, sizeof(line), "option %s needs a value: %s", cases[i].name,
			 cases[i].allowed);
		check_refused_word(cases[i].name, line);
		snprintf(option, sizeof(option), "%s=", cases[i].name);
		check_refused_word(option, line);
		for (size_t j = 0; j < 8 && cases[i].wrong[j]; j++) {
			const char *value = cases[i].wrong[j];

			snprintf(option, sizeof(option), "%s=%s", cases[i].name, value);
			if (strchr(cases[i].allowed, '|'))
				snprintf(line, sizeof(line), "option %s: '%s' is none of %s",
					 cases[i].name, value, cases[i].allowed);
			else
				snprintf(line, sizeof(line), "option %s will not do: %s",
					 option, cases[i].allowed);
			check_refused_word(option, line);
		}
	}
}
END_TEST

START_TEST(the_largest_timeout_and_the_least_are_taken)
{
	ck_assert_int_eq(parse("a /m -o timeout=0.001"), 0);
	ck_assert_uint_eq(parsed.timeout_ms, 1);
	options_fini(&parsed);
	ck_assert_int_eq(parse("a /m -o timeout=4294967"), 0);
	ck_assert_uint_eq(parsed.timeout_ms, 4294967000);
	options_fini(&parsed);
}
END_TEST

START_TEST(each_format_is_one_that_is_known)
{
	char line[64];

	for (size_t i = 0; formats[i]; i++) {
		snprintf(line, sizeof(line), "d /m -o source=%s", formats[i]->name);
		ck_assert_msg(!parse(line), "%s: %s", line, why);
		ck_assert_str_eq(parsed.format, formats[i]->name);
		options_fini(&parsed);
	}
}
END_TEST

START_TEST(the_largest_read_is_at_least_a_page)
{
	ck_assert_int_eq(parse("a /m -o max_read=64K"), 0);
	ck_assert_uint_eq(parsed.max_read, 65536);
	ck_assert_str_eq(parsed.passed, "max_read=65536");
	options_fini(&parsed);
	check_refused("a /m -o max_read=4095", "max_read");
	check_refused("a /m -o max_read=4G", "max_read");
	check_refused("a /m -o max_read=all", "max_read");
}
END_TEST

START_TEST(what_is_wrong_is_named)
{
	check_refused("", "source and a mountpoint");
	check_refused("a:1", "source and a mountpoint");
	check_refused("a:1 /m /n", "'/n'");
	check_refused("a:1 /m -x", "'-x'");
	check_refused("a:1 /m -o", "needs options");
	check_refused("a:1 /m -o nosuch", "'nosuch'");
	check_refused("a:1 /m -o rwx", "'rwx'");
	check_refused("a:1 /m -o rw=yes", "takes no value");
	check_refused("a:1 /m -o key", "needs a value: FILE");
	check_refused("a:1 /m -o key=", "needs a value: FILE");
	check_refused("a:1 /m -o transport=pigeon",
		      "option transport: 'pigeon' is none of auto|zmq");
	check_refused("a:1 /m -o gather=shell",
		      "option gather: 'shell' is none of auto|nccl|host");
	check_refused("a:1 /m -o gather=nccl|host", "is none of auto|nccl|host");
	check_refused("a:1 /m -o gather=au", "'au' is none of auto|nccl|host");
	check_refused("a:1 /m -o coherent=yes", "option coherent: 'yes' is none of on|off");
}
END_TEST

static void check_idle(const char *line, bool live, const char *names)
{
	char idle[128];

	ck_assert_int_eq(parse(line), 0);
	options_without_effect(&parsed, live, idle, sizeof(idle));
	ck_assert_str_eq(idle, names);
	options_fini(&parsed);
}

START_TEST(what_has_no_effect_is_known)
{
	static const char every[] = "a /m -o rw,timeout=1,stage_mem=1M,key=/k,plain,"
				    "transport=zmq,gather=host,source=zero,noreadahead,"
				    "coherent=off,overlay=/o,allow_other,fsname=x,noatime";

	check_idle(every, true, "source,coherent,overlay");
	check_idle(every, false, "timeout,key,plain,transport,gather,noreadahead");
	check_idle("a /m -o coherent=on -o coherent=on", true, "coherent");
	check_idle("a /m -o rw,max_read=64K,stage_mem=1M,default_permissions", true, "");
	check_idle("a /m", false, "");
}
END_TEST

static void check_text(const char *line, const char *wanted)
{
	char *text;

	ck_assert_int_eq(parse(line), 0);
	text = options_text(&parsed);
	ck_assert_str_eq(text, wanted);
	free(text);
	options_fini(&parsed);
}

START_TEST(text_is_as_in_proc_mounts)
{
	check_text("a:1 /m", "ro\n");
	check_text("a:1 /m -o nodiratime,timeout=3,local,rw,timeout=2.5",
		   "rw,local,timeout=2.5\n");
	check_text("a /m -o overlay=/no/such\\,folder,fsname=a\\\\b",
		   "rw,overlay=/no/such\\054folder,fsname=a\\134b\n");
	check_text("a:1 /m -o ro,allow_other,max_read=64K", "ro,allow_other,max_read=64K\n");
}
END_TEST

START_TEST(help_needs_nothing_else)
{
	ck_assert_int_eq(parse("--help"), 0);
	ck_assert(parsed.help);
	options_fini(&parsed);
	ck_assert_int_eq(parse("-V"), 0);
	ck_assert(parsed.version);
	options_fini(&parsed);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("options");
	TCase *t = tcase_create("options");

	tcase_add_test(t, what_is_not_given_has_a_default);
	tcase_add_test(t, options_may_stand_anywhere);
	tcase_add_test(t, behind_two_dashes_there_are_no_options);
	tcase_add_test(t, a_comma_behind_a_backslash_does_not_end_an_option);
	tcase_add_test(t, an_overlay_is_written_to);
	tcase_add_test(t, one_ranks_own_is_written_where_all_may_be);
	tcase_add_test(t, the_last_of_rw_and_ro_counts);
	tcase_add_test(t, allow_other_brings_permissions);
	tcase_add_test(t, sizes_have_units);
	tcase_add_test(t, what_a_value_may_be_is_said);
	tcase_add_test(t, the_largest_timeout_and_the_least_are_taken);
	tcase_add_test(t, each_format_is_one_that_is_known);
	tcase_add_test(t, the_largest_read_is_at_least_a_page);
	tcase_add_test(t, what_is_wrong_is_named);
	tcase_add_test(t, what_has_no_effect_is_known);
	tcase_add_test(t, text_is_as_in_proc_mounts);
	tcase_add_test(t, help_needs_nothing_else);
	return run_suite(s, t);
}
