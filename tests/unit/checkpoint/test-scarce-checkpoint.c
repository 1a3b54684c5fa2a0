/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* The machine has no memory at the n-th call, for each n: a checkpoint opens or says so, what
 * is asked of it is answered or says so, and nothing is left open.
 */

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/parse/torchfile.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"
#include "tests/unit/memfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { TENSORS = 40, BYTES = 16, IN_A_ROW = 7 };

static const unsigned counts[] = { 1, IN_A_ROW };

static char dir[1024];

static void setup(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%s/scarce-XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(dir));
}

/* ---- safetensors ---- */

static FILE *create(const char *name)
{
	char path[2048];
	FILE *out;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	out = fopen(path, "w");
	ck_assert_ptr_nonnull(out);
	return out;
}

static const char *shard(int i)
{
	return i % 2 ? "model-00002-of-00002.safetensors" : "model-00001-of-00002.safetensors";
}

/* Every second of the tensors. */
static void make_shard(int first)
{
	CLEANUP(free) char *header = NULL;
	size_t size;
	FILE *text = open_memstream(&header, &size), *out = create(shard(first));
	static const uint8_t value[BYTES] = { 1, 2, 3 };
	uint64_t length;

	fprintf(text, "{\"__metadata__\":{\"format\":\"pt\",\"made by\":\"us\"}");
	for (int i = first, at = 0; i < TENSORS; i += 2, at += BYTES)
		fprintf(text,
			",\"t%d\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[%d,%d]}",
			i, i % 3 ? "BF16" : "F32", i % 3 ? BYTES / 2 : BYTES / 4, at,
			at + BYTES);
	fprintf(text, "}");
	fclose(text);
	length = size;
	fwrite(&length, sizeof(length), 1, out);
	fwrite(header, size, 1, out);
	for (int i = first; i < TENSORS; i += 2)
		fwrite(value, sizeof(value), 1, out);
	fclose(out);
}

static void make_index(void)
{
	FILE *out = create("model.safetensors.index.json");

	make_shard(0);
	make_shard(1);
	fprintf(out, "{\"metadata\":{},\"weight_map\":{");
	for (int i = 0; i < TENSORS; i++)
		fprintf(out, "%s\"t%d\":\"%s\"", i ? "," : "", i, shard(i));
	fprintf(out, "}}");
	fclose(out);
}

static void make_file(void)
{
	make_shard(0);
	strcat(dir, "/");
	strcat(dir, shard(0));
}

/* ---- those of tests/data ---- */

static void data_path(char *path, size_t size, const char *name)
{
	const char *top = getenv("top_srcdir");

	snprintf(path, size, "%s/tests/data/%s", top ? top : ".", name);
}

static void find_file(const char *name)
{
	data_path(dir, sizeof(dir), name);
}

static void unpack(const char *name)
{
	char path[900], command[2200];

	data_path(path, sizeof(path), name);
	snprintf(command, sizeof(command), "tar -xzf '%s' -C '%s' --strip-components=1", path,
		 dir);
	ck_assert_int_eq(system(command), 0);
}

/* Some parameters are enough. */
static void make_universal(const char *name)
{
	char command[2200];

	unpack(name);
	snprintf(command, sizeof(command), "cd '%s' && rm -r values manifest */zero/[efhlu]*",
		 dir);
	ck_assert_int_eq(system(command), 0);
}

static void make_index_of(const char *name)
{
	make_index();
}

static void make_file_of(const char *name)
{
	make_file();
}

static const struct kind {
	const char *name;
	void (*make)(const char *name);
} kinds[] = {
	{ "safetensors with an index", make_index_of },
	{ "one safetensors file", make_file_of },
	{ "checkpoint/mixed.pt", find_file },
	{ "checkpoint/mixed-legacy.pt", find_file },
	{ "checkpoint/state-dict.pt", find_file },
	{ "checkpoints/ds0.19.8/z1-bf16-w2.tar.gz", unpack },
	{ "checkpoints/ds0.19.8/z3-bf16-w2.tar.gz", unpack },
	{ "checkpoints/ds0.19.8/z0-bf16-w2.tar.gz", unpack },
	{ "checkpoints/ds0.14.5/z2-bf16-w3-universal.tar.gz", make_universal },
	{ "dcp/plain-1", find_file },
	{ "dcp/boxes-4", find_file },
};

/* ---- what is asked of one ---- */

static struct engine *engine;
static int64_t result;
static _Atomic bool has_ended;

static void on_read(struct engine_read *read, const void *data, int64_t n)
{
	result = n;
	atomic_store(&has_ended, true);
}

