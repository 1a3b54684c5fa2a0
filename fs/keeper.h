/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_KEEPER_H
#define FS_KEEPER_H

/* Two processes of one mount: a server that may do almost nothing (fs/sandbox.h), and its
 * keeper, which mounts when the server asks, passes signals on to it, and unmounts when it has
 * gone, however it went.  When the keeper is killed the server goes, and the mount is dead
 * until it is unmounted by hand or another takes its place.
 */

#include "engine/base/base.h"

struct keeper {
	/* The descriptor of /dev/fuse, which stays open here; or -errno with a line. */
	int (*mount)(void *arg, char *why, size_t whysize);
	void (*end)(void *arg,
		    bool mounted); /* the server has gone: unmounts what was mounted */
	void *arg;
};

/* Before there are threads.  Forks: returns in the server, with *fd for keeper_mount; the
 * keeper exits in here, with the server's status.  -errno: there is one process still.
 */
int keeper_split(const struct keeper *k, int *fd);

/* In the server: its own descriptor of /dev/fuse, or -errno with the keeper's line. */
int keeper_mount(int fd, char *why, size_t whysize);

#endif
