/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/cuda/stub-nccl-hall.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

struct ring {
	_Atomic uint64_t written, read;
	uint8_t bytes[HALL_RING];
};

struct hall {
	atomic_bool here[STUB_RANKS_MAX];
	struct ring rings[STUB_RANKS_MAX][STUB_RANKS_MAX]; /* from, to */
};

bool hall_new(char name[HALL_NAME])
{
	const char *folder = getenv("TMPDIR");
	int fd;
	bool made;

	if (snprintf(name, HALL_NAME, "%s/nccl-stub-XXXXXX", folder ? folder : "/tmp") >=
	    HALL_NAME)
		return false;
	fd = mkstemp(name);
	if (fd < 0)
		return false;
	made = !ftruncate(fd, sizeof(struct hall));
	close(fd);
	return made;
}

struct hall *hall_enter(const char *name, int rank)
{
	int fd = open(name, O_RDWR | O_CLOEXEC);
	struct hall *h;

	if (fd < 0)
		return NULL;
	h = mmap(NULL, sizeof(*h), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (h == MAP_FAILED)
		return NULL;
	atomic_store(&h->here[rank], true);
	return h;
}

void hall_leave(struct hall *h)
{
	munmap(h, sizeof(*h));
}

bool hall_is_full(struct hall *h, int nranks)
{
	bool full = true;

	for (int r = 0; r < nranks; r++)
		full &= atomic_load(&h->here[r]);
	return full;
}

static uint64_t part(uint64_t at, uint64_t size)
{
	return u64_min(size, HALL_RING - at % HALL_RING);
}

uint64_t hall_write(struct hall *h, int from, int to, const uint8_t *bytes, uint64_t size)
{
	struct ring *r = &h->rings[from][to];
	uint64_t at = atomic_load(&r->written);
	uint64_t n = u64_min(size, HALL_RING - (at - atomic_load(&r->read)));
	uint64_t before_end = part(at, n);

	memcpy(r->bytes + at % HALL_RING, bytes, before_end);
	memcpy(r->bytes, bytes + before_end, n - before_end);
	atomic_store(&r->written, at + n);
	return n;
}

uint64_t hall_read(struct hall *h, int from, int to, uint8_t *bytes, uint64_t size)
{
	struct ring *r = &h->rings[from][to];
	uint64_t at = atomic_load(&r->read);
	uint64_t n = u64_min(size, atomic_load(&r->written) - at);
	uint64_t before_end = part(at, n);

	memcpy(bytes, r->bytes + at % HALL_RING, before_end);
	memcpy(bytes + before_end, r->bytes, n - before_end);
	atomic_store(&r->read, at + n);
	return n;
}
