/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_EDITS_INTERNAL_H
#define ENGINE_EDITS_INTERNAL_H

/* What the files of engine/edits share.  All under the lock. */

#include "engine/edits.h"

/* After any change of a state or a boundary. */
void edits_set_lowest(struct edits *s);
/* -ESTALE, -EFAULT and so on: a place has gone. */
int edits_check_pieces(const struct edit *e, struct registry *r);
/* Whether the trainer stands, or will stand, at boundary b for a freeze. */
bool edits_stand_at(struct edits *s, uint64_t b);

#endif
