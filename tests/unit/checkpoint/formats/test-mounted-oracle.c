/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* With TEST_ORACLE=FOLDER, of a folder like that of tests/unit/checkpoint/parse/torch-expect.h:
 * every file and folder of bad/manifest.json, mounted, gets its verdict; each CASE in ds*, a
 * checkpoint of DeepSpeed's, has the values of CASE/oracle/NAME.STATE.npy, and each of dcp/
 * those of CASE/oracle/FQN.npy.
 */

#include "tests/run-suite.h"
#include "tests/unit/checkpoint/formats/mounted.h"

#include <glob.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { EACH_MS = 5000 };

static const char *oracle;
static int wrong;
static unsigned compared;

static void judge(const char *name, bool accept, const char *reason)
{
	struct mounted m;
	char path[PATH_MAX];
	uint64_t from = monotonic_ms();
	int rc;

	snprintf(path, sizeof(path), "%s/bad/%s", oracle, name);
	rc = mounted_open(&m, path, NULL);
	if (rc)
		printf("%s: %s\n", name, m.why);
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

	snprintf(path, sizeof(path), "%s/bad/manifest.json", oracle);
	all = json_load_file(path, 0, NULL);
	ck_assert_uint_gt(json_array_size(all), 0);
	json_array_foreach (all, i, entry) {
		judge(json_string_value(json_object_get(entry, "path")),
		      !strcmp(json_string_value(json_object_get(entry, "expect")), "accept"),
		      json_string_value(json_object_get(entry, "why")));
	}
	json_decref(all);
	ck_assert_int_eq(wrong, 0);
}
END_TEST

/* ---- values ---- */

struct npy {
	uint8_t bytes[1 << 16];
	const uint8_t *data;
	size_t size;  /* of data */
	char type[4]; /* "<f4" */
};

static void read_npy(const char *path, struct npy *out)
{
	FILE *f = fopen(path, "r");
	size_t n, header;

	ck_assert_ptr_nonnull(f);
	n = fread(out->bytes, 1, sizeof(out->bytes), f);
	ck_assert(n > 10 && n < sizeof(out->bytes) && out->bytes[6] == 1);
	fclose(f);
	header = 10 + out->bytes[8] + 256 * (size_t)out->bytes[9];
	ck_assert_uint_le(header, n);
	memcpy(out->type, strstr((char *)out->bytes + 10, "'descr': '") + 10, 3);
	out->data = out->bytes + header;
	out->size = n - header;
}

/* zero_to_fp32 made floats of integers and truth values. */
static bool is_number(struct mounted *m, const char *name, const struct npy *want)
{
	static const char *const keys[] = { "int64", "bool" };

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		uint64_t size, each = i ? 1 : sizeof(int64_t), n = want->size / sizeof(float);
		CLEANUP(free) uint8_t *got = mounted_read(m, name, keys[i], -1, &size);
		bool same = got && size == n * each;

		for (uint64_t e = 0; same && e < n; e++) {
			float value;

			memcpy(&value, want->data + e * sizeof(value), sizeof(value));
			same = i ? got[e] == value
				 : ((int64_t *)(void *)got)[e] == (int64_t)value;
		}
		if (same)
			return true;
	}
	return false;
}

static void compare_file(struct mounted *m, const char *path, const char *file)
{
	struct npy want = { .size = 0 };
	char name[256], *state;
	const char *key;
	uint64_t size = 0;
	bool same;

	snprintf(name, sizeof(name), "%s", file);
	*strstr(name, ".npy") = '\0';
	state = strrchr(name, '.');
	*state++ = '\0';
	read_npy(path, &want);
	key = strcmp(state, "zero_to_fp32") ? state
	      : !strcmp(want.type, "<i2")   ? "bf16"
	      : !strcmp(want.type, "<f2")   ? "fp16"
					    : "fp32";
	CLEANUP(free) uint8_t *got = mounted_read(m, name, key, -1, &size);
	same = got ? size == want.size && !memcmp(got, want.data, size)
		   : is_number(m, name, &want);
	if (!same)
		printf("%s: %s %s is another\n", path, name, key);
	wrong += !same;
	compared++;
}

