/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_RANK_PARTICIPANT_H
#define ENGINE_RANK_PARTICIPANT_H

/* The participant of the two-phase commit: the edits of the job's state as this rank sees them.
 * A rank keeps staged bytes aside, or an operation that makes them, promises the coordinator
 * not to pass boundary N undecided, hears the decision, and its trainer's thread applies the
 * edit at N.  Ranks without bytes of an edit promise too, so that every rank counts the same
 * generations.
 *
 *   STAGED --prepare--> PREPARED --------- decide --------> DECIDED --boundary N--> APPLIED -.
 *    |  |                 |  |                                 ^                             |
 *    |  |                 |  '--outcome--> FENCED --resolve ---'                             |
 *    |  |                 |                  |                                               |
 *    |  '-- lost, silent -+---- abort -------'------------> ABORTED -------------------------+
 *    '--- its writer takes it back: dropped                                          taken <-'
 *
 * An edit is fenced when a rank asks for its decision, because it holds the coordinator for
 * dead: from then on a decision of that coordinator's is refused.
 *
 * A freeze is an edit without bytes: applied, it holds the trainer's thread at N, and edits
 * that come meanwhile may name N too.  A watch is a freeze with a condition.  It stays PREPARED
 * for one boundary after the other: at each the trainer applies the edits and stands for the
 * freezes of the boundary, then looks at this rank's fragments, and waits until a promise of a
 * later boundary, or the decision, lets it go on.  A round (engine/rounds/rounds.h) is an edit
 * whose staged part is the list of what the rank is to send: applying it launches it, and makes
 * no generation.
 *
 * Any thread, unless said.  One lock, never held while bytes are written to the state.
 */

#include "engine/base/queue.h"
#include "engine/catalog/lease.h"
#include "engine/catalog/outcome-log.h"
#include "engine/rank/compute.h"
#include "engine/rank/registry.h"

#define EDIT_PEER_NONE (UINT32_MAX - 1) /* edit.peer if no coordinator awaits a report */

enum {
	PARTICIPANT_EDITS_MAX = 1024,
	PARTICIPANT_EDITS_OF_WRITER_MAX = PARTICIPANT_EDITS_MAX / 4 * 3,
	PARTICIPANT_TOUCH_MS = 600000 /* how long participant_touch renews what was staged */
};

/* A boundary may apply every edit of a rank, and the coordinator may repeat their decisions
 * behind it.
 */
static_assert(OUTCOME_LOG_MAX >= 2 * PARTICIPANT_EDITS_MAX, "outcomes of edits under way");

enum edit_state {
	EDIT_STAGED,
	EDIT_PREPARED,
	EDIT_FENCED, /* PREPARED, and its coordinator, held for dead, decides it no more */
	EDIT_DECIDED,
	EDIT_APPLIED,
	EDIT_ABORTED
};

/* How far the trainer has got with an undecided edit; stays as it is when that is decided. */
enum edit_arrival {
	EDIT_NOT_ARRIVED,
	EDIT_ARRIVED, /* the trainer waits at N */
	EDIT_CHECKED, /* and has looked whether the condition of a watch holds there */
};

struct edit_piece {
	STAILQ_ENTRY(edit_piece) link;
	struct compute *compute; /* makes the bytes at the boundary; NULL: they are data */
	uint64_t epoch;
	uint32_t row;
	uint64_t offset;
	uint32_t size;
	_Alignas(8) uint8_t data[]; /* of elements of any dtype */
};

/* The pieces that this rank sends to the round's reader, in this order. */
struct edit_round {
	uint32_t reader;
	uint32_t member; /* the reader's index in the communicator */
	uint64_t communicator;
	uint64_t view[2]; /* an observer's, that shows the pieces; 0: none */
	uint32_t count;
	struct wire_piece pieces[];
};

struct edit_watch {
	struct wire_condition condition;
	uint64_t heard_ms; /* when the mount that watches was heard last */
	/* what the trainer found at boundary N, once it has CHECKED */
	uint64_t step; /* wire_checked's, as are status and count */
	int32_t status;
	uint32_t count;
	struct wire_found *found; /* [count] */
};

