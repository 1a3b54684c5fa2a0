/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/hidden.h"

#include <check.h>
#include <sys/mman.h>
#include <unistd.h>

static void *map(int fd, uint64_t size, int protection)
{
	void *memory = mmap(NULL, size, protection, MAP_SHARED, fd, 0);

	ck_assert_ptr_ne(memory, MAP_FAILED);
	return memory;
}

void hidden_new(struct hidden *h, struct device *d, int number, uint64_t size)
{
	int fd = memfd_create("device", MFD_CLOEXEC);

	h->device = d;
	h->mapped = u64_div_ceil(size + 1, 4096) * 4096;
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)h->mapped), 0);
	h->memory = map(fd, h->mapped, PROT_NONE);
	h->at = map(fd, h->mapped, PROT_READ | PROT_WRITE);
	h->reached = map(fd, h->mapped, PROT_READ | PROT_WRITE);
	close(fd);
	ck_assert_int_eq(device_host_give(d, number, h->memory, h->mapped, h->reached), 0);
}

void hidden_free(struct hidden *h)
{
	if (h->device)
		device_host_take(h->device, h->memory);
	munmap(h->memory, h->mapped);
	munmap(h->at, h->mapped);
	munmap(h->reached, h->mapped);
}
