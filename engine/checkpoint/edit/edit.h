/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_EDIT_EDIT_H
#define ENGINE_CHECKPOINT_EDIT_EDIT_H

/* What bytes of which files a write to a state changes.  Padding is never among them.
 *
 * Coherent edits also write the model's own low-precision values, where the master that they
 * are made of is edited, since whoever resumes takes those from the file; and every copy of
 * them.
 */

#include "engine/checkpoint/edit/patch.h"
#include "engine/engine.h"

/* Of states as they are stored; the model's own values only where they are not made of a
 * master.
 */
bool edit_is_possible(const struct table *t, const struct table_state *s, bool coherent);

/* Elements that the extents cut are completed by reading.  -EOPNOTSUPP: no such conversion;
 * -EIO ...
 */
int edit_translate(struct patches *p, const struct table_state *s,
		   const struct engine_extent *extents, size_t n, bool coherent);

#endif
