/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_WRITE_STORED_WRITE_H
#define ENGINE_WRITE_STORED_WRITE_H

/* A write whose extents, in file order, have become extents in stored order
 * (engine/catalog/cuts.h): these are not sorted.
 */

#include "engine/base/vec.h"
#include "engine/node/file.h"

struct stored_write {
	struct engine_write write; /* with the items of `extents`, or the user's own extents */
	struct vec extents;        /* of struct engine_extent */
	uint8_t *bytes;            /* that extents point to, or NULL */
};

/* Fills *s, which the caller gives to stored_write_fini, also after an error.  If an extent
 * goes past the end of the file, all stay in file order: engine_write refuses it.
 * -ENOMEM
 */
int stored_write_init(struct stored_write *s, const struct engine_write *write);
void stored_write_fini(struct stored_write *s);

#endif
