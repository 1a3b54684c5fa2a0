/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Checkpoints of torch.distributed.checkpoint, mounted: what tests/oracle/make-dcp.py says is
 * in them, and what is refused.
 */

#include "tests/find-param.h"
#include "tests/run-suite.h"
#include "tests/unit/checkpoint/formats/mounted.h"
#include "tests/unit/checkpoint/parse/archive.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static char path[PATH_MAX];
static struct mounted m;

static const char *data(const char *name, const char *suffix)
{
	const char *top = getenv("top_srcdir");

	snprintf(path, sizeof(path), "%s/tests/data/dcp/%s%s", top ? top : ".", name, suffix);
	return path;
}

static void check(const char *name, int lines)
{
	ck_assert_msg(!mounted_open(&m, data(name, ""), NULL), "%s", m.why);
	ck_assert_int_eq(mounted_check(&m, data(name, ".tree")), lines);
}

/* ---- genuine ---- */

static void check_ranks(const char *name, const char *key)
{
	uint64_t size, first, second;
	uint8_t *all = mounted_read(&m, name, key, -1, &size);
	uint8_t *a = mounted_read(&m, name, key, 0, &first);
	uint8_t *b = mounted_read(&m, name, key, 1, &second);

	ck_assert(a && b && first + second == size);
	ck_assert(!memcmp(all, a, first) && !memcmp(all + first, b, second));
	free(all);
	free(a);
	free(b);
}

START_TEST(rows_of_fsdp2)
{
	struct engine_group g;

	check("fsdp-2", 25);
	ck_assert_uint_eq(engine_nranks(m.engine), 2);
	check_ranks("up.weight", "fp32");
	check_ranks("down.weight", "exp_avg_sq");
	ck_assert_uint_eq(engine_ngroups(m.engine), 2);
	ck_assert(engine_group(m.engine, 1, &g) && g.nparams == 2 && g.shards == 2);
	mounted_close(&m);
	check("fsdp-3-bf16", 29);
	ck_assert_uint_eq(engine_nranks(m.engine), 3);
	mounted_close(&m);
}
END_TEST

START_TEST(what_replicas_hold_is_there_once)
{
	check("hsdp-4", 25);
	mounted_close(&m);
}
END_TEST

START_TEST(boxes_of_two_dimensions)
{
	check("tp-4", 25);
	mounted_close(&m);
	check("boxes-4", 18);
	mounted_close(&m);
}
END_TEST

START_TEST(an_optimizer_that_does_not_know_the_names)
{
	check("plain-1", 49);
	mounted_close(&m);
}
END_TEST

START_TEST(what_torch_wrote_before_it_had_fsdp2)
{
	struct engine_param x;
	uint32_t number;

	check("old-2", 16);
	ck_assert_uint_eq(engine_nranks(m.engine), 2);
	ck_assert_double_eq(mounted_hyper(&m, 0, "lr"), 0.5);
	ck_assert_double_eq(mounted_hyper(&m, 0, "beta2"), 0.9);
	ck_assert_int_eq(find_param(m.engine, "up.weight", "", &number), 0);
	ck_assert(engine_param(m.engine, number, &x) && x.group == 0);
	mounted_close(&m);
}
END_TEST

START_TEST(what_is_not_shown_is_said)
{
	check("unshown-1", 6);
	mounted_close(&m);
}
END_TEST

/* ---- made here ---- */

static FILE *pickle;
static char folder[] = "/tmp/test-format-dcp-XXXXXX";

static void put_text(const char *text)
{
	uint8_t size[4];

	put32(size, (uint32_t)strlen(text));
	fputc('X', pickle);
	fwrite(size, 1, 4, pickle);
	fputs(text, pickle);
}

static void put_number(int32_t number)
{
	uint8_t bytes[4];

	put32(bytes, (uint32_t)number);
	fputc('J', pickle);
	fwrite(bytes, 1, 4, pickle);
}

static void put_size(const int32_t *sizes, int n)
{
	fputs("ctorch\nSize\n((", pickle);
	for (int i = 0; i < n; i++)
		put_number(sizes[i]);
	fputs("ttR", pickle);
}

/* Its fields follow, then "ub". */
static void put_object(const char *class)
{
	fprintf(pickle, "cfrom.some.other.torch\n%s\n)\x81}(", class);
}

