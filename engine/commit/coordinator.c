/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/condition.h"
#include "engine/commit/coordinator.h"
#include "engine/commit/coordinator-watch.h"
#include "engine/commit/termination.h"
#include "engine/node/event-log.h"
#include "engine/node/peers.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
	ATTEMPTS_MAX = 16, /* to find a boundary that no rank has passed */
	NAMED_MAX = 2,     /* ranks that name_late names */
	SLACK_MS = 100,
	RETELL_MS = 200, /* after DECIDE, ARRIVED is answered by the decision */
	ASK_MS = 1000,   /* ranks that do not come to a boundary of a watch are asked again */
	WATCH_TIMEOUTS = 6, /* of silence: ranks wait so long for one that does not come */
};

enum coordinator_state {
	COORDINATOR_VOTING,
	COORDINATOR_ACCEPTED,   /* all ranks have promised */
	COORDINATOR_COMMITTING, /* all other ranks were told to commit; this one was not */
	COORDINATOR_COMMITTED,  /* this rank was told, too */
	COORDINATOR_ABORTED,    /* all ranks were told to abort */
	COORDINATOR_OVER,       /* all ranks have reported */
};

/* A rank's part in a transaction. */
enum coordinator_part {
	PART_NONE,     /* the rank was not asked, is lost, or has reported */
	PART_PROMISED, /* the rank is asked for its promise */
	PART_HOLDER,   /* it also has staged bytes */
};

struct coordinator_transaction {
	LIST_ENTRY(coordinator_transaction) link;
	uint64_t transaction[2];
	enum coordinator_state state;
	uint64_t window; /* the window of gradients it edits; 0: none */
	bool or_later;   /* it may edit the next window that has a boundary instead */
	uint32_t freeze_ms;
	bool round;
	bool arrived; /* a rank waits at N */
	bool cancelled;
	bool taken;        /* another rank has taken the decision to commit */
	bool refused;      /* another rank has refused it */
	uint32_t peer;     /* the writer's */
	uint64_t request;  /* its COMMIT */
	uint64_t boundary; /* N */
	uint64_t order;
	uint64_t asked_ms, decided_ms;
	uint64_t passed;     /* the highest boundary that a voter who was late has passed */
	uint64_t membership; /* epoch of the table of ranks when the ranks were asked */
	unsigned attempts;
	unsigned outstanding;
	bool late; /* a voter has passed N: a later one is asked for */
	struct wire_origin origin;
	int status;    /* why it is aborted; committed: the first error of applying it */
	uint32_t said; /* the rank that could not apply it */
	struct coordinator_watch *watch; /* of a freeze, if it is a watch; else NULL */
	uint8_t *part;                   /* [world] enum coordinator_part */
	bool *awaited;                   /* [world] its vote has not come; in part's memory */
	char why[192]; /* status in words; of a freeze: which ranks were late in the end */
};

static struct coordinator_transaction *find_transaction(struct engine *e,
							const uint64_t transaction[2])
{
	struct coordinator_transaction *a;

	LIST_FOREACH (a, &e->commit.coordinator->transactions, link)
		if (!memcmp(a->transaction, transaction, sizeof(a->transaction)))
			return a;
	return NULL;
}

static bool is_committed(const struct coordinator_transaction *a)
{
	return a->state == COORDINATOR_COMMITTING || a->state == COORDINATOR_COMMITTED;
}

static void free_transaction(struct coordinator_transaction *a)
{
	if (a) {
		coordinator_watch_free(a->watch);
		free(a->part);
	}
	free(a);
}

/* ---- deciding ---- */

static bool on_applied(struct engine *e, void *owner, uint64_t rank,
		       const struct answer *answer);

static int tell_decision(struct engine *e, struct coordinator_transaction *a, uint32_t rank)
{
	bool commit = is_committed(a);
	struct wire_decide decide = { { a->transaction[0], a->transaction[1] },
				      commit,
				      commit ? 0 : a->status };

	return peers_call(e, rank, WIRE_DECIDE, &decide, NULL, 0, on_applied, a, rank);
}

