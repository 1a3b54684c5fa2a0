/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/api/api.h"
#include "engine/rank/devices.h"
#include "engine/read/cut-reads.h"
#include "engine/rounds/communicator.h"
#include "engine/rounds/rounds.h"

#include <errno.h>
#include <string.h>

/* A rank asks for a whole state and goes on training: owners send it at a boundary to come, by
 * a round, or frag_fetched reads it.  A frag_fetch that waited would keep all ranks from that
 * boundary.
 */

enum { CHUNK = 1 << 20 };

struct round_fetch {
	struct engine *engine;
	struct rounds_get get;
	bool used, over;
	int result;
};

struct frag_fetches {
	struct round_fetch all[FRAG_FETCHES_MAX];
};

/* ---- by the host ---- */

static int to_device(struct engine *e, int number, void *out, void *bytes, uint64_t size)
{
	struct iovec part = { out, size };
	struct devices_copy c = {
		.number = number, .to_device = true, .n = 1, .parts = &part, .host = bytes
	};

	return devices_copy_now(e->registry.devices, &c);
}

static int read_to_device(struct engine *e, const struct engine_address *a, int number,
			  uint8_t *out, uint64_t size)
{
	CLEANUP(free) uint8_t *bytes = malloc(u64_min(CHUNK, size) + 1);
	int rc = bytes ? 0 : -ENOMEM;

	for (uint64_t at = 0; at < size && !rc; at += CHUNK) {
		uint64_t n = u64_min(CHUNK, size - at);

		rc = cut_reads_get(e, a, at, bytes, n);
		if (!rc)
			rc = to_device(e, number, out + at, bytes, n);
	}
	return rc;
}

int api_read_to(struct engine *e, const struct engine_address *a, void *out, uint64_t size)
{
	int number = DEVICE_NONE, rc = 0;

	if (e->registry.devices)
		rc = devices_where(e->registry.devices, out, &number);
	if (rc || number != DEVICE_NONE)
		return rc ? rc : read_to_device(e, a, number, out, size);
	return cut_reads_get(e, a, 0, out, size);
}

/* ---- the calls ---- */

static void on_fetched(struct rounds_get *get, int result)
{
	struct round_fetch *fetch = get->owner;
	struct engine *e = fetch->engine;

	pthread_mutex_lock(&e->lock);
	fetch->result = result;
	fetch->over = true;
	pthread_mutex_unlock(&e->lock);
}

static bool reaches(struct engine *e, const void *out, uint64_t bytes)
{
	bool reached;

	pthread_mutex_lock(&e->lock);
	reached = communicator_reaches_memory(e, out, bytes);
	pthread_mutex_unlock(&e->lock);
	return reached;
}

static int find_free(struct frag *f)
{
	int n = 0;

	if (!f->fetches)
		f->fetches = calloc(1, sizeof(*f->fetches));
	if (!f->fetches)
		return -ENOMEM;
	while (n < FRAG_FETCHES_MAX && f->fetches->all[n].used)
		n++;
	return n < FRAG_FETCHES_MAX ? n : -EBUSY;
}

int frag_fetch(struct frag *f, int param, const char *key, void *out, uint64_t bytes)
{
	int64_t size = frag_get_bytes(f, param, key);
	struct round_fetch *fetch;
	int n, rc;

	if (size < 0 || (uint64_t)size != bytes || !out)
		return size < 0 ? (int)size : -EINVAL;
	n = find_free(f);
	if (n < 0)
		return n;
	fetch = &f->fetches->all[n];
	*fetch = (struct round_fetch){
		.engine = f->engine,
		.get = { .size = bytes, .out = out, .done = on_fetched, .owner = fetch }
	};
	rc = api_address_of(f, param, key, &fetch->get.address);
	if (rc)
		return rc;
	fetch->used = true;
	if (catalog_file_cuts(f->engine->catalog, fetch->get.address.param) ||
	    !reaches(f->engine, out, bytes) || rounds_start(f->engine, &fetch->get))
		/* no round brings the state: frag_fetched reads it */
		on_fetched(&fetch->get, -EREMOTE);
	return n;
}

int frag_fetched(struct frag *f, int number)
{
	struct round_fetch *fetch;
	struct engine *e = api_engine(f);
	bool over;

	if (!e || number < 0 || number >= FRAG_FETCHES_MAX || !f->fetches ||
	    !f->fetches->all[number].used)
		return e ? -ENOENT : -EINVAL;
	fetch = &f->fetches->all[number];
	pthread_mutex_lock(&e->lock);
	over = fetch->over;
	pthread_mutex_unlock(&e->lock);
	if (!over)
		return -EAGAIN;
	fetch->used = false;
	return fetch->result
		       ? api_read_to(e, &fetch->get.address, fetch->get.out, fetch->get.size)
		       : 0;
}
