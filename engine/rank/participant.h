/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_RANK_PARTICIPANT_H
#define ENGINE_RANK_PARTICIPANT_H

/* Edits of the job's state as one rank sees them: bytes staged with it and kept aside, the
 * promise not to pass a boundary N without the decision, the decision, applied by the trainer's
 * thread at N, reported. Ranks without bytes of an edit promise too, so that all count it as
 * the same generation.
 *
 * A freeze is agreed on as an edit is and has no bytes: applied, it holds the trainer's thread
 * at N, and edits that come meanwhile may name N too.
 *
 * A round (engine/rounds/rounds.h) is agreed on so too: staged are lists of what a rank is to
 * send, and applying it is launching it.  It makes no generation.
 *
 *   STAGED --prepare--> PREPARED --decide--> DECIDED --boundary N--> APPLIED --> taken
 *      |  \                \------ abort, coordinator died -------> ABORTED ----'
 *      |   \----- its writer or coordinator lost, silent -------------'
 *      \--- its writer takes it back: dropped
 *
 * Any thread: one lock, never held over anything slow but the copy itself.
 */

#include "engine/catalog/lease.h"
#include "engine/catalog/outcome-log.h"
#include "engine/rank/registry.h"

#define EDIT_PEER_NONE (UINT32_MAX - 1) /* decided without its coordinator */

enum {
	PARTICIPANT_EDITS_MAX = 1024,
	PARTICIPANT_EDITS_OF_WRITER_MAX = PARTICIPANT_EDITS_MAX / 4 * 3
};

enum edit_state { EDIT_STAGED, EDIT_PREPARED, EDIT_DECIDED, EDIT_APPLIED, EDIT_ABORTED };

struct edit_piece {
	struct edit_piece *next;
	uint64_t epoch;
	uint32_t row;
	bool is_grad;
	uint64_t offset;
	uint32_t size;
	uint8_t data[];
};

/* What this rank is to send, in this order, to the one that asked. */
struct edit_round {
	uint32_t reader;
	uint32_t place; /* of the reader in the communicator */
	uint64_t communicator;
	uint64_t view[2]; /* an observer's, that shows the pieces; 0: none */
	uint32_t count;
	struct wire_piece pieces[];
};

struct edit {
	struct edit *next;
	uint64_t transaction[2];
	enum edit_state state;
	uint64_t boundary;    /* N */
	uint64_t order;       /* the coordinator's, among those of one boundary */
	uint32_t coordinator; /* rank that will decide */
	bool holder;
	bool has_grad;
	uint64_t window;    /* of gradients that it is for: odd; 0: without */
	uint32_t freeze_ms; /* a freeze, for so long at most; 0: an edit */
	bool is_round;
	bool arrived;     /* the trainer waits at N */
	uint64_t told_ms; /* when the coordinator was last told that it does */
	bool fenced;      /* its coordinator is held for dead: takes no more decisions of it */
	uint32_t writer;  /* peer that staged it */
	uint32_t peer;    /* who decided, and its request: gets the report; EDIT_PEER_NONE */
	uint64_t request;
	uint64_t touched_ms;
	uint64_t bytes;  /* of state */
	uint64_t cost;   /* of memory here */
	int status;      /* of applying; why it is aborted */
	const char *why; /* the same in words, or how it was decided; NULL: status says it */
	struct wire_origin origin; /* whose it is, as said */
	struct edit_piece *first, *last;
	struct edit_round *round; /* NULL: this rank has no part in it, or it is none */
};

struct participant {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* one was decided */
	struct edit *list;      /* oldest first */
	struct edit *aborted;   /* to be taken */
	unsigned count;
	uint64_t bytes, bytes_max; /* memory for pieces */
	_Atomic uint64_t lowest;   /* boundary of those prepared or decided; UINT64_MAX: none */
	struct lease hold;
	struct outcome_log decided;
	struct outcome_log forbidden; /* transactions that are never promised here */
};

void participant_init(struct participant *s, uint64_t bytes_max);
void participant_fini(struct participant *s);

/* -ENOSPC: too many or too much, of which one writer (a peer) has at most three quarters;
 * -EBUSY: it is prepared already; -ESTALE: it was decided before, or dropped; -ENOMEM.
 */
int participant_stage(struct participant *s, const uint64_t transaction[2], uint32_t writer,
		      uint64_t now, uint64_t epoch, uint32_t row, bool is_grad, uint64_t offset,
		      const void *data, uint32_t size);

/* The same of a round, once; takes over `round`, from malloc, also on error.  -EEXIST: it is
 * there.
 */
int participant_stage_round(struct participant *s, const uint64_t transaction[2],
			    uint32_t writer, uint64_t now, bool has_grad,
			    struct edit_round *round);

/* Whose it is, as its writer or its coordinator says.  Nothing, when it is not there. */
void participant_name(struct participant *s, const uint64_t transaction[2],
		      const struct wire_origin *origin);

