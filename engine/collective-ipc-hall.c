/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/collective-ipc.h"
#include "engine/log.h"
#include "engine/machine.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK_MIN = 4096, CHUNK_MAX = 4 << 20, RANKS_MAX = 1024 };

/* What an id has in it. */
struct place {
	char kind[16];
	struct shared_handle at;
};
static_assert(sizeof(struct place) <= sizeof(struct collective_id), "it fits");
static const char kind[16] = "fragfs ipc";

static uint64_t hall_size(uint64_t nranks)
{
	return sizeof(struct ipc_member) * (1 + nranks) +
	       sizeof(struct ipc_ring) * nranks * nranks;
}
static_assert(sizeof(struct ipc_hall) <= sizeof(struct ipc_member), "members are aligned");

static struct ipc_member *members_of(struct ipc_hall *h)
{
	return (struct ipc_member *)(void *)h + 1;
}

struct ipc_ring *ipc_ring_of(struct collective *c, unsigned from, unsigned to)
{
	struct ipc_ring *rings = (struct ipc_ring *)(void *)(c->members + c->hall->nranks);

	return &rings[from * c->hall->nranks + to];
}

/* ---- entering ---- */

static uint64_t chunk_of(const struct collective *c, unsigned nranks)
{
	uint64_t chunk = c->life.options.staging / (nranks * IPC_SLOTS);

	return u64_min(u64_max(chunk / CHUNK_MIN * CHUNK_MIN, CHUNK_MIN), CHUNK_MAX);
}

static int make(struct collective *c, unsigned nranks)
{
	struct place place = { .at = { 0 } };
	void *memory;
	int rc = shared_make(hall_size(nranks), &memory, &c->at);

	if (rc)
		return rc;
	c->is_maker = true;
	c->hall = memory;
	*c->hall = (struct ipc_hall){ nranks, chunk_of(c, nranks) };
	memcpy(place.kind, kind, sizeof(kind));
	place.at = c->at;
	memcpy(c->life.id.bytes, &place, sizeof(place));
	return 0;
}

static int find(struct collective *c, unsigned nranks, const struct collective_id *id)
{
	struct place place;
	void *memory;
	int rc;

	memcpy(&place, id->bytes, sizeof(place));
	if (memcmp(place.kind, kind, sizeof(kind)) || place.at.size != hall_size(nranks))
		return -EINVAL;
	rc = shared_open(&place.at, &memory);
	if (rc)
		return rc;
	c->life.id = *id;
	c->at = place.at;
	c->hall = memory;
	return 0;
}

static int take_place(struct collective *c, unsigned rank)
{
	struct ipc_member *m = &c->members[rank];
	uint32_t absent = IPC_ABSENT;

	if (!atomic_compare_exchange_strong(&m->stage, &absent, IPC_COMING))
		return -EINVAL;
	m->pid = getpid();
	return machine_start_time(m->pid, &m->start_time) ? -EIO : 0;
}

static int enter(struct collective *c, unsigned rank, unsigned nranks,
		 const struct collective_id *id)
{
	int rc = id ? find(c, nranks, id) : make(c, nranks);

	if (rc)
		return rc;
	c->members = members_of(c->hall);
	c->life.has_id = true;
	return take_place(c, rank);
}

int ipc_hall_enter(struct collective *c, unsigned rank, unsigned nranks,
		   const struct collective_id *id)
{
	int rc = nranks <= RANKS_MAX ? enter(c, rank, nranks, id) : -EINVAL;

	if (!rc)
		return 0;
	ipc_hall_leave(c);
	if (rc != -EINVAL)
		log_warn("ipc: rank %u of %u: ranks of this host cannot meet: %s", rank, nranks,
			 strerror(-rc));
	return rc == -EINVAL || rc == -ENOMEM ? rc : -EIO;
}

void ipc_hall_hide(struct collective *c)
{
	if (c->is_maker)
		shared_hide(&c->at);
	c->is_maker = false;
}

void ipc_hall_leave(struct collective *c)
{
	ipc_hall_hide(c);
	if (c->hall)
		shared_close(c->hall, c->at.size);
	c->hall = NULL;
}

/* ---- bells ---- */

static void futex(_Atomic uint32_t *word, int operation, uint32_t value,
		  const struct timespec *timeout)
{
	syscall(SYS_futex, word, operation, value, timeout, NULL, 0);
}

void ipc_ring_bell(struct collective *c, unsigned rank)
{
	_Atomic uint32_t *bell = &c->members[rank].bell;

	atomic_fetch_add(bell, 1);
	futex(bell, FUTEX_WAKE, INT_MAX, NULL);
}

uint32_t ipc_bell(struct collective *c)
{
	return atomic_load(&c->members[c->life.about.rank].bell);
}

void ipc_wait(struct collective *c, uint32_t bell, uint64_t ms)
{
	const struct timespec timeout = { (time_t)(ms / 1000), (long)(ms % 1000) * 1000000 };

	futex(&c->members[c->life.about.rank].bell, FUTEX_WAIT, bell, &timeout);
}

/* ---- who is where ---- */

void ipc_set_stage(struct collective *c, enum ipc_stage stage)
{
	_Atomic uint32_t *ours = &c->members[c->life.about.rank].stage;
	uint32_t before = atomic_load(ours);

	while (before < stage && !atomic_compare_exchange_weak(ours, &before, stage))
		;
	for (unsigned r = 0; r < c->life.about.nranks; r++)
		ipc_ring_bell(c, r);
}

enum ipc_stage ipc_stage(struct collective *c, unsigned rank)
{
	return (enum ipc_stage)atomic_load(&c->members[rank].stage);
}

void ipc_set_leaving(struct collective *c, bool has_failed)
{
	atomic_store(&c->members[c->life.about.rank].has_failed, has_failed);
	ipc_set_stage(c, IPC_LEAVING);
}

unsigned ipc_who_leaves(struct collective *c, bool failed)
{
	unsigned r;

	for (r = 0; r < c->life.about.nranks; r++)
		if (r != c->life.about.rank && ipc_stage(c, r) >= IPC_LEAVING &&
		    (!failed || atomic_load(&c->members[r].has_failed)))
			break;
	return r;
}

bool ipc_has_died(struct collective *c, unsigned rank)
{
	const struct ipc_member *m = &c->members[rank];
	uint64_t start_time;
	int rc = machine_start_time(m->pid, &start_time);

	return rc == -ESRCH || (!rc && start_time != m->start_time);
}

static bool has_us(struct collective *c, unsigned rank)
{
	enum ipc_stage stage = ipc_stage(c, rank);

	return stage != IPC_ABSENT && stage != IPC_COMING && stage != IPC_GONE &&
	       !ipc_has_died(c, rank);
}

unsigned ipc_who_has_us(struct collective *c)
{
	unsigned r;

	for (r = 0; r < c->life.about.nranks; r++)
		if (r != c->life.about.rank && has_us(c, r))
			break;
	return r;
}
