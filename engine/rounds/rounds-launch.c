/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* A rank's part in a round: the engine thread promises it, the trainer's thread launches it,
 * the engine thread sees it end.
 */

#include "engine/base/thread.h"
#include "engine/base/log.h"
#include "engine/node/comms.h"
#include "engine/rounds/rounds-internal.h"

#include <errno.h>
#include <string.h>

/* ---- the promise ---- */

/* Checks that a piece can be sent: from a device, if its bytes are one run of memory. */
static int check_memory(struct engine *e, const struct wire_piece *piece)
{
	enum state_tier tier = registry_tier(&e->registry, piece->state);
	void *memory;
	int number;

	if (!communicator_reaches(e, tier))
		return -EREMOTE;
	if (tier != STATE_DEVICE)
		return 0;
	return registry_device_memory(&e->registry, piece->epoch, piece->state, piece->offset,
				      piece->size, &number, &memory);
}

static int check_piece(struct engine *e, const struct edit_round *round,
		       const struct wire_piece *piece, uint64_t *total)
{
	uint64_t inside;
	int rc;

	if (piece->size > ROUNDS_BYTES_MAX || *total > ROUNDS_BYTES_MAX - piece->size)
		return -E2BIG;
	*total += piece->size;
	rc = round->view[0] ? view_owner_covers(&e->view_owner, round->view, piece->state,
						piece->offset, piece->size, &inside)
			    : registry_covers(&e->registry, piece->epoch, piece->state,
					      piece->offset, piece->size);
	return rc ? rc : check_memory(e, piece);
}

static int check_pieces(struct engine *e, const struct edit_round *round, bool *has_grad)
{
	uint64_t total = 0;
	int rc = 0;

	*has_grad = false;
	for (uint32_t i = 0; i < round->count && !rc; i++) {
		const struct wire_piece *piece = &round->pieces[i];

		rc = check_piece(e, round, piece, &total);
		*has_grad |= !round->view[0] && registry_is_grad(&e->registry, piece->state);
	}
	return rc;
}

static int promise(struct engine *e, uint32_t peer, uint32_t reader,
		   const struct wire_round *asked, const void *tail, size_t tail_size)
{
	struct edit_round *round;
	bool has_grad;
	int rc, member = communicator_member(e, reader);

	if (!e->rounds.table || communicator_number(e) != asked->communicator || member < 0)
		return -EREMOTE;
	if (asked->count > WIRE_ROUND_PIECES ||
	    tail_size != asked->count * sizeof(round->pieces[0]))
		return -EINVAL;
	round = malloc(sizeof(*round) + tail_size);
	if (!round)
		return -ENOMEM;
	*round = (struct edit_round){ .reader = reader,
				      .member = (uint32_t)member,
				      .communicator = asked->communicator,
				      .view = { asked->view[0], asked->view[1] },
				      .count = asked->count };
	if (tail_size)
		memcpy(round->pieces, tail, tail_size);
	rc = check_pieces(e, round, &has_grad);
	if (rc) {
		free(round);
		return rc;
	}
	return participant_stage_round(&e->participant, asked->transaction, peer,
				       monotonic_ms(), has_grad, round);
}

void rounds_serve(struct engine *e, uint32_t peer, const struct wire_header *header,
		  const void *body, const void *tail, size_t tail_size)
{
	struct wire_round asked;

	memcpy(&asked, body, sizeof(asked));
	node_ack(e, peer, header->request,
		 promise(e, peer, header->rank, &asked, tail, tail_size));
}

/* ---- at the boundary: trainer's thread ---- */

static struct round *find_round(struct rounds *r, const uint64_t transaction[2])
{
	struct round *round;

	LIST_FOREACH (round, &r->list, link)
		if (!memcmp(round->proposal.commit.transaction, transaction,
			    2 * sizeof(*transaction)))
			return round;
	return NULL;
}

static void launched_free(struct engine *e, struct launched *l)
{
	if (l)
		send_source_free(e, l->send);
	free(l);
}

static struct launched *launched_new(struct engine *e, const struct edit_round *part,
				     const struct round *own)
{
	size_t n = part->count + (own ? own->plan.n : 0);
	struct launched *l = calloc(1, sizeof(*l) + n * sizeof(l->moves[0]));

	if (l && !(l->send = send_source_new(part->count, true))) {
		free(l);
		return NULL;
	}
	return l;
}

static void add_move(struct launched *l, bool to_peer, uint32_t peer, void *memory,
		     uint64_t size)
{
	l->moves[l->io.io.nmoves++] = (struct collective_move){ to_peer, peer, size, memory };
}

/* Adds the pieces that this rank sends.  On error they are sent all the same, with undefined
 * content, since the receiver waits for as many bytes: APPLIED tells it.  *gone: a piece has no
 * memory, so that nothing can be sent.
 */
