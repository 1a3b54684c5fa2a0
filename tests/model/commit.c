/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/model/commit.h"
#include "tests/model/run.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bounds bounds;
enum mutation mutation;

/* ---- messages ---- */

static bool is_request(unsigned type)
{
	return type == STAGE || type == COMMIT || type == CANCEL || type == PREPARE ||
	       type == DECIDE || type == ARRIVED || type == OUTCOME || type == PART ||
	       type == CHECKED;
}

int send(struct state *s, unsigned from, unsigned to, struct message m)
{
	struct message *queue = s->queue[from][to];
	unsigned n = 0;

	if (from != to && to != WRITER && is_request(m.type) && holds_for_lost(s, from, to))
		return -EIO;
	if (s->dead >> to & 1)
		return 0;
	while (n < QUEUE && queue[n].type)
		n++;
	if (n == QUEUE) {
		fprintf(stderr, "more messages than the model has room for\n");
		exit(2);
	}
	queue[n] = m;
	return 0;
}

static struct message take(struct state *s, unsigned from, unsigned to)
{
	struct message *queue = s->queue[from][to], first = queue[0];

	memmove(queue, queue + 1, (QUEUE - 1) * sizeof(*queue));
	memset(queue + QUEUE - 1, 0, sizeof(*queue));
	return first;
}

bool is_under_way(const struct state *s, unsigned from, unsigned to, enum type type,
		  unsigned edit)
{
	for (unsigned i = 0; i < QUEUE; i++)
		if (s->queue[from][to][i].type == type && s->queue[from][to][i].edit == edit)
			return true;
	return false;
}

static void hear(struct state *s, unsigned node, unsigned rank)
{
	uint8_t *lost = node == WRITER ? &s->lost : &s->ranks[node].lost;

	*lost &= (uint8_t) ~(1u << rank);
}

static void take_rank_message(struct explore *x, struct state *s, unsigned from, unsigned r,
			      struct message m)
{
	switch (m.type) {
	case STAGE:
		participant_stage(s, r, from, m.edit);
		break;
	case COMMIT:
		coordinator_commit(s, r, m.edit);
		break;
	case CANCEL:
		coordinator_cancel(s, r, m.edit);
		break;
	case PREPARE:
		participant_prepare(s, r, from, m);
		break;
	case VOTE:
		agree_on_vote(s, r, from, m);
		break;
	case DECIDE:
		participant_decide(s, r, from, m);
		break;
	case DECIDED:
	case APPLIED:
		agree_on_decided(s, r, from, m);
		break;
	case ARRIVED:
		coordinator_arrived(x, s, r, from, m.edit);
		break;
	case CHECKED:
		coordinator_checked(x, s, r, from, m);
		break;
	case ARRIVED_KNOWN:
		participant_hear(s, r, m.edit, m.value == COMMITTED);
		break;
	case OUTCOME:
		termination_outcome(s, r, from, m.edit);
		break;
	case OUTCOME_KNOWN:
		agree_on_known(s, r, from, m);
		break;
	case PART:
		round_part(s, r, false);
		break;
	}
}

static bool is_busy(const struct state *s, unsigned r)
{
	return s->ranks[r].promising;
}

/* Makes what an engine does in one turn: it hears its messages to itself, and those that follow
 * from them.  Returns false if there was nothing.
 */
static bool turn(struct explore *x, struct state *s, unsigned r)
{
	bool any = false;

	if (is_busy(s, r) || !is_up(s, r))
		return false;
	for (; s->queue[r][r][0].type && !is_busy(s, r); any = true)
		take_rank_message(x, s, r, r, take(s, r, r));
	for (unsigned edit = 0; edit < bounds.edits && !is_busy(s, r); edit++) {
		any |= edits_report(s, r, edit);
		any |= coordinator_turn(s, r, edit);
		any |= agree_end_inquiry(s, r, edit);
	}
	return any;
}

/* Gives the writer its answers at once; its next messages have a delay. */
static bool hear_answers(struct state *s)
{
	bool any = false;

	for (unsigned r = 0; r < RANKS; r++)
		for (; s->queue[r][WRITER][0].type; any = true) {
			hear(s, WRITER, r);
			write_on(s, r, take(s, r, WRITER));
		}
	return any;
}

