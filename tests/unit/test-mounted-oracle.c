/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* With TEST_ORACLE=FOLDER, of a folder like that of tests/unit/torch-expect.h: every file of
 * bad/manifest.json, mounted, gets its verdict.
 */

#include "tests/unit/mounted.h"

#include <check.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { EACH_MS = 5000 };

static const char *oracle;
static int wrong;

static void judge(const char *name, bool accept, const char *reason)
{
	struct mounted m;
	char path[PATH_MAX];
	uint64_t from = monotonic_ms();
	int rc;

	snprintf(path, sizeof(path), "%s/bad/%s", oracle, name);
	rc = mounted_open(&m, path, NULL);
	if (accept != !rc || monotonic_ms() - from > EACH_MS) {
		wrong++;
		printf("%s: %s (%s), but %s: %s\n", path, accept ? "good" : "bad", reason,
		       rc ? strerror(-rc) : "taken", m.why);
	}
	mounted_close(&m);
}

START_TEST(bad_files_get_their_verdicts)
{
	char path[PATH_MAX];
	json_t *all, *entry;
	size_t i;

	if (!oracle)
		return;
	snprintf(path, sizeof(path), "%s/bad/manifest.json", oracle);
	all = json_load_file(path, 0, NULL);
	ck_assert_uint_gt(json_array_size(all), 0);
	json_array_foreach(all, i, entry)
	{
		const char *level = json_string_value(json_object_get(entry, "level"));

		if (strcmp(level, "ckpt"))
			judge(json_string_value(json_object_get(entry, "path")),
			      !strcmp(json_string_value(json_object_get(entry, "expect")),
				      "accept"),
			      json_string_value(json_object_get(entry, "why")));
	}
	json_decref(all);
	ck_assert_int_eq(wrong, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("mounted-oracle");
	TCase *t = tcase_create("mounted-oracle");
	SRunner *r = srunner_create(s);
	int failed;

	oracle = getenv("TEST_ORACLE");
	if (!oracle) {
		puts("no TEST_ORACLE=FOLDER");
		return 77;
	}
	tcase_add_test(t, bad_files_get_their_verdicts);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
