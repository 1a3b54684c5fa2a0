/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Files of torch.save: genuine ones of tests/data/checkpoint, and archives made here.  With
 * TEST_ORACLE=FOLDER also the files of a folder like that of
 * tests/unit/checkpoint/parse/torch-expect.h.
 */

#include "engine/checkpoint/parse/torchfile.h"
#include "tests/run-suite.h"
#include "tests/unit/checkpoint/parse/archive.h"
#include "tests/unit/checkpoint/parse/torch-expect.h"
#include "tests/unit/memfile.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct torchfile f;
static struct parse_error why;
static struct archive a;

static int open_bytes(const void *bytes, size_t size)
{
	struct blob b = memfile(bytes, size);
	int rc;

	memset(&why, 0, sizeof(why));
	rc = torchfile_open(&f, &b, &why);
	if (rc)
		close(b.fd);
	ck_assert_int_eq(!rc, !*why.why);
	return rc;
}

static void close_it(void)
{
	close(f.blob.fd);
	torchfile_close(&f);
}

/* ---- genuine ---- */

static void check_file(const char *name, int lines)
{
	const char *top = getenv("top_srcdir");
	char folder[4096];

	snprintf(folder, sizeof(folder), "%s/tests/data/checkpoint", top ? top : ".");
	ck_assert_int_eq(check_expected(folder, name), lines);
}

START_TEST(torch_files_have_what_torch_put_in)
{
	check_file("mixed", 44);
	check_file("mixed-protocol5", 44);
	check_file("many", 40);
	check_file("module", 1);
	check_file("tensor", 1);
	check_file("nothing", 3);
	check_file("state-dict", 7);
}
END_TEST

START_TEST(legacy_files_have_what_torch_put_in)
{
	check_file("mixed-legacy", 44);
}
END_TEST

START_TEST(oracle_files_get_their_verdicts)
{
	const char *folder = getenv("TEST_ORACLE");

	if (folder)
		ck_assert_int_eq(check_oracle(folder), 0);
	else
		puts("no TEST_ORACLE=FOLDER: its files are not read");
}
END_TEST

/* ---- made here ---- */

struct claim {
	int32_t offset, size[2], stride[2];
	int32_t numel;
	const char *storage, *key;
};

static size_t put_text(uint8_t *at, const char *text)
{
	at[0] = 0x8c;
	at[1] = (uint8_t)strlen(text);
	memcpy(at + 2, text, strlen(text));
	return 2 + strlen(text);
}

static size_t put_int(uint8_t *at, int32_t value)
{
	at[0] = 'J';
	put32(at + 1, (uint32_t)value);
	return 5;
}

static size_t put_pair(uint8_t *at, const int32_t pair[2])
{
	size_t n = put_int(at, pair[0]);

	n += put_int(at + n, pair[1]);
	at[n] = 0x86;
	return n + 1;
}

/* A tensor of two dimensions, pickled. */
static size_t put_value(uint8_t *out, const struct claim *c)
{
	uint8_t *at = out;

	at += sprintf((char *)at, "ctorch._utils\n_rebuild_tensor_v2\n((");
	at += put_text(at, "storage");
	at += sprintf((char *)at, "ctorch\n%s\n", c->storage);
	at += put_text(at, c->key);
	at += put_text(at, "cpu");
	at += put_int(at, c->numel);
	at += sprintf((char *)at, "tQ");
	at += put_int(at, c->offset);
	at += put_pair(at, c->size);
	at += put_pair(at, c->stride);
	at += sprintf((char *)at, "\x89)tR");
	return (size_t)(at - out);
}

static size_t put_tensor(uint8_t *out, const struct claim *c)
{
	size_t n = put_value(out, c);

	out[n] = '.';
	return n + 1;
}

static const struct claim good = { .offset = 1,
				   .size = { 2, 3 },
				   .stride = { 3, 1 },
				   .numel = 8,
				   .storage = "FloatStorage",
				   .key = "0" };

/* An archive with that tensor and a storage of 32 bytes. */
static int open_claim(struct claim c)
{
	uint8_t pickle[1000];

	memset(&a, 0, sizeof(a));
	archive_add(&a, "x/data.pkl", pickle, put_tensor(pickle, &c));
	archive_add(&a, "x/data/0", "0123456789abcdef0123456789abcdef", 32);
	archive_end(&a, NULL);
	return open_bytes(a.bytes, a.size);
}

