/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/memory/memory.h"
#include "engine/rank/registry-internal.h"

#include <errno.h>
#include <string.h>

/* Rows in the host's memory. */

enum {
	PARTS_MAX = 1024,
	CHUNK = 1 << 30, /* bytes; process_vm_readv copies less than 2 GiB in a call */
};

/* Visits size bytes of a row, which are in n parts; 0: the row is on NVMe. */
typedef int visit_parts(const struct state_row *row, const struct iovec *parts, unsigned n,
			uint8_t *data, size_t size);

/* Visits the bytes, in several calls if they are many or in very many small segments.  The lock
 * is held over each visit, so that registry_drop cannot free what is being copied.
 */
static int walk(struct registry *r, uint64_t epoch, uint32_t number, uint64_t offset,
		size_t size, visit_parts *visit, uint8_t *data)
{
	struct iovec parts[PARTS_MAX];
	const struct state_row *row;
	size_t done = 0, chunk = CHUNK;
	int rc = 0;

	pthread_mutex_lock(&r->lock);
	row = registry_row_at(r, epoch, number);
	do {
		chunk = u64_min(chunk, size - done);
		rc = row ? states_parts(row, offset + done, chunk, parts, PARTS_MAX) : -ESTALE;
		if (rc == -E2BIG) { /* more than PARTS_MAX segments: tries half as many bytes */
			chunk /= 2;
			continue;
		}
		if (rc > 0 || rc == -EREMOTE)
			rc = visit(row, parts, rc > 0 ? (unsigned)rc : 0,
				   data ? data + done : NULL, chunk);
		done += chunk;
	} while (done < size && (!rc || rc == -E2BIG));
	pthread_mutex_unlock(&r->lock);
	return rc;
}

static int read_parts(const struct state_row *row, const struct iovec *parts, unsigned n,
		      uint8_t *data, size_t size)
{
	return row->tier == STATE_HOST ? memory_read_own(data, parts, n, size) : -EREMOTE;
}

static int copy_parts(const struct state_row *row, const struct iovec *parts, unsigned n,
		      uint8_t *data, size_t size)
{
	if (!row->owned || row->tier != STATE_HOST)
		return read_parts(row, parts, n, data, size);
	for (unsigned i = 0; i < n; i++) {
		memcpy(data, parts[i].iov_base, parts[i].iov_len);
		data += parts[i].iov_len;
	}
	return 0;
}

/* The kernel's way, which refuses freed memory, takes half again as long as memcpy. */
static int write_parts(const struct state_row *row, const struct iovec *parts, unsigned n,
		       uint8_t *data, size_t size)
{
	if (row->tier != STATE_HOST)
		return -EREMOTE;
	if (!row->owned)
		return memory_write_own(parts, n, data, size);
	for (unsigned i = 0; i < n; i++) {
		memcpy(parts[i].iov_base, data, parts[i].iov_len);
		data += parts[i].iov_len;
	}
	return 0;
}

/* Memory of the library is mapped until its row is dropped, which takes the lock. */
static int probe_parts(const struct state_row *row, const struct iovec *parts, unsigned n,
		       uint8_t *data, size_t size)
{
	(void)data, (void)size;
	return row->tier == STATE_HOST && !row->owned ? memory_probe_own(parts, n) : 0;
}

static int ignore_parts(const struct state_row *row, const struct iovec *parts, unsigned n,
			uint8_t *data, size_t size)
{
	(void)row, (void)parts, (void)n, (void)data, (void)size;
	return 0;
}

int registry_check(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
		   size_t size)
{
	return walk(r, epoch, row, offset, size, probe_parts, NULL);
}

int registry_covers(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
		    uint64_t size)
{
	return walk(r, epoch, row, offset, size, ignore_parts, NULL);
}

int registry_read_memory(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
			 void *out, size_t size)
{
	return walk(r, epoch, row, offset, size, read_parts, out);
}

int registry_copy(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset, void *out,
		  size_t size)
{
	return walk(r, epoch, row, offset, size, copy_parts, out);
}

static int write_memory(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
			const void *data, size_t size)
{
	return walk(r, epoch, row, offset, size, write_parts, (uint8_t *)(uintptr_t)data);
}

static int clear_segment(struct state_segment segment, size_t element)
{
	static uint8_t zeros[65536]; /* not const: those are in the file */
	uint64_t bytes = segment.address ? segment.numel * element : 0;
	int rc = 0;

	for (uint64_t done = 0; done < bytes && !rc; done += sizeof(zeros)) {
		struct iovec part = { (void *)(uintptr_t)(segment.address + done),
				      u64_min(sizeof(zeros), bytes - done) };

		rc = memory_write_own(&part, 1, zeros, part.iov_len);
	}
	return rc;
}

static int clear(struct registry *r, uint32_t number)
{
	const struct state_row *row;
	int rc = 0;

	LOCKED(&r->lock);
	row = registry_row_at(r, 0, number);
	if (!row)
		return -ESTALE;
	for (uint32_t i = 0; !rc && i < row->nextents; i++)
		rc = clear_segment(states_segment(row, i), frag_dtype_size(row->dtype));
	return rc;
}

const struct tier_ops registry_tier_host = {
	.read = registry_read_memory,
	.write = write_memory,
	.clear = clear,
};
