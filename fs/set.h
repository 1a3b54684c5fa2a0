/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_SET_H
#define FS_SET_H

/* Lines of .frag/control that edit elements of a parameter's state:
 *
 *	set params/NAME/STATE[SLICE] EXPRESSION
 *
 * where EXPRESSION is an operation (engine/catalog/operation.h).  The ranks that have the
 * elements compute the new ones at a boundary, all ranks or none; write(2) returns after that.
 */

#include "fs/handle.h"

#define SET_WORD "set "

/* A deferred_call: replies to a write of c->size bytes that are the line c->name, once the edit
 * is decided.
 */
int set_line(fuse_req_t req, const struct deferred_call *c);

#endif
