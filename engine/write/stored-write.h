/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_WRITE_STORED_WRITE_H
#define ENGINE_WRITE_STORED_WRITE_H

/* A write whose extents, in file order, have become extents in stored order
 * (engine/catalog/cuts.h): these are not sorted.
 */

#include "engine/base/vec.h"
#include "engine/node/file.h"

struct stored_write {
	struct engine_write write; /* its extents: those of vec, or the user's own */
	struct vec extents;
	uint8_t *bytes; /* to which extents point, or NULL */
};

/* An extent past the end of the file is left as it is.  -ENOMEM.  Also after an error the
 * caller calls stored_write_fini.
 */
int stored_write_init(struct stored_write *s, const struct engine_write *write);
void stored_write_fini(struct stored_write *s);

#endif