struct edit {
	TAILQ_ENTRY(edit) link;
	uint64_t transaction[2];
	enum edit_state state;
	uint64_t boundary;    /* N */
	uint64_t order;       /* the coordinator's, among the edits of one boundary */
	uint32_t coordinator; /* the rank that will decide */
	bool holder;          /* bytes were staged here */
	bool has_grad;
	uint8_t *buffer;    /* for compute_apply; NULL: no piece is an operation */
	uint64_t window;    /* the window of gradients it edits: odd; 0: no gradients */
	bool or_later;      /* or the first window after that which has a boundary */
	uint32_t freeze_ms; /* a freeze, for so long at most; 0: an edit */
	bool is_round;
	enum edit_arrival arrival;
	uint64_t told_ms; /* when the coordinator was last told of `arrival` */
	uint32_t writer;  /* peer that staged the bytes */
	uint32_t peer;    /* sent the decision, and gets APPLIED; EDIT_PEER_NONE: none did */
	uint64_t request; /* of the decision */
	/* when its last piece came; when it was last staged, prepared or touched */
	uint64_t staged_ms, touched_ms;
	uint64_t bytes;  /* of state */
	uint64_t cost;   /* bytes of memory here */
	int status;      /* APPLIED, ABORTED: 0, or why not */
	const char *why; /* status in words, or how it was decided; NULL: status says it */
	struct wire_origin origin; /* as the writer or the coordinator says */
	STAILQ_HEAD(, edit_piece) pieces;
	struct edit_round *round; /* NULL: no round, or this rank has no part in it */
	struct edit_watch *watch; /* of a freeze, if it is a watch; else NULL */
};

TAILQ_HEAD(edit_list, edit);

struct participant_stay { /* of the trainer, at the boundary of a freeze */
	uint64_t transaction[2];
	uint64_t boundary; /* 0: none */
	uint64_t until_ms; /* when the freeze's time is over */
	bool thawed;       /* before that, as `by` asked for */
	struct wire_origin by;
};

struct participant {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* an edit was decided, or a freeze thawed */
	struct edit_list list;  /* oldest first */
	struct edit_list aborted;
	/* pieces of WIRE_CHUNK bytes that no edit has any more, for the next one: to touch new
	 * pages takes longer than to copy to them */
	STAILQ_HEAD(, edit_piece) spare;
	uint64_t spare_ms;         /* when a piece was last put into spare */
	unsigned count;            /* of list */
	uint64_t bytes, bytes_max; /* memory for pieces */
	_Atomic uint64_t lowest;   /* boundary of edits prepared or decided; UINT64_MAX: none */
	/* signals of `changed`: how many, and how many when the trainer last looked */
	uint64_t changes, looked_at;
	uint64_t applied;   /* edits, without rounds; the trainer's thread, without the lock */
	struct lease lease; /* the freeze */
	struct participant_stay stay;
	struct outcome_log decided;
	struct outcome_log forbidden; /* transactions that are never promised here */
};

/* -ENOMEM, after which participant_fini is still to be called. */
int participant_init(struct participant *s, uint64_t bytes_max);
void participant_fini(struct participant *s);

/* Returns a piece for `size` bytes of the row, whose data the caller fills; NULL: no memory. */
struct edit_piece *participant_piece(struct participant *s, uint64_t epoch, uint32_t row,
				     uint64_t offset, uint32_t size);
/* Gives back a piece that is not to be staged. */
void participant_put_piece(struct participant *s, struct edit_piece *piece);
/* Frees the pieces that no edit has, if none has been given back since before. */
void participant_trim(struct participant *s, uint64_t before);
/* Keeps the piece aside for the transaction; takes it, also on error.  writer: the peer that
 * stages.
 * -ENOSPC: too many edits or bytes, of which one writer has three quarters at most.
 * -EBUSY: the transaction is prepared.
 * -ESTALE: the transaction was decided or dropped.
 */
int participant_stage(struct participant *s, const uint64_t transaction[2], uint32_t writer,
		      uint64_t now, bool is_grad, struct edit_piece *piece);

/* Keeps an operation aside for the transaction, as participant_stage keeps bytes; takes it,
 * from malloc, also on error.
 */
