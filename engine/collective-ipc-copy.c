/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/collective-ipc.h"

#include <errno.h>
#include <inttypes.h>

enum { ASK_MS = 20 }; /* an event is let go of that soon */

/* ---- requests ---- */

/* Under the lock, so that the communicator is there until all this is over. */
static void on_copied(struct device_io *io, int result)
{
	struct ipc_copy *copy = container_of(io, struct ipc_copy, io);
	struct collective *c = copy->c;

	pthread_mutex_lock(&c->life.lock);
	copy->result = result;
	ipc_ring_bell(c, c->life.about.rank);
	pthread_mutex_unlock(&c->life.lock);
}

static void submit(struct collective *c, struct ipc_copy *copy, struct device_io io)
{
	copy->c = c;
	copy->io = io;
	copy->io.what = DEVICE_COPY;
	copy->io.number = c->life.options.number;
	copy->io.done = on_copied;
	copy->result = -EINPROGRESS; /* nobody else has it */
	c->life.options.device_ops->submit(c->life.options.device, &copy->io);
}

static int result_of(struct collective *c, const struct ipc_copy *copy)
{
	int result;

	pthread_mutex_lock(&c->life.lock);
	result = copy->result;
	pthread_mutex_unlock(&c->life.lock);
	return result;
}

static bool lane_is_copying(struct collective *c, const struct ipc_lane *l)
{
	bool is = false;

	for (unsigned i = 0; i < IPC_SLOTS; i++)
		is |= result_of(c, &l->copies[i]) == -EINPROGRESS;
	return is;
}

bool ipc_is_copying(struct collective *c)
{
	bool is = result_of(c, &c->event) == -EINPROGRESS;

	for (unsigned i = 0; i < 2 * c->life.about.nranks; i++)
		is |= lane_is_copying(c, &c->lanes[i]);
	return is;
}

/* ---- what is launched, as moves ---- */

static unsigned count_moves(const struct collective *c, const struct collective_io *io)
{
	return io->what == COLLECTIVE_MOVES ? io->nmoves : 2 * c->life.about.nranks;
}

/* Of a gather: to each rank, then from each.  What is in its place already does not move. */
static struct collective_move gather_move(const struct collective *c,
					  const struct collective_io *io, unsigned i)
{
	unsigned nranks = c->life.about.nranks, rank = c->life.about.rank;
	uint8_t *to = (uint8_t *)io->to + i % nranks * io->size;
	bool to_peer = i < nranks, stays = i % nranks == rank && to == io->from;

	return (struct collective_move){ to_peer, i % nranks, stays ? 0 : io->size,
					 to_peer ? (void *)(uintptr_t)io->from : to };
}

static struct collective_move move_of(const struct collective *c,
				      const struct collective_io *io, unsigned i)
{
	return io->what == COLLECTIVE_MOVES ? io->moves[i] : gather_move(c, io, i);
}

/* Whether it has bytes to cut. */
static bool find_bytes(const struct collective *c, const struct collective_io *io,
		       struct ipc_lane *l)
{
	while (l->cut == l->size && l->scanned < count_moves(c, io)) {
		struct collective_move m = move_of(c, io, l->scanned++);

		if (m.peer != l->peer || m.to_peer != l->to_peer)
			continue;
		l->memory = m.memory;
		l->size = m.size;
		l->cut = 0;
	}
	return l->cut < l->size;
}

/* ---- lanes ---- */

static bool has_slot(const struct ipc_lane *l)
{
	uint64_t ready = l->to_peer ? atomic_load(&l->ring->emptied) + IPC_SLOTS
				    : atomic_load(&l->ring->filled);

	return l->begun != ready && l->begun - l->ended < IPC_SLOTS;
}

static bool sizes_agree(struct collective *c, const struct ipc_lane *l)
{
	if (l->to_peer || l->ring->sizes[l->begun % IPC_SLOTS] == l->size)
		return true;
	collective_life_fail(c, -EIO, "a size is not that of rank %u", l->peer);
	return false;
}

static void begin_chunk(struct collective *c, struct ipc_lane *l)
{
	unsigned i = l->begun % IPC_SLOTS;
	uint8_t *slot = l->slots + i * ipc_chunk(c), *memory = l->memory + l->cut;
	uint64_t size = u64_min(ipc_chunk(c), l->size - l->cut);

	if (l->to_peer)
		l->ring->sizes[i] = l->size;
	l->begun++;
	l->cut += size;
	submit(c, &l->copies[i],
	       (struct device_io){ .size = size,
				   .to = l->to_peer ? slot : memory,
				   .from = l->to_peer ? memory : slot });
}

static void begin_chunks(struct collective *c, const struct collective_io *io,
			 struct ipc_lane *l)
{
	while (has_slot(l) && find_bytes(c, io, l) && sizes_agree(c, l))
		begin_chunk(c, l);
}

