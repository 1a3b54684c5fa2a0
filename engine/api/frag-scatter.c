/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/api/api.h"
#include "engine/base/dtype.h"
#include "engine/base/vec.h"
#include "engine/write/stage.h"
#include "engine/write/transaction.h"
#include "engine/job/rendezvous.h"
#include "engine/live/live.h"
#include "engine/node/event-log.h"
#include "engine/node/peers.h"
#include "engine/node/plan.h"
#include "engine/rank/devices.h"
#include "engine/rounds/communicator.h"
#include "engine/rounds/landing.h"

#include <errno.h>
#include <string.h>

/* A scatter: all ranks of a group are in the call, and one, the root, has a value for the whole
 * of a state.  By the communicator, chunk by chunk, each rank receives the bytes that it holds
 * and keeps them aside as it does for a writer's STAGE; then the edit is one like any other.
 * By the host, the root writes the value as frag_set() does.
 *
 *   root    meet(0)  value -> slot -> sends ...  meet(1)  COMMIT, accepted  meet(2)
 *   others  meet(0)  receive -> slot -> aside    meet(1)                    meet(2)
 */

enum { BYTES_IN_MS = 1000 /* the least speed that bounds of waits assume */ };
/* Stages of the rendezvous; by the host HAVE_STAGED is the last. */
enum { HAVE_COME, HAVE_STAGED, HAVE_AGREED };

struct span { /* of the value, in bytes; from == to: none */
	uint64_t from, to;
};

struct own { /* bytes of a state that this rank holds */
	uint32_t row;
	uint64_t offset; /* in the row */
	struct span at;  /* in the state */
	enum frag_dtype dtype;
};

struct scatter {
	struct frag *f;
	struct engine *e;
	struct engine_file *file;
	const uint8_t *value; /* the root's */
	int number;           /* of the device that has `value`; DEVICE_NONE: the host has it */
	const struct catalog_group *group;
	struct span *held; /* [group's ranks]: the span in which each holds bytes */
	struct vec own;    /* of struct own */
	uint64_t epoch;    /* of this rank's rows */
	struct wire_rendezvous said;
	uint64_t transaction[2]; /* the root's */
	uint8_t *slot;           /* LANDING_SLOT bytes that devices reach */
};

static bool is_root(const struct scatter *s)
{
	return s->said.root == s->e->rank;
}

static struct span overlap(const struct span *a, const struct span *b)
{
	struct span both = { a->from > b->from ? a->from : b->from, u64_min(a->to, b->to) };

	return both.from < both.to ? both : (struct span){ 0 };
}

/* ---- who holds what ---- */

struct noting {
	struct scatter *s;
	enum frag_dtype dtype; /* of the state whose pieces are noted */
};

static int note_own(struct scatter *s, const struct plan_piece *piece, enum frag_dtype dtype)
{
	struct own *own = vec_add(&s->own, sizeof(*own));

	if (!own)
		return -ENOMEM;
	*own = (struct own){
		piece->row, piece->offset, { piece->at, piece->at + piece->size }, dtype
	};
	return 0;
}

/* Returns the bytes that a span's elements have in another dtype. */
static struct span in_dtype(const struct span *span, enum frag_dtype from, enum frag_dtype to)
{
	return (struct span){ span->from / frag_dtype_size(from) * frag_dtype_size(to),
			      span->to / frag_dtype_size(from) * frag_dtype_size(to) };
}

static int note_held(void *arg, const struct plan_piece *piece)
{
	const struct noting *n = arg;
	struct scatter *s = n->s;
	struct span at = { piece->at, piece->at + piece->size };
	struct span new = in_dtype(&at, n->dtype, s->file->parts->dtype);
	uint32_t member = catalog_member(s->group, piece->rank);
	struct span *held;

	if (member == CATALOG_NONE || communicator_member(s->e, piece->rank) < 0)
		return -EREMOTE;
	held = &s->held[member];
	if (held->from == held->to)
		*held = new;
	held->from = u64_min(held->from, new.from);
	held->to = u64_max(held->to, new.to);
	return piece->rank == s->e->rank ? note_own(s, piece, n->dtype) : 0;
}

