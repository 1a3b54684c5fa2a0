/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/model/commit.h"

/* The model of engine/rounds/rounds-launch.c, communicator.c and the collective below them.
 * Launches of one rank run one after the other.  Bytes between two ranks are taken in the order
 * of their launches, whatever round they are of.
 */

struct round_next round_next;

static unsigned reader(void)
{
	return bounds.reader - 1u;
}

static bool has_part(unsigned r)
{
	return bounds.holders >> r & 1;
}

static uint8_t owners(void)
{
	return (uint8_t)(bounds.holders & ~(1u << reader()));
}

static bool was_launched(const struct launch_state *l)
{
	return l->how == LAUNCHED || l->how == NOT_KEPT;
}

static bool is_complete(const struct state *s, unsigned r, unsigned edit)
{
	uint8_t moved = s->ranks[r].launches[edit].moved;

	return r == reader() ? moved == owners() : moved >> reader() & 1;
}

bool round_is_pending(const struct state *s, unsigned r, unsigned edit)
{
	return !(s->dead >> r & 1) && was_launched(&s->ranks[r].launches[edit]) &&
	       !s->ranks[r].parted && !is_complete(s, r, edit);
}

bool round_came(const struct state *s, unsigned edit)
{
	return s->ranks[reader()].launches[edit].how == LAUNCHED &&
	       is_complete(s, reader(), edit);
}

void round_part(struct state *s, unsigned r, bool tell)
{
	if (s->ranks[r].parted)
		return;
	s->ranks[r].parted = 1;
	for (unsigned rank = 0; tell && rank < RANKS; rank++)
		if (rank != r)
			send(s, r, rank, (struct message){ .type = PART });
}

/* Returns true if the reader has given the round up, its communicator has ended, or there is no
 * memory.
 */
static bool is_gone(const struct state *s, unsigned r, unsigned edit)
{
	return s->ranks[r].parted || round_next.how == FAILED ||
	       (r == reader() && s->writes[edit].state == WRITE_OVER);
}

void round_launch(struct state *s, unsigned r, unsigned edit)
{
	struct rank *rank = &s->ranks[r];
	struct launch_state *l = &rank->launches[edit];

	if (!bounds.reader || !has_part(r))
		return;
	round_next.used = true;
	l->order = rank->applied;
	if (is_gone(s, r, edit)) {
		l->how = FAILED;
		if (mutation != MUTATION_FAILS_ALONE)
			round_part(s, r, mutation != MUTATION_PARTS_ALONE);
		return;
	}
	l->how = (uint8_t)round_next.how;
	if (l->how == NOT_KEPT)
		s->other_bytes |= (uint8_t)(1u << edit);
}

/* ---- bytes ---- */

/* Returns the round of r that was launched first and is not complete; EDITS: none is. */
static unsigned first_pending(const struct state *s, unsigned r)
{
	unsigned first = EDITS;

	for (unsigned edit = 0; edit < bounds.edits; edit++)
		if (round_is_pending(s, r, edit) &&
		    (first == EDITS ||
		     s->ranks[r].launches[edit].order < s->ranks[r].launches[first].order))
			first = edit;
	return first;
}

static void move_from(struct explore *x, const struct state *s, unsigned owner)
{
	unsigned sent = first_pending(s, owner), taken = first_pending(s, reader());
	struct state next = *s;

	if (sent == EDITS || taken == EDITS ||
	    s->ranks[reader()].launches[taken].moved >> owner & 1)
		return;
	next.mistaken |= sent != taken;
	next.ranks[owner].launches[sent].moved |= (uint8_t)(1u << reader());
	next.ranks[reader()].launches[taken].moved |= (uint8_t)(1u << owner);
	then(x, &next, "%d sends its part of round %d", (int)owner, (int)sent);
}

void round_move(struct explore *x, const struct state *s)
{
	for (unsigned r = 0; bounds.reader && r < RANKS; r++)
		if (owners() >> r & 1)
			move_from(x, s, r);
}

/* ---- what must hold ---- */

static bool has_promised(const struct edit *e)
{
	return e->state >= EDIT_PREPARED || e->remembered == COMMITTED;
}

static const char *check_launch(const struct state *s, unsigned r, unsigned edit)
{
	for (unsigned other = 0; other < RANKS; other++)
		if (has_part(other) && !(s->dead >> other & 1) &&
		    was_launched(&s->ranks[r].launches[edit]) &&
		    !has_promised(&s->ranks[other].edits[edit]))
			return "launched for a rank that has not promised";
	return NULL;
}

static const char *check_reader(const struct state *s, unsigned edit)
{
	const struct write *w = &s->writes[edit];

	if (w->state == WRITE_OVER && round_is_pending(s, reader(), edit))
		return "bytes come where nobody waits for them any more";
	if (w->result == RESULT_APPLIED && w->state == WRITE_OVER && s->other_bytes >> edit & 1)
		return "the reader takes other bytes for those that it asked for";
	return NULL;
}

const char *round_broken(const struct state *s)
{
	const char *why = s->mistaken ? "the bytes of one round are taken for another's" : NULL;

	for (unsigned edit = 0; bounds.reader && edit < bounds.edits && !why; edit++) {
		why = check_reader(s, edit);
		for (unsigned r = 0; r < RANKS && !why; r++)
			why = check_launch(s, r, edit);
	}
	return why;
}

bool round_is_end(const struct state *s)
{
	bool end = true;

	for (unsigned edit = 0; bounds.reader && edit < bounds.edits; edit++)
		for (unsigned r = 0; r < RANKS; r++)
			end &= !round_is_pending(s, r, edit);
	return end;
}