typedef void compare(struct mounted *m, const char *path, const char *file);

static void compare_case(const char *folder, const char *values, compare *one)
{
	struct mounted m;
	glob_t files;

	if (glob(values, 0, NULL, &files))
		return;
	if (mounted_open(&m, folder, NULL)) {
		printf("%s\n", m.why);
		wrong++;
	} else {
		for (size_t i = 0; i < files.gl_pathc; i++)
			one(&m, files.gl_pathv[i], strrchr(files.gl_pathv[i], '/') + 1);
	}
	mounted_close(&m);
	globfree(&files);
}

static void check_cases(const char *folders, compare *one)
{
	char pattern[PATH_MAX];
	glob_t cases;

	wrong = 0;
	compared = 0;
	snprintf(pattern, sizeof(pattern), "%s/%s", oracle, folders);
	ck_assert_int_eq(glob(pattern, 0, NULL, &cases), 0);
	for (size_t i = 0; i < cases.gl_pathc; i++) {
		/* What a universal one was made of has its values. */
		const char *name = strrchr(cases.gl_pathv[i], '/') + 1;
		bool made = !strncmp(name, "universal_", 10);

		snprintf(pattern, sizeof(pattern),
			 made ? "%s/ds*/%s/oracle/*.npy" : "%.0s%s/oracle/*.npy", oracle,
			 made ? name + 10 : cases.gl_pathv[i]);
		compare_case(cases.gl_pathv[i], pattern, one);
	}
	printf("%zu cases, %u values\n", cases.gl_pathc, compared);
	globfree(&cases);
	ck_assert_uint_gt(compared, 0);
	ck_assert_int_eq(wrong, 0);
}

START_TEST(cases_have_the_values_of_their_engines)
{
	check_cases("ds*/*", compare_file);
}
END_TEST

/* "optim.state.NAME.KEY.npy", "model.NAME.npy". */
static void compare_dcp(struct mounted *m, const char *path, const char *file)
{
	static const char state[] = "optim.state.", model[] = "model.";
	struct npy want = { .size = 0 };
	char copy[256];
	const char *name = copy + strlen(model), *key = "fp32";
	uint64_t size = 0;

	snprintf(copy, sizeof(copy), "%s", file);
	*strstr(copy, ".npy") = '\0';
	read_npy(path, &want);
	if (!strncmp(copy, state, strlen(state))) {
		name = copy + strlen(state);
		key = strrchr(copy, '.') + 1;
		*strrchr(copy, '.') = '\0';
	}
	CLEANUP(free) uint8_t *got = mounted_read(m, name, key, -1, &size);
	if (!got || size != want.size || memcmp(got, want.data, size)) {
		printf("%s: %s %s is another\n", path, name, key);
		wrong++;
	}
	compared++;
}

START_TEST(universal_checkpoints_have_the_values_of_what_they_were_made_of)
{
	check_cases("universal_*", compare_file);
}
END_TEST

START_TEST(distributed_checkpoints_have_their_values)
{
	check_cases("dcp/*", compare_dcp);
}
END_TEST

int main(void)
{
	Suite *s;
	TCase *t;

	oracle = getenv("TEST_ORACLE");
	if (!oracle) {
		puts("no TEST_ORACLE=FOLDER");
		return 77;
	}
	s = suite_create("mounted-oracle");
	t = tcase_create("mounted-oracle");
	tcase_add_test(t, bad_files_get_their_verdicts);
	tcase_add_test(t, distributed_checkpoints_have_their_values);
	tcase_add_test(t, universal_checkpoints_have_the_values_of_what_they_were_made_of);
	tcase_add_test(t, cases_have_the_values_of_their_engines);
	tcase_set_timeout(t, 60);
	return run_suite(s, t);
}
