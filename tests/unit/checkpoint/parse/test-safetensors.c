/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/formats/safetensors-index.h"
#include "engine/checkpoint/parse/json.h"
#include "engine/checkpoint/parse/safetensors.h"
#include "tests/run-suite.h"
#include "tests/unit/memfile.h"

#include <errno.h>
#include <stdio.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <string.h>

static struct safetensors s;
static struct parse_error why;

static int open_bytes(const char *header, uint64_t size, uint64_t claimed, uint64_t data)
{
	static uint8_t bytes[1 << 20];
	struct blob b;
	int rc;

	memset(bytes, 0, sizeof(bytes));
	memcpy(bytes, &claimed, 8);
	memcpy(bytes + 8, header, size);
	b = memfile(bytes, 8 + size + data);
	memset(&why, 0, sizeof(why));
	rc = safetensors_open(&s, &b, &why);
	close(b.fd);
	ck_assert_int_eq(!rc, !*why.why);
	return rc;
}

#define taken(header, data)                                                                    \
	do {                                                                                   \
		int rc_ = open_bytes(header, sizeof(header) - 1, sizeof(header) - 1, data);    \
		ck_assert_msg(!rc_, "%s", why.why);                                            \
	} while (0)
#define refused(header, data, rc, line)                                                        \
	do {                                                                                   \
		ck_assert_int_eq(                                                              \
			open_bytes(header, sizeof(header) - 1, sizeof(header) - 1, data), rc); \
		ck_assert_msg(strstr(why.why, line), "%s", why.why);                           \
	} while (0)

START_TEST(reads_tensors)
{
	static const char header[] =
		"{\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":"
		"[2,26]}, \"a\" : {\"data_offsets\":[0,2],\"dtype\":\"BF16\","
		"\"shape\":[],\"more\":[1.5e3,null]},"
		"\"__metadata__\":{\"format\":\"pt\",\"a\":\"\"}} \n ";

	taken(header, 26);
	ck_assert_uint_eq(s.ntensors, 2);
	ck_assert_int_eq(s.tensors[0].dtype, FRAG_BF16);
	ck_assert_uint_eq(s.tensors[0].ndim, 0);
	ck_assert_uint_eq(s.tensors[0].at, 8 + strlen(header));
	ck_assert_uint_eq(s.tensors[1].at, 8 + strlen(header) + 2);
	ck_assert_int_eq(s.tensors[1].name[0], 'b');
	ck_assert_uint_eq(s.tensors[1].bytes, 24);
	ck_assert_uint_eq(s.tensors[1].numel, 6);
	ck_assert_uint_eq(s.tensors[1].ndim, 2);
	ck_assert_uint_eq(s.tensors[1].shape[1], 3);
	ck_assert_uint_eq(s.nfacts, 2);
	ck_assert_int_eq(memcmp(s.facts[1].value, "pt", 2), 0);
	safetensors_close(&s);
}
END_TEST

START_TEST(takes_none_and_empty_ones)
{
	taken("{}", 0);
	ck_assert_uint_eq(s.ntensors, 0);
	safetensors_close(&s);
	taken("{\"a\":{\"dtype\":\"I8\",\"shape\":[0,18446744073709551615,3],\"data_offsets\":["
	      "0,0]},"
	      "\"b\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]},"
	      "\"c\":{\"dtype\":\"I8\",\"shape\":[4,0],\"data_offsets\":[1,1]}}",
	      1);
	ck_assert_uint_eq(s.ntensors, 3);
	ck_assert_uint_eq(s.tensors[0].numel, 0);
	safetensors_close(&s);
}
END_TEST