static void hear_decided(struct coordinator_transaction *a, const struct answer *answer)
{
	bool is_answer = answer->type == WIRE_ACK || answer->type == WIRE_APPLIED;

	a->taken |= is_answer && !answer->status;
	a->refused |= is_answer && answer->status && answer->status != -EAGAIN;
}

static bool on_applied(struct engine *e, void *owner, uint64_t rank,
		       const struct answer *answer)
{
	struct coordinator_transaction *a = owner;
	/* that a rank is lost does no harm to an edit, but a round lacks its bytes */
	struct wire_applied applied = { .status = a->round && a->part[rank] == PART_HOLDER
							  ? -EIO
							  : 0 };

	hear_decided(a, answer);
	if (answer->type == WIRE_ACK && !answer->status && is_committed(a))
		return true; /* the rank has the decision; APPLIED follows */
	if (answer->status == -EAGAIN && !tell_decision(e, a, (uint32_t)rank))
		return false;
	a->part[rank] = PART_NONE;
	a->outstanding--;
	if (answer->type == WIRE_APPLIED && !answer->status)
		memcpy(&applied, answer->body, sizeof(applied));
	if (!a->status) {
		a->status = wire_status(applied.status);
		a->said = (uint32_t)rank;
	}
	return false;
}

static uint64_t boundary_of(const struct engine *e, uint32_t rank)
{
	return rank == e->rank ? atomic_load(&e->registry.control->boundary)
			       : e->peers[rank].control.boundary;
}

static bool is_late(const struct engine *e, const struct coordinator_transaction *a,
		    uint32_t rank)
{
	if (is_committed(a)) /* a participant that has applied the edit is PART_NONE */
		return a->part[rank] != PART_NONE;
	return a->awaited[rank] ||
	       (peer_is_live(&e->peers[rank]) && boundary_of(e, rank) < a->boundary);
}

/* Writes to a->why which ranks have not come to N, or have not answered. */
static void name_late(struct engine *e, struct coordinator_transaction *a)
{
	FILE *out = fmemopen(a->why, sizeof(a->why), "w");
	unsigned n = 0;

	if (!out)
		return;
	fprintf(out, "not all ranks came to boundary %llu in time",
		(unsigned long long)a->boundary);
	for (uint32_t rank = 0; rank < e->world; rank++) {
		peers_look(e, rank);
		if (!is_late(e, a, rank))
			continue;
		if (n++ < NAMED_MAX)
			fprintf(out, "%s rank %u was at boundary %llu%s", n > 1 ? "," : ":",
				rank, (unsigned long long)boundary_of(e, rank),
				a->awaited[rank] ? " and did not answer" : "");
	}
	if (n > NAMED_MAX)
		fprintf(out, ", and %u more", n - NAMED_MAX);
	fclose(out);
}

/* Returns why a freeze was refused; NULL: as strerror says. */
static const char *freeze_refusal(int status)
{
	switch (status) {
	case -EBUSY:
		return "the job is frozen already";
	case -ESTALE:
		return "the ranks pass boundaries faster than they can agree on one";
	default:
		return NULL;
	}
}

static void tell(struct engine *e, struct coordinator_transaction *a, uint64_t boundary)
{
	struct event_settled told = { .id = { a->transaction[0], a->transaction[1] },
				      .origin = a->origin,
				      .boundary = boundary,
				      .status = a->status };

	if (a->watch && !is_committed(a)) {
		coordinator_watch_tell_over(e, a->watch, a->transaction,
					    a->why[0]      ? a->why
					    : a->cancelled ? "the watching mount has ended it"
							   : strerror(-a->status));
		return;
	}
	if (a->freeze_ms && a->status == -ETIMEDOUT) {
		if (!a->why[0])
			name_late(e, a);
		told.why = a->why;
	} else if (is_committed(a) && a->status) {
		snprintf(a->why, sizeof(a->why), "rank %u could not apply it: %s", a->said,
			 strerror(-a->status));
		told.why = a->why;
	} else if (a->freeze_ms) {
		told.why = freeze_refusal(a->status);
	}
	if (a->freeze_ms)
		event_log_freeze(e, &told);
	else if (!a->round)
		event_log_edit(e, &told);
}