static int note_state(struct scatter *s, const char *key, enum frag_dtype dtype)
{
	struct noting noting = { s, dtype };
	struct span all = { 0, s->file->bytes };
	struct engine_address address = s->file->parts->address;

	strcpy(address.key, key);
	return plan_write(s->e, &address, s->file->opened_ns, 0,
			  in_dtype(&all, s->file->parts->dtype, dtype).to, note_held, &noting);
}

static int note_all(struct scatter *s)
{
	enum frag_dtype lp;
	int rc;

	s->own.count = 0;
	memset(s->held, 0, s->group->nranks * sizeof(*s->held));
	rc = note_state(s, s->file->parts->address.key, s->file->parts->dtype);
	if (rc || !stage_lp_follows(s->e, s->file, &lp))
		return rc;
	rc = note_state(s, "lp", lp);
	return rc == -ENOENT ? 0 : rc; /* no rank has a low-precision copy */
}

/* Finds what each rank holds.  The lock is held.  Tables of states may have to be fetched, this
 * rank's own too, if its memory has just changed.
 */
static int find_held(struct scatter *s)
{
	uint64_t deadline = monotonic_ms() + s->said.wait_ms;
	struct wire_control now;
	int rc;

	wire_control_from_page(&now, s->e->registry.control);
	peers_saw(s->e, s->e->rank, &now);
	do
		rc = note_all(s);
	while (node_ask_again(s->e, rc, deadline));
	if (rc)
		return rc;
	s->epoch = s->e->peers[s->e->rank].states->epoch;
	s->said.held = wire_hash(s->held, s->group->nranks * sizeof(*s->held));
	return 0;
}

/* ---- by the communicator ---- */

/* Copies bytes of the root's value to the host. */
static int on_host(const struct scatter *s, uint64_t from, uint64_t size, void *to)
{
	struct iovec part = { (void *)(uintptr_t)(s->value + from), size };
	struct devices_copy c = { .number = s->number, .n = 1, .parts = &part, .host = to };

	if (s->number != DEVICE_NONE)
		return devices_copy_now(s->e->registry.devices, &c);
	memcpy(to, s->value + from, size);
	return 0;
}

static void add_send(struct scatter *s, struct collective_io *io, struct collective_move *moves,
		     const struct span *chunk, uint32_t member)
{
	struct span part = overlap(chunk, &s->held[member]);
	uint32_t rank = s->group->ranks[member];
	const uint8_t *from;

	if (part.from == part.to || rank == s->e->rank)
		return;
	from = s->number == DEVICE_NONE ? s->slot + (part.from - chunk->from)
					: s->value + part.from;
	moves[io->nmoves++] =
		(struct collective_move){ true, (unsigned)communicator_member(s->e, rank),
					  part.to - part.from, (void *)(uintptr_t)from };
}

static void add_receive(struct scatter *s, struct collective_io *io,
			struct collective_move *moves, const struct span *part)
{
	if (part->from < part->to)
		moves[io->nmoves++] = (struct collective_move){
			false, (unsigned)communicator_member(s->e, s->said.root),
			part->to - part->from, s->slot
		};
}

/* Sends or receives a chunk; the lock is held. */
static int pass(struct scatter *s, const struct span *chunk, const struct span *own)
{
	CLEANUP(free)
	struct collective_move *moves = malloc((s->group->nranks + 1) * sizeof(*moves));
	struct communicator_io io = { .io = { .what = COLLECTIVE_MOVES, .moves = moves } };
	int rc;

	if (!moves)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->group->nranks && is_root(s); i++)
		add_send(s, &io.io, moves, chunk, i);
	if (!is_root(s))
		add_receive(s, &io.io, moves, own);
	if (!io.io.nmoves)
		return 0;
	rc = communicator_launch(s->e, s->said.communicator, &io);
	return rc ? rc : communicator_wait(s->e, &io);
}

/* Passes a chunk.  The root copies it to the host first, behind all work that its trainer has
 * enqueued: so a value that is sent from the device is complete, too.  After an error this rank
 * breaks the communicator, as the other ranks would wait for it.
 */
static int pass_chunk(struct scatter *s, const struct span *chunk, const struct span *own)
{
	int rc = is_root(s) ? on_host(s, chunk->from, chunk->to - chunk->from, s->slot) : 0;

	pthread_mutex_lock(&s->e->lock);
	rc = rc ? rc : pass(s, chunk, own);
	if (rc)
		communicator_break(s->e, s->said.communicator);
	pthread_mutex_unlock(&s->e->lock);
	return rc;
}

