/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/collective-ipc.h"
#include "engine/log.h"

#include <errno.h>
#include <inttypes.h>

enum { IPC_VERSION = 1, LONG_MS = 3600000, LOOK_MS = 20 };

/* ---- the port's thread ---- */

static bool goes_on(struct collective *c)
{
	bool on;

	pthread_mutex_lock(&c->life.lock);
	on = !c->life.about.state && !c->life.stop;
	pthread_mutex_unlock(&c->life.lock);
	return on;
}

/* What is under way may have its part of one that is closed, as far as that had one. */
static void look_at_others(struct collective *c)
{
	bool is_idle = !collective_life_first(c);
	unsigned who = ipc_who_leaves(c, !is_idle), nranks = c->life.about.nranks;

	if (who == nranks)
		return;
	c->is_left = ipc_who_leaves(c, true) == nranks;
	collective_life_fail(c, -EIO, "rank %u has left", who);
}

static uint64_t next_ms(struct collective *c)
{
	const struct collective_io *io = collective_life_first(c);
	uint64_t now = monotonic_ms(), until = io ? io->port.until_ms : now + LONG_MS;

	return until > now ? until - now : 1;
}

/* Each time after a look at the bell; it is rung for all that changes. */
static void operate(struct collective *c)
{
	struct collective_io *io;

	while (goes_on(c)) {
		uint32_t bell = ipc_bell(c);

		look_at_others(c);
		io = ipc_go_on(c);
		if (io)
			io->done(io, io->port.result);
		else if (goes_on(c))
			ipc_wait(c, bell, next_ms(c));
	}
}

/* Then the device reaches nothing any more that others gave us. */
static void await_copies(struct collective *c)
{
	uint64_t end = monotonic_ms() + c->life.options.end_ms;
	uint32_t bell = ipc_bell(c);

	for (; ipc_is_copying(c) && monotonic_ms() < end; bell = ipc_bell(c))
		ipc_wait(c, bell, LOOK_MS);
	if (!ipc_is_copying(c))
		return;
	pthread_mutex_lock(&c->life.lock);
	c->life.left = true;
	pthread_mutex_unlock(&c->life.lock);
	log_warn("ipc: rank %u of %u: device %d does not let go of what it was given within "
		 "%" PRIu64 " ms",
		 c->life.about.rank, c->life.about.nranks, c->life.options.number,
		 c->life.options.end_ms);
}

static void end_rest(struct collective *c, bool last)
{
	struct collective_io *io;

	while ((io = collective_life_take_rest(c, last)))
		io->done(io, io->port.result);
}

static void *run(void *arg)
{
	struct collective *c = arg;

	collective_life_do(c, ipc_open, c->life.open_until_ms + c->life.options.end_ms);
	if (c->life.left)
		collective_life_fail(c, -ETIMEDOUT, "the device does not return from opening");
	operate(c);
	ipc_set_leaving(c, collective_life_has_failed(c) && !c->is_left);
	if (!c->life.left)
		await_copies(c);
	end_rest(c, false);
	collective_life_let_go(c);
	if (c->life.left)
		c->life.options.device_ops->leave(c->life.options.device);
	end_rest(c, true);
	return NULL;
}

/* ---- the port ---- */

static void wake(struct collective *c)
{
	ipc_ring_bell(c, c->life.about.rank);
}

void ipc_free(struct collective *c)
{
	ipc_hall_leave(c);
	free(c->mapped);
	free(c->lanes);
	free(c);
}

static struct collective *new_collective(const struct collective_options *options,
					 unsigned nranks)
{
	struct collective *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->mapped = calloc(nranks, sizeof(*c->mapped));
	c->lanes = calloc(2 * (size_t)nranks, sizeof(*c->lanes));
	c->life = (struct collective_life){ .name = "ipc",
					    .options = *options,
					    .run = run,
					    .let_go = ipc_let_go,
					    .wake = wake };
	c->life.about.version = IPC_VERSION;
	if (c->mapped && c->lanes)
		return c;
	ipc_free(c);
	return NULL;
}

static int ipc_port_open(struct collective **out, const struct collective_options *options,
			 unsigned rank, unsigned nranks, const struct collective_id *id)
{
	struct collective_options checked = *options;
	struct collective *c;
	int rc = collective_check(&checked, rank, nranks);

	if (rc || !checked.device)
		return -EINVAL;
	c = new_collective(&checked, nranks);
	if (!c)
		return -ENOMEM;
	rc = ipc_hall_enter(c, rank, nranks, id);
	if (!rc)
		rc = collective_life_start(c, rank, nranks);
	if (rc)
		ipc_free(c);
	else
		*out = c;
	return rc;
}

static void ipc_close(struct collective *c)
{
	if (!collective_life_stop(c))
		return;
	if (c->staging)
		ipc_keep(c);
	else
		ipc_free(c);
}

static int ipc_launch(struct collective *c, struct collective_io *io)
{
	int rc = collective_io_check(c->life.options.device_ops, &c->life.options,
				     c->life.about.nranks, io);

	if (!rc)
		rc = collective_life_state(c);
	return rc ? rc : collective_life_append(c, io);
}

const struct collective_ops collective_ipc = {
	.name = "ipc",
	.one_host = true,
	.open = ipc_port_open,
	.close = ipc_close,
	.id = collective_life_id,
	.state = collective_life_state,
	.launch = ipc_launch,
	.abort = collective_life_abort,
	.is_over = collective_life_is_over,
	.about = collective_life_about,
};