static void decide_at(struct engine *e, struct coordinator_transaction *a, uint32_t rank)
{
	int rc = a->part[rank] ? tell_decision(e, a, rank) : -ENOENT;

	if (a->round && a->part[rank] == PART_HOLDER && rc && !a->status)
		a->status = rc; /* no APPLIED will say whether the rank sent its bytes */
	a->outstanding += !rc;
	if (rc)
		a->part[rank] = PART_NONE; /* the rank asks by ARRIVED: coordinator_arrived */
}

/* Returns true if the freeze waits for longer than it was to last.  SLACK_MS: the client counts
 * the same time, and began a moment earlier.
 */
static bool is_late_freeze(const struct coordinator_transaction *a)
{
	return a->freeze_ms && !a->watch &&
	       monotonic_ms() + SLACK_MS >= a->asked_ms + a->freeze_ms;
}

static void decide(struct engine *e, struct coordinator_transaction *a, bool commit)
{
	rpc_forget(e, a);
	a->state = commit ? COORDINATOR_COMMITTING : COORDINATOR_ABORTED;
	a->decided_ms = monotonic_ms();
	if (!commit && !a->status)
		a->status = is_late_freeze(a) ? -ETIMEDOUT : -ECANCELED;
	a->outstanding = 0;
	for (uint32_t rank = 0; rank < e->world; rank++)
		if (rank != e->rank || !commit)
			decide_at(e, a, rank);
	if (commit)
		return;
	tell(e, a, 0);
	node_ack(e, a->peer, a->request, a->status);
}

/* Ranks that held this one for dead may have aborted, and refuse the decision: this rank
 * commits only when another one has taken the decision, or no other is left.
 */
static void decide_here(struct engine *e, struct coordinator_transaction *a)
{
	if (a->taken || (!a->outstanding && !a->refused)) {
		if (a->watch)
			coordinator_watch_tell(e, a->watch, a->boundary, a->transaction);
		a->state = COORDINATOR_COMMITTED;
		decide_at(e, a, e->rank);
	} else if (!a->outstanding) {
		a->status = -EIO;
		decide(e, a, false);
	}
}

static void finish(struct engine *e, struct coordinator_transaction *a)
{
	struct wire_applied applied = { .status = a->status, .generation = a->boundary };

	if (a->state == COORDINATOR_COMMITTED) {
		node_send(e, a->peer, WIRE_APPLIED, a->request, &applied, NULL, 0);
		tell(e, a, a->boundary);
	}
	participant_note(&e->participant, a->transaction, a->status);
	a->state = COORDINATOR_OVER;
}

/* ---- voting ---- */

static void take_vote(struct coordinator_transaction *a, const struct wire_vote *vote)
{
	if (vote->status == -EAGAIN) { /* the rank has passed the boundary */
		a->passed = u64_max(a->passed, vote->boundary);
		a->late = true;
	} else if (vote->status && !a->status) {
		a->status = wire_status(vote->status);
	}
}

static bool on_vote(struct engine *e, void *owner, uint64_t rank, const struct answer *answer)
{
	struct coordinator_transaction *a = owner;
	struct wire_vote vote;

	a->outstanding--;
	a->awaited[rank] = answer->status == -ETIMEDOUT;
	if (answer->status == -EAGAIN) {
		a->late = true;
		return false;
	}
	/* a lost rank is missed only if it is a holder */
	if (answer->status || answer->type != WIRE_VOTE) {
		if (a->part[rank] == PART_HOLDER && !a->status)
			a->status = answer->status ? answer->status : -EIO;
		a->part[rank] = PART_NONE;
		return false;
	}
	memcpy(&vote, answer->body, sizeof(vote));
	take_vote(a, &vote);
	return false;
}

