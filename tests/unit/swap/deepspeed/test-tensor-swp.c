/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/swap/deepspeed/tensor-swp.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* Names, sizes and bytes of DeepSpeed's swap files, and what is refused. */

static int folder;
static char why[200];

static void setup(void)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/swp.XXXXXX",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(path));
	folder = open(path, O_RDONLY | O_DIRECTORY);
	ck_assert_int_ge(folder, 0);
	why[0] = '\0';
}

static void teardown(void)
{
	close(folder);
}

/* ---- names ---- */

START_TEST(names_are_as_deepspeed_gives_them)
{
	static const struct {
		const char *file;
		struct tensor_swp swp;
	} names[] = {
		{ "0_11.tensor.swp", { "", 0, 11 } },
		{ "7_7.tensor.swp", { "", 7, 7 } },
		{ "exp_avg-0_11.tensor.swp", { "exp_avg", 0, 11 } },
		{ "momentum-buffer-3_18446744073709551615.tensor.swp",
		  { "momentum-buffer", 3, UINT64_MAX } },
	};
	struct tensor_swp got;
	char file[TENSOR_SWP_FILE_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		ck_assert(tensor_swp_parse(names[i].file, &got));
		ck_assert_str_eq(got.key, names[i].swp.key);
		ck_assert_uint_eq(got.first, names[i].swp.first);
		ck_assert_uint_eq(got.last, names[i].swp.last);
		tensor_swp_name(&names[i].swp, file);
		ck_assert_str_eq(file, names[i].file);
	}
}
END_TEST

START_TEST(other_names_are_no_states)
{
	static const char *const names[] = {
		"0_11_gradient_0_524288.tensor.swp",
		"12_param.tensor.swp",
		".tensor.swp",
		"0_11.tensor.swp.new",
		"0_11.tensor.swp.tensor.swp",
		"0_11",
		"_11.tensor.swp",
		"0_.tensor.swp",
		"01_2.tensor.swp",
		"0_11 .tensor.swp",
		"+0_11.tensor.swp",
		"0_18446744073709551616.tensor.swp",
		"-0_11.tensor.swp",
		".x-0_11.tensor.swp",
		"fp32-0_11.tensor.swp",
		"grad-0_11.tensor.swp",
		"a_key_of_sixty_four_characters_is_one_more_than_the_engine_takes-0_1.tensor."
		"swp",
	};
	struct tensor_swp got;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		ck_assert_msg(!tensor_swp_parse(names[i], &got), "%s", names[i]);
}
END_TEST

/* ---- bytes ---- */

struct memory {
	uint8_t *bytes;
	uint64_t size;
	int error;
};

static int give(void *arg, uint64_t offset, void *data, size_t size)
{
	const struct memory *m = arg;

	ck_assert_uint_le(offset + size, m->size);
	memcpy(data, m->bytes + offset, size);
	return m->error;
}

static int take(void *arg, uint64_t offset, void *data, size_t size)
{
	const struct memory *m = arg;

	ck_assert_uint_le(offset + size, m->size);
	memcpy(m->bytes + offset, data, size);
	return m->error;
}

static struct memory some(uint64_t size)
{
	struct memory m = { malloc(size + 1), size, 0 };

	ck_assert_ptr_nonnull(m.bytes);
	for (uint64_t i = 0; i < size; i++)
		m.bytes[i] = (uint8_t)(i * 7 + i / 251);
	return m;
}

static int put(struct memory *m, unsigned threads)
{
	return tensor_swp_write(folder, "0_1.tensor.swp", m->size, threads, give, m, why,
				sizeof(why));
}

static off_t size_of(const char *file)
{
	struct stat st;

	return fstatat(folder, file, &st, AT_SYMLINK_NOFOLLOW) ? -errno : st.st_size;
}

static void check_is(struct memory *m)
{
	struct memory got = some(m->size);
	int fd = tensor_swp_open(folder, "0_1.tensor.swp", m->size, why, sizeof(why));

	ck_assert_msg(fd >= 0, "%s", why);
	memset(got.bytes, 0xee, got.size);
	ck_assert_int_eq(tensor_swp_read(fd, got.size, take, &got), 0);
	ck_assert_mem_eq(got.bytes, m->bytes, m->size);
	close(fd);
	free(got.bytes);
}

