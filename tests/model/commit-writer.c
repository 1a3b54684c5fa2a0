/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/model/commit.h"

/* The model of engine/write/transaction.c.  cancelled is 2 when CANCEL was sent. */

static void say(struct state *s, enum type type, unsigned edit, unsigned to)
{
	send(s, WRITER, to, (struct message){ .type = type & 31, .edit = edit & 1 });
}

static void stage(struct state *s, unsigned edit)
{
	struct write *w = &s->writes[edit];

	w->sent = 1;
	for (unsigned r = 0; r < RANKS; r++) {
		if (!(bounds.holders >> r & 1))
			continue;
		w->failed |= holds_for_lost(s, WRITER, r);
		w->outstanding |= (uint8_t)(1u << r);
		say(s, STAGE, edit, r);
	}
}

static void over(struct write *w, enum result result)
{
	*w = (struct write){ .state = WRITE_OVER, .result = (uint8_t)result };
}

static void forget_everywhere(struct state *s, unsigned edit)
{
	for (unsigned r = 0; r < RANKS; r++)
		if (bounds.holders >> r & 1 && s->writes[edit].sent)
			say(s, DECIDE, edit, r);
	over(&s->writes[edit], RESULT_FAILED);
}

static void ask_commit(struct state *s, unsigned edit)
{
	struct write *w = &s->writes[edit];
	unsigned r = 0;

	while (r < RANKS && holds_for_lost(s, WRITER, r))
		r++;
	if (r == RANKS) {
		w->failed = 1;
		return;
	}
	w->state = WRITE_ASKED;
	w->coordinator = (uint8_t)r;
	w->outstanding = 1;
	say(s, COMMIT, edit, r);
}

/* Returns true if the reader's own part of the round has failed. */
static bool has_failed(const struct state *s, unsigned edit)
{
	unsigned r = bounds.reader - 1u;

	return s->ranks[r].launches[edit].how == LAUNCHED && s->ranks[r].parted &&
	       !round_came(s, edit);
}

/* Ends a round for the reader, when nothing of it is under way there. */
static void end_round(struct state *s, unsigned edit)
{
	struct write *w = &s->writes[edit];
	unsigned r = bounds.reader - 1u;

	if (w->state == WRITE_OVER ||
	    (round_is_pending(s, r, edit) && mutation != MUTATION_DONE_WHEN_TOLD))
		return;
	if (w->state == WRITE_TOLD && w->result == RESULT_APPLIED && !round_came(s, edit) &&
	    mutation != MUTATION_DONE_WHEN_TOLD)
		w->result = RESULT_FAILED;
	if (w->state == WRITE_TOLD)
		over(w, w->result);
	else if (w->state > WRITE_STAGE && has_failed(s, edit))
		over(w, RESULT_FAILED);
}

static void tell(struct write *w, enum result result)
{
	if (!bounds.reader) {
		over(w, result);
		return;
	}
	w->state = WRITE_TOLD;
	w->outstanding = 0;
	w->result = (uint8_t)result;
}

/* Makes the steps of the writer that wait for no message. */
void write_turn(struct state *s)
{
	for (unsigned edit = 0; edit < bounds.edits; edit++) {
		const struct write *w = &s->writes[edit];

		if (w->state == WRITE_STAGE && !w->sent)
			stage(s, edit);
		if (w->state == WRITE_STAGE && !w->outstanding && !w->failed && !w->cancelled)
			ask_commit(s, edit);
		if (w->state == WRITE_STAGE && (w->failed || w->cancelled))
			forget_everywhere(s, edit);
		if (bounds.reader)
			end_round(s, edit);
	}
}

/* Asks again, if neither the writer's question nor its answer is under way. */
static void ask_again(struct explore *x, struct state *s, unsigned edit)
{
	struct write *w = &s->writes[edit];
	unsigned r = w->coordinator;

	if (w->state == WRITE_STAGE) {
		for (r = 0; r < RANKS; r++)
			if (w->outstanding >> r & 1 && is_up(s, r) &&
			    !is_under_way(s, WRITER, r, STAGE, edit) &&
			    !is_under_way(s, r, WRITER, STAGED, edit))
				/* the real writer begins anew with another edit */
				w->failed = 1;
	} else if (is_up(s, r) && !is_under_way(s, WRITER, r, COMMIT, edit) &&
		   !is_under_way(s, r, WRITER, ACCEPTED, edit) &&
		   !is_under_way(s, r, WRITER, VERDICT, edit)) {
		w->cancelled = w->cancelled != 0;
		say(s, COMMIT, edit, r);
	}
	then(x, s, "the writer asks again for edit %d", (int)edit, 0);
}

void write_step(struct explore *x, const struct state *s, unsigned edit)
{
	const struct write *w = &s->writes[edit];
	struct state next = *s;

	if (w->state >= WRITE_TOLD)
		return;
	if (w->outstanding && bounds.losses)
		ask_again(x, &next, edit);
	next = *s;
	if (s->cancels && !w->cancelled) {
		next.cancels--;
		next.writes[edit].cancelled = 1;
		then(x, &next, "the writer is interrupted in edit %d", (int)edit, 0);
	}
	next = *s;
	if (w->state > WRITE_STAGE && w->cancelled == 1) {
		say(&next, CANCEL, edit, w->coordinator);
		next.writes[edit].cancelled = 2;
		then(x, &next, "the writer cancels edit %d", (int)edit, 0);
	}
}

void write_on(struct state *s, unsigned from, struct message m)
{
	struct write *w = &s->writes[m.edit];

	if (m.type == STAGED && w->state == WRITE_STAGE) {
		w->outstanding &= (uint8_t) ~(1u << from);
		w->failed |= !m.value;
	} else if (m.type == ACCEPTED && w->state == WRITE_ASKED) {
		w->state = WRITE_ACCEPTED;
	} else if (m.type == VERDICT && w->state > WRITE_STAGE && w->state < WRITE_TOLD) {
		tell(w, m.value ? RESULT_APPLIED : RESULT_FAILED);
	}
}

void write_lost(struct state *s, unsigned rank)
{
	for (unsigned edit = 0; edit < bounds.edits; edit++) {
		struct write *w = &s->writes[edit];

		if (w->state == WRITE_STAGE && w->outstanding >> rank & 1)
			w->failed = 1;
		else if ((w->state == WRITE_ASKED || w->state == WRITE_ACCEPTED) &&
			 w->coordinator == rank)
			tell(w, RESULT_UNKNOWN);
	}
}
