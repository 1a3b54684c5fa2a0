/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/model/view.h"

#include <string.h>

/* ---- a rank's views ---- */

static uint8_t place(struct rank *rank, uint8_t want)
{
	uint8_t now = content(rank);

	rank->copied = rank->complete = rank->stale = 0;
	rank->room[0] = rank->room[1] = 0;
	rank->shows = want > now ? want : now;
	if (now && now >= want) {
		rank->state = VIEW_LIVE;
		return want && now > want ? STATUS_GONE_BY : STATUS_OK;
	}
	rank->state = want ? VIEW_FUTURE : VIEW_NEXT;
	return want && want <= rank->generation ? STATUS_GONE_BY : STATUS_OK;
}

static void drop(struct rank *rank)
{
	rank->any_view = rank->state = rank->shows = rank->copied = 0;
	rank->complete = rank->stale = rank->room[0] = rank->room[1] = 0;
}

static void answer_open(struct rank *rank, struct piece *p, uint8_t status)
{
	p->asked = OPEN_ANSWERED;
	p->want = p->fresh = 0;
	p->status = status;
	p->state = status ? 0 : rank->state;
	p->generation = status ? 0 : rank->shows;
}

static void copy_half(struct rank *rank)
{
	rank->room[rank->copied] = rank->bytes[rank->copied];
	rank->copied++;
}

static void keep(struct rank *rank)
{
	if (rank->state != VIEW_LIVE)
		return;
	while (rank->copied < 2)
		copy_half(rank);
	rank->state = VIEW_PRESERVED;
	rank->complete = 1;
}

static void arrive(struct rank *rank)
{
	uint8_t now = content(rank);

	if (rank->state != VIEW_NEXT && rank->state != VIEW_FUTURE)
		return;
	if (rank->state == VIEW_FUTURE && now < rank->shows)
		return;
	rank->stale = rank->state == VIEW_FUTURE && now > rank->shows;
	rank->state = rank->stale ? VIEW_PRESERVED : VIEW_LIVE;
	rank->shows = now;
}

/* ---- its trainer ---- */

/* Returns true if r may make a new generation: all ranks pass the same boundaries, and none is
 * two generations before another.
 */
static bool may_change(const struct state *s, unsigned r)
{
	for (unsigned other = 0; other < bounds.ranks; other++)
		if (!(s->dead >> other & 1) &&
		    s->ranks[other].generation + 1 < s->ranks[r].generation)
			return false;
	return s->ranks[r].generation < bounds.generations;
}

static void look_at_views(struct rank *rank, void (*act)(struct rank *rank))
{
	if (rank->any_view)
		act(rank);
}

static bool waits_for_lock(const struct rank *rank)
{
	return rank->any_view && rank->locked;
}

void trainer_step(struct explore *x, const struct state *s, unsigned r)
{
	struct state next = *s;
	struct rank *rank = &next.ranks[r];
	bool keeps_first = mutation == MUTATION_KEEPS_BEFORE_SAYING;

	rank->place++;
	switch (s->ranks[r].place) {
	case STABLE:
		if (!may_change(s, r) || (keeps_first && waits_for_lock(rank)))
			return;
		if (keeps_first)
			look_at_views(rank, keep);
		else
			rank->odd = 1;
		break;
	case SAID:
		if (!keeps_first && waits_for_lock(rank))
			return;
		if (keeps_first)
			rank->odd = 1;
		else
			look_at_views(rank, keep);
		break;
	case KEPT_FOR_VIEWS:
		rank->bytes[0] = rank->bytes[1] = TORN;
		break;
	case WRITING:
		rank->bytes[0] = rank->bytes[1] = (uint8_t)(rank->generation + 1);
		break;
	case WRITTEN:
		rank->generation++;
		break;
	case NEW:
		rank->odd = 0;
		break;
	case STABLE_AGAIN:
		if (waits_for_lock(rank))
			return;
		look_at_views(rank, arrive);
		rank->place = STABLE;
		break;
	}
	explore_next(x, &next, "the trainer of %d goes on from place %d", (int)r,
		     s->ranks[r].place);
}

