/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_FREEZE_H
#define FS_FREEZE_H

/* What is written to .frag/freeze, a line at a time; write(2) returns when it is so.
 *
 *	SECONDS		the job is frozen, for so long at most
 *	SECONDS held	and until the file is closed
 *	0		it is thawed, whoever froze it; where the file holds a freeze, that one: ETIMEDOUT,
 *			if it was over before
 */

#include "fs/handle.h"

/* Replies, now or when the engine has done it. */
void freeze_write(struct handle *h, fuse_req_t req, const char *text, size_t size);
/* Thaws what the file holds. */
void freeze_close(struct handle *h);

#endif