int participant_stage_compute(struct participant *s, const uint64_t transaction[2],
			      uint32_t writer, uint64_t now, bool is_grad,
			      struct compute *compute);

/* Returns true if a staged operation reads or writes the row, up to the boundary where it is
 * applied.
 */
bool participant_computes(struct participant *s, uint32_t row);

/* Keeps `round`, from malloc, aside for the transaction; takes it, also on error.
 * -EEXIST: the transaction has staged bytes or a round.
 * Errors of participant_stage.
 */
int participant_stage_round(struct participant *s, const uint64_t transaction[2],
			    uint32_t writer, uint64_t now, bool has_grad,
			    struct edit_round *round);

/* Sets the origin of the transaction's edit; does nothing where there is no such edit. */
void participant_name(struct participant *s, const uint64_t transaction[2],
		      const struct wire_origin *origin);

/* Promises not to pass the boundary before the transaction is decided; a promise of a later
 * boundary replaces an earlier one.  watch: the condition of a watch; NULL: it is none.
 * -EAGAIN: the control page's count of boundaries has passed this one.
 * -ENOENT: this rank is a holder, and has no bytes of the transaction.
 * -EBUSY: the transaction was committed; or it freezes, and another freeze lasts.
 * -ECANCELED: the transaction was aborted here, or fenced by participant_outcome.
 * -ENODATA: its gradients are gone.
 * -EINVAL: it edits gradients without a window.
 * -ENOSPC: too many edits.
 * Errors of registry_check: the memory of a staged byte is not registered any more.
 */
int participant_prepare(struct participant *s, struct registry *r,
			const struct wire_prepare *prepare, const struct wire_condition *watch,
			uint64_t now);

/* Takes the decision.  why: status of an abort.  peer, request: the message peer and its
 * request, which get the report (APPLIED).
 * -ENOENT: this rank has not promised it, or the decision was the other one.
 * -ESTALE: the edit is fenced.
 * -EALREADY: this decision was taken and reported before.
 */
int participant_decide(struct participant *s, const uint64_t transaction[2], bool commit,
		       int why, uint32_t peer, uint64_t request);

/* Returns the decision as far as this rank knows it.  Sets *status, unless status is NULL, to
 * the error of applying it.
 */
enum wire_outcome participant_recall(struct participant *s, const uint64_t transaction[2],
				     int *status);
/* Answers OUTCOME: returns the decision, as participant_recall.  An undecided edit is fenced,
 * or, if this rank has not promised it, aborted for ever.
 */
enum wire_outcome participant_outcome(struct participant *s, const uint64_t transaction[2]);
/* Remembers how applying a decided transaction ended; the first error stays. */
void participant_note(struct participant *s, const uint64_t transaction[2], int status);
/* Returns the coordinator of a promised, undecided, unfenced transaction; else UINT32_MAX. */
uint32_t participant_coordinator(struct participant *s, const uint64_t transaction[2]);
/* Takes the decision that the inquiry of all ranks found: the coordinator is lost. */
void participant_resolve(struct participant *s, const uint64_t transaction[2], bool commit);
/* Takes the decision that the coordinator answered to ARRIVED; nothing happens when the edit is
 * fenced.
 */
void participant_hear(struct participant *s, const uint64_t transaction[2], bool commit);

/* Renews the staged edits of a writer that was just heard, unless a coordinator has asked for
 * them: the writer may be staging the rest elsewhere.  An edit of which nothing has come for
 * PARTICIPANT_TOUCH_MS is not renewed: its writer's abort may have been lost.
 */
void participant_touch(struct participant *s, uint32_t writer, uint64_t now);
/* Aborts staged edits that were last touched before `before`.  Returns how many. */
unsigned participant_expire(struct participant *s, uint64_t before);
/* Aborts the lost writer's staged edits that no coordinator has asked for.  Returns how many.
 */
unsigned participant_lose_writer(struct participant *s, uint32_t writer);
/* Aborts a staged transaction, and never promises it.  False: it is promised or committed here.
 */
bool participant_forbid(struct participant *s, const uint64_t transaction[2]);
/* Drops what this rank itself has staged, unless it is promised, and never promises it; nothing
 * is reported.
 */
