/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/parse/zip.h"
#include "tests/run-suite.h"
#include "tests/unit/checkpoint/parse/archive.h"
#include "tests/unit/memfile.h"

#include <errno.h>
#include <string.h>

static struct archive a;
static struct zip z;
static struct parse_error why;

static void make(void)
{
	memset(&a, 0, sizeof(a));
	archive_add(&a, "top/data.pkl", "pickle", 6);
	archive_add(&a, "top/data/0", "0123456789abcdef", 16);
	archive_add(&a, "top/data/1", "", 0);
	archive_add(&a, "top/version", "3\n", 2);
	archive_end(&a, NULL);
}

static int open_it(void)
{
	struct blob b = memfile(a.bytes, a.size);
	int rc;

	memset(&why, 0, sizeof(why));
	rc = zip_open(&z, &b, &why);
	if (rc)
		close(b.fd);
	ck_assert_int_eq(!rc, !*why.why);
	return rc;
}

static void close_it(void)
{
	close(z.blob.fd);
	zip_close(&z);
}

#define refused(rc, line)                                                                      \
	do {                                                                                   \
		ck_assert_int_eq(open_it(), rc);                                               \
		ck_assert_msg(strstr(why.why, line), "%s", why.why);                           \
	} while (0)

static void check_entries(void)
{
	for (unsigned i = 0; i < a.nentries; i++) {
		const struct zip_entry *e = zip_find(&z, strchr(a.entries[i].name, '/') + 1);

		ck_assert_ptr_nonnull(e);
		ck_assert_uint_eq(e->header, a.entries[i].local);
		ck_assert_uint_eq(e->data, a.entries[i].data);
		ck_assert_uint_eq(e->size, a.entries[i].size);
		ck_assert_uint_eq(e->crc,
				  archive_crc(a.bytes + a.entries[i].data, a.entries[i].size));
	}
	ck_assert_ptr_null(zip_find(&z, "data/2"));
	ck_assert_ptr_null(zip_find(&z, "top/data/0"));
}

START_TEST(finds_entries)
{
	make();
	ck_assert_int_eq(open_it(), 0);
	ck_assert_uint_eq(z.nentries, 4);
	ck_assert_str_eq(z.top, "top");
	check_entries();
	close_it();
}
END_TEST

START_TEST(takes_an_archive_inside_a_file)
{
	static uint8_t file[ARCHIVE_MAX];
	struct blob b, part;

	make();
	memcpy(file + 777, a.bytes, a.size);
	b = memfile(file, a.size + 1000);
	ck_assert_int_eq(blob_part(&b, 777, a.size, &part, &why), 0);
	ck_assert_int_eq(zip_open(&z, &part, &why), 0);
	check_entries();
	zip_close(&z);
	ck_assert_int_eq(zip_open(&z, &b, &why), -EBADMSG);
	ck_assert_int_eq(blob_part(&b, 777, a.size + 1000, &part, &why), -EBADMSG);
	close(b.fd);
}
END_TEST

START_TEST(takes_a_comment_and_the_old_end_alone)
{
	memset(&a, 0, sizeof(a));
	archive_add(&a, "top/data.pkl", "pickle", 6);
	archive_end(&a, "of ours");
	memset(a.bytes + a.locator, 0, 4);
	ck_assert_int_eq(open_it(), 0);
	check_entries();
	close_it();
}
END_TEST

START_TEST(says_where_the_crcs_are)
{
	struct zip_crc_places at;

	make();
	ck_assert_int_eq(open_it(), 0);
	ck_assert_int_eq(zip_crc_places(&z, zip_find(&z, "data/0"), &at, &why), 0);
	ck_assert_uint_eq(at.central, a.entries[1].central + 16);
	ck_assert_uint_eq(at.local, a.entries[1].data + 16 + 4);
	ck_assert_int_eq(memcmp(a.bytes + at.central, a.bytes + at.local, 4), 0);
	close_it();
	put16(a.bytes + a.entries[1].central + 8, 0x800);
	ck_assert_int_eq(open_it(), 0);
	ck_assert_int_eq(zip_crc_places(&z, zip_find(&z, "data/0"), &at, &why), 0);
	ck_assert_uint_eq(at.local, a.entries[1].local + 14);
	ck_assert_int_eq(zip_crc_places(&z, zip_find(&z, "data.pkl"), &at, &why), 0);
	close_it();
	a.bytes[a.entries[1].data - 64 - 1] ^= 1; /* padding: nothing */
	a.bytes[a.entries[0].data + 6] = 'p';
	ck_assert_int_eq(open_it(), 0);
	ck_assert_int_eq(zip_crc_places(&z, zip_find(&z, "data.pkl"), &at, &why), -EBADMSG);
	close_it();
}
END_TEST

