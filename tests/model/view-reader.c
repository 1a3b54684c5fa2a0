/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/model/view.h"

/* ---- the reader opens its view ---- */

static void ask(struct state *s, unsigned i, uint8_t want, bool fresh)
{
	struct piece *p = &s->pieces[i];

	*p = (struct piece){
		.asked = ASKED_OPEN, .want = want, .fresh = fresh, .kept = p->kept
	};
}

void reader_begin(struct state *s)
{
	s->state = OPENING;
	s->generation = s->at = s->reading = s->got[0] = s->got[1] = 0;
	for (unsigned i = 0; i < bounds.ranks; i++)
		if (!s->pieces[i].lost) {
			s->pieces[i].kept = 0;
			ask(s, i, 0, true);
		}
}

static uint8_t greatest(const struct state *s)
{
	uint8_t generation = 0;

	for (unsigned i = 0; i < bounds.ranks; i++) {
		const struct piece *p = &s->pieces[i];

		if (!p->lost && !p->status && p->state != VIEW_NEXT &&
		    p->generation > generation)
			generation = p->generation;
	}
	return generation;
}

static void judge(struct state *s)
{
	uint8_t generation = greatest(s);
	bool all = true;

	for (unsigned i = 0; i < bounds.ranks; i++)
		if (!s->pieces[i].lost && s->pieces[i].status == STATUS_GONE_BY) {
			reader_begin(s);
			return;
		}
	for (unsigned i = 0; i < bounds.ranks; i++) {
		struct piece *p = &s->pieces[i];

		if (p->lost || (p->state != VIEW_NEXT && (p->generation == generation ||
							  mutation == MUTATION_ANY_GENERATION)))
			continue;
		all = false;
		ask(s, i, p->state == VIEW_NEXT ? 0 : generation, false);
	}
	if (!all)
		return;
	s->state = READY;
	s->generation = generation;
}

static void step_opening(struct explore *x, const struct state *s)
{
	struct state next = *s;

	for (unsigned i = 0; i < bounds.ranks; i++)
		if (s->pieces[i].asked == ASKED_OPEN)
			return;
	for (unsigned i = 0; i < bounds.ranks; i++)
		next.pieces[i].asked = ASKED_NOTHING;
	judge(&next);
	explore_next(x, &next, "the reader has all answers", 0, 0);
}

/* ---- the reader reads ---- */

static void next_piece(struct state *s)
{
	s->reading = BEGIN;
	s->got[0] = s->got[1] = 0;
	s->at++;
	if (s->at == bounds.ranks * (s->state == WHOLE ? 1u : 2u))
		s->state = DONE;
}

static void accept(struct state *s, const uint8_t *bytes)
{
	s->mixed |= bytes[0] != s->generation || bytes[1] != s->generation;
	next_piece(s);
}

static bool bears_out(struct state *s, const struct rank *rank)
{
	uint8_t now = content(rank);

	if (!s->generation)
		s->generation = now;
	return now && now == s->generation;
}

static bool looks_before(const struct state *s, const struct piece *p)
{
	if (s->state == WHOLE)
		return mutation != MUTATION_NO_LOOK_WHOLE;
	return p->state == VIEW_FUTURE && mutation != MUTATION_NO_LOOK;
}

/* The memory does not show the generation.  With a view the bytes are in its room, or are asked
 * for; without a view one is opened.
 */
static void not_there(struct state *s)
{
	s->got[0] = s->got[1] = 0;
	s->reading = LABEL;
	if (s->state == WHOLE)
		reader_begin(s);
}

static void ask_read(struct state *s, struct piece *p)
{
	s->got[0] = s->got[1] = 0;
	p->asked = ASKED_READ;
	s->reading = BY_MESSAGE;
}

static void begin_piece(struct state *s, struct piece *p, unsigned i)
{
	if (p->lost)
		next_piece(s);
	else if (bounds.by_message >> i & 1)
		ask_read(s, p);
	else if (p->kept)
		s->reading = ROOM_FIRST;
	else
		s->reading = looks_before(s, p) ? LOOK : COPY_FIRST;
}

static void take_read(struct state *s, struct piece *p)
{
	uint8_t bytes[2] = { p->read[0], p->read[1] };
	uint8_t status = p->status;

	p->asked = p->status = p->read[0] = p->read[1] = 0;
	s->evicted |= status == STATUS_STALE;
	if (status == STATUS_AGAIN)
		p->asked = ASKED_READ;
	else if (status == STATUS_STALE)
		next_piece(s);
	else
		accept(s, bytes);
}

static void go_on(struct state *s, struct rank *rank, struct piece *p, unsigned i)
{
	switch (s->reading) {
	case BEGIN:
		begin_piece(s, p, i);
		break;
	case LOOK:
		if (bears_out(s, rank))
			s->reading = COPY_FIRST;
		else
			not_there(s);
		break;
	case COPY_FIRST:
	case ROOM_FIRST:
		s->got[0] = s->reading == COPY_FIRST ? rank->bytes[0] : rank->room[0];
		s->reading++;
		break;
	case COPY_SECOND:
	case ROOM_SECOND:
		s->got[1] = s->reading == COPY_SECOND ? rank->bytes[1] : rank->room[1];
		s->reading++;
		break;
	case WITNESS:
		if (bears_out(s, rank) || mutation == MUTATION_NO_WITNESS)
			accept(s, s->got);
		else
			not_there(s);
		break;
	case LABEL:
		if (rank->complete || mutation == MUTATION_NO_LABEL) {
			p->kept = 1;
			s->reading = ROOM_FIRST;
		} else {
			ask_read(s, p);
		}
		break;
	case ROOM_WITNESS:
		if (rank->complete)
			accept(s, s->got);
		else
			ask_read(s, p);
		break;
	case BY_MESSAGE:
		if (p->asked == READ_ANSWERED)
			take_read(s, p);
		break;
	}
}

static void lose(struct state *s, unsigned i)
{
	s->pieces[i] = (struct piece){ .lost = 1 };
	if (s->state == WHOLE)
		reader_begin(s);
	else if (s->state == READY && s->at % bounds.ranks == i)
		next_piece(s);
}

void reader_step(struct explore *x, const struct state *s)
{
	unsigned i = s->at % bounds.ranks;
	struct state next = *s;

	if (s->state == DONE)
		return;
	if (s->state == OPENING)
		step_opening(x, s);
	else if (!(s->dead >> i & 1) || s->pieces[i].lost) {
		go_on(&next, &next.ranks[i], &next.pieces[i], i);
		explore_next(x, &next, "the reader is at piece %d, place %d", (int)i,
			     s->reading);
	}
	for (i = 0; i < bounds.ranks; i++) {
		next = *s;
		if (!(s->dead >> i & 1) || s->pieces[i].lost)
			continue;
		lose(&next, i);
		explore_next(x, &next, "the reader sees that %d is gone", (int)i, 0);
	}
}