void then(struct explore *x, struct state *s, const char *what, int a, int b)
{
	for (unsigned r = 0; r < RANKS; r++)
		while (turn(x, s, r))
			;
	if (is_up(s, WRITER))
		do
			write_turn(s);
		while (hear_answers(s));
	explore_next(x, s, what, a, b);
}

static void deliver(struct explore *x, const struct state *s, unsigned from, unsigned to)
{
	struct state next = *s;
	struct message m;

	if (from == to || !s->queue[from][to][0].type)
		return;
	if (s->dead >> from & 1) {
		memset(next.queue[from][to], 0, sizeof(next.queue[from][to]));
		then(x, &next, "what %d has sent to %d and is not there yet is lost", (int)from,
		     (int)to);
	} else if (s->losses) {
		next.losses--;
		take(&next, from, to);
		then(x, &next, "a message of %d to %d is lost", (int)from, (int)to);
	}
	if (!is_up(s, to) || (to < RANKS && is_busy(s, to)))
		return;
	next = *s;
	m = take(&next, from, to);
	if (from < RANKS && !is_request(m.type))
		hear(&next, to, from);
	if (to == WRITER)
		write_on(&next, from, m);
	else
		take_rank_message(x, &next, from, to, m);
	then(x, &next, "%d takes a message of %d", (int)to, (int)from);
}

/* ---- what happens by itself ---- */

static bool may_enter(const struct state *s, unsigned r)
{
	for (unsigned other = 0; other < RANKS; other++)
		if (!(s->dead >> other & 1) && s->ranks[other].boundary < s->ranks[r].boundary)
			return false;
	return s->ranks[r].place == RUNNING && s->ranks[r].boundary < bounds.boundaries;
}

/* The trainer looks at its edits.  how: how a launch that follows goes. */
static void look(struct explore *x, const struct state *s, unsigned r, enum launch how)
{
	struct state next = *s;
	struct rank *rank = &next.ranks[r];
	bool again = rank->place == WAITING;

	if (again && is_busy(s, r))
		return;
	round_next = (struct round_next){ .how = how };
	rank->place = again || participant_pending(s, r) ? WAITING : RUNNING;
	if (rank->place == WAITING && !is_busy(s, r) &&
	    !participant_look(&next, r)) /* in the real engine one lock covers both */
		rank->place = RUNNING;
	if (how != LAUNCHED && !round_next.used)
		return;
	next.spoils -= how == NOT_KEPT;
	next.failures -= how == FAILED;
	then(x, &next, again ? "%d looks again at boundary %d" : "%d looks at boundary %d",
	     (int)r, rank->boundary);
}

static void step_trainer(struct explore *x, const struct state *s, unsigned r)
{
	struct state next = *s;
	struct rank *rank = &next.ranks[r];

	if (may_enter(s, r)) {
		rank->boundary++;
		rank->place = ENTERED;
		then(x, &next, "%d enters boundary %d", (int)r, rank->boundary);
	} else if (rank->place != RUNNING) {
		look(x, s, r, LAUNCHED);
		if (s->spoils && r + 1 != bounds.reader)
			look(x, s, r, NOT_KEPT);
		if (s->failures)
			look(x, s, r, FAILED);
	}
}

static void say_arrived(struct explore *x, const struct state *s, unsigned r, unsigned edit)
{
	const struct edit *e = &s->ranks[r].edits[edit];
	enum type type = is_watch(edit) ? CHECKED : ARRIVED;
	struct state next = *s;

	if (e->state != EDIT_PREPARED || !e->arrived || (is_watch(edit) && !e->checked) ||
	    is_under_way(s, r, e->coordinator, type, edit) ||
	    is_under_way(s, e->coordinator, r, ARRIVED_KNOWN, edit))
		return;
	if (!send(&next, r, e->coordinator,
		  (struct message){ type & 31, edit & 1, e->n & 31, e->found & 31 }))
		next.ranks[r].edits[edit].awaits = 1;
	then(x, &next, "%d says that it has arrived, edit %d", (int)r, (int)edit);
}

