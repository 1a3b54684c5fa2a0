/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Layouts against those of running DeepSpeed and FSDP2 engines: tests/data/layouts, whose
 * format is described in tests/oracle/make-layouts.py.
 */

#include "engine/catalog/layout.h"
#include "tests/run-suite.h"
#include "tests/unit/catalog/oracle-dump.h"
#include "tests/unit/catalog/padding.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PARAMS_MAX = 64, LINE_MAX_BYTES = 512, FILES_MIN = 20 };

/* One group of a file, as far as it has been read. */
struct reader {
	char path[512];
	int line;
	bool open;
	bool built;
	struct layout_spec spec;
	struct layout_param params[PARAMS_MAX];
	uint32_t nparams;
	struct layout layout;
	uint32_t partitions;
	uint32_t fragments;
};

#define expect(r, condition)                                                                   \
	do {                                                                                   \
		if (!(condition))                                                              \
			ck_abort_msg("%s:%d: not %s", (r)->path, (r)->line, #condition);       \
	} while (0)

static void read_group(struct reader *r, const char *text)
{
	char kind[16];
	unsigned round_robin;

	memset(&r->spec, 0, sizeof(r->spec));
	expect(r, sscanf(text, "group %15s %" SCNu32 " %" SCNu32 " %u %" SCNu64, kind,
			 &r->spec.shards, &r->spec.alignment, &round_robin,
			 &r->spec.sub_group_size) == 5);
	r->spec.round_robin = round_robin;
	expect(r, !strcmp(kind, "flat") || !strcmp(kind, "per_param") || !strcmp(kind, "rows"));
	r->spec.kind = kind[0] == 'f'   ? LAYOUT_FLAT
		       : kind[0] == 'p' ? LAYOUT_PER_PARAM
					: LAYOUT_ROWS;
	r->nparams = r->partitions = r->fragments = 0;
	r->built = false;
	r->open = true;
}

static void read_param(struct reader *r, const char *text)
{
	struct layout_param *p = &r->params[r->nparams];
	char trainable[16];

	expect(r, r->open && !r->built && r->nparams < PARAMS_MAX);
	expect(r, sscanf(text, "param %15s %" SCNu64 " %" SCNu64, trainable, &p->numel,
			 &p->row) == 3);
	p->frozen = !strcmp(trainable, "frozen");
	r->nparams++;
}

static void build_once(struct reader *r)
{
	if (r->built)
		return;
	expect(r, r->open);
	expect(r, layout_init(&r->layout, &r->spec, r->params, r->nparams) == 0);
	r->built = true;
}

static void read_partition(struct reader *r, const char *text)
{
	uint32_t shard, sub;
	uint64_t numel, padding;

	build_once(r);
	expect(r, sscanf(text, "partition %" SCNu32 " %" SCNu32 " %" SCNu64 " %" SCNu64, &shard,
			 &sub, &numel, &padding) == 4);
	expect(r, shard < r->layout.shards && sub < r->layout.nsubs);
	expect(r, r->layout.partition_numel[sub] == numel);
	expect(r, layout_padding(&r->layout, shard, sub) == padding);
	r->partitions++;
}

static void read_fragment(struct reader *r, const char *text)
{
	struct layout_fragment f, found;
	uint32_t param;

	expect(r, r->built);
	expect(r, sscanf(text,
			 "fragment %" SCNu32 " %" SCNu32 " %" SCNu64 " %" SCNu32 " %" SCNu64
			 " %" SCNu64,
			 &f.shard, &f.sub, &f.partition_offset, &param, &f.param_offset,
			 &f.numel) == 6);
	expect(r, layout_on_shard(&r->layout, param, f.shard, &found));
	expect(r, found.sub == f.sub);
	expect(r, found.partition_offset == f.partition_offset);
	expect(r, found.param_offset == f.param_offset);
	expect(r, found.numel == f.numel);
	r->fragments++;
}

/* All that the layout has was in the file. */
static void close_group(struct reader *r)
{
	struct layout_fragment f;
	uint32_t fragments = 0;

	if (!r->open)
		return;
	build_once(r);
	expect(r, r->partitions == r->layout.shards * r->layout.nsubs);
	for (uint32_t p = 0; p < r->nparams; p++)
		for (uint32_t s = 0; s < r->layout.shards; s++)
			fragments += layout_on_shard(&r->layout, p, s, &f);
	expect(r, r->fragments == fragments);
	layout_fini(&r->layout);
	r->open = false;
}

static void read_line(struct reader *r, const char *text)
{
	if (!strncmp(text, "group ", 6)) {
		close_group(r);
		read_group(r, text);
	} else if (!strncmp(text, "param ", 6)) {
		read_param(r, text);
	} else if (!strncmp(text, "partition ", 10)) {
		read_partition(r, text);
	} else if (!strncmp(text, "fragment ", 9)) {
		read_fragment(r, text);
	} else {
		expect(r, text[0] == '#' || !strncmp(text, "ranks ", 6));
	}
}

static void check_file(const char *folder, const char *name)
{
	struct reader r = { 0 };
	char text[LINE_MAX_BYTES];
	FILE *file;

	snprintf(r.path, sizeof(r.path), "%s/%s", folder, name);
	file = fopen(r.path, "r");
	expect(&r, file);
	while (fgets(text, sizeof(text), file)) {
		r.line++;
		expect(&r, strchr(text, '\n'));
		read_line(&r, text);
	}
	fclose(file);
	expect(&r, r.open);
	close_group(&r);
}

static bool ends_with(const char *name, const char *end)
{
	size_t a = strlen(name), b = strlen(end);

	return a > b && !strcmp(name + a - b, end);
}

START_TEST(layouts_are_those_of_running_engines)
{
	const char *top = getenv("top_srcdir");
	char folder[256];
	const struct dirent *entry;
	int files = 0;
	DIR *d;

	snprintf(folder, sizeof(folder), "%s/tests/data/layouts", top ? top : ".");
	d = opendir(folder);
	ck_assert_msg(d, "%s: cannot be opened", folder);
	while ((entry = readdir(d))) {
		if (!ends_with(entry->d_name, ".layout"))
			continue;
		check_file(folder, entry->d_name);
		files++;
	}
	closedir(d);
	ck_assert_int_ge(files, FILES_MIN);
}
END_TEST

/* Bigger dumps, with values, that are not in the repository; see tests/oracle/README.md. */
START_TEST(layouts_and_values_are_those_of_the_dumps)
{
	const char *folder = getenv("TEST_LAYOUTS");
	const struct dirent *entry;
	int dumps = 0;
	DIR *d;

	d = opendir(folder);
	ck_assert_msg(d, "%s: cannot be opened", folder);
	while ((entry = readdir(d))) {
		if (entry->d_name[0] == '.')
			continue;
		oracle_dump_check(folder, entry->d_name);
		dumps++;
	}
	closedir(d);
	ck_assert_int_gt(dumps, 0);
	printf("%d dumps of %s\n", dumps, folder);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("layout-oracle");
	TCase *t = tcase_create("layout-oracle");

	tcase_add_test(t, layouts_are_those_of_running_engines);
	if (getenv("TEST_LAYOUTS"))
		tcase_add_test(t, layouts_and_values_are_those_of_the_dumps);
	return run_suite(s, t);
}
