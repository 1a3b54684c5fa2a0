/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/rank/devices-internal.h"

#include <errno.h>
#include <stdatomic.h>

enum { HOST_CHUNK = 1 << 20 };

struct devices_preserved {
	struct devices *devices;
	int number;
	bool on_host;
	struct device_io passed; /* ends when the stream has written: host memory is free */
	unsigned n;
	struct device_kept *pieces[]; /* in order, all of one stream */
};

/* ---- memory of the host ---- */

/* devices_preserve_on_host asks for a single slab. */
static struct iovec slab_of(const struct devices *d)
{
	struct iovec slab;
	unsigned n = pinned_slabs(d->host, &slab);

	assert(n == 1);
	return slab;
}

int devices_preserve_on_host(struct devices *d, uint64_t bytes)
{
	const struct pinned_options options = { .size = HOST_CHUNK,
						.count = (unsigned)(bytes / HOST_CHUNK),
						.locked_by_user = true };
	struct iovec slab;
	int rc = bytes > DEVICES_HOST_MAX ? -EINVAL : pinned_open(&options, &d->host);

	assert(thread_may_be_trainer());
	if (rc)
		return rc;
	slab = slab_of(d);
	rc = d->ops->pin(d->device, slab.iov_base, slab.iov_len);
	if (rc) {
		pinned_close(d->host);
		d->host = NULL;
	}
	return rc;
}

/* Memory that a device may still write is never freed; `left` lets leak checkers find it. */
void devices_host_free(struct devices *d)
{
	static struct pinned *_Atomic left;
	bool lost;

	if (!d->host)
		return;
	pthread_mutex_lock(&d->lock);
	while (d->host_leaving)
		pthread_cond_wait(&d->ended, &d->lock);
	lost = d->host_lost;
	pthread_mutex_unlock(&d->lock);
	if (lost) {
		atomic_store(&left, d->host);
		return;
	}
	d->ops->unpin(d->device, slab_of(d).iov_base);
	pinned_close(d->host);
}

/* ---- letting go ---- */

static void free_preserved(struct devices_preserved *k)
{
	struct devices *d = k->devices;

	for (unsigned i = 0; i < k->n; i++)
		d->ops->release(d->device, k->pieces[i]);
	free(k);
}

static void on_passed(struct device_io *io, int rc)
{
	struct devices_preserved *k = container_of(io, struct devices_preserved, passed);
	struct devices *d = k->devices;

	/* after an error the device may still write there: the buffers are not lent again */
	for (unsigned i = 0; i < k->n && !rc; i++)
		pinned_put(d->host, k->pieces[i]->memory);
	free_preserved(k);
	LOCKED(&d->lock);
	d->host_leaving--;
	d->host_lost |= rc != 0;
	pthread_cond_broadcast(&d->ended);
}

/* The host memory may be lent again when the stream has come past the copies into it. */
static void leave_host(struct devices_preserved *k)
{
	struct devices *d = k->devices;

	pthread_mutex_lock(&d->lock);
	d->host_leaving++;
	pthread_mutex_unlock(&d->lock);
	k->passed = (struct device_io){ .what = DEVICE_COPY,
					.number = k->number,
					.after = k->pieces[k->n - 1]->written,
					.done = on_passed };
	d->ops->submit(d->device, &k->passed);
}

void devices_preserved_put(struct devices_preserved *k)
{
	if (!k)
		return;
	if (k->on_host && k->n)
		leave_host(k);
	else
		free_preserved(k);
}

/* ---- preserving ---- */

static uint64_t count_chunks(const struct iovec *parts, unsigned n)
{
	uint64_t chunks = 0;

	for (unsigned i = 0; i < n; i++)
		chunks += u64_div_ceil(parts[i].iov_len, HOST_CHUNK);
	return chunks;
}

static struct devices_preserved *new_preserved(struct devices *d, int number, uint64_t pieces,
					       bool on_host)
{
	struct devices_preserved *k = malloc(sizeof(*k) + pieces * sizeof(k->pieces[0]));

	if (k)
		*k = (struct devices_preserved){ .devices = d,
						 .number = number,
						 .on_host = on_host };
	return k;
}