/* A record whose numbers are full has them in an extra field: the last record gets one. */
static void add_zip64(uint64_t size, uint64_t header, size_t field)
{
	uint8_t *at = a.bytes + a.end64;
	size_t last = a.entries[a.nentries - 1].central;
	struct archive was = a;

	put32(a.bytes + last + 20, 0xffffffff);
	put32(a.bytes + last + 24, 0xffffffff);
	put32(a.bytes + last + 42, 0xffffffff);
	put16(a.bytes + last + 30, (uint16_t)(4 + field));
	put16(at, 1);
	put16(at + 2, (uint16_t)field);
	put64(at + 4, size);
	put64(at + 12, size);
	put64(at + 20, header);
	memcpy(at + 4 + field, was.bytes + was.end64, was.size - was.end64);
	a.end64 += 4 + field;
	a.locator += 4 + field;
	a.end += 4 + field;
	a.size += 4 + field;
	put64(a.bytes + a.end64 + 40, a.end64 - a.directory);
	put32(a.bytes + a.end + 12, (uint32_t)(a.end64 - a.directory));
	put64(a.bytes + a.locator + 8, a.end64);
}

START_TEST(takes_zip64_fields)
{
	make();
	add_zip64(2, a.entries[3].local, 24);
	ck_assert_int_eq(open_it(), 0);
	check_entries();
	close_it();
	make();
	add_zip64((uint64_t)1 << 63, a.entries[3].local, 24);
	refused(-EBADMSG, "does not end in the file");
	make();
	add_zip64(UINT64_MAX, a.entries[3].local, 24);
	refused(-EBADMSG, "does not end in the file");
	make();
	add_zip64(2, UINT64_MAX - 10, 24);
	refused(-EBADMSG, "wanted at byte");
	make();
	add_zip64(2, a.entries[3].local, 16);
	refused(-EBADMSG, "broken zip directory");
}
END_TEST

START_TEST(refuses_what_is_cut_short)
{
	make();
	for (size_t size = a.size; size--;) {
		a.size = size;
		ck_assert_int_ne(open_it(), 0);
	}
}
END_TEST

START_TEST(refuses_bytes_after_the_end_and_two_ends)
{
	make();
	a.bytes[a.size++] = 0;
	refused(-EBADMSG, "bytes after one");
	memset(&a, 0, sizeof(a));
	archive_add(&a, "top/data.pkl", "pickle", 6);
	archive_end(&a, "PK\5\6 a comment that is long enough for one");
	refused(-EBADMSG, "two ends");
	make();
	put16(a.bytes + a.end + 20, 22);
	archive_put(&a, a.bytes + a.end, 22);
	put16(a.bytes + a.end + 22 + 20, 0);
	refused(-EBADMSG, "two ends");
}
END_TEST

START_TEST(refuses_ends_that_disagree)
{
	make();
	put64(a.bytes + a.end64 + 48, a.directory + 1);
	refused(-EBADMSG, "differ");
	make();
	put16(a.bytes + a.end + 10, 3);
	refused(-EBADMSG, "differ");
	make();
	put64(a.bytes + a.locator + 8, a.end64 - 1);
	refused(-EBADMSG, "no zip64 end");
	make();
	put64(a.bytes + a.end64 + 24, 3);
	refused(-EBADMSG, "no zip64 end");
	make();
	memset(a.bytes + a.locator, 0, 4);
	put16(a.bytes + a.end + 8, 3);
	refused(-EOPNOTSUPP, "several disks");
}
END_TEST

static void set_directory(uint64_t count, uint64_t size, uint64_t at)
{
	make();
	put64(a.bytes + a.end64 + 24, count);
	put64(a.bytes + a.end64 + 32, count);
	put64(a.bytes + a.end64 + 40, size);
	put64(a.bytes + a.end64 + 48, at);
	put16(a.bytes + a.end + 8, 0xffff);
	put16(a.bytes + a.end + 10, 0xffff);
	put32(a.bytes + a.end + 12, 0xffffffff);
	put32(a.bytes + a.end + 16, 0xffffffff);
}