/* What a coordinator asks. */
struct edit_promise {
	uint64_t transaction[2];
	uint64_t boundary;
	uint64_t order;
	bool holder;
	uint64_t window; /* of gradients; 0: none */
	uint32_t coordinator;
	uint32_t freeze_ms; /* 0: an edit */
	bool round;
};

/* Promises not to pass the boundary before the transaction is decided; a promise of a later
 * boundary replaces an earlier one.
 * -EAGAIN: the control page's count of boundaries has passed this one.
 * -ENOENT: this rank is a holder, and has no bytes of the transaction.
 * -EBUSY: the transaction was committed; or it freezes, and another freeze lasts.
 * -ECANCELED: the transaction was aborted here, or fenced by participant_outcome.
 * -ENODATA: its gradients are gone.
 * -EINVAL: it edits gradients without a window.
 * -ENOSPC.
 * Errors of registry_check: the memory of a staged byte is not registered any more.
 */
int participant_prepare(struct participant *s, struct registry *r,
			const struct edit_promise *promise, uint64_t now);

/* why: it is aborted, -errno.  peer, request: who is to hear that it was applied.  -ENOENT: no
 * such transaction; -ESTALE: fenced; -EALREADY: it is over.
 */
int participant_decide(struct participant *s, const uint64_t transaction[2], bool commit,
		       int why, uint32_t peer, uint64_t request);

/* What is known of a transaction (status, or NULL: what applying it ended with); of the second,
 * undecided ones are fenced by the question.
 */
enum wire_outcome participant_recall(struct participant *s, const uint64_t transaction[2],
				     int *status);
enum wire_outcome participant_outcome(struct participant *s, const uint64_t transaction[2]);
/* What applying a remembered one ended with. */
void participant_note(struct participant *s, const uint64_t transaction[2], int status);
/* Its coordinator, while it is promised and undecided; UINT32_MAX: it is not. */
uint32_t participant_coordinator(struct participant *s, const uint64_t transaction[2]);
/* The edit's own coordinator is gone, the others know this outcome. */
void participant_resolve(struct participant *s, const uint64_t transaction[2], bool commit);
/* The coordinator said so, asked by who waits at N: nothing, when it is fenced. */
void participant_hear(struct participant *s, const uint64_t transaction[2], bool commit);

/* Aborts what was staged and never prepared: before `before`; by that peer, which is lost.
 * Returns how many.
 */
unsigned participant_expire(struct participant *s, uint64_t before);
unsigned participant_lose_writer(struct participant *s, uint32_t writer);
/* Nobody may commit it any more.  False: it is promised, or decided, here. */
bool participant_forbid(struct participant *s, const uint64_t transaction[2]);
/* What this rank has staged itself: the same, unless it is promised, and nobody is told. */
void participant_drop(struct participant *s, const uint64_t transaction[2]);

enum participant_next {
	PARTICIPANT_GO,
	PARTICIPANT_UNDECIDED, /* one must be decided first: participant_wait */
	PARTICIPANT_DECIDED,   /* participant_apply */
	PARTICIPANT_ROUND,     /* participant_apply_round */
	PARTICIPANT_FROZEN,    /* participant_wait */
};

/* Trainer's thread, at boundary b, again until it may go.  whole: not inside a step, where a
 * freeze waits for the next boundary.
 */
enum participant_next participant_look(struct participant *s, uint64_t b, bool whole);
void participant_wait(struct participant *s, unsigned ms);
/* The next decided one; whether it was applied (holder or not), which makes one generation.
 * grads: the control page's word; edits of gradients wait for a boundary in their window, and
 * end with -ENODATA at the first after it: all ranks pass the same boundaries in the same
 * windows.
 */
bool participant_apply(struct participant *s, struct registry *r, uint64_t b, uint64_t grads);

/* The next, a round: launch does this rank's part, and says with what it ended; not called,
 * where its gradients are gone.
 */
typedef int (*participant_launch)(void *arg, const struct edit *edit);
void participant_apply_round(struct participant *s, uint64_t b, uint64_t grads,
			     participant_launch launch, void *arg);

/* Whether edits may still name boundary b, which the trainer has entered: it is, or will be,
 * frozen there.
 */
bool participant_frozen_at(struct participant *s, uint64_t b);
/* The freeze of that number, 0: any, is still wanted; is to end.  -ENOENT: it has ended, or is
 * not known.
 */
int participant_keep(struct participant *s, const uint64_t transaction[2]);
int participant_thaw(struct participant *s, const uint64_t transaction[2]);

static inline bool participant_pending(struct participant *s, uint64_t b)
{
	return atomic_load_explicit(&s->lowest, memory_order_seq_cst) <= b;
}

/* Engine thread: calls see for each prepared edit; true from it: no more. */
typedef bool (*participant_see)(void *arg, struct edit *edit);
void participant_each_prepared(struct participant *s, participant_see see, void *arg);

/* Takes one out that is applied or aborted, the caller's to edit_free; NULL: none. */
struct edit *participant_take_over(struct participant *s);
void edit_free(struct edit *e);

#endif