START_TEST(what_is_written_is_padded_with_zeros_for_each_thread_and_is_read_again)
{
	static const uint64_t sizes[] = { 4, 1024, 1028, 7168, (1 << 20) + 4, 2 << 20 };

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		for (unsigned threads = 1; threads <= 7; threads += 3) {
			struct memory m = some(sizes[i]);
			uint64_t unit = threads * 1024,
				 padded = (sizes[i] + unit - 1) / unit * unit;
			uint8_t last = 1;
			int fd;

			ck_assert_int_eq(put(&m, threads), 0);
			ck_assert_int_eq(size_of("0_1.tensor.swp"), (off_t)padded);
			ck_assert_int_eq(size_of("0_1.tensor.swp.new"), -ENOENT);
			check_is(&m);
			fd = openat(folder, "0_1.tensor.swp", O_RDONLY);
			if (padded > sizes[i])
				ck_assert_int_eq(pread(fd, &last, 1, (off_t)padded - 1), 1);
			ck_assert(padded == sizes[i] || !last);
			close(fd);
			free(m.bytes);
		}
}
END_TEST

/* ---- what is refused ---- */

static void make(const char *file, off_t size)
{
	int fd = openat(folder, file, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, size), 0);
	close(fd);
}

static void refused(uint64_t bytes, int error, const char *line)
{
	ck_assert_int_eq(tensor_swp_open(folder, "0_1.tensor.swp", bytes, why, sizeof(why)),
			 error);
	ck_assert_str_eq(why, line);
}

START_TEST(a_size_that_the_elements_cannot_have_is_refused)
{
	make("0_1.tensor.swp", 4096);
	refused(4097, -EINVAL,
		"0_1.tensor.swp: has 4096 bytes, not 4097 rounded up to a multiple of 1024");
	make("0_1.tensor.swp", 5000);
	refused(5000, -EINVAL,
		"0_1.tensor.swp: has 5000 bytes, not 5000 rounded up to a multiple of 1024");
	make("0_1.tensor.swp", 0);
	refused(4, -EINVAL,
		"0_1.tensor.swp: has 0 bytes, not 4 rounded up to a multiple of 1024");
	make("0_1.tensor.swp", 1 << 20);
	refused(4, -EINVAL,
		"0_1.tensor.swp: has 1048576 bytes, not 4 rounded up to a multiple of 1024");
}
END_TEST

START_TEST(what_is_no_plain_file_is_refused)
{
	refused(4096, -ENOENT, "0_1.tensor.swp: No such file or directory");
	make("target", 4096);
	ck_assert_int_eq(symlinkat("target", folder, "0_1.tensor.swp"), 0);
	refused(4096, -ELOOP, "0_1.tensor.swp: a symbolic link");
	unlinkat(folder, "0_1.tensor.swp", 0);
	ck_assert_int_eq(mkfifoat(folder, "0_1.tensor.swp", 0600), 0);
	refused(4096, -EINVAL, "0_1.tensor.swp: not a plain file");
	unlinkat(folder, "0_1.tensor.swp", 0);
	ck_assert_int_eq(mkdirat(folder, "0_1.tensor.swp", 0700), 0);
	refused(4096, -EINVAL, "0_1.tensor.swp: not a plain file");
}
END_TEST

START_TEST(a_file_that_becomes_shorter_is_an_error)
{
	struct memory m = some(8192);
	int fd;

	ck_assert_int_eq(put(&m, 1), 0);
	fd = tensor_swp_open(folder, "0_1.tensor.swp", m.size, why, sizeof(why));
	make("0_1.tensor.swp", 4096);
	ck_assert_int_eq(tensor_swp_read(fd, m.size, take, &m), -EIO);
	close(fd);
	free(m.bytes);
}
END_TEST

START_TEST(an_error_of_the_memory_is_passed_on)
{
	struct memory m = some(4096);
	int fd;

	ck_assert_int_eq(put(&m, 1), 0);
	m.error = -EFAULT;
	fd = tensor_swp_open(folder, "0_1.tensor.swp", m.size, why, sizeof(why));
	ck_assert_int_eq(tensor_swp_read(fd, m.size, take, &m), -EFAULT);
	ck_assert_int_eq(put(&m, 1), -EFAULT);
	ck_assert_int_eq(size_of("0_1.tensor.swp.new"), -ENOENT);
	m.error = 0;
	check_is(&m);
	close(fd);
	free(m.bytes);
}
END_TEST