static void ask_all(struct engine *e, struct coordinator_transaction *a)
{
	struct coordinator *c = e->commit.coordinator;
	struct wire_prepare prepare = { .transaction = { a->transaction[0], a->transaction[1] },
					.boundary = a->boundary,
					.window = a->window,
					.coordinator = e->rank,
					.freeze_ms = a->freeze_ms,
					.round = a->round,
					.or_later = a->or_later,
					.origin = a->origin };
	const struct wire_condition *condition = a->watch ? &a->watch->condition : NULL;
	int rc;

	if (a->watch)
		a->watch->asked_ms = monotonic_ms();
	a->late = false;
	a->membership = e->job.membership;
	a->order = ++c->order; /* in which all ranks apply the edits of one boundary */
	prepare.order = a->order;
	if (!a->watch) /* a watch changes no state: edits need not follow it */
		c->boundary = u64_max(c->boundary, a->boundary);
	for (uint32_t rank = 0; rank < e->world; rank++) {
		if (!a->part[rank])
			continue;
		prepare.holder = a->part[rank] == PART_HOLDER;
		rc = peers_call(e, rank, WIRE_PREPARE, &prepare, condition,
				condition ? sizeof(*condition) : 0, on_vote, a, rank);
		a->awaited[rank] = !rc;
		if (!rc)
			a->outstanding++;
		else if (rc == -EAGAIN)
			a->late = true;
		else if (a->part[rank] == PART_HOLDER)
			a->status = rc;
		else
			a->part[rank] = PART_NONE;
	}
}

/* A watch that has not found anything yet freezes nothing. */
static bool freezes(const struct coordinator_transaction *a)
{
	return a->freeze_ms && !a->status && !a->cancelled &&
	       (!a->watch || a->state >= COORDINATOR_COMMITTING);
}

/* The boundary of a freeze, which this coordinator or an earlier one has agreed on; 0: none. */
static uint64_t freeze_boundary(struct engine *e)
{
	uint64_t entered = atomic_load(&e->registry.control->boundary);
	const struct coordinator_transaction *a;

	LIST_FOREACH (a, &e->commit.coordinator->transactions, link)
		if (freezes(a))
			return a->boundary;
	return participant_frozen_at(&e->participant, entered) ? entered : 0;
}

/* Returns the boundary to ask for: at least `least`, and none before one that was asked for
 * earlier.  Edits name the boundary of a freeze, so that they do not wait for its end.
 */
static uint64_t next_boundary(struct engine *e, const struct coordinator_transaction *a,
			      uint64_t least)
{
	uint64_t freeze = a->freeze_ms ? 0 : freeze_boundary(e);

	if (freeze > a->boundary && freeze >= a->passed)
		least = freeze;
	return u64_max(least, e->commit.coordinator->boundary);
}

static void ask_later(struct engine *e, struct coordinator_transaction *a)
{
	if (++a->attempts > ATTEMPTS_MAX) {
		a->status = a->freeze_ms ? -ESTALE : -EBUSY;
		return;
	}
	/* ranks that wait for a watch have not passed it: only the message was lost */
	if (a->watch && a->passed >= a->boundary)
		coordinator_watch_begin(a->watch, e->world);
	/* twice as far ahead at each attempt: the ranks may pass boundaries fast */
	if (!a->watch || a->passed >= a->boundary)
		a->boundary = next_boundary(e, a,
					    u64_max(a->passed, a->boundary) +
						    ((uint64_t)1 << u64_min(a->attempts, 10)));
	ask_all(e, a);
}

/* Asks all live ranks again: a rank that has come, or come back, since they were asked must
 * promise too, or its generations would differ from the others'.
 */
static void ask_newcomers(struct engine *e, struct coordinator_transaction *a)
{
	for (uint32_t rank = 0; rank < e->world; rank++)
		if (!a->part[rank])
			a->part[rank] =
				peer_is_live(&e->peers[rank]) ? PART_PROMISED : PART_NONE;
	a->state = COORDINATOR_VOTING;
	ask_all(e, a);
}

static bool is_open(const struct coordinator_transaction *a)
{
	return a->state <= COORDINATOR_ACCEPTED && !a->outstanding && !a->status &&
	       !a->cancelled;
}

/* ---- a watch ---- */