static void step_edit(struct explore *x, const struct state *s, unsigned r, unsigned edit)
{
	struct state next = *s;

	if (agree_inquire(&next, r, edit))
		then(x, &next, "%d asks what became of edit %d", (int)r, (int)edit);
	for (unsigned rank = 0; rank < RANKS; rank++) {
		next = *s;
		if ((bounds.losses || (bounds.bad && bounds.stops)) && is_up(s, rank) &&
		    agree_ask_again(&next, r, rank, edit))
			then(x, &next, "%d asks %d again", (int)r, (int)rank);
	}
	next = *s;
	if (participant_lose_writer(&next, r, edit))
		then(x, &next, "%d drops edit %d, whose writer is lost", (int)r, (int)edit);
	say_arrived(x, s, r, edit);
}

static void step_engine(struct explore *x, const struct state *s, unsigned r)
{
	struct state next = *s;

	if (s->ranks[r].promising) {
		edits_promise(&next, r);
		then(x, &next, "%d looks where its trainer is", (int)r, 0);
		return;
	}
	for (unsigned edit = 0; edit < bounds.edits; edit++)
		step_edit(x, s, r, edit);
}

/* ---- what goes wrong ---- */

static void end_node(struct state *s, unsigned node)
{
	s->dead |= (uint8_t)(1u << node);
	for (unsigned from = 0; from < NODES; from++)
		memset(s->queue[from][node], 0, sizeof(s->queue[from][node]));
	if (node == WRITER)
		memset(s->writes, 0, sizeof(s->writes));
	else
		memset(&s->ranks[node], 0, sizeof(s->ranks[node]));
}

static void crash(struct explore *x, const struct state *s, unsigned node)
{
	struct state next = *s;

	if (!s->crashes || (node == WRITER && bounds.reader))
		return;
	next.crashes--;
	end_node(&next, node);
	if (node + 1 == bounds.reader)
		end_node(&next, WRITER);
	then(x, &next, "%d dies", (int)node, 0);
}

static void stop(struct explore *x, const struct state *s, unsigned r)
{
	struct state next = *s;

	if (s->stopped >> r & 1) {
		next.stopped = 0;
		then(x, &next, "%d goes on", (int)r, 0);
	} else if (s->stops && is_up(s, r) && !r) { /* rank 0, which coordinates */
		next.stops--;
		next.stopped = (uint8_t)(1u << r);
		then(x, &next, "%d is stopped", (int)r, 0);
	}
}

static void notice(struct explore *x, const struct state *s, unsigned node, unsigned rank)
{
	struct state next = *s;

	if (node == rank || !is_up(s, node) || (node == WRITER && s->stopped >> rank & 1))
		return;
	if (holds_for_lost(s, node, rank) && is_up(s, rank)) {
		hear(&next, node, rank);
		then(x, &next, "%d hears %d again", (int)node, (int)rank);
	} else if (!holds_for_lost(s, node, rank) && !is_up(s, rank)) {
		if (node == WRITER) {
			next.lost |= (uint8_t)(1u << rank);
			write_lost(&next, rank);
		} else {
			next.ranks[node].lost |= (uint8_t)(1u << rank);
			agree_lost(&next, node, rank);
			if (bounds.reader)
				round_part(&next, node, mutation != MUTATION_PARTS_ALONE);
		}
		then(x, &next, "%d holds %d for lost", (int)node, (int)rank);
	}
}

static void step(struct explore *x, const void *state)
{
	const struct state *s = state;

	for (unsigned node = 0; node < NODES; node++) {
		for (unsigned from = 0; from < NODES; from++)
			deliver(x, s, from, node);
		for (unsigned rank = 0; rank < RANKS; rank++)
			notice(x, s, node, rank);
		if (!(s->dead >> node & 1))
			crash(x, s, node);
		if (node == WRITER || s->dead >> node & 1)
			continue;
		stop(x, s, node);
		if (!is_up(s, node))
			continue;
		step_trainer(x, s, node);
		step_engine(x, s, node);
	}
	for (unsigned edit = 0; edit < bounds.edits && is_up(s, WRITER); edit++)
		write_step(x, s, edit);
	round_move(x, s);
}