START_TEST(refuses_directories_that_lie)
{
	size_t at, size;

	make();
	at = a.directory;
	size = a.end64 - at;
	set_directory(4, size, at);
	ck_assert_int_eq(open_it(), 0);
	close_it();
	set_directory(0, size, at);
	refused(-EBADMSG, "without entries");
	set_directory(3, size, at);
	refused(-EBADMSG, "broken zip directory");
	set_directory(5, size, at);
	refused(-EBADMSG, "no room");
	set_directory((uint64_t)1 << 40, size, at);
	refused(-EFBIG, "zip entries");
	set_directory(4, (uint64_t)1 << 40, at);
	refused(-EFBIG, "zip entries");
	set_directory(4, size, UINT64_MAX - 4);
	refused(-EBADMSG, "no room");
	set_directory(4, size + 1, at);
	refused(-EBADMSG, "no room");
	set_directory(4, size - 1, at + 1);
	refused(-EBADMSG, "broken zip directory");
}
END_TEST

START_TEST(refuses_compressed_and_encrypted_entries)
{
	make();
	put16(a.bytes + a.entries[1].central + 10, 8);
	refused(-EOPNOTSUPP, "is compressed (method 8)");
	make();
	put16(a.bytes + a.entries[1].central + 8, 0x809);
	refused(-EOPNOTSUPP, "is encrypted");
	make();
	put32(a.bytes + a.entries[1].central + 20, 15);
	refused(-EBADMSG, "16 bytes in 15");
}
END_TEST

START_TEST(refuses_overlaps)
{
	make();
	put32(a.bytes + a.entries[0].central + 20, 100);
	put32(a.bytes + a.entries[0].central + 24, 100);
	refused(-EBADMSG, "overlaps");
	make();
	put32(a.bytes + a.entries[3].central + 20, 30);
	put32(a.bytes + a.entries[3].central + 24, 30);
	refused(-EBADMSG, "overlaps");
}
END_TEST

START_TEST(refuses_names_that_differ)
{
	make();
	a.bytes[a.entries[1].local + 31] ^= 1;
	refused(-EBADMSG, "is not at byte");
	make();
	put32(a.bytes + a.entries[1].central + 42, (uint32_t)a.entries[2].local);
	refused(-EBADMSG, "is not at byte");
}
END_TEST

static void rename_entry(unsigned i, char c, size_t at)
{
	a.bytes[a.entries[i].local + 30 + at] = (uint8_t)c;
	a.bytes[a.entries[i].central + 46 + at] = (uint8_t)c;
}

START_TEST(refuses_bad_names)
{
	make();
	rename_entry(2, '0', strlen("top/data/"));
	refused(-EBADMSG, "two zip entries data/0");
	make();
	rename_entry(2, 'T', 0);
	refused(-EBADMSG, "is not below top");
	make();
	rename_entry(2, '\0', 5);
	refused(-EBADMSG, "broken zip directory");
	make();
	rename_entry(2, '\xff', 5);
	refused(-EBADMSG, "broken zip directory");
	make();
	rename_entry(3, '-', 3);
	refused(-EBADMSG, "broken zip directory");
}
END_TEST

START_TEST(says_what_does_not_print_safely)
{
	make();
	rename_entry(2, '\n', 5);
	put16(a.bytes + a.entries[2].central + 10, 8);
	refused(-EOPNOTSUPP, "top/d%0Ata/1");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("zip");
	TCase *t = tcase_create("zip");

	tcase_add_test(t, finds_entries);
	tcase_add_test(t, takes_an_archive_inside_a_file);
	tcase_add_test(t, takes_a_comment_and_the_old_end_alone);
	tcase_add_test(t, says_where_the_crcs_are);
	tcase_add_test(t, takes_zip64_fields);
	tcase_add_test(t, refuses_what_is_cut_short);
	tcase_add_test(t, refuses_bytes_after_the_end_and_two_ends);
	tcase_add_test(t, refuses_ends_that_disagree);
	tcase_add_test(t, refuses_directories_that_lie);
	tcase_add_test(t, refuses_compressed_and_encrypted_entries);
	tcase_add_test(t, refuses_overlaps);
	tcase_add_test(t, refuses_names_that_differ);
	tcase_add_test(t, refuses_bad_names);
	tcase_add_test(t, says_what_does_not_print_safely);
	return run_suite(s, t);
}
