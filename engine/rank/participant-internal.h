/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_RANK_PARTICIPANT_INTERNAL_H
#define ENGINE_RANK_PARTICIPANT_INTERNAL_H

/* Shared by participant*.c.  All functions are called with the lock. */

#include "engine/rank/participant.h"

/* Frees the piece, or keeps it for another edit. */
void participant_free_piece(struct participant *s, struct edit_piece *piece);
struct edit *participant_find(struct participant *s, const uint64_t transaction[2]);
/* Returns true if this rank has promised the edit, and has no decision. */
static inline bool participant_is_undecided(const struct edit *e)
{
	return e->state == EDIT_PREPARED || e->state == EDIT_FENCED;
}
/* Returns NULL if there are too many edits, or no memory. */
struct edit *participant_find_or_add(struct participant *s, const uint64_t transaction[2]);
/* Returns the decision of an edit in `list` or of the newest outcomes; else WIRE_UNDECIDED. */
enum wire_outcome participant_known(struct participant *s, const uint64_t transaction[2]);
/* Computes `lowest` anew, after any change of an edit's state or boundary. */
void participant_set_lowest(struct participant *s);
/* Wakes the trainer, which looks again. */
void participant_signal(struct participant *s);
/* Checks all pieces.  Errors of registry_check. */
int participant_check_pieces(const struct edit *e, struct registry *r);
/* Returns true if the trainer stands, or will stand, at boundary b for a freeze. */
bool participant_stand_at(struct participant *s, uint64_t b);

#endif
