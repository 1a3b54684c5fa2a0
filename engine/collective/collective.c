/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/collective/collective-common.h"

#include <errno.h>

enum {
	DEFAULT_OPEN_MS = 60000,
	DEFAULT_WAIT_MS = 10000,
	DEFAULT_STUCK_MS = 1000,
	DEFAULT_END_MS = 5000
};
enum { BYTES_PER_MS = 1000000 };

int collective_check(struct collective_options *o, unsigned rank, unsigned nranks)
{
	o->open_ms = o->open_ms ? o->open_ms : DEFAULT_OPEN_MS;
	o->wait_ms = o->wait_ms ? o->wait_ms : DEFAULT_WAIT_MS;
	o->stuck_ms = o->stuck_ms ? o->stuck_ms : DEFAULT_STUCK_MS;
	o->end_ms = o->end_ms ? o->end_ms : DEFAULT_END_MS;
	return rank < nranks && nranks <= INT_MAX ? 0 : -EINVAL;
}

/* ---- checks ---- */

struct memory_check {
	const struct device_ops *ops;
	struct device *device; /* NULL: memory is not looked at */
	int number;
};

/* The device knows of addresses, not of ranges: checks the first byte and the last. */
static int check_memory(const struct memory_check *k, const void *memory, uint64_t size)
{
	const uint8_t *ends[] = { memory, (const uint8_t *)memory + size - 1 };

	for (size_t i = 0; k->device && i < ARRAY_SIZE(ends); i++) {
		struct device_where where;
		int rc = k->ops->where(k->device, ends[i], &where);

		if (rc)
			return rc;
		if (where.number != k->number && !where.pinned)
			return -EFAULT;
	}
	return 0;
}

static int check_moves(const struct memory_check *k, struct collective_io *io, unsigned nranks)
{
	int rc = 0;

	for (unsigned i = 0; i < io->nmoves && !rc; i++) {
		const struct collective_move *m = &io->moves[i];

		if (m->peer >= nranks)
			return -EINVAL;
		if (!u64_add(io->port.bytes, m->size, &io->port.bytes))
			return -EOVERFLOW;
		if (m->size)
			rc = check_memory(k, m->memory, m->size);
	}
	return rc;
}

static int check_gather(const struct memory_check *k, struct collective_io *io, unsigned nranks)
{
	int rc;

	if (!io->size)
		return -EINVAL;
	if (!u64_mul(io->size, nranks, &io->port.bytes))
		return -EOVERFLOW;
	rc = check_memory(k, io->from, io->size);
	return rc ? rc : check_memory(k, io->to, io->port.bytes);
}

int collective_io_check(const struct device_ops *ops, const struct collective_options *o,
			unsigned nranks, struct collective_io *io)
{
	const struct memory_check k = { ops, o->device, o->number };

	memset(&io->port, 0, sizeof(io->port));
	if (io->what == COLLECTIVE_GATHER_ALL)
		return check_gather(&k, io, nranks);
	return check_moves(&k, io, nranks);
}

uint64_t collective_limit_ms(const struct collective_options *o, const struct collective_io *io)
{
	return o->stuck_ms + io->port.bytes / BYTES_PER_MS;
}

/* ---- figures ---- */

static void count_moves(struct collective_about *a, const struct collective_io *io)
{
	for (unsigned i = 0; i < io->nmoves; i++)
		*(io->moves[i].to_peer ? &a->bytes_sent : &a->bytes_received) +=
			io->moves[i].size;
}

void collective_count(struct collective_about *a, const struct collective_io *io, int result)
{
	if (result) {
		a->failed++;
		return;
	}
	a->ended++;
	if (io->what == COLLECTIVE_MOVES) {
		count_moves(a, io);
	} else {
		a->bytes_sent += io->size * (a->nranks - 1);
		a->bytes_received += io->size * (a->nranks - 1);
	}
}