static int preserve_piece(struct devices_preserved *k, const struct used_device *u,
			  const void *from, uint64_t size, void *to)
{
	struct devices *d = k->devices;
	int rc = d->ops->preserve(d->device, k->number, u->stream, from, size, to,
				  &k->pieces[k->n]);

	k->n += !rc;
	return rc;
}

static int preserve_chunk(struct devices_preserved *k, const struct used_device *u,
			  const uint8_t *from, uint64_t size)
{
	struct pinned *host = k->devices->host;
	void *buffer;
	int rc = pinned_get(host, 0, &buffer);

	if (rc)
		return rc;
	rc = preserve_piece(k, u, from, size, buffer);
	if (rc)
		pinned_put(host, buffer);
	return rc;
}

static int preserve_part(struct devices_preserved *k, const struct used_device *u,
			 const struct iovec *part)
{
	int rc = 0;

	for (uint64_t done = 0; done < part->iov_len && !rc; done += HOST_CHUNK)
		rc = preserve_chunk(k, u, (const uint8_t *)part->iov_base + done,
				    u64_min(HOST_CHUNK, part->iov_len - done));
	return rc;
}

static int preserve_in(struct devices *d, const struct used_device *u,
		       const struct iovec *parts, unsigned n, bool on_host,
		       struct devices_preserved **preserved)
{
	uint64_t pieces = on_host ? count_chunks(parts, n) : n;
	struct devices_preserved *k = new_preserved(d, u->number, pieces, on_host);
	int rc = k ? 0 : -ENOMEM;

	for (unsigned i = 0; i < n && !rc; i++)
		rc = on_host ? preserve_part(k, u, &parts[i])
			     : preserve_piece(k, u, parts[i].iov_base, parts[i].iov_len, NULL);
	if (rc)
		devices_preserved_put(k);
	else
		*preserved = k;
	return rc;
}

int devices_preserve(struct devices *d, int number, const struct iovec *parts, unsigned n,
		     struct devices_preserved **preserved)
{
	const struct used_device *u = devices_find(d, number);
	int rc = preserve_in(d, u, parts, n, false, preserved);

	assert(thread_may_be_trainer());
	if ((rc == -ENOSPC || rc == -ENOMEM) && d->host)
		rc = preserve_in(d, u, parts, n, true, preserved);
	return rc;
}

void *devices_preserved_memory(const struct devices_preserved *k, struct device_event **written)
{
	if (k->on_host || k->n != 1)
		return NULL;
	*written = k->pieces[0]->written;
	return k->pieces[0]->memory;
}

/* ---- reading ---- */

/* Fills parts with the memory of bytes [offset, offset + size) of k; returns how many parts. */
static unsigned cut(const struct devices_preserved *k, uint64_t offset, uint64_t size,
		    struct iovec *parts)
{
	unsigned n = 0;
	uint64_t at = 0;

	for (unsigned i = 0; i < k->n && at < offset + size; at += k->pieces[i++]->size) {
		const struct device_kept *piece = k->pieces[i];
		uint64_t from = u64_max(offset, at),
			 to = u64_min(offset + size, at + piece->size);

		if (from < to)
			parts[n++] = (struct iovec){ (uint8_t *)piece->memory + (from - at),
						     to - from };
	}
	return n;
}

int devices_preserved_begin(struct devices_preserved *k, uint64_t offset, uint64_t size,
			    struct devices_copy *c)
{
	CLEANUP(free) struct iovec *parts = malloc((k->n + 1) * sizeof(*parts));

	if (!parts)
		return -ENOMEM;
	c->number = k->number;
	c->pinned = k->on_host;
	c->n = cut(k, offset, size, parts);
	c->parts = parts;
	c->after = k->n ? k->pieces[k->n - 1]->written : NULL;
	return devices_copy_begin(k->devices, c);
}