struct chunk {
	int32_t offset[2], size[2];
	const char *file; /* NULL: it has no place */
	int32_t at, length;
	bool compressed;
	bool unplaced; /* its place has no offset, as of old */
};

static const struct chunk *chunks;
static int nchunks;
static const char *name = "w", *dtype = "float32";
static int32_t shape[2] = { 4, 3 };

static void put_chunks(void)
{
	put_text("chunks");
	fputs("](", pickle);
	for (int i = 0; i < nchunks; i++) {
		put_object("ChunkStorageMetadata");
		put_text("offsets");
		put_size(chunks[i].offset, 2);
		put_text("sizes");
		put_size(chunks[i].size, 2);
		fputs("ub", pickle);
	}
	fputs("e", pickle);
}

static void put_place(const struct chunk *c)
{
	put_object("MetadataIndex");
	put_text("fqn");
	put_text(name);
	put_text("offset");
	if (c->unplaced)
		fputc('N', pickle);
	else
		put_size(c->offset, 2);
	fputs("ub", pickle);
	put_object("_StorageInfo");
	put_text("relative_path");
	put_text(c->file);
	put_text("offset");
	put_number(c->at);
	put_text("length");
	put_number(c->length);
	if (c->compressed) {
		put_text("transform_descriptors");
		fputs("](", pickle);
		put_text("zstd");
		fputs("e", pickle);
	}
	fputs("ub", pickle);
}

static void put_metadata(void)
{
	fputs("\x80\2", pickle);
	put_object("Metadata");
	put_text("state_dict_metadata");
	fputs("}", pickle);
	put_text(name);
	put_object("TensorStorageMetadata");
	put_text("properties");
	put_object("TensorProperties");
	put_text("dtype");
	fprintf(pickle, "ctorch\n%s\nub", dtype);
	put_text("size");
	put_size(shape, 2);
	put_chunks();
	fputs("ubs", pickle);
	put_text("storage_data");
	fputs("}(", pickle);
	for (int i = 0; i < nchunks; i++)
		if (chunks[i].file)
			put_place(&chunks[i]);
	fputs("uub.", pickle);
}

static char *in_folder(const char *file)
{
	snprintf(path, sizeof(path), "%s/%s", folder, file);
	return path;
}

static void write_in_folder(const char *file, const void *bytes, size_t size)
{
	int fd = open(in_folder(file), O_CREAT | O_TRUNC | O_WRONLY, 0600);

	ck_assert_int_eq(write(fd, bytes, size), (ssize_t)size);
	close(fd);
}

/* A tensor of torch.save of 2 x 3 float32 of that value, CHUNK bytes. */
static size_t append_tensor(uint8_t *out, float value)
{
	struct archive *a = calloc(1, sizeof(*a));
	static const char tensor[] =
		"\x80\2ctorch._utils\n_rebuild_tensor_v2\n(("
		"X\7\0\0\0storagectorch\nFloatStorage\n"
		"X\1\0\0\0000X\3\0\0\0cpuK\6tQK\0K\2K\3\x86K\3K\1\x86\x89}tR.";
	float values[6] = { value, value, value, value, value, value };
	size_t size;

	archive_add(a, "archive/data.pkl", tensor, sizeof(tensor) - 1);
	archive_add(a, "archive/data/0", values, sizeof(values));
	archive_end(a, NULL);
	size = a->size;
	memcpy(out, a->bytes, size);
	free(a);
	return size;
}

static int32_t length; /* of one tensor's archive */

