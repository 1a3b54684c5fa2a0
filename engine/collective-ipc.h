/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_COLLECTIVE_IPC_H
#define ENGINE_COLLECTIVE_IPC_H

/* What the files of collective-ipc share.
 *
 *   sender    its memory --its device--> slot of its staging        receiver   slot, mapped --its device--> its memory
 *   hall                  filled, bell ------------------------------>            emptied, bell ----> the slot is the sender's again
 *
 * Each rank has its staging in memory of its device, of the port's, which the others have mapped: for each rank, itself too, a few
 * slots, which are filled and emptied in turn.  A lane is one way between two ranks; what it carries is cut into chunks, of a slot at
 * most.  The hall is memory of the host's that all ranks share; a bell of it wakes a rank's thread (futex).
 */

#include "engine/collective-life.h"
#include "engine/shared.h"

#include <stdatomic.h>

enum { IPC_SLOTS = 4 };

enum ipc_stage {
	IPC_ABSENT,
	IPC_COMING,  /* this place is taken */
	IPC_HERE,    /* its staging can be mapped */
	IPC_READY,   /* it has mapped all others' */
	IPC_LEAVING, /* it begins nothing any more */
	IPC_GONE,    /* it has none mapped */
};

struct ipc_member {
	_Alignas(64) _Atomic uint32_t bell;
	_Atomic uint32_t stage;
	_Atomic bool has_failed; /* else what it has sent has come, or is in its slots */
	int32_t pid;
	uint64_t start_time; /* of the process, see machine.h */
	struct device_handle staging;
};

struct ipc_ring {                             /* from one rank to one */
	_Alignas(64) _Atomic uint64_t filled; /* slots, ever; the sender's */
	uint64_t sizes[IPC_SLOTS]; /* of the move whose chunk is there; the sender's */
	_Alignas(64) _Atomic uint64_t emptied; /* the receiver's */
};

struct ipc_hall {
	uint64_t nranks, chunk;
	/* Then nranks members, and nranks * nranks rings: from, to. */
};

struct ipc_copy { /* a request of ours */
	struct device_io io;
	struct collective *c;
	int result; /* under the life's lock; -EINPROGRESS: under way */
};

struct ipc_lane { /* the thread's */
	bool to_peer;
	unsigned peer;
	struct ipc_ring *ring;
	uint8_t *slots;
	unsigned scanned;      /* moves of the launch before this one are begun, or others' */
	uint8_t *memory;       /* of the move that is being cut */
	uint64_t size, cut;    /* bytes of it, and of these in chunks that are begun */
	uint64_t begun, ended; /* chunks, ever */
	uint64_t before;       /* of them, before the launch */
	struct ipc_copy copies[IPC_SLOTS];
};

struct collective {
	struct collective_life life;
	struct ipc_hall *hall;
	struct shared_handle at; /* of the hall */
	bool is_maker;           /* its descriptor is ours */
	struct ipc_member *members;

	/* errands */
	void *staging; /* NULL: none; after let_go: it stays */
	struct collective *next_kept;
	void **mapped; /* [nranks]: others' staging; NULL: none */

	/* the thread's */
	struct ipc_lane *lanes; /* [2 * nranks]: to each rank, from each rank */
	bool is_begun;          /* the first of what is launched */
	bool is_left;           /* another was closed, and nothing was under way */
	uint64_t left;          /* bytes of it, as each lane counts them */
	struct ipc_copy event;  /* asks whether its event has passed */
};

static inline uint64_t ipc_chunk(const struct collective *c)
{
	return c->hall->chunk;
}

/* ---- collective-ipc-hall.c ---- */

/* id: NULL: makes the hall.  -EINVAL: the id, another nranks, or that rank is there already.  -ENOMEM, -EIO: a line says why. */
int ipc_hall_enter(struct collective *c, unsigned rank, unsigned nranks,
		   const struct collective_id *id);
void ipc_hall_leave(struct collective *c);
/* Nobody is to come any more. */
void ipc_hall_hide(struct collective *c);
struct ipc_ring *ipc_ring_of(struct collective *c, unsigned from, unsigned to);

void ipc_ring_bell(struct collective *c, unsigned rank);
/* What it was; before one looks at what it tells of. */
uint32_t ipc_bell(struct collective *c);
/* Until it has been rung since, or for that long. */
void ipc_wait(struct collective *c, uint32_t bell, uint64_t ms);

/* All are told.  It never goes back: an errand that was left may come later. */
void ipc_set_stage(struct collective *c, enum ipc_stage stage);
void ipc_set_leaving(struct collective *c, bool has_failed);
enum ipc_stage ipc_stage(struct collective *c, unsigned rank);
/* A rank that leaves, or nranks.  failed: of those that have failed alone. */
unsigned ipc_who_leaves(struct collective *c, bool failed);
/* Its process has. */
bool ipc_has_died(struct collective *c, unsigned rank);
/* One of another rank that may have our staging mapped, or nranks: who is absent, has gone or has died has not. */
unsigned ipc_who_has_us(struct collective *c);

/* ---- collective-ipc-open.c: errands ---- */

void ipc_open(struct collective *c);
void ipc_let_go(struct collective *c);

/* ---- collective-ipc-keep.c ---- */

/* Closed, and its staging stays: it is the list's. */
void ipc_keep(struct collective *c);
/* Errands: frees what nobody has mapped any more. */
void ipc_give_kept(struct device *d);

/* ---- collective-ipc.c ---- */

void ipc_free(struct collective *c);

/* ---- collective-ipc-copy.c: the port's thread ---- */

void ipc_lanes_init(struct collective *c);
/* Goes on with the first of what is launched, as far as that goes.  NULL: it has not ended, or there is none. */
struct collective_io *ipc_go_on(struct collective *c);
/* Whether a request of ours is under way. */
bool ipc_is_copying(struct collective *c);

#endif