/* In their order; they may have ended in another. */
static bool take_ended(struct collective *c, struct ipc_lane *l)
{
	const struct ipc_copy *copy = &l->copies[l->ended % IPC_SLOTS];
	int rc = l->ended == l->begun ? -EINPROGRESS : result_of(c, copy);

	if (rc == -EINPROGRESS)
		return false;
	if (rc) {
		collective_life_fail(c, -EIO, "device %d failed", c->life.options.number);
		return false;
	}
	c->left -= copy->io.size;
	l->ended++;
	return true;
}

/* Returns whether there was one. */
static bool end_chunks(struct collective *c, struct ipc_lane *l)
{
	uint64_t before = l->ended;

	while (take_ended(c, l))
		;
	if (l->ended == before)
		return false;
	atomic_store(l->to_peer ? &l->ring->filled : &l->ring->emptied, l->ended);
	ipc_ring_bell(c, l->peer);
	return true;
}

void ipc_lanes_init(struct collective *c)
{
	unsigned rank = c->life.about.rank, nranks = c->life.about.nranks;
	uint64_t part = IPC_SLOTS * ipc_chunk(c);

	for (unsigned r = 0; r < nranks; r++) {
		struct ipc_lane *to = &c->lanes[r], *from = &c->lanes[nranks + r];
		uint8_t *theirs = r == rank ? c->staging : c->mapped[r];

		*to = (struct ipc_lane){ .to_peer = true,
					 .peer = r,
					 .ring = ipc_ring_of(c, rank, r),
					 .slots = (uint8_t *)c->staging + r * part };
		*from = (struct ipc_lane){ .peer = r,
					   .ring = ipc_ring_of(c, r, rank),
					   .slots = theirs + rank * part };
	}
}

/* ---- a launch ---- */

static void begin_lane(struct ipc_lane *l)
{
	l->scanned = 0;
	l->before = l->ended;
}

static void begin(struct collective *c, struct collective_io *io)
{
	c->left = 0;
	for (unsigned i = 0; i < count_moves(c, io); i++)
		c->left += move_of(c, io, i).size;
	for (unsigned i = 0; i < 2 * c->life.about.nranks; i++)
		begin_lane(&c->lanes[i]);
	io->port.until_ms = monotonic_ms() + collective_limit_ms(&c->life.options, io);
	c->is_begun = true;
}

static void ask(struct collective *c, struct collective_io *io)
{
	submit(c, &c->event, (struct device_io){ .after = io->after, .wait_ms = ASK_MS });
	io->port.is_asked = true;
}

/* Whether it has; else it is asked again. */
static bool has_passed(struct collective *c, struct collective_io *io)
{
	int rc = io->port.is_asked ? result_of(c, &c->event) : -ETIMEDOUT;

	if (!io->after || !rc)
		return true;
	if (rc == -ETIMEDOUT && io->port.is_asked && monotonic_ms() >= io->port.until_ms)
		collective_life_fail(c, -ETIMEDOUT,
				     "the stream has not come there within %" PRIu64 " ms",
				     c->life.options.wait_ms);
	else if (rc == -ETIMEDOUT)
		ask(c, io);
	else if (rc != -EINPROGRESS)
		collective_life_fail(c, -EIO, "device %d failed", c->life.options.number);
	return false;
}

static void look_at_clock(struct collective *c, const struct collective_io *io)
{
	if (monotonic_ms() >= io->port.until_ms)
		collective_life_fail(c, -ETIMEDOUT,
				     "a peer has not done its part within %" PRIu64 " ms",
				     collective_limit_ms(&c->life.options, io));
}

static void go_on(struct collective *c, struct collective_io *io)
{
	bool ended = true;

	while (ended) {
		ended = false;
		for (unsigned i = 0; i < 2 * c->life.about.nranks; i++) {
			begin_chunks(c, io, &c->lanes[i]);
			ended |= end_chunks(c, &c->lanes[i]);
		}
	}
}

/* What a device has read from one that died meanwhile need not be what that sent. */
static bool all_senders_live(struct collective *c)
{
	for (unsigned r = 0; r < c->life.about.nranks; r++) {
		const struct ipc_lane *from = &c->lanes[c->life.about.nranks + r];

		if (from->ended == from->before || !ipc_has_died(c, r))
			continue;
		collective_life_fail(c, -EIO, "rank %u has died", r);
		return false;
	}
	return true;
}

struct collective_io *ipc_go_on(struct collective *c)
{
	struct collective_io *io = collective_life_first(c);

	if (!io)
		return NULL;
	if (!c->is_begun && has_passed(c, io))
		begin(c, io);
	if (!c->is_begun)
		return NULL;
	go_on(c, io);
	if (c->left) {
		look_at_clock(c, io);
		return NULL;
	}
	if (!all_senders_live(c))
		return NULL;
	c->is_begun = false;
	return collective_life_take(c, 0);
}
