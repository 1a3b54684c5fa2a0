/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_EDITS_H
#define ENGINE_EDITS_H

/* Edits that others have staged with this rank: kept aside, decided, applied by the trainer's thread
 * at a boundary, reported.  Any thread: one lock, never held over anything slow but the copy itself.
 */

#include "engine/registry.h"

enum { EDITS_MAX = 1024 };

enum edit_state { EDIT_STAGED, EDIT_DECIDED, EDIT_APPLIED };

struct edit_piece {
	struct edit_piece *next;
	uint64_t epoch;
	uint32_t row;
	bool is_grad;
	uint64_t offset;
	uint32_t size;
	uint8_t data[];
};

struct edit {
	struct edit *next;
	uint64_t transaction[2];
	enum edit_state state;
	uint32_t peer;	  /* who decided, and its request: gets the report */
	uint64_t request;
	uint64_t touched_ms;
	uint64_t bytes;	  /* of state */
	uint64_t cost;	  /* of memory here */
	int status; /* of applying */
	bool has_grad;
	struct edit_piece *first, *last;
};

struct edits {
	pthread_mutex_t lock;
	struct edit *list; /* oldest first */
	unsigned count;
	uint64_t bytes, bytes_max; /* memory for pieces */
	_Atomic unsigned decided; /* waiting for a boundary */
};

void edits_init(struct edits *s, uint64_t bytes_max);
void edits_fini(struct edits *s);

/* -ENOSPC: too many or too much; -EBUSY: it is decided already; -ENOMEM. */
int edits_stage(struct edits *s, const uint64_t transaction[2], uint64_t now, uint64_t epoch,
		uint32_t row, bool is_grad, uint64_t offset, const void *data, uint32_t size);
/* -ENOENT: no such transaction. */
int edits_decide(struct edits *s, const uint64_t transaction[2], bool commit, uint32_t peer,
		 uint64_t request);
/* Drops what was staged before `before` and never decided; returns how many. */
unsigned edits_expire(struct edits *s, uint64_t before);

/* Trainer's thread, at a boundary.  grads: gradients are valid, edits of them go in too.
 * Returns how many were applied.
 */
unsigned edits_apply(struct edits *s, struct registry *r, bool grads);

/* Takes one applied edit out, the caller's to edit_free; NULL: none. */
struct edit *edits_take_applied(struct edits *s);
void edit_free(struct edit *e);

#endif
