/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* What a writer keeps aside with a rank: bytes of edits, and what is to be sent by a round. */

#include "engine/rank/participant-internal.h"

#include <errno.h>
#include <string.h>

/* What a piece costs us, so that very many tiny ones are bounded too. */
static uint64_t cost(const struct edit_piece *piece)
{
	return sizeof(*piece) + piece->size;
}

/* One writer leaves some to others. */
static bool has_room(const struct participant *s, const uint64_t transaction[2],
		     uint32_t writer, uint64_t bytes)
{
	uint64_t own = bytes;
	unsigned others = 0;

	for (const struct edit *e = s->list; e; e = e->next) {
		if ((!e->first && !e->round) || e->writer != writer)
			continue;
		own += e->cost;
		others += memcmp(e->transaction, transaction, sizeof(e->transaction)) != 0;
	}
	return s->bytes + bytes <= s->bytes_max && own <= s->bytes_max / 4 * 3 &&
	       others < PARTICIPANT_EDITS_OF_WRITER_MAX;
}

/* Something of that writer's, which costs so much, comes to the transaction. */
static int make_room(struct participant *s, const uint64_t transaction[2], uint32_t writer,
		     uint64_t now, uint64_t costs, struct edit **out)
{
	struct edit *e;

	if (!*participant_find(s, transaction) &&
	    participant_known(s, transaction) != WIRE_UNDECIDED)
		return -ESTALE;
	if (!has_room(s, transaction, writer, costs) ||
	    !(e = participant_find_or_add(s, transaction)))
		return -ENOSPC;
	if (e->state != EDIT_STAGED)
		return -EBUSY;
	e->writer = writer;
	e->touched_ms = now;
	*out = e;
	return 0;
}

static void charge(struct participant *s, struct edit *e, uint64_t costs)
{
	e->cost += costs;
	s->bytes += costs;
}

static int stage(struct participant *s, const uint64_t transaction[2], uint32_t writer,
		 uint64_t now, struct edit_piece *piece)
{
	struct edit *e;
	int rc = make_room(s, transaction, writer, now, cost(piece), &e);

	if (rc)
		return rc;
	if (e->last)
		e->last->next = piece;
	else
		e->first = piece;
	e->last = piece;
	e->has_grad |= piece->is_grad;
	e->bytes += piece->size;
	charge(s, e, cost(piece));
	return 0;
}

int participant_stage(struct participant *s, const uint64_t transaction[2], uint32_t writer,
		      uint64_t now, uint64_t epoch, uint32_t row, bool is_grad, uint64_t offset,
		      const void *data, uint32_t size)
{
	struct edit_piece *piece = malloc(sizeof(*piece) + size);
	int rc;

	if (!piece)
		return -ENOMEM;
	*piece = (struct edit_piece){
		.epoch = epoch, .row = row, .is_grad = is_grad, .offset = offset, .size = size
	};
	memcpy(piece->data, data, size);
	pthread_mutex_lock(&s->lock);
	rc = stage(s, transaction, writer, now, piece);
	pthread_mutex_unlock(&s->lock);
	if (rc)
		free(piece);
	return rc;
}

static int stage_round(struct participant *s, const uint64_t transaction[2], uint32_t writer,
		       uint64_t now, bool has_grad, struct edit_round *round)
{
	uint64_t costs = sizeof(*round) + round->count * sizeof(round->pieces[0]);
	struct edit *e;
	int rc = make_room(s, transaction, writer, now, costs, &e);

	if (!rc && (e->round || e->first))
		rc = -EEXIST;
	if (rc)
		return rc;
	e->round = round;
	e->has_grad = has_grad;
	charge(s, e, costs);
	return 0;
}

int participant_stage_round(struct participant *s, const uint64_t transaction[2],
			    uint32_t writer, uint64_t now, bool has_grad,
			    struct edit_round *round)
{
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = stage_round(s, transaction, writer, now, has_grad, round);
	pthread_mutex_unlock(&s->lock);
	if (rc)
		free(round);
	return rc;
}

void participant_name(struct participant *s, const uint64_t transaction[2],
		      const struct wire_origin *origin)
{
	struct edit *e;

	pthread_mutex_lock(&s->lock);
	e = *participant_find(s, transaction);
	if (e)
		e->origin = *origin;
	pthread_mutex_unlock(&s->lock);
}