static int read_all_of(struct engine_file *file, uint32_t size)
{
	struct engine_read read = { .file = file, .size = size, .done = on_read };

	atomic_store(&has_ended, false);
	engine_read(engine, &read);
	while (!atomic_load(&has_ended)) /* the disk answers, whatever it answers */
		sched_yield();
	return result < 0 ? (int)result : 0;
}

static int read_state(enum engine_address_kind kind, uint32_t param, const char *key)
{
	struct engine_address a = { .kind = kind, .param = param };
	struct engine_file *file;
	uint64_t bytes;
	int rc;

	snprintf(a.key, sizeof(a.key), "%.*s", FRAG_KEY_MAX, key);
	rc = engine_file_open(engine, &a, &file, &bytes);
	if (rc)
		return rc;
	rc = read_all_of(file, (uint32_t)bytes);
	engine_file_close(file);
	return rc;
}

static void see_fragment(void *arg, const struct engine_fragment *fragment)
{
}

static int ask_all(void)
{
	static const char *const texts[] = { "config", "health", "metrics", "inflight", "log" };
	struct engine_state states[8];
	int n, rc = 0, none;

	for (unsigned i = 0; i < ARRAY_SIZE(texts); i++)
		free(engine_text(engine, texts[i]));
	for (uint32_t param = 0; param < engine_nparams(engine) && !rc; param++) {
		n = engine_states(engine, param, states, ARRAY_SIZE(states));
		for (int i = 0; i < n && i < (int)ARRAY_SIZE(states) && !rc; i++) {
			rc = read_state(ENGINE_PARAM, param, states[i].key);
			none = rc ? rc : read_state(ENGINE_RANK_PARAM, param, states[i].key);
			rc = none == -ENOENT ? rc : none; /* rank 0 holds none of it */
			engine_fragments(engine, param, states[i].key, see_fragment, NULL);
		}
	}
	return rc;
}

static int open_empty(void)
{
	struct table *t = table_new();
	int rc = t ? table_finish(t) : -ENOMEM;

	if (rc)
		table_free(t);
	else
		rc = checkpoint_new(&engine, "moved away", "none", t, &disk_threads);
	if (!rc)
		engine_close(engine);
	return rc;
}

START_TEST(a_checkpoint_that_was_moved_opens_or_says_why_not)
{
	unsigned n = 0, failed;
	int rc;

	do {
		scarce_begin(++n, 1);
		rc = open_empty();
		failed = scarce_end();
		ck_assert_msg(!rc || (failed && (rc == -ENOMEM || rc == -EAGAIN)), "%u: %d", n,
			      rc);
	} while (failed);
	ck_assert_uint_gt(n, 4);
}
END_TEST

static int open_path(const char *path, const char *format, char *why, size_t whysize)
{
	const struct engine_options options = { .source = path, .format = format };

	return checkpoint_open(&engine, &options, why, whysize);
}

START_TEST(a_checkpoint_opens_or_says_why_not)
{
	unsigned n = 0, failed, before;
	char why[400];
	int rc;

	kinds[_i / 2].make(kinds[_i / 2].name);
	before = scarce_open_files();
	do {
		engine = NULL;
		scarce_begin(++n, counts[_i % 2]);
		rc = open_path(dir, NULL, why, sizeof(why));
		failed = scarce_end();
		ck_assert_msg(
			!rc || (failed && (rc == -ENOMEM || rc == -EMFILE || rc == -EAGAIN)),
			"%s %u: %d %s", kinds[_i / 2].name, n, rc, why);
		if (!rc) {
			ck_assert_int_eq(ask_all(), 0);
			engine_close(engine);
		}
		ck_assert_uint_eq(scarce_open_files(), before);
	} while (failed);
	ck_assert_uint_gt(n, 10);
}
END_TEST

START_TEST(a_file_opens_to_be_edited_or_says_why_not)
{
	struct engine_options options = { .source = dir, .writable = true };
	char path[900], command[2200], why[400];
	unsigned n = 0, failed, open_before;
	int rc;

	data_path(path, sizeof(path), "checkpoint/mixed.pt");
	snprintf(command, sizeof(command), "cp '%s' '%s/mixed.pt'", path, dir);
	ck_assert_int_eq(system(command), 0);
	strcat(dir, "/mixed.pt");
	open_before = scarce_open_files();
	do {
		scarce_begin(++n, counts[_i]);
		rc = checkpoint_open(&engine, &options, why, sizeof(why));
		failed = scarce_end();
		ck_assert_msg(
			!rc || (failed && (rc == -ENOMEM || rc == -EMFILE || rc == -EAGAIN)),
			"%u: %d %s", n, rc, why);
		if (!rc)
			engine_close(engine);
		ck_assert_uint_eq(scarce_open_files(), open_before);
	} while (failed);
	ck_assert_uint_gt(n, 10);
}
END_TEST

