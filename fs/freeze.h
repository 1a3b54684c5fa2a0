/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_FREEZE_H
#define FS_FREEZE_H

/* Writes to .frag/freeze, a line each; write(2) returns when the line is carried out.
 *
 *	SECONDS		freezes the job for at most so long
 *	SECONDS held	freezes it, and thaws it when the file is closed
 *	0		ends the freeze that this open file holds; if it holds none, any freeze.
 *			ETIMEDOUT: the file's freeze was over before
 *
 * and to .frag/control:
 *
 *	break CONDITION	freezes the job where the condition (engine/catalog/condition.h) holds
 *	break CONDITION held	watches for it until the file is closed
 *	break [off]	ends this mount's watch
 *	set PATH EXPRESSION
 *			edits elements: fs/set.h
 */

#include "fs/handle.h"

/* Replies to a write, now or when the engine has carried it out. */
void freeze_write(struct handle *h, fuse_req_t req, const char *text, size_t size);
/* Ends the freeze or the watch that the file holds, if it holds one. */
void freeze_close(struct handle *h);

#endif