static void setup(void)
{
	uint8_t bytes[4096];

	strcpy(folder + strlen(folder) - 6, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	length = (int32_t)append_tensor(bytes, 1);
	append_tensor(bytes + length, 2);
	write_in_folder("__7_0.distcp", bytes, 2 * (size_t)length);
	name = "w";
	dtype = "float32";
	shape[0] = 4;
}

static void teardown(void)
{
	unlink(in_folder(".metadata"));
	unlink(in_folder("__7_0.distcp"));
	unlink(in_folder("__8_0.distcp"));
	rmdir(folder);
}

static int mount_chunks(const struct chunk *c, int n)
{
	char *bytes = NULL;
	size_t size;

	chunks = c;
	nchunks = n;
	pickle = open_memstream(&bytes, &size);
	put_metadata();
	fclose(pickle);
	write_in_folder(".metadata", bytes, size);
	free(bytes);
	return mounted_open(&m, folder, NULL);
}

#define FILE_7 "__7_0.distcp"
#define upper                                                                                  \
	{                                                                                      \
		.size = { 2, 3 }, .file = FILE_7, .length = length                             \
	}
#define lower                                                                                  \
	{                                                                                      \
		.offset = { 2, 0 }, .size = { 2, 3 }, .file = FILE_7, .at = length,            \
		.length = length                                                               \
	}

#define refused(line, ...)                                                                     \
	do {                                                                                   \
		struct chunk c[] = { __VA_ARGS__ };                                            \
		ck_assert_int_ne(mount_chunks(c, ARRAY_SIZE(c)), 0);                           \
		ck_assert_msg(strstr(m.why, line), "%s", m.why);                               \
	} while (0)

static void check_w(void)
{
	uint64_t size;
	uint8_t *bytes = mounted_read(&m, "w", "fp32", -1, &size);
	float values[12];

	ck_assert(bytes && size == sizeof(values));
	memcpy(values, bytes, size);
	for (int i = 0; i < 12; i++)
		ck_assert(values[i] == (i < 6 ? 1.0f : 2.0f));
	free(bytes);
	mounted_close(&m);
}

START_TEST(whatever_the_modules_are_called)
{
	struct chunk c[] = { lower, upper };

	ck_assert_msg(!mount_chunks(c, 2), "%s", m.why);
	ck_assert_uint_eq(engine_nranks(m.engine), 8);
	check_w();
	shape[0] = 2;
	c[1].unplaced = true;
	ck_assert_msg(!mount_chunks(c + 1, 1), "%s", m.why);
	mounted_close(&m);
}
END_TEST

START_TEST(what_is_compressed_is_left_out)
{
	struct chunk c[] = { upper, lower };
	char *source;

	c[1].compressed = true;
	ck_assert_msg(!mount_chunks(c, 2), "%s", m.why);
	source = engine_text(m.engine, "source");
	ck_assert_ptr_nonnull(strstr(source, "skipped w: it is compressed"));
	free(source);
	ck_assert_uint_eq(engine_nparams(m.engine), 0);
	mounted_close(&m);
}
END_TEST

START_TEST(boxes_must_tile_the_tensor)
{
	refused("has fewer elements", upper);
	refused("has a hole", lower);
	refused("has elements twice", upper, lower,
		{ .size = { 2, 3 }, .offset = { 1, 0 }, .file = FILE_7, .length = length });
	refused("outside of its shape", upper,
		{ .size = { 2, 3 }, .offset = { 3, 0 }, .file = FILE_7, .length = length });
	refused("is not as .metadata says", upper,
		{ .size = { 1, 3 }, .offset = { 2, 0 }, .file = FILE_7, .length = length },
		{ .size = { 1, 3 }, .offset = { 3, 0 }, .file = FILE_7, .length = length });
	refused("of another shape", upper,
		{ .size = { -1, 3 }, .offset = { 2, 0 }, .file = FILE_7 });
	shape[0] = -4;
	refused("without a shape", upper);
}
END_TEST

START_TEST(places_must_be_there)
{
	refused("has a part that is in no file", upper,
		{ .size = { 2, 3 }, .offset = { 2, 0 } });
	refused("has two places", upper, upper);
	refused("__8_0.distcp", upper,
		{ .size = { 2, 3 }, .offset = { 2, 0 }, .file = "__8_0.distcp", .length = 9 });
	refused("is no name of a regular file there", upper,
		{ .size = { 2, 3 }, .offset = { 2, 0 }, .file = "../x", .length = length });
	refused("without file, offset and length", upper,
		{ .size = { 2, 3 },
		  .offset = { 2, 0 },
		  .file = FILE_7,
		  .at = -1,
		  .length = 9 });
	refused(FILE_7, upper,
		{ .size = { 2, 3 },
		  .offset = { 2, 0 },
		  .file = FILE_7,
		  .at = length,
		  .length = length + 1 });
	ck_assert_int_eq(symlink(FILE_7, in_folder("__8_0.distcp")), 0);
	refused("symbolic link", upper,
		{ .size = { 2, 3 },
		  .offset = { 2, 0 },
		  .file = "__8_0.distcp",
		  .length = length });
}
END_TEST

START_TEST(types_must_be_as_said)
{
	dtype = "float64";
	refused("is not as .metadata says", upper, lower);
	dtype = "quint8";
	{
		struct chunk c[] = { upper, lower };
		char *source;

		ck_assert_msg(!mount_chunks(c, 2), "%s", m.why);
		source = engine_text(m.engine, "source");
		ck_assert_ptr_nonnull(
			strstr(source, "skipped w has elements of an unknown type"));
		free(source);
		mounted_close(&m);
	}
}
END_TEST

/* Metadata of that one item. */
static int mount_item(const char *key, size_t key_size, int ndim)
{
	static const int32_t ones[FRAG_DIMS_MAX + 1];
	char *bytes = NULL;
	size_t size;

	pickle = open_memstream(&bytes, &size);
	fputs("\x80\2", pickle);
	put_object("Metadata");
	put_text("state_dict_metadata");
	fputs("}", pickle);
	fwrite(key, 1, key_size, pickle);
	put_object("TensorStorageMetadata");
	put_text("size");
	put_size(ones, ndim);
	fputs("ubs", pickle);
	put_text("storage_data");
	fputs("}ub.", pickle);
	fclose(pickle);
	write_in_folder(".metadata", bytes, size);
	free(bytes);
	return mounted_open(&m, folder, NULL);
}

static void check_skipped(const char *line)
{
	CLEANUP(free) char *source = engine_text(m.engine, "source");

	ck_assert_msg(strstr(source, line) != NULL, "%s", source);
	mounted_close(&m);
}

START_TEST(items_have_names_and_some_dimensions)
{
	char key[5 + 2048] = "X\0\x08";

	ck_assert_int_ne(mount_item("K\5", 2, 1), 0);
	ck_assert_msg(strstr(m.why, "a name that is no text"), "%s", m.why);
	ck_assert_int_eq(mount_item("X\3\0\0\0a\0b", 8, 1), 0);
	check_skipped("skipped a is no name that can be shown");
	memset(key + 5, 'x', 2048);
	ck_assert_int_eq(mount_item(key, sizeof(key), 1), 0);
	check_skipped("is no name that can be shown");
	ck_assert_int_eq(mount_item("Vw\n", 3, FRAG_DIMS_MAX + 1), 0);
	check_skipped("skipped w has too many dimensions");
}
END_TEST

START_TEST(what_is_too_long_or_too_large_is_refused)
{
	char long_name[300];

	memset(long_name, 'x', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = '\0';
	refused("... is no name of a file there", upper,
		{ .size = { 2, 3 }, .offset = { 2, 0 }, .file = long_name, .length = length });
	ck_assert_int_eq(truncate(in_folder(".metadata"), (1LL << 30) + 1), 0);
	ck_assert_int_ne(mounted_open(&m, folder, NULL), 0);
	ck_assert_msg(strstr(m.why, "it is larger than 1 GiB"), "%s", m.why);
}
END_TEST

START_TEST(no_metadata_is_told_so)
{
	write_in_folder(".metadata", "\x80\4}.", 4);
	ck_assert_int_ne(mounted_open(&m, folder, NULL), 0);
	ck_assert_msg(strstr(m.why, "no state_dict_metadata"), "%s", m.why);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("format-dcp");
	TCase *t = tcase_create("format-dcp");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, rows_of_fsdp2);
	tcase_add_test(t, what_replicas_hold_is_there_once);
	tcase_add_test(t, boxes_of_two_dimensions);
	tcase_add_test(t, an_optimizer_that_does_not_know_the_names);
	tcase_add_test(t, what_torch_wrote_before_it_had_fsdp2);
	tcase_add_test(t, what_is_not_shown_is_said);
	tcase_add_test(t, whatever_the_modules_are_called);
	tcase_add_test(t, what_is_compressed_is_left_out);
	tcase_add_test(t, boxes_must_tile_the_tensor);
	tcase_add_test(t, places_must_be_there);
	tcase_add_test(t, types_must_be_as_said);
	tcase_add_test(t, items_have_names_and_some_dimensions);
	tcase_add_test(t, what_is_too_long_or_too_large_is_refused);
	tcase_add_test(t, no_metadata_is_told_so);
	return run_suite(s, t);
}