static void start(void *state)
{
	struct state *s = state;

	for (unsigned r = bounds.ranks; r < RANKS; r++)
		s->dead |= (uint8_t)(1u << r);
	s->lost = s->dead;
	for (unsigned r = 0; r < bounds.ranks; r++)
		s->ranks[r].lost = s->dead;
	s->crashes = bounds.crashes;
	s->stops = bounds.stops;
	s->losses = bounds.losses;
	s->cancels = bounds.cancels;
	s->failures = bounds.failures;
	s->spoils = bounds.spoils;
	for (unsigned edit = bounds.edits; edit < EDITS; edit++)
		s->writes[edit].state = WRITE_OVER;
	write_turn(s);
}

/* ---- what must hold ---- */

static const struct edit *edit_of(const struct state *s, unsigned r, unsigned edit)
{
	return s->dead >> r & 1 ? NULL : &s->ranks[r].edits[edit];
}

/* Returns true if rank r has passed the boundary; boundaries count from 0. */
static bool is_beyond(const struct state *s, unsigned r, unsigned boundary)
{
	return s->ranks[r].boundary > boundary ||
	       (s->ranks[r].boundary == boundary && s->ranks[r].place == RUNNING);
}

/* Returns true if others may go on without rank r: it may be held for lost although it lives,
 * and has no bytes of the edit.
 */
static bool may_miss(unsigned r)
{
	return bounds.stops && !(bounds.holders >> r & 1);
}

static const char *compare(const struct state *s, unsigned edit, unsigned r, unsigned other)
{
	const struct edit *a = edit_of(s, r, edit), *b = edit_of(s, other, edit);

	if (!a || !b || !a->applied_at || may_miss(r) || may_miss(other))
		return NULL;
	if (b->remembered == ABORTED)
		return "one rank has applied what another has aborted";
	if (b->applied_at && (a->applied_at != b->applied_at))
		return "two ranks have applied an edit at different boundaries";
	if (b->applied_at && (a->applied_as != b->applied_as))
		return "two ranks have applied edits in different orders";
	if (!b->applied_at && is_beyond(s, other, a->applied_at - 1u))
		return "a rank has passed the boundary at which another has applied";
	return NULL;
}

static const char *check_result(const struct state *s, unsigned edit, unsigned r)
{
	const struct edit *e = edit_of(s, r, edit);
	unsigned result = s->writes[edit].result;

	if (e && result == RESULT_APPLIED && !e->applied_at && !bounds.stops)
		return "the writer was told of success, and a rank has not applied it";
	if (e && result == RESULT_FAILED && e->remembered == COMMITTED && !bounds.reader)
		return "the writer was told of failure, and a rank has committed it";
	return NULL;
}

/* Returns the first boundary at which the condition holds; UINT_MAX: it holds at none. */
static unsigned first_bad(const struct state *s)
{
	if (bounds.bad != BAD_BY_EDIT)
		return bounds.bad;
	return s->ranks[FINDER].edits[1].applied_at - 1u;
}

/* Checks a watch.  A boundary at which the condition holds may be passed if the finder has
 * died, a rank was stopped, or not all ranks had promised the boundary.
 */
static const char *check_watch(const struct state *s)
{
	unsigned bad = first_bad(s);
	bool finder_lives = !(s->dead >> FINDER & 1);

	for (unsigned r = 0; r < RANKS; r++) {
		const struct coordinator_transaction *a = &s->ranks[r].agreements[0];
		const struct edit *e = edit_of(s, r, 0);

		if (e && e->applied_at && (finder_lives || bounds.bad != BAD_BY_EDIT) &&
		    e->applied_at - 1u < bad)
			return "a rank stands where the condition does not hold";
		if (a->state && a->first && a->first <= bad && a->n > bad && finder_lives &&
		    !bounds.stops)
			return "the boundary at which the condition holds is passed";
	}
	return NULL;
}