START_TEST(what_is_no_checkpoint_is_told_so_or_enomem)
{
	unsigned n = 0, failed;
	char why[400];
	int rc;

	do {
		scarce_begin(++n, 1);
		rc = open_path(dir, NULL, why, sizeof(why));
		failed = scarce_end();
		ck_assert_msg(rc == -EINVAL || (failed && rc == -ENOMEM), "%u: %d", n, rc);
	} while (failed);
}
END_TEST

START_TEST(what_is_asked_of_a_checkpoint_is_answered_or_enomem)
{
	unsigned n = 0, failed;
	char why[400];
	int rc;

	kinds[_i / 2].make(kinds[_i / 2].name);
	do {
		ck_assert_int_eq(checkpoint_open(&engine,
						 &(struct engine_options){ .source = dir }, why,
						 sizeof(why)),
				 0);
		scarce_begin(++n, counts[_i % 2]);
		rc = ask_all();
		failed = scarce_end();
		ck_assert_msg(!rc || (failed && rc == -ENOMEM), "%s %u: %d", kinds[_i / 2].name,
			      n, rc);
		ck_assert_int_eq(ask_all(), 0);
		engine_close(engine);
	} while (failed);
	ck_assert_uint_gt(n, 10);
}
END_TEST

static void on_freeze(struct engine_freeze *freeze, int rc)
{
	result = rc;
}

START_TEST(what_is_not_in_a_checkpoint_is_enoent)
{
	struct engine_freeze freeze = { .ms = 1000, .done = on_freeze };
	struct engine_address hyper = { .kind = ENGINE_HYPER, .group = 99, .key = "lr" };
	struct engine_address published = { .kind = ENGINE_RANK_PUBLISHED, .key = "x" };
	struct engine_address two[] = { hyper, hyper };
	struct engine_sums sums = { .n = 0 };
	struct engine_file *file;
	struct engine_state out;
	uint64_t bytes;
	char why[400];

	unpack("checkpoints/ds0.19.8/z1-bf16-w2.tar.gz");
	ck_assert_int_eq(open_path(dir, "none", why, sizeof(why)), -EINVAL);
	ck_assert_int_eq(open_path("/dev/null", NULL, why, sizeof(why)), -EINVAL);
	ck_assert_int_eq(open_path("/dev", NULL, why, sizeof(why)), -EINVAL);
	ck_assert_int_eq(open_path(dir, "safetensors", why, sizeof(why)), -EINVAL);
	ck_assert_int_eq(open_path(dir, NULL, why, sizeof(why)), 0);
	ck_assert_int_eq(engine_states(engine, 9999, &out, 1), -ENOENT);
	ck_assert_int_eq(engine_rank_states(engine, 99, 0, &out, 1), -ENOENT);
	ck_assert_int_eq(engine_partition_states(engine, 99, 0, 0, &out, 1), -ENOENT);
	ck_assert_int_eq(engine_hypers(engine, 99, &out, 1), -ENOENT);
	ck_assert_int_eq(engine_file_open(engine, &hyper, &file, &bytes), -ENOENT);
	ck_assert_int_eq(engine_file_open(engine, &published, &file, &bytes), -ENOENT);
	ck_assert_int_eq(engine_file_open_many(engine, two, 2, &file, &bytes), -EINVAL);
	ck_assert_int_eq(engine_sums(engine, &sums), -EOPNOTSUPP);
	hyper.group = 0;
	strcpy(hyper.key, "none");
	ck_assert_int_eq(engine_file_open(engine, &hyper, &file, &bytes), -ENOENT);
	engine_freeze(engine, &freeze);
	ck_assert_int_eq(result, -EROFS);
	engine_close(engine);
}
END_TEST

/* ---- a rank that has many pieces ---- */

enum { PIECES = 10 };

static struct table *new_table_of_pieces(void)
{
	uint64_t numel = PIECES;
	struct table_spec spec = { .name = "w", .dtype = FRAG_U8, .ndim = 1, .shape = &numel };
	struct table *t = table_new();
	FILE *out = create("pieces");
	struct stat st;
	int fd;

	fputs("0123456789", out);
	fclose(out);
	strcat(dir, "/pieces");
	fd = open(dir, O_RDONLY | O_CLOEXEC);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_eq(table_add_file(t, "pieces", fd, &st), 0);
	ck_assert_int_eq(table_add_tensor(t, &spec), 0);
	ck_assert_int_eq(table_add_state(t, "fp32", FRAG_U8), 0);
	for (uint64_t i = 0; i < PIECES; i++)
		ck_assert_int_eq(table_add_interval(t, 0, 0, PIECES - 1 - i, i, 1), 0);
	ck_assert_int_eq(table_finish(t), 0);
	return t;
}