/* Returns true if each rank that takes part, and lives, has said what it has found. */
static bool all_have_checked(struct engine *e, struct coordinator_transaction *a)
{
	bool all = true;

	for (uint32_t rank = 0; rank < e->world; rank++) {
		if (!a->part[rank] || a->watch->checked[rank])
			continue;
		if (peer_is_live(&e->peers[rank]))
			all = false;
		else
			a->part[rank] = PART_NONE; /* a rank that comes back is asked again */
	}
	return all;
}

/* Lets all ranks go on to the next boundary. */
static void watch_on(struct engine *e, struct coordinator_transaction *a)
{
	coordinator_watch_begin(a->watch, e->world);
	a->boundary++;
	a->attempts = 0;
	ask_newcomers(e, a);
}

/* One turn of a watch whose boundary all ranks have promised.  Ranks that are there wait until
 * the others have come, until one is lost, or until the mount or a rank stays away too long.
 */
static void turn_watch(struct engine *e, struct coordinator_transaction *a)
{
	struct coordinator_watch *w = a->watch;

	if (!participant_watch_lasts(&e->participant, a->transaction)) {
		a->status = -ETIMEDOUT;
		snprintf(a->why, sizeof(a->why), "the watching mount was silent");
	} else if (all_have_checked(e, a)) {
		/* what one rank found counts, also where another could not check its own */
		if (coordinator_watch_holds(w)) {
			decide(e, a, true);
		} else if (w->status) {
			a->status = w->status;
			snprintf(a->why, sizeof(a->why), "rank %u cannot look at it: %s",
				 w->said, condition_why_not(w->status));
		} else {
			watch_on(e, a);
		}
	} else if (monotonic_ms() >= w->asked_ms + ASK_MS) {
		ask_newcomers(e, a); /* a rank that held this one for lost has aborted */
	} else if (w->first_ms &&
		   monotonic_ms() >= w->first_ms + (uint64_t)WATCH_TIMEOUTS * e->timeout_ms) {
		a->status = -ETIME;
		name_late(e, a);
	}
}

enum wire_outcome coordinator_checked(struct engine *e, uint32_t rank,
				      const struct wire_checked *checked,
				      const struct wire_found *found)
{
	struct coordinator_transaction *a = find_transaction(e, checked->transaction);

	if (a && a->watch && a->state <= COORDINATOR_ACCEPTED && rank < e->world) {
		if (checked->boundary == a->boundary)
			coordinator_watch_add(e, a->watch, rank, checked, found);
		return WIRE_UNDECIDED;
	}
	return coordinator_arrived(e, rank, checked->transaction);
}

/* ---- of each transaction ---- */

static void say_accepted(struct engine *e, const struct coordinator_transaction *a)
{
	struct wire_accepted accepted = { .boundary = a->boundary };

	node_send(e, a->peer, WIRE_ACCEPTED, a->request, &accepted, NULL, 0);
}

/* Returns the -errno of a lost holder; 0: none is lost. */
static int lost_holder(const struct engine *e, const struct coordinator_transaction *a)
{
	for (uint32_t rank = 0; rank < e->world; rank++)
		if (a->part[rank] == PART_HOLDER && e->peers[rank].state == ENGINE_RANK_LOST)
			return peers_lost_status(e, rank);
	return 0;
}

static void turn_one(struct engine *e, struct coordinator_transaction *a)
{
	if (a->state <= COORDINATOR_ACCEPTED && !a->status)
		a->status = lost_holder(e, a);
	if (is_open(a) && a->membership != e->job.membership)
		ask_newcomers(e, a);
	if (a->state == COORDINATOR_VOTING && is_open(a)) {
		if (a->late) {
			ask_later(e, a);
		} else {
			a->state = COORDINATOR_ACCEPTED;
			if (!a->watch || !a->watch->accepted)
				say_accepted(e, a);
			if (a->watch)
				a->watch->accepted = true;
		}
	}
	if (a->watch && a->state == COORDINATOR_ACCEPTED && is_open(a))
		turn_watch(e, a);
	if (a->state <= COORDINATOR_ACCEPTED && !a->outstanding && (a->status || a->cancelled))
		decide(e, a, false);
	if (a->state == COORDINATOR_ACCEPTED && a->arrived)
		decide(e, a, true);
	if (a->state == COORDINATOR_COMMITTING)
		decide_here(e, a);
	if (a->state >= COORDINATOR_COMMITTED && !a->outstanding)
		finish(e, a);
}