/* Keeps aside `part` of what this rank holds, made of the elements at value. */
static int stage(struct scatter *s, const struct own *own, const struct span *part,
		 const void *value)
{
	enum frag_dtype dtype = s->file->parts->dtype;
	uint32_t size = (uint32_t)(part->to - part->from);
	struct edit_piece *piece =
		participant_piece(&s->e->participant, s->epoch, own->row,
				  own->offset + part->from - own->at.from, size);

	if (!piece)
		return -ENOMEM;
	if (own->dtype == dtype)
		memcpy(piece->data, value, size);
	else
		dtype_convert(own->dtype, piece->data, dtype, value,
			      size / frag_dtype_size(own->dtype));
	return participant_stage(&s->e->participant, s->transaction, NODE_LOCAL, monotonic_ms(),
				 s->file->is_grad, piece);
}

/* Keeps aside what this rank holds of a part of the value that has come, which is at `bytes`.
 */
static int keep_aside(struct scatter *s, const struct own *own, const struct span *came,
		      const uint8_t *bytes)
{
	struct span there = in_dtype(came, s->file->parts->dtype, own->dtype);
	struct span part = overlap(&there, &own->at);
	const uint8_t *value =
		bytes + in_dtype(&part, own->dtype, s->file->parts->dtype).from - came->from;

	return part.from == part.to ? 0 : stage(s, own, &part, value);
}

static int keep_all_aside(struct scatter *s, const struct span *chunk, const struct span *came)
{
	const uint8_t *bytes = s->slot;
	int rc = 0;

	if (came->from == came->to)
		return 0;
	if (is_root(s))
		bytes += came->from - chunk->from;
	for (unsigned i = 0; i < s->own.count && !rc; i++)
		rc = keep_aside(s, (struct own *)s->own.items + i, came, bytes);
	return rc;
}

/* Passes all chunks.  A rank that cannot keep bytes aside goes on receiving: the other ranks
 * wait for it.
 */
static int pass_all(struct scatter *s)
{
	const struct span *held = &s->held[catalog_member(s->group, s->e->rank)];
	int rc = 0, kept = 0;

	for (uint64_t at = 0; at < s->file->bytes && !rc; at += LANDING_SLOT) {
		struct span chunk = { at, u64_min(at + LANDING_SLOT, s->file->bytes) };
		struct span own = overlap(&chunk, held);

		rc = pass_chunk(s, &chunk, &own);
		if (!rc && !kept)
			kept = keep_all_aside(s, &chunk, &own);
	}
	return rc ? rc : kept;
}

/* Commits the edit, which all holders have kept aside. */
static int agree(struct scatter *s)
{
	struct engine_write write = { .file = s->file };
	uint32_t *holders = calloc(s->e->world, sizeof(*holders));

	if (!holders)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->group->nranks; i++)
		holders[s->group->ranks[i]] = s->held[i].from < s->held[i].to;
	return api_write_staged(s->f, &write, s->transaction, holders);
}

/* ---- by the host ---- */

static int write_all(struct scatter *s)
{
	CLEANUP(free) uint8_t *bytes = NULL;
	struct engine_extent extent = { 0, s->file->bytes, s->value };
	struct engine_write write = { .file = s->file, .extents = &extent, .nextents = 1 };
	int rc = 0;

	if (s->number != DEVICE_NONE) {
		extent.data = bytes = malloc(s->file->bytes);
		rc = bytes ? on_host(s, 0, s->file->bytes, bytes) : -ENOMEM;
	}
	return rc ? rc : api_write(s->f, &write, 1);
}

/* ---- the call ---- */

static int meet(struct scatter *s, uint32_t stage, int status)
{
	int rc;

	s->said.stage = stage;
	s->said.status = status;
	pthread_mutex_lock(&s->e->lock);
	rc = rendezvous_wait(s->e, &s->said, stage == HAVE_COME ? s->transaction : NULL);
	pthread_mutex_unlock(&s->e->lock);
	return rc;
}

/* Lengthens the bound of the waits: all ranks have come, so that each stage ends by itself or
 * by a rank's loss, and the bound is for errors alone.
 */
