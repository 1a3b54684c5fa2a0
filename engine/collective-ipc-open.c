/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/collective-ipc.h"
#include "engine/log.h"

#include <errno.h>

enum { LOOK_MS = 20 }; /* nothing tells that a process has died */

static uint64_t staging_size(const struct collective *c)
{
	return c->life.about.nranks * IPC_SLOTS * ipc_chunk(c);
}

/* ---- opening ---- */

static bool share(struct collective *c)
{
	struct collective_options *o = &c->life.options;
	struct ipc_member *m = &c->members[c->life.about.rank];
	int rc = o->device_ops->share(o->device, o->number, staging_size(c), &c->staging,
				      &m->staging);

	if (rc) {
		c->staging = NULL;
		collective_life_fail(c, rc, "device %d has no memory to share", o->number);
		return false;
	}
	ipc_set_stage(c, IPC_HERE);
	return true;
}

static bool all_are(struct collective *c, enum ipc_stage stage)
{
	for (unsigned r = 0; r < c->life.about.nranks; r++)
		if (ipc_stage(c, r) < stage)
			return false;
	return true;
}

static bool all_stay(struct collective *c)
{
	return ipc_who_leaves(c, false) == c->life.about.nranks;
}

/* Who leaves looks, after it has said so, for who is here; and we look, after we have said that, for who leaves. */
static bool await_all(struct collective *c, enum ipc_stage stage)
{
	uint32_t bell = ipc_bell(c);
	bool all;

	for (; !(all = all_are(c, stage)) && all_stay(c) && !collective_life_is_late(c);
	     bell = ipc_bell(c))
		ipc_wait(c, bell, LOOK_MS);
	if (!all_stay(c))
		collective_life_fail(c, -EIO, "rank %u has left", ipc_who_leaves(c, false));
	else if (!all)
		collective_life_fail(c, -ETIMEDOUT, "not all ranks have come");
	return !collective_life_has_failed(c);
}

static bool meet(struct collective *c)
{
	return await_all(c, IPC_HERE);
}

static bool map(struct collective *c, unsigned rank)
{
	struct collective_options *o = &c->life.options;
	int rc = o->device_ops->map(o->device, o->number, &c->members[rank].staging,
				    &c->mapped[rank]);

	if (!rc)
		return true;
	c->mapped[rank] = NULL;
	collective_life_fail(c, rc, "device %d does not reach that of rank %u", o->number,
			     rank);
	return false;
}

static bool map_all(struct collective *c)
{
	for (unsigned r = 0; r < c->life.about.nranks; r++)
		if (r != c->life.about.rank && (collective_life_has_failed(c) || !map(c, r)))
			return false;
	ipc_lanes_init(c);
	ipc_set_stage(c, IPC_READY);
	return true;
}

static bool be_ready(struct collective *c)
{
	if (!await_all(c, IPC_READY))
		return false;
	ipc_hall_hide(c);
	collective_life_be_ready(c);
	return true;
}

void ipc_open(struct collective *c)
{
	static bool (*const steps[])(struct collective * c) = { share, meet, map_all,
								be_ready };

	ipc_give_kept(c->life.options.device);
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		if (collective_life_has_failed(c) || !steps[i](c))
			return;
}

/* ---- letting go ---- */

static void unmap_all(struct collective *c)
{
	struct collective_options *o = &c->life.options;

	for (unsigned r = 0; r < c->life.about.nranks; r++) {
		if (c->mapped[r])
			o->device_ops->unmap(o->device, o->number, c->mapped[r]);
		c->mapped[r] = NULL;
	}
}

/* Memory that another process has mapped is not freed: what its device reads then is not defined. */
static void give_staging(struct collective *c)
{
	struct collective_options *o = &c->life.options;
	uint64_t end = monotonic_ms() + o->end_ms / 2;
	unsigned nranks = c->life.about.nranks, who;
	uint32_t bell = ipc_bell(c);

	for (; (who = ipc_who_has_us(c)) < nranks && monotonic_ms() < end; bell = ipc_bell(c))
		ipc_wait(c, bell, LOOK_MS);
	if (who < nranks) {
		log_warn("ipc: rank %u of %u: %llu KiB of device %d stay: rank %u may have "
			 "them mapped",
			 c->life.about.rank, nranks, (unsigned long long)staging_size(c) >> 10,
			 o->number, who);
		return;
	}
	o->device_ops->unshare(o->device, c->staging);
	c->staging = NULL;
}

void ipc_let_go(struct collective *c)
{
	ipc_hall_hide(c);
	unmap_all(c);
	ipc_set_stage(c, IPC_GONE);
	if (c->staging)
		give_staging(c);
	ipc_give_kept(c->life.options.device);
}