/* As a file of many states. */
static int read_many(void)
{
	struct engine_address list[PIECES];
	struct engine_file *file;
	uint64_t bytes;
	int rc;

	for (int i = 0; i < PIECES; i++)
		list[i] = (struct engine_address){ .kind = ENGINE_PARAM, .key = "fp32" };
	rc = engine_file_open_many(engine, list, PIECES, &file, &bytes);
	if (rc)
		return rc;
	rc = read_all_of(file, (uint32_t)bytes);
	engine_file_close(file);
	return rc;
}

START_TEST(a_rank_of_many_pieces_is_read_or_enomem)
{
	enum engine_address_kind kind = _i ? ENGINE_RANK_PARAM : ENGINE_PARAM;
	struct engine_address none = { .kind = ENGINE_MODEL_STATES };
	struct table *t = new_table_of_pieces();
	struct engine_file *file;
	uint64_t bytes;
	unsigned n = 0, failed;
	int rc;

	ck_assert_int_eq(checkpoint_new(&engine, dir, "none", t, &disk_threads), 0);
	do {
		scarce_begin(++n, 1);
		rc = _i == 2 ? read_many() : read_state(kind, 0, "fp32");
		failed = scarce_end();
		ck_assert_msg(!rc || (failed && rc == -ENOMEM), "%u: %d", n, rc);
	} while (failed);
	ck_assert_int_eq(engine_file_open(engine, &none, &file, &bytes), -ENOENT);
	ck_assert_uint_gt(n, 3);
	engine_close(engine);
}
END_TEST

/* ---- files of torch.save ---- */

START_TEST(a_text_is_decoded_or_enomem)
{
	static const char escaped[] = "Va\\u0062\n.";
	struct blob b = memfile(escaped, sizeof(escaped) - 1);
	struct parse_error why;
	unsigned n = 0, failed;
	struct pickle *p;
	int rc;

	do {
		scarce_begin(++n, 1);
		rc = pickle_read(&p, &b, 0, b.size, &why);
		failed = scarce_end();
		ck_assert_msg(!rc || (failed && rc == -ENOMEM), "%u: %d", n, rc);
		if (!rc)
			pickle_free(p);
	} while (failed);
	close(b.fd);
	ck_assert_uint_gt(n, 4);
}
END_TEST

static const char *const torch_files[] = { "mixed.pt", "mixed-legacy.pt", "many.pt",
					   "state-dict.pt" };

static int open_torch(const char *name)
{
	const char *top = getenv("top_srcdir");
	struct parse_error why = { 0 };
	struct torchfile f;
	char path[4096];
	struct blob b;
	int rc, fd;

	snprintf(path, sizeof(path), "%s/tests/data/checkpoint/%s", top ? top : ".", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	rc = blob_of_file(fd, &b, &why);
	if (!rc)
		rc = torchfile_open(&f, &b, &why);
	if (!rc)
		torchfile_close(&f);
	close(fd);
	return rc;
}

START_TEST(a_file_of_torch_opens_or_is_enomem)
{
	const char *name = torch_files[_i / 2];
	unsigned n = 0, failed;
	int rc;

	do {
		scarce_begin(++n, counts[_i % 2]);
		rc = open_torch(name);
		failed = scarce_end();
		ck_assert_msg(!rc || (failed && rc == -ENOMEM), "%s %u: %d", name, n, rc);
	} while (failed);
	ck_assert_uint_gt(n, 5);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("scarce-checkpoint");
	TCase *t = tcase_create("scarce-checkpoint");

	tcase_set_timeout(t, 120);
	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_loop_test(t, a_checkpoint_opens_or_says_why_not, 0, 2 * ARRAY_SIZE(kinds));
	tcase_add_test(t, a_checkpoint_that_was_moved_opens_or_says_why_not);
	tcase_add_loop_test(t, a_file_opens_to_be_edited_or_says_why_not, 0,
			    ARRAY_SIZE(counts));
	tcase_add_test(t, what_is_no_checkpoint_is_told_so_or_enomem);
	tcase_add_loop_test(t, what_is_asked_of_a_checkpoint_is_answered_or_enomem, 0,
			    2 * ARRAY_SIZE(kinds));
	tcase_add_test(t, what_is_not_in_a_checkpoint_is_enoent);
	tcase_add_loop_test(t, a_rank_of_many_pieces_is_read_or_enomem, 0, 3);
	tcase_add_test(t, a_text_is_decoded_or_enomem);
	tcase_add_loop_test(t, a_file_of_torch_opens_or_is_enomem, 0,
			    2 * ARRAY_SIZE(torch_files));
	return run_suite(s, t);
}