#define refused(open, rc, line)                                                                \
	do {                                                                                   \
		ck_assert_int_eq(open, rc);                                                    \
		ck_assert_msg(strstr(why.why, line), "%s", why.why);                           \
	} while (0)

#define with(...)                                                                              \
	({                                                                                     \
		struct claim c = good;                                                         \
		__VA_ARGS__;                                                                   \
		c;                                                                             \
	})

static struct torchfile_tensor root(void)
{
	struct torchfile_tensor t;

	ck_assert_int_eq(torchfile_tensor(&f, pickle_root(f.pickle), &t, &why), 0);
	return t;
}

START_TEST(says_where_a_tensor_is)
{
	struct torchfile_tensor t;

	ck_assert_int_eq(open_claim(good), 0);
	t = root();
	ck_assert_uint_eq(t.at, a.entries[1].data + 4);
	ck_assert_uint_eq(t.at_storage, 4);
	ck_assert_ptr_eq(t.entry, zip_find(&f.zip, "data/0"));
	ck_assert_uint_eq(t.tensor.bytes, 24);
	ck_assert_uint_eq(t.tensor.extent, 24);
	ck_assert(t.tensor.contiguous);
	ck_assert_int_eq(torchfile_tensor(&f, 0, &t, &why), -EBADMSG);
	close_it();
}
END_TEST

START_TEST(tells_what_is_contiguous)
{
	ck_assert_int_eq(open_claim(with(c.stride[0] = 1, c.stride[1] = 2)), 0);
	ck_assert(!root().tensor.contiguous);
	ck_assert_uint_eq(root().tensor.extent, 24);
	close_it();
	ck_assert_int_eq(open_claim(with(c.stride[0] = c.stride[1] = 0)), 0);
	ck_assert(!root().tensor.contiguous);
	ck_assert_uint_eq(root().tensor.extent, 4);
	close_it();
	ck_assert_int_eq(open_claim(with(c.size[0] = 1, c.stride[0] = 1000)), 0);
	ck_assert(root().tensor.contiguous);
	close_it();
	ck_assert_int_eq(open_claim(with(c.size[1] = 0, c.offset = 1000)), 0);
	ck_assert(root().tensor.contiguous);
	ck_assert_uint_eq(root().at, 0);
	close_it();
}
END_TEST

START_TEST(refuses_tensors_beyond_their_storage)
{
	ck_assert_int_eq(open_claim(with(c.offset = 2)), 0);
	close_it();
	refused(open_claim(with(c.offset = 3)), -EBADMSG, "beyond its storage");
	refused(open_claim(with(c.offset = -1)), -EBADMSG, "offset is negative");
	refused(open_claim(with(c.offset = INT32_MAX)), -EBADMSG, "beyond its storage");
	refused(open_claim(with(c.size[0] = 3)), -EBADMSG, "beyond its storage");
	refused(open_claim(with(c.size[0] = -1)), -EBADMSG, "negative");
	refused(open_claim(with(c.stride[1] = -1)), -EBADMSG, "negative");
	refused(open_claim(with(c.stride[0] = 5)), -EBADMSG, "beyond its storage");
	refused(open_claim(with(c.size[0] = c.size[1] = INT32_MAX, c.stride[0] = 0,
				c.stride[1] = 0)),
		-EBADMSG, "impossible size");
	refused(open_claim(with(c.key = "1")), -EBADMSG, "storage 1 is not in the file");
	refused(open_claim(with(c.key = "../data.pkl")), -EBADMSG, "is not in the file");
	refused(open_claim(with(c.numel = 9)), -EBADMSG, "not 9 elements");
	refused(open_claim(with(c.numel = 7)), -EBADMSG, "not 7 elements");
	refused(open_claim(with(c.storage = "DoubleStorage")), -EBADMSG, "not 8 elements");
	refused(open_claim(with(c.storage = "DoubleStorage", c.numel = 4)), -EBADMSG,
		"beyond its storage");
}
END_TEST

static int open_pickle(const void *pickle, size_t size)
{
	memset(&a, 0, sizeof(a));
	archive_add(&a, "x/data.pkl", pickle, size);
	archive_add(&a, "x/data/0", "0123", 4);
	archive_end(&a, NULL);
	return open_bytes(a.bytes, a.size);
}