START_TEST(knows_dtypes)
{
	static const struct {
		const char *name;
		unsigned bits;
		enum frag_dtype dtype;
	} all[] = {
		{ "F4", 4, 0 },
		{ "F6_E2M3", 6, 0 },
		{ "F6_E3M2", 6, 0 },
		{ "BOOL", 8, FRAG_BOOL },
		{ "U8", 8, FRAG_U8 },
		{ "I8", 8, FRAG_I8 },
		{ "F8_E5M2", 8, FRAG_F8_E5M2 },
		{ "F8_E4M3", 8, FRAG_F8_E4M3 },
		{ "F8_E8M0", 8, FRAG_F8_E8M0 },
		{ "F8_E4M3FNUZ", 8, FRAG_F8_E4M3FNUZ },
		{ "F8_E5M2FNUZ", 8, FRAG_F8_E5M2FNUZ },
		{ "I16", 16, FRAG_I16 },
		{ "U16", 16, FRAG_U16 },
		{ "F16", 16, FRAG_F16 },
		{ "BF16", 16, FRAG_BF16 },
		{ "I32", 32, FRAG_I32 },
		{ "U32", 32, FRAG_U32 },
		{ "F32", 32, FRAG_F32 },
		{ "C64", 64, FRAG_C64 },
		{ "F64", 64, FRAG_F64 },
		{ "I64", 64, FRAG_I64 },
		{ "U64", 64, FRAG_U64 },
	};
	char header[200];

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		int n = snprintf(
			header, sizeof(header),
			"{\"x\":{\"dtype\":\"%s\",\"shape\":[8],\"data_offsets\":[0,%u]}}",
			all[i].name, all[i].bits);

		ck_assert_int_eq(open_bytes(header, (uint64_t)n, (uint64_t)n, all[i].bits), 0);
		ck_assert_int_eq(s.tensors[0].dtype, all[i].dtype);
		if (all[i].dtype)
			ck_assert_uint_eq(frag_dtype_size(all[i].dtype) * 8, all[i].bits);
		safetensors_close(&s);
	}
	refused("{\"x\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, -EBADMSG,
		"size is not that");
	refused("{\"x\":{\"dtype\":\"f32\",\"shape\":[3],\"data_offsets\":[0,12]}}", 12,
		-EBADMSG, "no such dtype");
}
END_TEST

START_TEST(decodes_names)
{
	static const char name[] = "\"\\/\b\f\n\r\t\0\xc3\xa4\xf0\x9f\x98\x80\xc3\xa4";

	taken("{\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\u00E4\\ud83d\\ude00\xc3\xa4\":"
	      "{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
	      1);
	ck_assert_uint_eq(s.tensors[0].name_size, sizeof(name) - 1);
	ck_assert_int_eq(memcmp(s.tensors[0].name, name, sizeof(name) - 1), 0);
	safetensors_close(&s);
}
END_TEST

START_TEST(refuses_wrong_headers)
{
	refused("", 0, -EBADMSG, "does not begin with {");
	refused(" {}", 0, -EBADMSG, "does not begin with {");
	refused("[]", 0, -EBADMSG, "does not begin with {");
	refused("{} x", 0, -EBADMSG, "after the end");
	refused("{}\0", 0, -EBADMSG, "after the end");
	refused("{", 0, -EBADMSG, "no text");
	ck_assert_int_eq(open_bytes("{}", 2, 3, 0), -EBADMSG);
	ck_assert_int_eq(open_bytes("{}", 2, UINT64_MAX, 0), -EFBIG);
	ck_assert_int_eq(open_bytes("{}", 2, 100000001, 0), -EFBIG);
	ck_assert_int_eq(open_bytes("{}", 2, 100000000, 0), -EBADMSG);
}
END_TEST

#define ONE(members) "{\"x\":{" members "}}"

START_TEST(refuses_wrong_tensors)
{
	refused(ONE("\"dtype\":\"U8\",\"shape\":[1]"), 1, -EBADMSG, "without dtype");
	refused(ONE("\"dtype\":\"U8\",\"data_offsets\":[0,1]"), 1, -EBADMSG, "without dtype");
	refused(ONE("\"shape\":[1],\"data_offsets\":[0,1]"), 1, -EBADMSG, "without dtype");
	refused(ONE("\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]"),
		1, -EBADMSG, "two dtypes");
	refused(ONE("\"dtype\":\"U8\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,1]"), 1,
		-EBADMSG, "two shapes");
	refused(ONE("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]"), 1, -EBADMSG,
		"not two data_offsets");
	refused(ONE("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]"), 1, -EBADMSG,
		"not two data_offsets");
	refused(ONE("\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,1]"), 1, -EBADMSG,
		"size is not that");
	refused(ONE("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,0]"), 1, -EBADMSG,
		"beyond the data");
	refused(ONE("\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]"), 1, -EBADMSG,
		"beyond the data");
	refused(ONE("\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,"
		    "0]"),
		0, -EBADMSG, "size is not that");
	refused(ONE("\"dtype\":\"U64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]"),
		0, -EBADMSG, "size is not that");
	refused("{\"x\":1}", 0, -EBADMSG, "no object");
	refused(ONE("\"dtype\":8"), 0, -EBADMSG, "no text");
	refused(ONE("\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"
		    "\"data_offsets\":[0,1]"),
		1, -EOPNOTSUPP, "16 dimensions");
}
END_TEST

#define TENSOR(name, begin, end)                                                               \
	"\"" name "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[" begin "," end "]}"

