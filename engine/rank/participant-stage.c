/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Staging: a writer keeps bytes of an edit, or the list of a round, aside with this rank. */

#include "engine/base/thread.h"
#include "engine/rank/participant-internal.h"

#include <errno.h>
#include <string.h>

/* Returns true if the writer may stage so many bytes more.  A writer has at most three quarters
 * of the memory and of the edits.
 */
static bool has_room(const struct participant *s, const uint64_t transaction[2],
		     uint32_t writer, uint64_t bytes)
{
	uint64_t own = bytes;
	unsigned others = 0;
	const struct edit *e;

	TAILQ_FOREACH (e, &s->list, link) {
		if ((STAILQ_EMPTY(&e->pieces) && !e->round) || e->writer != writer)
			continue;
		own += e->cost;
		others += memcmp(e->transaction, transaction, sizeof(e->transaction)) != 0;
	}
	return s->bytes + bytes <= s->bytes_max && own <= s->bytes_max / 4 * 3 &&
	       others < PARTICIPANT_EDITS_OF_WRITER_MAX;
}

/* Charges `cost` bytes of memory to the writer's transaction, and makes its edit if there is
 * none.  round: the edit must have no pieces and no other round.
 */
static int charge(struct participant *s, const uint64_t transaction[2], uint32_t writer,
		  uint64_t now, uint64_t cost, bool round, struct edit **out)
{
	struct edit *e = participant_find(s, transaction);

	if (!e && participant_known(s, transaction) != WIRE_UNDECIDED)
		return -ESTALE;
	if (!has_room(s, transaction, writer, cost) ||
	    !(e = participant_find_or_add(s, transaction)))
		return -ENOSPC;
	if (e->state != EDIT_STAGED)
		return -EBUSY;
	e->writer = writer;
	e->staged_ms = e->touched_ms = now;
	if (round && (e->round || !STAILQ_EMPTY(&e->pieces)))
		return -EEXIST;
	e->cost += cost;
	s->bytes += cost;
	*out = e;
	return 0;
}

static struct edit_piece *take_spare(struct participant *s)
{
	struct edit_piece *piece;

	LOCKED(&s->lock);
	piece = STAILQ_FIRST(&s->spare);
	if (piece)
		STAILQ_REMOVE_HEAD(&s->spare, link);
	return piece;
}

struct edit_piece *participant_piece(struct participant *s, uint64_t epoch, uint32_t row,
				     uint64_t offset, uint32_t size)
{
	struct edit_piece *piece = size == WIRE_CHUNK ? take_spare(s) : NULL;

	if (!piece)
		piece = malloc(sizeof(*piece) + size);
	if (piece)
		*piece = (struct edit_piece){
			.epoch = epoch, .row = row, .offset = offset, .size = size
		};
	return piece;
}

void participant_put_piece(struct participant *s, struct edit_piece *piece)
{
	LOCKED(&s->lock);
	participant_free_piece(s, piece);
}

int participant_stage(struct participant *s, const uint64_t transaction[2], uint32_t writer,
		      uint64_t now, bool is_grad, struct edit_piece *piece)
{
	struct edit *e;
	int rc;

	LOCKED(&s->lock);
	/* the header counts too, or very many tiny pieces would be without a bound */
	rc = charge(s, transaction, writer, now, sizeof(*piece) + piece->size, false, &e);
	if (rc) {
		participant_free_piece(s, piece);
		return rc;
	}
	STAILQ_INSERT_TAIL(&e->pieces, piece, link);
	e->has_grad |= is_grad;
	e->bytes += piece->size;
	return 0;
}

int participant_stage_compute(struct participant *s, const uint64_t transaction[2],
			      uint32_t writer, uint64_t now, bool is_grad,
			      struct compute *compute)
{
	struct edit_piece *piece = calloc(1, sizeof(*piece));
	/* Allocated before the vote: a rank that finds no memory behind the decision would
	 * leave its part of the edit out.
	 */
	uint8_t *buffer = malloc(COMPUTE_BUFFER);
	struct edit *e;
	int rc = piece && buffer ? 0 : -ENOMEM;

	LOCKED(&s->lock);
	if (!rc)
		rc = charge(s, transaction, writer, now, sizeof(*piece) + sizeof(*compute),
			    false, &e);
	if (rc) {
		free(compute);
		free(buffer);
		free(piece);
		return rc;
	}
	piece->compute = compute;
	if (e->buffer)
		free(buffer);
	else
		e->buffer = buffer;
	STAILQ_INSERT_TAIL(&e->pieces, piece, link);
	e->has_grad |= is_grad;
	e->bytes += compute_bytes(compute);
	return 0;
}

static bool computes(const struct edit *e, uint32_t row)
{
	const struct edit_piece *p;

	STAILQ_FOREACH (p, &e->pieces, link)
		if (p->compute && (p->compute->row == row ||
				   (p->compute->follows && p->compute->master == row)))
			return true;
	return false;
}

bool participant_computes(struct participant *s, uint32_t row)
{
	const struct edit *e;

	LOCKED(&s->lock);
	TAILQ_FOREACH (e, &s->list, link)
		if (e->state <= EDIT_DECIDED && computes(e, row))
			return true;
	return false;
}

int participant_stage_round(struct participant *s, const uint64_t transaction[2],
			    uint32_t writer, uint64_t now, bool has_grad,
			    struct edit_round *round)
{
	uint64_t cost = sizeof(*round) + round->count * sizeof(round->pieces[0]);
	struct edit *e;
	int rc;

	LOCKED(&s->lock);
	rc = charge(s, transaction, writer, now, cost, true, &e);
	if (rc) {
		free(round);
		return rc;
	}
	e->round = round;
	e->has_grad = has_grad;
	return 0;
}

void participant_name(struct participant *s, const uint64_t transaction[2],
		      const struct wire_origin *origin)
{
	struct edit *e;

	LOCKED(&s->lock);
	e = participant_find(s, transaction);
	if (e)
		e->origin = *origin;
}
