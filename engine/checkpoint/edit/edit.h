/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_EDIT_EDIT_H
#define ENGINE_CHECKPOINT_EDIT_EDIT_H

/* Translates a write to a state into patches of files.  Padding is never written.
 *
 * A coherent edit of a master also writes the model's own low-precision values, which are made
 * of it, and every copy of these values: a trainer that resumes reads them from the file.
 */

#include "engine/checkpoint/edit/patches.h"
#include "engine/engine.h"

/* Returns true for a state that is shown as it is stored.  A coherent edit of the model's own
 * values is possible only where no master determines them.
 */
bool edit_is_possible(const struct table *t, const struct table_state *s, bool coherent);

/* Adds the patches of n extents to p.  An element that an extent covers only in part is
 * completed from the file.
 * -EOPNOTSUPP: the values cannot be converted to the copy's dtype.
 * -EIO and others: a read failed.
 */
int edit_translate(struct patches *p, const struct table_state *s,
		   const struct engine_extent *extents, size_t n, bool coherent);

#endif
