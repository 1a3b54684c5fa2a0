/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/cuda/mappings.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PLACES = 256, TAKEN = -1, SHARED = DEVICE_NONE };

struct place {
	_Atomic pid_t pid; /* 0: free */
	int number;        /* of the device that has it mapped; SHARED */
	void *memory;
	struct device_handle handle;
};

static struct table {
	_Atomic unsigned broken;
	struct place places[PLACES];
} * table;
static const struct device_ops *under;

static bool lives(pid_t pid)
{
	return pid > 0 && !kill(pid, 0);
}

static bool take(struct place *p)
{
	pid_t pid = atomic_load(&p->pid);

	return pid != TAKEN && !lives(pid) &&
	       atomic_compare_exchange_strong(&p->pid, &pid, TAKEN);
}

static void note(int number, void *memory, const struct device_handle *handle)
{
	unsigned i = 0;

	while (i < PLACES && !take(&table->places[i]))
		i++;
	ck_assert_uint_lt(i, PLACES);
	table->places[i].number = number;
	table->places[i].memory = memory;
	table->places[i].handle = *handle;
	atomic_store(&table->places[i].pid, getpid());
}

static struct place *find(int number, const void *memory)
{
	struct place *p = table->places;

	while (p < table->places + PLACES &&
	       (atomic_load(&p->pid) != getpid() || p->number != number || p->memory != memory))
		p++;
	ck_assert(p < table->places + PLACES);
	return p;
}

static unsigned count(int number)
{
	unsigned n = 0;

	for (unsigned i = 0; i < PLACES; i++)
		n += atomic_load(&table->places[i].pid) == getpid() &&
		     table->places[i].number == number;
	return n;
}

static bool is_mapped(const struct device_handle *handle)
{
	bool is = false;

	for (unsigned i = 0; i < PLACES; i++)
		is |= lives(atomic_load(&table->places[i].pid)) &&
		      table->places[i].number != SHARED &&
		      !memcmp(&table->places[i].handle, handle, sizeof(*handle));
	return is;
}

static int counted_share(struct device *d, int number, uint64_t size, void **memory,
			 struct device_handle *handle)
{
	int rc = under->share(d, number, size, memory, handle);

	if (!rc)
		note(SHARED, *memory, handle);
	return rc;
}

static void counted_unshare(struct device *d, void *memory)
{
	struct place *p = find(SHARED, memory);

	if (is_mapped(&p->handle))
		atomic_fetch_add(&table->broken, 1);
	atomic_store(&p->pid, 0);
	under->unshare(d, memory);
}

static int counted_map(struct device *d, int number, const struct device_handle *handle,
		       void **memory)
{
	int rc = under->map(d, number, handle, memory);

	if (!rc)
		note(number, *memory, handle);
	return rc;
}

static void counted_unmap(struct device *d, int number, void *memory)
{
	pid_t pid = getpid();

	under->unmap(d, number, memory);
	/* Two may have it mapped at one address. */
	while (!atomic_compare_exchange_strong(&find(number, memory)->pid, &pid, 0))
		pid = getpid();
}

const struct trainer *mappings_counted(const struct trainer *of)
{
	static struct trainer counted;
	static struct device_ops ops;

	table = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		     -1, 0);
	if (table == MAP_FAILED)
		abort();
	under = of->ops;
	ops = *under;
	ops.share = counted_share;
	ops.unshare = counted_unshare;
	ops.map = counted_map;
	ops.unmap = counted_unmap;
	counted = *of;
	counted.ops = &ops;
	return &counted;
}

unsigned mappings_broken(void)
{
	return atomic_load(&table->broken);
}

unsigned mappings_shared(void)
{
	return count(SHARED);
}

unsigned mappings_of(int number)
{
	return count(number);
}