START_TEST(a_disk_that_fails_and_a_lack_of_memory_are_passed_on)
{
	struct memory m = some(4096);
	int fd, rc;

	ck_assert_int_eq(put(&m, 1), 0);
	fd = tensor_swp_open(folder, "0_1.tensor.swp", m.size, why, sizeof(why));
	scarce_io(1, -1, EIO);
	ck_assert_int_eq(tensor_swp_read(fd, m.size, take, &m), -EIO);
	scarce_io(1, -1, EINTR);
	ck_assert_int_eq(tensor_swp_read(fd, m.size, take, &m), 0);
	scarce_begin(1, 1);
	rc = tensor_swp_read(fd, m.size, take, &m);
	ck_assert_uint_eq(scarce_end(), 1);
	ck_assert_int_eq(rc, -ENOMEM);
	scarce_begin(1, 1);
	rc = put(&m, 1);
	ck_assert_uint_eq(scarce_end(), 1);
	ck_assert_int_eq(rc, -ENOMEM);
	ck_assert_int_eq(size_of("0_1.tensor.swp.new"), -ENOENT);
	check_is(&m);
	close(fd);
	free(m.bytes);
}
END_TEST

/* ---- writing that fails ---- */

START_TEST(a_disk_without_room_leaves_what_was_there)
{
	struct rlimit limit = { 4096, RLIM_INFINITY };
	struct memory old = some(4096), next = some(1 << 20);

	ck_assert_int_eq(put(&old, 1), 0);
	signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	ck_assert_int_eq(put(&next, 1), -EFBIG);
	limit.rlim_cur = RLIM_INFINITY;
	setrlimit(RLIMIT_FSIZE, &limit);
	ck_assert_str_eq(why, "0_1.tensor.swp: File too large");
	ck_assert_int_eq(size_of("0_1.tensor.swp.new"), -ENOENT);
	check_is(&old);
	free(old.bytes);
	free(next.bytes);
}
END_TEST

START_TEST(a_folder_of_that_name_or_none_is_an_error)
{
	struct memory m = some(16);

	ck_assert_int_eq(mkdirat(folder, "0_1.tensor.swp", 0700), 0);
	ck_assert_int_eq(put(&m, 1), -EISDIR);
	ck_assert_int_eq(size_of("0_1.tensor.swp.new"), -ENOENT);
	ck_assert_int_eq(mkdirat(folder, "0_1.tensor.swp.new", 0700), 0);
	ck_assert_int_eq(put(&m, 1), -EEXIST);
	free(m.bytes);
}
END_TEST

/* A link that waits under the temporary name is not written through. */
START_TEST(a_link_is_not_followed_when_writing)
{
	struct memory m = some(16);

	make("target", 0);
	ck_assert_int_eq(symlinkat("target", folder, "0_1.tensor.swp.new"), 0);
	ck_assert_int_eq(symlinkat("target", folder, "0_1.tensor.swp"), 0);
	ck_assert_int_eq(put(&m, 1), 0);
	ck_assert_int_eq(size_of("target"), 0);
	check_is(&m);
	free(m.bytes);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tensor-swp");
	TCase *tcase = tcase_create("tensor-swp");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, names_are_as_deepspeed_gives_them);
	tcase_add_test(tcase, other_names_are_no_states);
	tcase_add_test(tcase,
		       what_is_written_is_padded_with_zeros_for_each_thread_and_is_read_again);
	tcase_add_test(tcase, a_size_that_the_elements_cannot_have_is_refused);
	tcase_add_test(tcase, what_is_no_plain_file_is_refused);
	tcase_add_test(tcase, a_file_that_becomes_shorter_is_an_error);
	tcase_add_test(tcase, an_error_of_the_memory_is_passed_on);
	tcase_add_test(tcase, a_disk_that_fails_and_a_lack_of_memory_are_passed_on);
	tcase_add_test(tcase, a_disk_without_room_leaves_what_was_there);
	tcase_add_test(tcase, a_folder_of_that_name_or_none_is_an_error);
	tcase_add_test(tcase, a_link_is_not_followed_when_writing);
	return run_suite(suite, tcase);
}
