/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* A port of devices where the machine has no memory at the n-th call, for each n, and memory
 * that is none of theirs.
 */

#include "tests/ports/device-host.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

enum { BYTES = 4096, WAIT_MS = 60000 };

static _Alignas(4096) uint8_t memory[2 * BYTES], pinned[BYTES];
static struct device *d;

static int open_port(void)
{
	return device_host.open(&d, &(struct device_options){ .keep = 2 * BYTES });
}

static int use_port(void)
{
	int rc = device_host.use(d, 0);

	if (!rc)
		rc = device_host_give(d, 0, memory, BYTES, memory);
	if (!rc)
		rc = device_host.pin(d, pinned, sizeof(pinned));
	return rc;
}

/* Marks, and keeps in memory of the port's and of ours. */
static int keep(void)
{
	struct device_event *event;
	struct device_kept *kept;
	int rc = device_host.mark(d, 0, NULL, &event);

	if (rc)
		return rc;
	device_host.unmark(d, event);
	for (int own = 0; own < 2 && !rc; own++) {
		rc = device_host.preserve(d, 0, NULL, memory, BYTES, own ? NULL : pinned,
					  &kept);
		if (!rc)
			device_host.release(d, kept);
	}
	return rc;
}

static int try_all(void)
{
	int rc = open_port();

	if (rc)
		return rc;
	rc = use_port();
	if (!rc)
		rc = keep();
	device_host.close(d);
	return rc;
}

START_TEST(a_port_does_what_it_is_told_or_says_what_is_wanting)
{
	unsigned n = 0, failed;
	int rc;

	do {
		scarce_begin(++n, 1);
		rc = try_all();
		failed = scarce_end();
		ck_assert_msg(failed ? rc == -ENOMEM || rc == -EAGAIN : !rc, "%u: %d", n, rc);
	} while (failed);
	ck_assert_uint_gt(n, 10);
}
END_TEST

static _Atomic int result; /* 1: none yet */

static void on_done(struct device_io *io, int rc)
{
	atomic_store(&result, rc);
}

static int copy(void *to, const void *from, uint64_t size)
{
	struct device_io io = { .size = size, .to = to, .from = from, .done = on_done };
	uint64_t end = monotonic_ms() + WAIT_MS;

	atomic_store(&result, 1);
	device_host.submit(d, &io);
	while (atomic_load(&result) == 1 && monotonic_ms() < end)
		sched_yield();
	return atomic_load(&result);
}

START_TEST(what_is_of_a_device_only_in_part_is_not_copied)
{
	uint8_t host[2 * BYTES] = { 0 };

	ck_assert_int_eq(open_port(), 0);
	ck_assert_int_eq(use_port(), 0);
	ck_assert_int_eq(device_host_give(d, 2, memory, BYTES, memory), -EINVAL);
	ck_assert_int_eq(copy(memory, host, BYTES), 0);
	ck_assert_int_eq(copy(host, memory, BYTES), 0);
	ck_assert_int_eq(copy(host, host + BYTES, BYTES), -EFAULT);
	ck_assert_int_eq(copy(memory, memory + 1, BYTES), -EFAULT);
	ck_assert_int_eq(copy(memory + 1, memory, BYTES), -EFAULT);
	device_host.close(d);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("device-faults");
	TCase *t = tcase_create("device-faults");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, a_port_does_what_it_is_told_or_says_what_is_wanting);
	tcase_add_test(t, what_is_of_a_device_only_in_part_is_not_copied);
	return run_suite(s, t);
}
