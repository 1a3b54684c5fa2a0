/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/mount-options.h"
#include "tests/run-suite.h"

static void expect(const char *options, const char *expected)
{
	char *got = mount_options_for_fragfs(options);

	ck_assert_str_eq(got, expected);
	free(got);
}

START_TEST(the_rw_of_mount_does_not_make_it_writable)
{
	expect(NULL, "ro");
	expect("", "ro");
	expect("rw", "ro");
	expect("rw,rw", "ro");
}
END_TEST

START_TEST(edit_makes_it_writable_unless_ro)
{
	expect("rw,edit", "rw");
	expect("edit", "rw");
	expect("ro,edit", "ro");
	expect("edit,ro", "ro");
	expect("overlay=/o", "rw,overlay=/o");
	expect("ro,overlay=/o", "ro,overlay=/o"); /* fragfs refuses it */
}
END_TEST

START_TEST(what_is_for_others_is_left_out)
{
	expect("rw,_netdev,noauto,nofail,user=joe,x-systemd.automount,X-mount.mkdir=0755",
	       "ro");
	expect("rw,defaults,users,comment=a b", "ro");
}
END_TEST

START_TEST(the_rest_is_handed_on_in_order)
{
	expect("rw,allow_other,_netdev,timeout=5,gather=nccl",
	       "ro,allow_other,timeout=5,gather=nccl");
	expect("rw,,nosuid,nodev,", "ro,nosuid,nodev");
	expect("username,autox,x", "ro,username,autox,x");
}
END_TEST

START_TEST(a_comma_in_quotes_does_not_end_an_option)
{
	expect("rw,key=\"/a,ro\",edit", "rw,key=/a\\,ro");
	expect("key=\"/a\\b,c\"", "ro,key=/a\\\\b\\,c");
	expect("key=\"/a b\"", "ro,key=/a b");
	expect("context=\"u:r:t:s0:c1,c2\"", "ro,context=\"u:r:t:s0:c1\\,c2\"");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("mount-options");
	TCase *t = tcase_create("mount-options");

	tcase_add_test(t, the_rw_of_mount_does_not_make_it_writable);
	tcase_add_test(t, edit_makes_it_writable_unless_ro);
	tcase_add_test(t, what_is_for_others_is_left_out);
	tcase_add_test(t, the_rest_is_handed_on_in_order);
	tcase_add_test(t, a_comma_in_quotes_does_not_end_an_option);
	return run_suite(s, t);
}