/* ---- a writer asks ---- */

static bool mark_holders(struct engine *e, struct coordinator_transaction *a, uint32_t count,
			 const uint8_t *ranks)
{
	uint32_t rank;

	for (uint32_t i = 0; i < e->world; i++)
		a->part[i] = peer_is_live(&e->peers[i]);
	for (uint32_t i = 0; i < count; i++) {
		memcpy(&rank, ranks + i * sizeof(rank), sizeof(rank));
		if (rank >= e->world)
			return false;
		if (!a->part[rank])
			a->status = peers_lost_status(e, rank);
		a->part[rank] = PART_HOLDER;
	}
	return true;
}

static bool too_many(const struct engine *e, uint32_t writer)
{
	const struct coordinator_transaction *a;
	unsigned own = 0, all = 0;

	LIST_FOREACH (a, &e->commit.coordinator->transactions, link) {
		own += a->peer == writer;
		all++;
	}
	return all >= PARTICIPANT_EDITS_MAX || own >= PARTICIPANT_EDITS_OF_WRITER_MAX;
}

static bool is_watched(const struct engine *e)
{
	const struct coordinator_transaction *a;

	LIST_FOREACH (a, &e->commit.coordinator->transactions, link)
		if (a->watch && a->state <= COORDINATOR_ACCEPTED && !a->cancelled)
			return true;
	return false;
}

/* Adds the condition that follows a COMMIT of a watch. */
static int add_watch(struct engine *e, struct coordinator_transaction *a,
		     const struct wire_commit *commit, const void *tail, size_t size)
{
	struct wire_condition condition;

	if (!commit->freeze_ms || !size)
		return 0;
	if (size != sizeof(condition))
		return -EINVAL;
	memcpy(&condition, tail, sizeof(condition));
	if (!condition_is_valid(&condition))
		return -EINVAL;
	if (is_watched(e))
		return -EBUSY;
	a->watch = coordinator_watch_new(e, &condition);
	return a->watch ? 0 : -ENOMEM;
}

/* Returns the window of an edit of gradients, an odd number: the writer's, else the one that is
 * open here, or the next.
 */
static uint64_t window_of(const struct engine *e, const struct wire_commit *commit)
{
	if (!commit->grads)
		return 0;
	return (commit->window ? commit->window : atomic_load(&e->registry.control->grads)) | 1;
}

static struct coordinator_transaction *transaction_new(struct engine *e, uint32_t writer)
{
	struct coordinator_transaction *a = too_many(e, writer) ? NULL : calloc(1, sizeof(*a));

	/* a byte of part, then a byte of awaited, for each rank */
	if (a && !(a->part = calloc(e->world, 2))) {
		free(a);
		return NULL;
	}
	if (a)
		a->awaited = (bool *)a->part + e->world;
	return a;
}

/* Answers a COMMIT that is repeated.  False: the transaction is new. */
static bool is_repeated(struct engine *e, uint32_t peer, uint64_t request,
			const uint64_t transaction[2])
{
	struct coordinator_transaction *a = find_transaction(e, transaction);
	struct wire_applied applied = { 0 };
	enum wire_outcome outcome;

	if (a) {
		a->peer = peer;
		a->request = request;
		if (a->state == COORDINATOR_ABORTED)
			node_ack(e, peer, request, a->status);
		else if (a->state != COORDINATOR_VOTING)
			say_accepted(e, a);
		return true;
	}
	outcome = participant_recall(&e->participant, transaction, &applied.status);
	if (outcome == WIRE_UNDECIDED)
		return false;
	if (outcome == WIRE_ABORTED && !applied.status)
		applied.status = -ECANCELED;
	node_send(e, peer, WIRE_APPLIED, request, &applied, NULL, 0);
	return true;
}

