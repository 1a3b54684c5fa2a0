/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/launch/fabric-config.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <sys/stat.h>

static char sys[512], why[300];

static void set(const char *fabric, const char *devices, const char *open)
{
	const char *const names[] = { "FRAG_FABRIC", "FRAG_FABRIC_DEVICES",
				      "FRAG_FABRIC_OPEN" };
	const char *const values[] = { fabric, devices, open };

	for (int i = 0; i < 3; i++)
		values[i] ? setenv(names[i], values[i], 1) : unsetenv(names[i]);
}

/* ---- what the environment says ---- */

START_TEST(without_a_word_there_is_none)
{
	struct fabric_config c;

	set(NULL, NULL, NULL);
	ck_assert_int_eq(fabric_config_read(&c, why, sizeof(why)), 0);
	ck_assert(!c.wanted && !c.open && !c.devices[0]);
	set("", "", "");
	ck_assert_int_eq(fabric_config_read(&c, why, sizeof(why)), 0);
	ck_assert(!c.wanted && !c.open && !c.devices[0]);
}
END_TEST

START_TEST(what_is_said_is_read)
{
	struct fabric_config c;

	set("ucx", "mlx5_0:1,mlx5_1:1", "0");
	ck_assert_int_eq(fabric_config_read(&c, why, sizeof(why)), 0);
	ck_assert(c.wanted && !c.open);
	ck_assert_str_eq(c.devices, "mlx5_0:1,mlx5_1:1");
	set("ucx", "lo", "1");
	ck_assert_int_eq(fabric_config_read(&c, why, sizeof(why)), 0);
	ck_assert(c.open);
}
END_TEST

START_TEST(what_is_no_setting_is_named)
{
	struct fabric_config c;
	char many[512];

	set("uxc", NULL, NULL);
	ck_assert_int_eq(fabric_config_read(&c, why, sizeof(why)), -EINVAL);
	ck_assert_str_eq(why, "FRAG_FABRIC=uxc is not ucx");
	set("ucx", "lo", "yes");
	ck_assert_int_eq(fabric_config_read(&c, why, sizeof(why)), -EINVAL);
	ck_assert_str_eq(why, "FRAG_FABRIC_OPEN=yes is neither 0 nor 1");
	memset(many, 'x', sizeof(many) - 1);
	many[sizeof(many) - 1] = '\0';
	set("ucx", many, NULL);
	ck_assert_int_eq(fabric_config_read(&c, why, sizeof(why)), -EINVAL);
	ck_assert_str_eq(why, "FRAG_FABRIC_DEVICES is longer than 255 bytes");
}
END_TEST

/* ---- devices of a machine that is made up but for its "lo" ---- */

static void make(const char *path, const char *text)
{
	char full[1024];
	FILE *file;

	for (const char *slash = path; (slash = strchr(slash, '/')); slash++) {
		snprintf(full, sizeof(full), "%s/%.*s", sys, (int)(slash - path), path);
		mkdir(full, 0700);
	}
	snprintf(full, sizeof(full), "%s/%s", sys, path);
	file = fopen(full, "we");
	ck_assert_ptr_nonnull(file);
	fputs(text, file);
	fclose(file);
}

static void make_machine(void)
{
	const char *folder = getenv("TMPDIR");

	snprintf(sys, sizeof(sys), "%.400s/sys-%d", folder ? folder : "/tmp", (int)getpid());
	mkdir(sys, 0700);
	make("class/net/lo/type", "772\n");
	make("class/net/nodev0/type", "1\n");
	make("class/infiniband/ib0/ports/1/gid_attrs/ndevs/0", "lo\n");
	make("class/infiniband/ib0/ports/2/gid_attrs/ndevs/0", "nodev0\n");
	make("class/infiniband/ib1/ports/1/gid_attrs/ndevs/0", "");
	make("class/infiniband/ib1/ports/2/state", "4: ACTIVE\n");
}

static int look(const char *devices, bool open, struct fabric_devices *found)
{
	struct fabric_config c = { .wanted = true, .open = open };

	make_machine();
	snprintf(c.devices, sizeof(c.devices), "%s", devices);
	why[0] = '\0';
	return fabric_config_devices(&c, sys, found, why, sizeof(why));
}

START_TEST(a_device_has_its_address)
{
	struct fabric_devices found;

	ck_assert_int_eq(look("lo", true, &found), 0);
	ck_assert(!found.rdma);
	ck_assert_str_eq(found.address, "ucx://127.0.0.1");
	ck_assert_int_eq(look("ib0", false, &found), 0);
	ck_assert(found.rdma);
	ck_assert_str_eq(found.address, "ucx://127.0.0.1");
	ck_assert_int_eq(look("ib0:1,ib0:2", false, &found), 0);
	ck_assert_str_eq(found.address, "ucx://127.0.0.1"); /* the first one's */
}
END_TEST

static const struct {
	const char *devices;
	bool open;
	int result;
	const char *words;
} refused[] = {
	{ "", true, -EINVAL, "FRAG_FABRIC_DEVICES does not say" },
	{ "lo", false, -EACCES, "FRAG_FABRIC_OPEN=1 says" },
	{ "lo,ib0", true, -EINVAL, "of two kinds" },
	{ "ib0,lo", true, -EINVAL, "of two kinds" },
	{ "eth9", true, -ENODEV, "no device eth9" },
	{ "lo,", true, -ENODEV, "no device " },
	{ "../net/lo", true, -ENODEV, "no device ../net/lo" },
	{ "ib9:1", false, -ENODEV, "no device ib9:1" },
	{ "ib0:3", false, -ENODEV, "no device ib0:3" },
	{ "ib1:1", false, -ENODEV, "no device ib1:1" },
	{ "ib1:2", false, -ENODEV, "no device ib1:2" },
	{ "nodev0", true, -EADDRNOTAVAIL, "nodev0 has no IPv4 address" },
	{ "ib0:2", false, -EADDRNOTAVAIL, "nodev0 has no IPv4 address" },
};

static bool runs = true;

int __real_getifaddrs(struct ifaddrs **all);
int __wrap_getifaddrs(struct ifaddrs **all);
int __wrap_getifaddrs(struct ifaddrs **all)
{
	int rc = __real_getifaddrs(all);

	for (struct ifaddrs *i = *all; !rc && !runs && i; i = i->ifa_next)
		i->ifa_flags &= ~(unsigned)IFF_RUNNING;
	return rc;
}

START_TEST(a_device_that_is_down_is_refused)
{
	struct fabric_devices found;

	runs = false;
	ck_assert_int_eq(look("lo", true, &found), -ENETDOWN);
	ck_assert_str_eq(why, "lo is down");
	runs = true;
	ck_assert_int_eq(look("lo", true, &found), 0);
}
END_TEST

START_TEST(what_is_no_closed_fabric_is_refused)
{
	struct fabric_devices found;

	ck_assert_int_eq(look(refused[_i].devices, refused[_i].open, &found),
			 refused[_i].result);
	ck_assert_msg(strstr(why, refused[_i].words) != NULL, "%s", why);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fabric-config");
	TCase *t = tcase_create("fabric-config");

	tcase_add_test(t, without_a_word_there_is_none);
	tcase_add_test(t, what_is_said_is_read);
	tcase_add_test(t, what_is_no_setting_is_named);
	tcase_add_test(t, a_device_has_its_address);
	tcase_add_test(t, a_device_that_is_down_is_refused);
	tcase_add_loop_test(t, what_is_no_closed_fabric_is_refused, 0, ARRAY_SIZE(refused));
	return run_suite(s, t);
}
