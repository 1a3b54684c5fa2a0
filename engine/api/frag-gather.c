/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/api/api.h"
#include "engine/base/vec.h"
#include "engine/job/rendezvous.h"
#include "engine/node/plan.h"
#include "engine/rounds/communicator.h"
#include "engine/rounds/send-source.h"

#include <errno.h>
#include <string.h>

/* A gather: all ranks of a group take the whole of a state.  By the communicator each rank
 * sends its pieces to all; by the host each rank reads the state for itself.
 */

struct group_gather {
	struct engine *e;
	struct wire_rendezvous said;
	struct engine_address address;
	uint64_t start_ns, bytes;
	uint8_t *out;
	const struct catalog_group *group;
	uint32_t replica;  /* of this rank */
	struct vec pieces; /* of struct plan_piece */
	uint64_t covered;
};

/* ---- what lies where ---- */

static const struct plan_piece *pieces_of(const struct group_gather *g)
{
	return g->pieces.items;
}

static int note_piece(void *arg, const struct plan_piece *piece)
{
	struct group_gather *g = arg;
	uint32_t member = catalog_member(g->group, piece->rank);
	struct plan_piece *noted;

	/* plan_write gives all holders: other replicas and further copies are left out */
	if (member / catalog_shards(g->group) != g->replica || g->covered == g->bytes)
		return 0;
	noted = vec_add(&g->pieces, sizeof(*noted));
	if (!noted)
		return -ENOMEM;
	*noted = *piece;
	g->covered += piece->size;
	return 0;
}

/* Adds a piece to the hash by which the ranks compare their plans: replicas have the pieces on
 * other ranks, but at the same places.
 * -EREMOTE: the piece's rank cannot send it.
 */
static int check_piece(struct group_gather *g, const struct plan_piece *piece)
{
	const uint64_t all[] = { g->said.held, piece->at, piece->size };

	g->said.held = wire_hash(all, sizeof(all));
	return communicator_sends(g->e, piece->rank, piece->row) ? 0 : -EREMOTE;
}

/* Finds the pieces of the state; tables of states may have to be fetched for it.  The lock is
 * held.
 * -EREMOTE: the communicator cannot bring them.
 * Errors of plan_write.
 */
static int find_pieces(struct group_gather *g, uint64_t deadline)
{
	int rc;

	do {
		g->pieces.count = 0;
		g->covered = 0;
		rc = plan_write(g->e, &g->address, g->start_ns, 0, g->bytes, note_piece, g);
	} while (node_ask_again(g->e, rc, deadline));
	for (unsigned i = 0; i < g->pieces.count && !rc; i++)
		rc = check_piece(g, &pieces_of(g)[i]);
	return !rc && g->covered < g->bytes ? -EREMOTE : rc;
}

/* ---- by the communicator ---- */

static unsigned count_moves(const struct group_gather *g)
{
	unsigned own = 0;

	for (unsigned i = 0; i < g->pieces.count; i++)
		own += pieces_of(g)[i].rank == g->e->rank;
	return own * catalog_shards(g->group) + g->pieces.count;
}

static void add(struct collective_io *io, struct collective_move *moves, bool to_peer,
		int member, void *memory, uint64_t size)
{
	moves[io->nmoves++] =
		(struct collective_move){ to_peer, (unsigned)member, size, memory };
}

/* Adds the moves of a piece to all ranks of this replica, this rank too. */
static void add_to_all(const struct group_gather *g, struct collective_io *io,
		       struct collective_move *moves, void *from, uint64_t size)
{
	uint32_t shards = catalog_shards(g->group);

	for (uint32_t i = 0; i < shards; i++) {
		uint32_t rank = g->group->ranks[g->replica * shards + i];

		add(io, moves, true, communicator_member(g->e, rank), from, size);
	}
}

/* Lists the moves.  Both ranks of a pair list the moves between them in the order of the
 * parameter.
 */
static int lay_moves(const struct group_gather *g, struct send_source *send,
		     struct collective_io *io, struct collective_move *moves)
{
	int rc = 0;

	for (unsigned i = 0; i < g->pieces.count && !rc; i++) {
		const struct plan_piece *piece = &pieces_of(g)[i];
		void *from;

		add(io, moves, false, communicator_member(g->e, piece->rank),
		    g->out + piece->at, piece->size);
		if (piece->rank != g->e->rank)
			continue;
		rc = send_source_from(g->e, send, 0, piece->row, piece->offset, piece->size,
				      &from);
		if (!rc)
			add_to_all(g, io, moves, from, piece->size);
	}
	io->moves = moves;
	return rc;
}

/* Returns true if each rank of the communicator has one piece, and all pieces have one size and
 * are in the order of ranks.
 */