START_TEST(a_tensor_of_many_dimensions_is_left_alone)
{
	char ones[] = "(K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1t", pickle[300];
	int n = sprintf(pickle,
			"ctorch._utils\n_rebuild_tensor_v2\n(("
			"Vstorage\nctorch\nFloatStorage\nV0\nVcpu\nI1\ntQI0\n%s%s\x89)tR.",
			ones, ones);
	struct torchfile_tensor t;

	ck_assert_int_eq(open_pickle(pickle, (size_t)n), 0);
	refused(torchfile_tensor(&f, pickle_root(f.pickle), &t, &why), -EOPNOTSUPP,
		"a tensor of 17 dimensions");
	close_it();
}
END_TEST

static int open_with(const char *name, const char *data)
{
	memset(&a, 0, sizeof(a));
	archive_add(&a, "x/data.pkl", "N.", 2);
	archive_add(&a, name, data, strlen(data));
	archive_end(&a, NULL);
	return open_bytes(a.bytes, a.size);
}

START_TEST(knows_what_it_does_not_take)
{
	uint8_t tar[2048] = "sys_info";

	ck_assert_int_eq(open_with("x/byteorder", "little"), 0);
	close_it();
	refused(open_with("x/byteorder", "big"), -EOPNOTSUPP, "byteorder is big");
	refused(open_with("x/byteorder", "little, big or both"), -EBADMSG, "byteorder of");
	refused(open_with("x/constants.pkl", "N."), -EOPNOTSUPP, "TorchScript");
	memset(&a, 0, sizeof(a));
	archive_add(&a, "x/data.pk", "N.", 2);
	archive_end(&a, NULL);
	refused(open_bytes(a.bytes, a.size), -EBADMSG, "x has no data.pkl");
	memcpy(tar + 257, "ustar", 5);
	refused(open_bytes(tar, sizeof(tar)), -EOPNOTSUPP, "tar");
	refused(open_bytes("", 0), -EBADMSG, "it is empty");
	refused(open_bytes("\x80\x02N.", 4), -EBADMSG, "neither a zip");
	refused(open_bytes("{}", 2), -EBADMSG, "no zip archive");
}
END_TEST

/* With so many more bytes behind data.pkl's. */
static int open_stretched(uint32_t more)
{
	struct blob b = { memfd_create("stretched", MFD_CLOEXEC), 0, 0 };
	size_t head, tail;
	int rc;

	memset(&a, 0, sizeof(a));
	archive_add(&a, "x/data.pkl", "N.", 2);
	archive_end(&a, NULL);
	head = a.entries[0].data + 2;
	tail = a.size - head;
	put32(a.bytes + a.entries[0].central + 20, 2 + more);
	put32(a.bytes + a.entries[0].central + 24, 2 + more);
	put64(a.bytes + a.end64 + 48, a.directory + more);
	put64(a.bytes + a.locator + 8, a.end64 + more);
	put32(a.bytes + a.end + 16, (uint32_t)a.directory + more);
	put32(a.bytes + head + 8, 2 + more);
	put32(a.bytes + head + 12, 2 + more);
	ck_assert_int_eq(pwrite(b.fd, a.bytes, head, 0), (ssize_t)head);
	ck_assert_int_eq(pwrite(b.fd, a.bytes + head, tail, (off_t)(head + more)),
			 (ssize_t)tail);
	b.size = a.size + more;
	rc = torchfile_open(&f, &b, &why);
	if (rc)
		close(b.fd);
	return rc;
}

START_TEST(a_pickle_is_of_bounded_size)
{
	refused(open_stretched(1 << 30), -EFBIG, "data.pkl has 1073741826 bytes");
}
END_TEST

/* ---- legacy ---- */

static uint8_t legacy[4096];

#define MAGIC                                                                                  \
	"\x80\2\x8a\x0al\xfc\x9c"                                                              \
	"F\xf9 j\xa8P\x19."
#define PROTOCOL "\x80\2M\xe9\3."
#define MACHINE "\x80\2}X\x0d\0\0\0little_endian"

static size_t put_bytes(size_t at, const void *bytes, size_t size)
{
	memcpy(legacy + at, bytes, size);
	return at + size;
}

static size_t begin_legacy(const char *little)
{
	size_t at = put_bytes(0, MAGIC PROTOCOL, sizeof(MAGIC PROTOCOL) - 1);

	at = put_bytes(at, MACHINE, sizeof(MACHINE) - 1);
	at = put_bytes(at, little, 1);
	return put_bytes(at, "s.", 2);
}

