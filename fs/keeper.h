/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_KEEPER_H
#define FS_KEEPER_H

/* Splits a mount into two processes: a server that may do almost nothing (fs/sandbox.h), and
 * its keeper, which mounts when the server asks, passes signals on to the server, and unmounts
 * when the server has ended for whatever reason.  When the keeper is killed the server ends
 * too, and the mount point is dead until it is unmounted by hand or mounted again.
 */

#include "engine/base/base.h"

struct keeper {
	/* Mounts.  Returns the descriptor of /dev/fuse, which stays open in the keeper; or
	 * -errno with a line in why.
	 */
	int (*mount)(void *arg, char *why, size_t whysize);
	/* Called when the server has ended: unmounts if `mounted`. */
	void (*end)(void *arg, bool mounted);
	void *arg;
};

/* Forks; to be called before threads are started.  Returns in the server, with *fd for
 * keeper_mount; the keeper stays in here and exits with the server's status.
 * -errno: no process was made.
 */
int keeper_split(const struct keeper *k, int *fd);

/* Has the keeper mount; called in the server.  Returns the server's own descriptor of
 * /dev/fuse, or
 * -errno with the keeper's line in why.
 */
int keeper_mount(int fd, char *why, size_t whysize);

#endif