static const char *broken(const void *state)
{
	const struct state *s = state;
	const char *why = bounds.bad ? check_watch(s) : round_broken(s);

	for (unsigned edit = 0; edit < bounds.edits; edit++)
		for (unsigned r = 0; r < RANKS && !why; r++) {
			why = check_result(s, edit, r);
			for (unsigned other = 0; other < RANKS && !why; other++)
				why = compare(s, edit, r, other);
		}
	return why;
}

/* Returns true if the edit's boundary is one that the job does not come to. */
static bool waits_for_ever(const struct state *s, unsigned edit)
{
	const struct write *w = &s->writes[edit];

	return w->state == WRITE_ACCEPTED && !(s->dead >> w->coordinator & 1) &&
	       s->ranks[w->coordinator].agreements[edit].n > bounds.boundaries;
}

static bool is_end(const void *state)
{
	const struct state *s = state;

	for (unsigned r = 0; r < RANKS; r++)
		if (!(s->dead >> r & 1) &&
		    (s->ranks[r].boundary < bounds.boundaries || s->ranks[r].place != RUNNING))
			return false;
	for (unsigned edit = 0; edit < bounds.edits && !(s->dead >> WRITER & 1); edit++)
		if (s->writes[edit].state != WRITE_OVER && !waits_for_ever(s, edit))
			return false;
	return round_is_end(s);
}

static void print(const void *state)
{
	const struct state *s = state;

	for (unsigned r = 0; r < RANKS; r++)
		for (unsigned edit = 0; edit < bounds.edits; edit++) {
			const struct edit *e = &s->ranks[r].edits[edit];

			printf("rank %u%s boundary %d place %d, edit %u: state %d n %d "
			       "remembered %d applied at %d\n",
			       r, s->dead >> r & 1 ? " (dead)" : "", s->ranks[r].boundary,
			       s->ranks[r].place, edit, e->state, e->n, e->remembered,
			       e->applied_at - 1);
		}
}

/* ---- cases ---- */

/* edits, holders, ranks, boundaries, crashes, stops, losses, cancels, failures, spoils, reader,
 * bad
 */
static const struct bounds bounds_of[] = {
	{ 1, 3, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0 },
	{ 1, 3, 3, 1, 0, 0, 0, 1, 0, 0, 0, 0 },
	{ 1, 3, 3, 1, 0, 0, 1, 0, 0, 0, 0, 0 },
	{ 1, 3, 2, 2, 0, 1, 0, 0, 0, 0, 0, 0 },
	{ 2, 3, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0 },
	{ 1, 3, 3, 1, 0, 1, 0, 0, 0, 0, 0, 0 },
	{ 2, 3, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0 },
	{ 1, 3, 3, 2, 0, 0, 1, 0, 0, 0, 0, 0 },
	{ 1, 3, 2, 2, 1, 0, 0, 0, 0, 0, 0, 0 },
	{ 1, 6, 3, 1, 1, 0, 0, 0, 0, 0, 3, 0 },
	{ 2, 3, 2, 2, 0, 0, 0, 0, 0, 0, 2, 0 },
	{ 1, 3, 2, 2, 0, 0, 0, 1, 1, 0, 2, 0 },
	{ 1, 3, 2, 1, 1, 0, 0, 0, 0, 1, 1, 0 },
	{ 1, 0, 3, 2, 1, 0, 0, 0, 0, 0, 0, 2 },
	{ 1, 0, 2, 2, 0, 0, 1, 0, 0, 0, 0, 2 },
	{ 1, 0, 2, 2, 0, 1, 0, 0, 0, 0, 0, 1 },
	{ 2, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0, BAD_BY_EDIT },
	{ 2, 0, 2, 2, 1, 0, 0, 0, 0, 0, 0, BAD_BY_EDIT },
};