/* ---- its engine thread ---- */

static void open_view(struct explore *x, struct state *s, unsigned r)
{
	struct rank *rank = &s->ranks[r];
	struct piece *p = &s->pieces[r];
	bool placed_first = mutation == MUTATION_PLACED_BEFORE_COUNTED;

	if (rank->state && p->fresh)
		drop(rank);
	p->fresh = 0;
	if (rank->state) { /* the rank has a view already: it stays, or moves */
		uint8_t status = STATUS_OK;

		if (p->want > rank->shows)
			status = place(rank, p->want);
		else if (p->want && rank->state != VIEW_NEXT && rank->shows > p->want)
			status = STATUS_GONE_BY;
		answer_open(rank, p, status);
	} else {
		rank->locked = 1;
		if (placed_first)
			place(rank, p->want);
		else
			rank->any_view = 1;
	}
	explore_next(x, s, "%d opens or looks at the view", (int)r, 0);
}

static void open_view_further(struct explore *x, struct state *s, unsigned r)
{
	struct rank *rank = &s->ranks[r];
	uint8_t status = STATUS_OK;

	if (mutation == MUTATION_PLACED_BEFORE_COUNTED)
		rank->any_view = 1;
	else
		status = place(rank, s->pieces[r].want);
	rank->locked = 0;
	answer_open(rank, &s->pieces[r], status);
	explore_next(x, s, "%d has placed the view", (int)r, 0);
}

static void answer_read(struct state *s, unsigned r, uint8_t status, const uint8_t *bytes)
{
	struct piece *p = &s->pieces[r];

	p->asked = READ_ANSWERED;
	p->status = status;
	if (status == STATUS_OK)
		memcpy(p->read, bytes, sizeof(p->read));
	s->ranks[r].reading = s->ranks[r].read[0] = s->ranks[r].read[1] = 0;
}

static void read_view(struct explore *x, struct state *s, unsigned r)
{
	struct rank *rank = &s->ranks[r];

	if (rank->state == VIEW_PRESERVED)
		answer_read(s, r, rank->stale ? STATUS_STALE : STATUS_OK, rank->room);
	else if (rank->state == VIEW_LIVE)
		rank->reading = 1;
	else
		answer_read(s, r, STATUS_AGAIN, NULL);
	explore_next(x, s, "%d takes a READ", (int)r, 0);
}

/* Copies a half for a READ, without the lock; at the end looks whether the view was kept
 * meanwhile, and then answers with the room.
 */
static void read_further(struct explore *x, struct state *s, unsigned r)
{
	struct rank *rank = &s->ranks[r];
	bool was_kept = rank->state == VIEW_PRESERVED && mutation != MUTATION_NO_SECOND_LOOK;

	if (rank->reading < 3) {
		rank->read[rank->reading - 1] = rank->bytes[rank->reading - 1];
		rank->reading++;
	} else {
		answer_read(s, r, STATUS_OK, was_kept ? rank->room : rank->read);
	}
	explore_next(x, s, "%d copies for a READ", (int)r, 0);
}

void rank_step(struct explore *x, const struct state *s, unsigned r)
{
	const struct rank *rank = &s->ranks[r];
	struct state next = *s;

	if (rank->locked) {
		open_view_further(x, &next, r);
	} else if (rank->reading) {
		read_further(x, &next, r);
	} else {
		if (s->pieces[r].asked == ASKED_OPEN)
			open_view(x, &next, r);
		next = *s;
		if (s->pieces[r].asked == ASKED_READ)
			read_view(x, &next, r);
		next = *s;
		if ((rank->state == VIEW_LIVE ||
		     (mutation == MUTATION_COPIES_AHEAD_UNLOCKED && rank->state)) &&
		    rank->copied < 2) {
			copy_half(&next.ranks[r]);
			explore_next(x, &next, "%d copies ahead", (int)r, 0);
		}
	}
}