void participant_drop(struct participant *s, const uint64_t transaction[2]);

enum participant_next {
	PARTICIPANT_GO,
	PARTICIPANT_UNDECIDED, /* an edit must be decided first: participant_wait */
	PARTICIPANT_CHECK,     /* nothing but a watch is left: participant_to_check */
	PARTICIPANT_DECIDED,   /* participant_apply */
	PARTICIPANT_ROUND,     /* participant_apply_round */
	PARTICIPANT_FROZEN,    /* participant_wait */
};

/* Trainer's thread, at boundary b: called again until it says GO.  whole: not inside a step,
 * where freezes and rounds wait for the next boundary.
 */
enum participant_next participant_look(struct participant *s, uint64_t b, bool whole);
/* Waits for a decision or a thaw since the last participant_look, for ms at most. */
void participant_wait(struct participant *s, unsigned ms);
/* Trainer's thread: applies the next decided edit.  True: it made a generation (on every rank,
 * holder or not).  False: the edit waits for the next boundary, since its window of gradients
 * is yet to come.  grads: the control page's word; past the window the edit ends with -ENODATA.
 * All ranks do the same, because they pass the same boundaries in the same windows.
 */
bool participant_apply(struct participant *s, struct registry *r, uint64_t b, uint64_t grads);

/* Launches this rank's part in a round: 0 or -errno, the round's status. */
typedef int (*participant_launch)(void *arg, const struct edit *edit);
/* Trainer's thread: applies the next decided edit, a round, as participant_apply does. */
void participant_apply_round(struct participant *s, uint64_t b, uint64_t grads,
			     participant_launch launch, void *arg);

struct participant_check { /* of a watch, at a boundary */
	uint64_t transaction[2];
	uint64_t boundary;
	uint32_t coordinator;
	struct edit_watch watch;
};

/* Trainer's thread: gives a watch that is to be checked here.  False: there is none. */
bool participant_to_check(struct participant *s, struct participant_check *out);
/* Trainer's thread: keeps what was found for participant_take_check; takes watch.found. */
void participant_checked(struct participant *s, struct participant_check *check);
/* Gives what was found for a watch if it was last given before `before`, and notes that it is
 * given now; the caller frees out->watch.found.  False: there is none.
 */
bool participant_take_check(struct participant *s, uint64_t before, uint64_t now,
			    struct participant_check *out);
/* Returns false if the mount that watches has been silent for too long. */
bool participant_watch_lasts(struct participant *s, const uint64_t transaction[2]);

/* Returns true if edits may still name boundary b, which the trainer has entered: a freeze
 * holds it there, or will.
 */
bool participant_frozen_at(struct participant *s, uint64_t b);
/* Returns true if a freeze is promised here or lasts: another one is refused. */
bool participant_freezes(struct participant *s);
/* Renews the lease of that freeze or watch; {0, 0}: of any freeze.
 * -ENOENT: no such freeze or watch lasts.
 */
int participant_renew(struct participant *s, const uint64_t transaction[2]);
/* Ends that freeze; {0, 0}: any.
 * -ENOENT: no such freeze lasts.
 */
int participant_thaw(struct participant *s, const uint64_t transaction[2],
		     const struct wire_origin *by);

/* Gives, once, a freeze that has ended at which the trainer stood.  False: there is none. */
bool participant_take_thawed(struct participant *s, struct participant_stay *out);

/* Returns true if the trainer has to look at boundary b: some edit names it, or an earlier
 * one.
 */
static inline bool participant_pending(struct participant *s, uint64_t b)
{
	return atomic_load_explicit(&s->lowest, memory_order_seq_cst) <= b;
}

/* Calls see for each edit that is promised and undecided, under the lock. */
typedef void (*participant_see)(void *arg, struct edit *edit);
void participant_each_prepared(struct participant *s, participant_see see, void *arg);

/* Removes and returns an edit that is applied or aborted; NULL: none.  The caller frees it. */
struct edit *participant_take_over(struct participant *s);
void participant_free_edit(struct participant *s, struct edit *e);

#endif