START_TEST(refuses_holes_overlaps_and_repeated_names)
{
	taken("{" TENSOR("a", "1", "2") "," TENSOR("b", "0", "1") "}", 2);
	safetensors_close(&s);
	refused("{" TENSOR("a", "1", "2") "}", 2, -EBADMSG, "a hole");
	refused("{" TENSOR("a", "0", "1") "}", 2, -EBADMSG, "no tensor has");
	refused("{" TENSOR("a", "0", "1") "," TENSOR("b", "2", "3") "}", 3, -EBADMSG, "a hole");
	refused("{" TENSOR("a", "0", "1") "," TENSOR("b", "0", "1") "}", 1, -EBADMSG, "a hole");
	refused("{" TENSOR("a", "0", "1") "," TENSOR("a", "1", "2") "}", 2, -EBADMSG,
		"two tensors a");
	refused("{" TENSOR("a", "0", "1") "," TENSOR("\\u0061", "1", "2") "}", 2, -EBADMSG,
		"two tensors a");
	refused("{" TENSOR("\\u00f6\\n", "0", "1") "," TENSOR("\\u00f6\\n", "1", "2") "}", 2,
		-EBADMSG, "two tensors \303\266%0A");
	refused("{\"__metadata__\":{},\"__metadata__\":{}}", 0, -EBADMSG, "two __metadata__");
	refused("{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0, -EBADMSG, "two a in");
	refused("{\"__metadata__\":{\"a\":1}}", 0, -EBADMSG, "no text");
}
END_TEST

#define SHAPE(number) ONE("\"dtype\":\"U8\",\"shape\":[" number "],\"data_offsets\":[0,1]")

START_TEST(refuses_numbers_that_are_not_whole)
{
	taken(SHAPE(" 1 "), 1);
	safetensors_close(&s);
	refused(SHAPE("1.0"), 1, -EBADMSG, "no whole number");
	refused(SHAPE("1e0"), 1, -EBADMSG, "no whole number");
	refused(SHAPE("-1"), 1, -EBADMSG, "no whole number");
	refused(SHAPE("-0"), 1, -EBADMSG, "no whole number");
	refused(SHAPE("+1"), 1, -EBADMSG, "no whole number");
	refused(SHAPE("01"), 1, -EBADMSG, "begins with 0");
	refused(SHAPE("true"), 1, -EBADMSG, "no whole number");
	refused(SHAPE("\"1\""), 1, -EBADMSG, "no whole number");
	refused(SHAPE("18446744073709551616"), 1, -EBADMSG, "2^64");
	refused(SHAPE("18446744073709551617"), 1, -EBADMSG, "2^64");
	refused(SHAPE("1,"), 1, -EBADMSG, "no whole number");
	refused(SHAPE("1 1"), 1, -EBADMSG, "neither a comma");
	refused(SHAPE("[1]"), 1, -EBADMSG, "no whole number");
}
END_TEST

START_TEST(refuses_bad_texts)
{
	refused("{\"\xff\":{}}", 0, -EBADMSG, "not UTF-8");
	refused("{\"\xed\xa0\x80\":{}}", 0, -EBADMSG, "not UTF-8");
	refused("{\"\\ud800\":{}}", 0, -EBADMSG, "surrogate");
	refused("{\"\\udc00\\ud800\":{}}", 0, -EBADMSG, "surrogate");
	refused("{\"\\ud800\\u0041\":{}}", 0, -EBADMSG, "surrogate");
	refused("{\"\\x41\":{}}", 0, -EBADMSG, "no such escape");
	refused("{\"\\u12g4\":{}}", 0, -EBADMSG, "hexadecimal");
	refused("{\"\n\":{}}", 0, -EBADMSG, "control character");
	refused("{\"a", 0, -EBADMSG, "no end");
	refused("{\"a\\", 0, -EBADMSG, "no such escape");
	refused("{\"a\" {}}", 0, -EBADMSG, "a key without a value");
	refused("{'a':{}}", 0, -EBADMSG, "no text");
	refused("{,}", 0, -EBADMSG, "no text");
}
END_TEST

START_TEST(refuses_what_is_nested)
{
	static char deep[200000];

	taken(ONE("\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1],\"more\":[]"), 1);
	safetensors_close(&s);
	refused(ONE("\"more\":[[]]"), 0, -EBADMSG, "nested too deep");
	memcpy(deep, "{\"a\":{\"b\":", 10);
	memset(deep + 10, '[', sizeof(deep) - 10);
	ck_assert_int_eq(open_bytes(deep, sizeof(deep), sizeof(deep), 0), -EBADMSG);
}
END_TEST

/* ---- json_skip ---- */

static int skip(const char *text)
{
	char *copy = strdup(text);
	struct json j;
	int rc;

	json_init(&j, copy, strlen(text), 4, 0, &why);
	json_skip(&j);
	j.depth = j.rc ? 0 : j.depth;
	rc = json_end(&j);
	free(copy);
	return rc;
}

START_TEST(skips_any_value)
{
	static const char *const good[] = { "0",    "-0",       "-1.5e+3",
					    "1E9",  "\"\"",     "null",
					    "true", "false",    "{}",
					    "[]",   "[[[[]]]]", "[{\"a\":[1,{}],\"b\":2},3]",
					    " [ ] " };
	static const char *const bad[] = { "",      "-",          "01",   "1.",  ".5",
					   "1e",    "nul",        "[1,]", "[,]", "{\"a\"}",
					   "{1:2}", "[[[[[]]]]]", "[}",   "[1",  "{\"a\":1,}",
					   "[1]]",  "1 2" };

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		ck_assert_msg(!skip(good[i]), "%s: %s", good[i], why.why);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_msg(skip(bad[i]) == -EBADMSG, "%s", bad[i]);
}
END_TEST

/* ---- the index ---- */

static struct safetensors_index x;

static int open_index(const char *text)
{
	struct blob b = memfile(text, strlen(text));
	int rc = safetensors_index_open(&x, &b, &why);

	close(b.fd);
	return rc;
}

START_TEST(reads_an_index)
{
	ck_assert_int_eq(
		open_index("{\"metadata\":{\"total_size\":1.5e3,\"x\":[{}]},\"weight_map\":"
			   "{\"c\":\"2.safetensors\",\"a\":\"1.safetensors\",\"b\":"
			   "\"2.safetensors\"}}\n"),
		0);
	ck_assert_uint_eq(x.nfiles, 2);
	ck_assert_uint_eq(x.nplaces, 3);
	ck_assert_int_eq(x.places[0].name[0], 'a');
	ck_assert_str_eq(x.files[x.places[0].file], "1.safetensors");
	ck_assert_str_eq(x.files[x.places[1].file], "2.safetensors");
	ck_assert_str_eq(x.files[x.places[2].file], "2.safetensors");
	safetensors_index_close(&x);
	ck_assert_int_eq(open_index("{\"weight_map\":{}}"), 0);
	ck_assert_uint_eq(x.nfiles, 0);
	safetensors_index_close(&x);
}
END_TEST

START_TEST(refuses_an_index_that_leaves_its_folder)
{
	static const char *const bad[] = {
		"{\"weight_map\":{\"a\":\"../b\"}}",
		"{\"weight_map\":{\"a\":\"/b\"}}",
		"{\"weight_map\":{\"a\":\"..\"}}",
		"{\"weight_map\":{\"a\":\".\"}}",
		"{\"weight_map\":{\"a\":\"\"}}",
		"{\"weight_map\":{\"a\":\"b\\u0000\"}}",
		"{\"weight_map\":{\"a\":\"b\\/c\"}}",
		"{\"weight_map\":{\"a\":1}}",
		"{\"weight_map\":{\"a\":\"b\",\"a\":\"c\"}}",
		"{\"weight_map\":{},\"weight_map\":{}}",
		"{}",
		"",
		"[]",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_msg(open_index(bad[i]) == -EBADMSG, "%s", bad[i]);
}
END_TEST

START_TEST(files_are_files_of_a_size_that_they_keep)
{
	int fd = memfd_create("index", MFD_CLOEXEC),
	    none = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct parse_error error = { "" };
	struct safetensors_index index;
	struct blob b;
	char bytes[8];

	ck_assert_int_eq(blob_of_file(none, &b, &error), -EOPNOTSUPP);
	ck_assert_int_eq(ftruncate(fd, (256 << 20) + 1), 0);
	ck_assert_int_eq(blob_of_file(fd, &b, &error), 0);
	ck_assert_int_eq(safetensors_index_open(&index, &b, &error), -EFBIG);
	ck_assert_int_eq(ftruncate(fd, 4), 0);
	ck_assert_int_eq(blob_read(&b, 0, bytes, sizeof(bytes), &error), -EIO);
	ck_assert_str_eq(error.why, "the file ends at byte 4, it has been cut meanwhile");
	close(fd);
	close(none);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("safetensors");
	TCase *t = tcase_create("safetensors");

	tcase_add_test(t, reads_tensors);
	tcase_add_test(t, takes_none_and_empty_ones);
	tcase_add_test(t, knows_dtypes);
	tcase_add_test(t, decodes_names);
	tcase_add_test(t, refuses_wrong_headers);
	tcase_add_test(t, refuses_wrong_tensors);
	tcase_add_test(t, refuses_holes_overlaps_and_repeated_names);
	tcase_add_test(t, refuses_numbers_that_are_not_whole);
	tcase_add_test(t, refuses_bad_texts);
	tcase_add_test(t, refuses_what_is_nested);
	tcase_add_test(t, skips_any_value);
	tcase_add_test(t, reads_an_index);
	tcase_add_test(t, refuses_an_index_that_leaves_its_folder);
	tcase_add_test(t, files_are_files_of_a_size_that_they_keep);
	return run_suite(suite, t);
}