static void wait_longer(struct scatter *s)
{
	uint64_t ms = s->said.wait_ms + 3 * s->e->timeout_ms + s->file->bytes / BYTES_IN_MS;

	s->said.wait_ms = (uint32_t)u64_min(ms, UINT32_MAX);
}

static bool reaches_value(struct scatter *s)
{
	return !is_root(s) || s->number == DEVICE_NONE ||
	       communicator_reaches_memory(s->e, s->value, s->file->bytes);
}

static void say_what_it_can(struct scatter *s)
{
	struct engine *e = s->e;

	s->said.param = s->file->parts->address.param;
	s->said.boundary = atomic_load(&e->registry.control->boundary);
	strcpy(s->said.key, s->file->parts->address.key);
	pthread_mutex_lock(&e->lock);
	s->said.transaction[0] = e->job.engine_id;
	s->said.transaction[1] = ++e->commit.newest;
	if (communicator_number(e) && !s->file->parts->cuts && reaches_value(s) &&
	    !find_held(s) && (s->slot = landing_slot_get(e)))
		s->said.communicator = communicator_number(e);
	pthread_mutex_unlock(&e->lock);
}

/* Records that the edit failed, at the root: no other rank knows whose edit it was. */
static void tell_failed(struct scatter *s, int why)
{
	struct event_settled told = { .id = { s->transaction[0], s->transaction[1] },
				      .status = why };

	if (!is_root(s))
		return;
	transaction_origin(s->e, s->file, 1, s->file->bytes, &told.origin);
	pthread_mutex_lock(&s->e->lock);
	event_log_edit(s->e, &told);
	pthread_mutex_unlock(&s->e->lock);
}

static void return_slot(struct scatter *s)
{
	pthread_mutex_lock(&s->e->lock);
	landing_slot_put(s->e, s->slot);
	pthread_mutex_unlock(&s->e->lock);
	s->slot = NULL;
}

static int by_communicator(struct scatter *s)
{
	int rc = meet(s, HAVE_STAGED, pass_all(s));

	if (rc)
		tell_failed(s, rc);
	else
		rc = meet(s, HAVE_AGREED, is_root(s) ? agree(s) : 0);
	if (rc)
		participant_drop(&s->e->participant, s->transaction);
	return rc;
}

static int by_host(struct scatter *s)
{
	return_slot(s);
	return meet(s, HAVE_STAGED, is_root(s) ? write_all(s) : 0);
}

static int scatter(struct scatter *s)
{
	int rc;

	say_what_it_can(s);
	rc = meet(s, HAVE_COME, 0);
	wait_longer(s);
	if (rc == -EREMOTE)
		return by_host(s);
	return rc ? rc : by_communicator(s);
}

static int begin_scatter(struct scatter *s, const struct engine_address *a, uint64_t bytes)
{
	struct engine *e = s->e;
	uint32_t group = e->catalog->params[a->param].group;

	if (group == CATALOG_NONE)
		return -ENOENT;
	s->group = &e->catalog->groups[group];
	s->said.group = group;
	if (s->file->bytes != bytes || catalog_member(s->group, s->said.root) == CATALOG_NONE ||
	    (is_root(s) && !s->value))
		return -EINVAL;
	s->held = calloc(s->group->nranks, sizeof(*s->held));
	if (!s->held)
		return -ENOMEM;
	return is_root(s) && e->registry.devices
		       ? devices_where(e->registry.devices, s->value, &s->number)
		       : 0;
}

static void end_scatter(struct scatter *s)
{
	return_slot(s);
	live_file_close(s->file);
	free(s->held);
	free(s->own.items);
}

int frag_scatter(struct frag *f, int param, const char *key, int root, const void *value,
		 uint64_t bytes, unsigned timeout_ms)
{
	struct scatter s = { .f = f,
			     .value = value,
			     .number = DEVICE_NONE,
			     .said = { .root = (uint32_t)root, .wait_ms = timeout_ms } };
	struct engine_address a;
	uint64_t size;
	int rc = api_address_in_time(f, param, key, "frag_scatter", &s.said.wait_ms, &a);

	if (!rc) {
		s.e = f->engine;
		rc = live_file_open(s.e, &a, 1, &s.file, &size);
	}
	if (rc)
		return rc;
	rc = begin_scatter(&s, &a, bytes);
	if (!rc)
		rc = scatter(&s);
	end_scatter(&s);
	return rc;
}