static int add_sent(struct engine *e, struct launched *l, const struct edit_round *part,
		    bool *gone)
{
	int rc = 0;

	for (uint32_t i = 0; i < part->count; i++) {
		const struct wire_piece *piece = &part->pieces[i];
		void *from;
		int status =
			part->view[0]
				? send_source_from_view(e, l->send, part->view, piece, &from)
				: send_source_from(e, l->send, piece->epoch, piece->state,
						   piece->offset, piece->size, &from);

		rc = rc ? rc : status;
		*gone |= !from;
		add_move(l, true, part->member, from, piece->size);
	}
	return rc;
}

/* Each rank sends its pieces in the order of tell_part, which is that of the plan. */
static void add_received(struct launched *l, const struct round *own)
{
	uint8_t *out = own->get->out;

	for (unsigned i = 0; i < own->plan.n; i++) {
		const struct plan_piece *piece = &own->plan.pieces[i];

		add_move(l, false, own->members[i], out + piece->at, piece->size);
	}
}

static int start(struct engine *e, struct rounds *r, struct launched *l, struct round *own)
{
	int rc;

	l->io.io.what = COLLECTIVE_MOVES;
	l->io.io.moves = l->moves;
	l->io.io.after = send_source_after(l->send);
	atomic_fetch_add(&r->under_way, 1);
	rc = communicator_launch(e, l->communicator, &l->io);
	if (rc) {
		atomic_fetch_sub(&r->under_way, 1);
		return rc;
	}
	LIST_INSERT_HEAD(&r->launched, l, link);
	r->figures.launched++;
	if (own) {
		l->began_ns = comms_begin(e->comms);
		l->own = own;
		own->launched = l;
		own->was_launched = true;
	}
	return 0;
}

/* Launches this rank's part, also on error.  *gone: nothing was launched. */
static int launch(struct engine *e, struct rounds *r, const struct edit *edit, bool *gone)
{
	const struct edit_round *part = edit->round;
	struct round *own = find_round(r, edit->transaction);
	struct launched *l = launched_new(e, part, own);
	int rc = l ? 0 : -ENOMEM;

	*gone = !l || (part->reader == e->rank && !own); /* the reader has given up */
	if (!*gone) {
		l->communicator = part->communicator;
		rc = add_sent(e, l, part, gone);
	}
	if (!*gone && own)
		add_received(l, own);
	if (!*gone) {
		int started = start(e, r, l, own);

		*gone = started != 0;
		rc = started ? started : rc;
	}
	if (*gone)
		launched_free(e, l);
	return rc || !*gone ? rc : -ECANCELED;
}

int rounds_launch(void *arg, const struct edit *edit)
{
	struct engine *e = arg;
	struct rounds *r = e->rounds.table;
	bool gone = false;
	int rc;

	assert(thread_may_be_trainer());
	if (!edit->round) /* a round of other ranks */
		return 0;
	pthread_mutex_lock(&r->lock);
	rc = launch(e, r, edit, &gone);
	pthread_mutex_unlock(&r->lock);
	if (gone) /* the other members would wait for this rank for ever */
		communicator_break(e, edit->round->communicator);
	return rc;
}

/* ---- the end of a part: engine thread ---- */

/* Counts a round that has brought all bytes, and the ranks that have sent them. */
static void count(struct engine *e, const struct launched *l)
{
	const struct round *own = l->own;
	unsigned nranks = 0;

	for (unsigned i = 0, j; i < own->plan.n; i++) {
		for (j = 0; j < i && own->members[j] != own->members[i];)
			j++;
		nranks += j == i;
	}
	comms_count(e->comms, COMMS_ROUND, nranks, own->get->size, monotonic_ns() - l->began_ns,
		    LOG_PLACE);
}

void rounds_turn_launched(struct engine *e)
{
	struct rounds *r = e->rounds.table;
	struct launched *l, *next;

	assert(node_is_engine_thread(e));
	LOCKED(&r->lock);
	LIST_FOREACH_SAFE (l, &r->launched, link, next) {
		int result = atomic_load(&l->io.result);

		if (result == -EINPROGRESS)
			continue;
		LIST_REMOVE(l, link);
		atomic_fetch_sub(&r->under_way, 1);
		if (l->began_ns && !result)
			count(e, l);
		if (l->own) {
			l->own->launched = NULL;
			if (!l->own->result)
				l->own->result = result;
		}
		launched_free(e, l);
	}
}

void rounds_free_launched(struct engine *e)
{
	struct launched *l;

	while ((l = LIST_FIRST(&e->rounds.table->launched))) {
		LIST_REMOVE(l, link);
		launched_free(e, l);
	}
}
