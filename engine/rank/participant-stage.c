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

/* Charges `cost` bytes of memory to the writer's transaction, a new one where there is none.
 * `round`: the transaction is to hold nothing else.
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
	e->touched_ms = now;
	if (round && (e->round || !STAILQ_EMPTY(&e->pieces)))
		return -EEXIST;
	e->cost += cost;
	s->bytes += cost;
	*out = e;
	return 0;
}

int participant_stage(struct participant *s, const uint64_t transaction[2], uint32_t writer,
		      uint64_t now, uint64_t epoch, uint32_t row, bool is_grad, uint64_t offset,
		      const void *data, uint32_t size)
{
	struct edit_piece *piece = malloc(sizeof(*piece) + size);
	struct edit *e;
	int rc;

	if (!piece)
		return -ENOMEM;
	*piece = (struct edit_piece){
		.epoch = epoch, .row = row, .is_grad = is_grad, .offset = offset, .size = size
	};
	memcpy(piece->data, data, size);
	LOCKED(&s->lock);
	/* the header counts too, or very many tiny pieces would be without a bound */
	rc = charge(s, transaction, writer, now, sizeof(*piece) + size, false, &e);
	if (rc) {
		free(piece);
		return rc;
	}
	STAILQ_INSERT_TAIL(&e->pieces, piece, link);
	e->has_grad |= is_grad;
	e->bytes += size;
	return 0;
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