void coordinator_commit(struct engine *e, uint32_t peer, uint64_t request,
			const struct wire_commit *commit, const void *tail, size_t size)
{
	struct coordinator_transaction *a;
	int rc;

	if (is_repeated(e, peer, request, commit->transaction))
		return;
	a = transaction_new(e, peer);
	rc = a ? add_watch(e, a, commit, tail, size) : -ENOSPC;
	if (!rc && (commit->count > (commit->freeze_ms ? 0 : e->world) ||
		    (!a->watch && size != commit->count * sizeof(uint32_t)) ||
		    !mark_holders(e, a, commit->count, tail)))
		rc = -EINVAL;
	if (rc) {
		node_ack(e, peer, request, rc);
		free_transaction(a);
		return;
	}
	memcpy(a->transaction, commit->transaction, sizeof(a->transaction));
	a->origin = commit->origin;
	a->window = window_of(e, commit);
	a->or_later = a->window && !commit->window && !commit->round;
	a->peer = peer;
	a->request = request;
	a->freeze_ms = commit->freeze_ms;
	a->asked_ms = monotonic_ms();
	a->round = commit->round;
	a->boundary = next_boundary(e, a, atomic_load(&e->registry.control->boundary) + 1);
	LIST_INSERT_HEAD(&e->commit.coordinator->transactions, a, link);
	/* The votes would refuse a second freeze, too.  But later edits may name no boundary
	 * before one that was asked for, and so would wait for the end of the first.
	 */
	if (a->freeze_ms && !a->watch && !a->status && participant_freezes(&e->participant))
		a->status = -EBUSY;
	if (!a->status)
		ask_all(e, a);
}

bool coordinator_coordinates(struct engine *e, const uint64_t transaction[2])
{
	return find_transaction(e, transaction) != NULL;
}

void coordinator_cancel(struct engine *e, const uint64_t transaction[2])
{
	struct coordinator_transaction *a = find_transaction(e, transaction);

	if (!a)
		return;
	a->cancelled = true;
	/* the decision waits for votes: meanwhile a rank that is late may come, or be lost */
	if (a->freeze_ms && !a->watch && !a->why[0])
		name_late(e, a);
	/* some ranks stand, and finish would wait for a rank that may never come */
	if (a->freeze_ms && is_committed(a) && !a->status && is_late_freeze(a)) {
		a->status = -ETIMEDOUT;
		tell(e, a, 0);
	}
}

enum wire_outcome coordinator_arrived(struct engine *e, uint32_t rank,
				      const uint64_t transaction[2])
{
	struct coordinator_transaction *a = find_transaction(e, transaction);
	enum wire_outcome outcome;

	if (!a) { /* the transaction was decided while the rank was held for lost */
		outcome = participant_recall(&e->participant, transaction, NULL);
		return outcome ? outcome : WIRE_ABORTED;
	}
	a->arrived = true;
	if (a->state < COORDINATOR_COMMITTED || rank >= e->world)
		return WIRE_UNDECIDED;
	if (a->part[rank] && monotonic_ms() < a->decided_ms + RETELL_MS)
		return WIRE_UNDECIDED; /* DECIDE is on its way */
	return is_committed(a) ? WIRE_COMMITTED : WIRE_ABORTED;
}

/* ---- all of them ---- */

void coordinator_turn(struct engine *e, uint64_t now)
{
	struct coordinator_transaction *a, *next;

	assert(node_is_engine_thread(e));
	termination_turn_orphans(e, now);
	LIST_FOREACH_SAFE (a, &e->commit.coordinator->transactions, link, next) {
		turn_one(e, a);
		if (a->state == COORDINATOR_OVER) {
			LIST_REMOVE(a, link);
			rpc_forget(e, a);
			free_transaction(a);
		}
	}
}

void coordinator_free(struct engine *e)
{
	struct coordinator_transaction *a;

	while ((a = LIST_FIRST(&e->commit.coordinator->transactions))) {
		LIST_REMOVE(a, link);
		free_transaction(a);
	}
	termination_free_orphans(e);
}
