/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/registry-internal.h"

#include <errno.h>

/* Rows in memory of devices. */

int registry_where(struct registry *r, const void *memory, struct registry_tier *in)
{
	int rc;

	*in = (struct registry_tier){ .tier = STATE_HOST };
	if (!r->devices || !memory)
		return 0;
	rc = devices_where(r->devices, memory, &in->device);
	if (rc || in->device == DEVICE_NONE) {
		in->device = 0;
		return rc;
	}
	in->tier = STATE_DEVICE;
	devices_mark(r->devices);
	return 0;
}

/* Under the lock.  The caller's to free. */
static int find_parts(const struct state_row *row, uint64_t offset, uint64_t size,
		      struct iovec **parts)
{
	uint64_t max = u64_min(row->nsegments, size / frag_dtype_size(row->dtype) + 2);
	int n;

	*parts = malloc((max + 1) * sizeof(**parts));
	if (!*parts)
		return -ENOMEM;
	n = states_parts(row, offset, size, *parts, (int)max);
	if (n < 0)
		free(*parts);
	return n;
}

static int fill(struct registry *r, uint64_t epoch, uint32_t number, uint64_t offset,
		uint64_t size, struct devices_copy *c, struct iovec **parts)
{
	const struct state_row *row = registry_row_at(r, epoch, number);
	int n = row ? find_parts(row, offset, size, parts) : -ESTALE;

	if (n < 0)
		return n;
	c->number = row->device;
	c->n = (unsigned)n;
	c->parts = *parts;
	return 0;
}

int registry_device_mark(struct registry *r, uint64_t epoch, uint32_t number,
			 struct devices_mark **mark)
{
	const struct state_row *row;
	int rc;

	pthread_mutex_lock(&r->lock);
	row = registry_row_at(r, epoch, number);
	rc = row && row->tier == STATE_DEVICE ? devices_newest(r->devices, row->device, mark)
					      : -ESTALE;
	pthread_mutex_unlock(&r->lock);
	return rc;
}

int registry_device_begin(struct registry *r, uint64_t epoch, uint32_t number, uint64_t offset,
			  uint64_t size, struct devices_copy *c)
{
	struct iovec *parts;
	int rc;

	pthread_mutex_lock(&r->lock);
	rc = fill(r, epoch, number, offset, size, c, &parts);
	if (!rc) {
		rc = devices_copy_begin(r->devices, c);
		free(parts);
	}
	pthread_mutex_unlock(&r->lock);
	return rc;
}

/* ---- the trainer's thread, which alone drops rows ---- */

int registry_device_memory(struct registry *r, uint64_t epoch, uint32_t number, uint64_t offset,
			   uint64_t size, int *device, void **memory)
{
	const struct state_row *row;
	struct iovec part;
	int n = -ESTALE;

	pthread_mutex_lock(&r->lock);
	row = registry_row_at(r, epoch, number);
	if (row && row->tier == STATE_DEVICE) {
		n = states_parts(row, offset, size, &part, 1);
		*device = row->device;
	}
	pthread_mutex_unlock(&r->lock);
	if (n == 1)
		*memory = part.iov_base;
	return n < 0 ? n : 0;
}

int registry_device_keep(struct registry *r, uint64_t epoch, uint32_t number, uint64_t offset,
			 uint64_t size, struct devices_kept **kept)
{
	struct devices_copy at;
	struct iovec *parts;
	int rc;

	pthread_mutex_lock(&r->lock);
	rc = fill(r, epoch, number, offset, size, &at, &parts);
	pthread_mutex_unlock(&r->lock);
	if (rc)
		return rc;
	rc = devices_keep(r->devices, at.number, parts, at.n, kept);
	free(parts);
	return rc;
}

static int copy_now(struct registry *r, uint64_t epoch, uint32_t number, uint64_t offset,
		    void *host, uint64_t size, bool to_device)
{
	struct devices_copy c = { .host = host, .to_device = to_device };
	struct iovec *parts;
	int rc;

	pthread_mutex_lock(&r->lock);
	rc = fill(r, epoch, number, offset, size, &c, &parts);
	pthread_mutex_unlock(&r->lock);
	if (rc)
		return rc;
	rc = devices_copy_now(r->devices, &c);
	free(parts);
	return rc;
}

int registry_device_read(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
			 void *out, size_t size)
{
	return copy_now(r, epoch, row, offset, out, size, false);
}

int registry_device_write(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
			  const void *data, size_t size)
{
	return copy_now(r, epoch, row, offset, (void *)(uintptr_t)data, size, true);
}

static int clear_part(struct registry *r, int number, const struct iovec *part)
{
	static uint8_t zeros[65536];
	int rc = 0;

	for (uint64_t done = 0; done < part->iov_len && !rc; done += sizeof(zeros)) {
		struct iovec some = { (uint8_t *)part->iov_base + done,
				      u64_min(sizeof(zeros), part->iov_len - done) };
		struct devices_copy c = { .number = number,
					  .host = zeros,
					  .to_device = true,
					  .n = 1,
					  .parts = &some };

		rc = devices_copy_now(r->devices, &c);
	}
	return rc;
}

int registry_device_clear(struct registry *r, uint32_t number)
{
	struct state_row row;
	size_t element;
	int rc = 0;

	pthread_mutex_lock(&r->lock);
	row = r->states.rows[number];
	pthread_mutex_unlock(&r->lock);
	element = frag_dtype_size(row.dtype);
	for (uint32_t i = 0; i < row.nsegments && !rc; i++) {
		const struct state_segment *segment = &row.segments[i];
		struct iovec part = { (void *)(uintptr_t)segment->address,
				      segment->numel * element };

		rc = clear_part(r, row.device, &part);
	}
	return rc;
}
