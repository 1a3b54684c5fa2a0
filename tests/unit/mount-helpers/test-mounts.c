/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/mounts.h"
#include "mount-helpers/settings.h"
#include "tests/run-suite.h"

static char table[] = "/dev/vda1 / ext4 rw,relatime 0 0\n"
		      "node0:21017 /frag fuse.fragfs ro,nosuid,nodev,user_id=0,group_id=0 0 0\n"
		      "127.0.0.1:21017 /mnt/a\\040b\\134 fuse.fragfs rw,user_id=0 0 0\n"
		      "host: /other fuse.sshfs rw 0 0\n"
		      "cut\n";

START_TEST(mounts_of_fragfs_are_found)
{
	FILE *file = fmemopen(table, sizeof(table) - 1, "r");
	struct mount_entry *m;

	ck_assert_int_eq(mounts_read(file, true, &m), 2);
	ck_assert_str_eq(m[0].mountpoint, "/frag");
	ck_assert_str_eq(m[0].source, "node0:21017");
	ck_assert_str_eq(m[1].mountpoint, "/mnt/a b\\");
	mounts_free(m, 2);
	fclose(file);
}
END_TEST

START_TEST(private_mounts_of_fragctl_are_left_out)
{
	static char lines[] = "a /tmp/fragctl.0123456789abcdef fuse.fragfs ro 0 0\n"
			      "b /tmp/fragctl.0123456789abcde fuse.fragfs ro 0 0\n"
			      "c /tmp/fragctl.0123456789abcdefa fuse.fragfs ro 0 0\n"
			      "d /tmp/fragctl.0123456789abcdeg fuse.fragfs ro 0 0\n"
			      "e /tmp/fragctl.0123456789abcdef/f fuse.fragfs ro 0 0\n";
	FILE *file = fmemopen(lines, sizeof(lines) - 1, "r");
	struct mount_entry *m;
	int n = mounts_read(file, false, &m);

	ck_assert_int_eq(n, 4);
	for (int i = 0; i < n; i++)
		ck_assert_int_eq(*m[i].source, "bcde"[i]);
	mounts_free(m, n);
	rewind(file);
	ck_assert_int_eq(mounts_read(file, true, &m), 5);
	mounts_free(m, 5);
	fclose(file);
}
END_TEST

START_TEST(no_mounts_are_no_error)
{
	FILE *file = fmemopen(table, 33, "r");
	struct mount_entry *m;

	ck_assert_int_eq(mounts_read(file, true, &m), 0);
	mounts_free(m, 0);
	fclose(file);
}
END_TEST

START_TEST(the_chosen_word_of_a_kernel_setting_is_found)
{
	char word[16];

	settings_chosen("always [madvise] never\n", word, sizeof(word));
	ck_assert_str_eq(word, "madvise");
	settings_chosen("1\n", word, sizeof(word));
	ck_assert_str_eq(word, "1");
	settings_chosen("", word, sizeof(word));
	ck_assert_str_eq(word, "");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("mounts");
	TCase *t = tcase_create("mounts");

	tcase_add_test(t, mounts_of_fragfs_are_found);
	tcase_add_test(t, private_mounts_of_fragctl_are_left_out);
	tcase_add_test(t, no_mounts_are_no_error);
	tcase_add_test(t, the_chosen_word_of_a_kernel_setting_is_found);
	return run_suite(s, t);
}