static int open_legacy(struct claim c, const char *little, const char *keys, uint64_t numel,
		       size_t data)
{
	size_t at = begin_legacy(little);

	at += put_tensor(legacy + at, &c);
	at = put_bytes(at, keys, strlen(keys));
	put64(legacy + at, numel);
	memset(legacy + at + 8, 'x', data);
	return open_bytes(legacy, at + 8 + data);
}

START_TEST(reads_and_refuses_legacy_files)
{
	ck_assert_int_eq(open_legacy(good, "\x88", "](V0\ne.", 8, 32), 0);
	ck_assert(f.legacy);
	ck_assert_uint_eq(root().tensor.bytes, 24);
	ck_assert_int_eq(memcmp(legacy + root().at, "xxxx", 4), 0);
	ck_assert_int_eq(legacy[root().at - 5], 0);
	ck_assert_ptr_null(root().entry);
	close_it();
	refused(open_legacy(good, "\x89", "](V0\ne.", 8, 32), -EOPNOTSUPP, "big-endian");
	refused(open_legacy(good, "\x88", "](V1\ne.", 8, 32), -EBADMSG, "no tensor has");
	refused(open_legacy(good, "\x88", "](V0\nV0\ne.", 8, 32), -EBADMSG, "no tensor has");
	refused(open_legacy(good, "\x88", "].", 8, 32), -EBADMSG, "storage 0 is not in");
	refused(open_legacy(good, "\x88", "](Ne.", 8, 32), -EBADMSG, "no tensor has");
	refused(open_legacy(good, "\x88", "N.", 8, 32), -EBADMSG, "no list");
	refused(open_legacy(good, "\x88", "](V0\ne.", 8, 31), -EBADMSG, "has 8 elements");
	refused(open_legacy(good, "\x88", "](V0\ne.", 7, 32), -EBADMSG, "8 wanted");
	refused(open_legacy(good, "\x88", "](V0\ne.", (uint64_t)1 << 62, 32), -EBADMSG,
		"8 wanted");
	refused(open_legacy(with(c.offset = 3), "\x88", "](V0\ne.", 8, 32), -EBADMSG,
		"beyond its storage");
}
END_TEST

START_TEST(who_share_a_storage_agree_on_it)
{
	static const struct {
		int32_t numel;
		const char *storage;
	} second[] = { { 7, "FloatStorage" }, { 8, "DoubleStorage" } };

	for (size_t i = 0; i < ARRAY_SIZE(second); i++) {
		struct claim other =
			with(c.numel = second[i].numel, c.storage = second[i].storage);
		size_t at = put_bytes(begin_legacy("\x88"), "](", 2);

		at += put_value(legacy + at, &good);
		at += put_value(legacy + at, &other);
		at = put_bytes(at, "e.](V0\ne.", 9);
		refused(open_bytes(legacy, at), -EBADMSG, "storage 0 has two sizes");
	}
}
END_TEST

START_TEST(a_legacy_file_cut_anywhere_is_refused)
{
	size_t size;

	ck_assert_int_eq(open_legacy(good, "\x88", "](V0\ne.", 8, 32), 0);
	size = f.blob.size;
	close_it();
	while (size--)
		ck_assert_int_ne(open_bytes(legacy, size), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("torchfile");
	TCase *t = tcase_create("torchfile");

	tcase_add_test(t, torch_files_have_what_torch_put_in);
	tcase_add_test(t, legacy_files_have_what_torch_put_in);
	tcase_add_test(t, oracle_files_get_their_verdicts);
	tcase_add_test(t, says_where_a_tensor_is);
	tcase_add_test(t, tells_what_is_contiguous);
	tcase_add_test(t, refuses_tensors_beyond_their_storage);
	tcase_add_test(t, a_tensor_of_many_dimensions_is_left_alone);
	tcase_add_test(t, knows_what_it_does_not_take);
	tcase_add_test(t, a_pickle_is_of_bounded_size);
	tcase_add_test(t, reads_and_refuses_legacy_files);
	tcase_add_test(t, who_share_a_storage_agree_on_it);
	tcase_add_test(t, a_legacy_file_cut_anywhere_is_refused);
	return run_suite(s, t);
}