static const struct run_case cases[] = {
	{ "one dies", &bounds_of[0], false },
	{ "one of two dies", &bounds_of[8], false },
	{ "the writer cancels", &bounds_of[1], false },
	{ "a message is lost", &bounds_of[2], false },
	{ "the coordinator of two is stopped", &bounds_of[3], false },
	{ "two edits on two ranks", &bounds_of[4], false },
	{ "a round, one dies", &bounds_of[9], false },
	{ "two rounds on two ranks", &bounds_of[10], false },
	{ "a round, a part is not launched", &bounds_of[11], false },
	{ "a round, what is sent was not kept", &bounds_of[12], false },
	{ "a watch, one dies", &bounds_of[13], false },
	{ "a watch, a message is lost", &bounds_of[14], false },
	{ "a watch, the coordinator is stopped", &bounds_of[15], false },
	{ "a watch, an edit brings it in", &bounds_of[16], false },
	{ "a watch and an edit, one dies", &bounds_of[17], false },
	{ "the coordinator is stopped", &bounds_of[5], true },
	{ "two edits", &bounds_of[6], true },
	{ "a message is lost, two boundaries", &bounds_of[7], true },
};

static const struct run_mutation mutations[] = {
	[MUTATION_NONE] = { "", "" },
	[MUTATION_DECIDES_BEFORE_VOTES] = { "decides before the votes", "one dies" },
	[MUTATION_FENCED_DECIDES] = { "fenced, takes the decision", "one dies" },
	[MUTATION_LOOKS_BEFORE_PROMISE] = { "looks where the trainer is, then promises",
					    "one dies" },
	[MUTATION_LATE_IS_YES] = { "votes yes although it is late", "one dies" },
	[MUTATION_ABORTS_UNASKED] = { "aborts before all have answered", "one dies" },
	[MUTATION_NOBODY_ASKS] = { "asks nobody when the coordinator died", "one of two dies" },
	[MUTATION_DECIDES_ALONE] = { "the coordinator commits alone",
				     "the coordinator of two is stopped" },
	[MUTATION_TOLD_IS_APPLIED] = { "who is told is counted as who has applied",
				       "a message is lost" },
	[MUTATION_SUCCESS_WHEN_ACCEPTED] = { "success when it is accepted", "one dies" },
	[MUTATION_ORDER_OF_ARRIVAL] = { "applied in the order of arrival",
					"two edits on two ranks" },
	[MUTATION_LAUNCHES_UNDECIDED] = { "launches what is not decided", "a round, one dies" },
	[MUTATION_LOST_HAS_SENT] = { "a sender that was lost is counted as one that has sent",
				     "a round, what is sent was not kept" },
	[MUTATION_FAILS_ALONE] = { "tells nobody that it cannot launch",
				   "a round, a part is not launched" },
	[MUTATION_PARTS_ALONE] = { "tells nobody that the communicator has failed",
				   "a round, a part is not launched" },
	[MUTATION_GOES_ON_ALONE] = { "goes on before all ranks have come",
				     "a watch, one dies" },
	[MUTATION_OLD_CHECKS] = { "counts what was found at the boundary before",
				  "a watch, one dies" },
	[MUTATION_NOBODY_ASKS_AGAIN] = { "does not ask again who does not come",
					 "a watch, the coordinator is stopped" },
	[MUTATION_LOOKS_BEFORE_EDITS] = { "looks before it applies an edit",
					  "a watch, an edit brings it in" },
	[MUTATION_LOST_IS_AWAITED] = { "waits for a rank that is lost", "a watch, one dies" },
	[MUTATION_DONE_WHEN_TOLD] = { "gives the memory back while bytes come",
				      "a round, a part is not launched" },
};
static_assert(ARRAY_SIZE(mutations) == MUTATIONS, "mutations");

static void choose(const void *chosen, unsigned number)
{
	memcpy(&bounds, chosen, sizeof(bounds));
	mutation = (enum mutation)number;
}

static void print_bounds(void)
{
	printf("%u ranks, %u boundaries, %u edits, %u crashes, %u stops, %u losses, %u "
	       "cancels: ",
	       bounds.ranks, bounds.boundaries, bounds.edits, bounds.crashes, bounds.stops,
	       bounds.losses, bounds.cancels);
}

int main(int argc, char **argv)
{
	static const struct explore_model model = {
		sizeof(struct state), start, step, broken, is_end, print
	};
	static const struct run run = {
		&model, cases,       mutations, ARRAY_SIZE(cases), ARRAY_SIZE(mutations),
		choose, print_bounds
	};

	return run_main(&run, argc, argv);
}