static bool is_equal(const struct group_gather *g)
{
	bool equal = g->pieces.count && g->pieces.count == communicator_ranks(g->e);

	for (unsigned i = 0; i < g->pieces.count && equal; i++)
		equal = pieces_of(g)[i].size == pieces_of(g)[0].size &&
			communicator_member(g->e, pieces_of(g)[i].rank) == (int)i;
	return equal;
}

static int lay_equal(const struct group_gather *g, struct send_source *send,
		     struct collective_io *io)
{
	const struct plan_piece *own = &pieces_of(g)[communicator_member(g->e, g->e->rank)];
	void *from;
	int rc = send_source_from(g->e, send, 0, own->row, own->offset, own->size, &from);

	if (rc)
		return rc;
	io->what = COLLECTIVE_GATHER_ALL;
	io->from = from;
	io->to = g->out;
	io->size = own->size;
	return 0;
}

/* Moves the pieces.  After an error this rank breaks the communicator, as the other ranks would
 * wait for it.
 */
static int move_pieces(struct group_gather *g)
{
	CLEANUP(free)
	struct collective_move *moves = malloc((count_moves(g) + 1) * sizeof(*moves));
	struct communicator_io io = { .io = { .what = COLLECTIVE_MOVES } };
	struct send_source *send = send_source_new(g->pieces.count, false);
	int rc = moves && send ? 0 : -ENOMEM;

	if (!rc)
		rc = is_equal(g) ? lay_equal(g, send, &io.io)
				 : lay_moves(g, send, &io.io, moves);
	if (!rc) {
		io.io.after = send_source_after(send);
		rc = communicator_launch(g->e, g->said.communicator, &io);
		rc = rc ? rc : communicator_wait(g->e, &io);
	}
	if (rc)
		communicator_break(g->e, g->said.communicator);
	send_source_free(g->e, send);
	return rc;
}

/* ---- by the host ---- */

static int read_all(struct group_gather *g)
{
	int rc, through;

	pthread_mutex_unlock(&g->e->lock);
	rc = api_read_to(g->e, &g->address, g->out, g->bytes);
	pthread_mutex_lock(&g->e->lock);
	g->said.stage = 1;
	through = rendezvous_wait(g->e, &g->said, NULL);
	return rc ? rc : through;
}

/* ---- the call ---- */

static void say_what_it_can(struct group_gather *g, unsigned timeout_ms)
{
	bool grad = !strcmp(g->address.key, "grad");
	uint64_t number = communicator_number(g->e);
	const struct catalog_param *param = &g->e->catalog->params[g->address.param];

	g->said = (struct wire_rendezvous){ .group = param->group,
					    .param = g->address.param,
					    .root = WIRE_OBSERVER,
					    .boundary = atomic_load(
						    &g->e->registry.control->boundary),
					    .wait_ms = timeout_ms };
	strcpy(g->said.key, g->address.key);
	if (number && !catalog_file_cuts(g->e->catalog, g->address.param) &&
	    (!grad || api_grads_are_valid(g->e)) &&
	    communicator_reaches_memory(g->e, g->out, g->bytes) &&
	    !find_pieces(g, monotonic_ms() + timeout_ms))
		g->said.communicator = number;
}

static int gather(struct group_gather *g, unsigned timeout_ms)
{
	struct engine *e = g->e;
	uint32_t group = e->catalog->params[g->address.param].group;
	int rc;

	if (group == CATALOG_NONE)
		return -ENOENT;
	g->group = &e->catalog->groups[group];
	g->replica = catalog_member(g->group, e->rank) / catalog_shards(g->group);
	say_what_it_can(g, timeout_ms);
	rc = rendezvous_wait(e, &g->said, NULL);
	if (!rc)
		rc = move_pieces(g);
	else if (rc == -EREMOTE)
		rc = read_all(g);
	return rc;
}

int frag_gather(struct frag *f, int param, const char *key, void *out, uint64_t bytes,
		unsigned timeout_ms)
{
	struct engine_address a;
	struct group_gather g;
	int rc = api_address_in_time(f, param, key, "frag_gather", &timeout_ms, &a);
	int64_t size = rc ? rc : frag_get_bytes(f, param, key);

	if (size < 0)
		return (int)size;
	if ((uint64_t)size != bytes || !out)
		return -EINVAL;
	g = (struct group_gather){ .e = f->engine,
				   .address = a,
				   .start_ns = monotonic_ns(),
				   .bytes = bytes,
				   .out = out };
	pthread_mutex_lock(&g.e->lock);
	rc = gather(&g, timeout_ms);
	pthread_mutex_unlock(&g.e->lock);
	free(g.pieces.items);
	return rc;
}
