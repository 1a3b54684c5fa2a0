/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_FOUND_H
#define FS_FOUND_H

/* Names that a LOOKUP has found although no directory lists them, such as fp32[0:4].npy, which
 * are too many for inode numbers to be arithmetic.  A name has a number from its LOOKUP until
 * the kernel forgets the inode, as it does whenever it is short of memory.  Any thread.
 */

#include "engine/base/base.h"

#include <pthread.h>

struct found_name {
	uint64_t dir;  /* the directory's inode */
	uint32_t slot; /* of the state's key, in the tree's table */
	uint64_t uses; /* LOOKUPs that the kernel has not forgotten, and open files */
	uint32_t next; /* number + 1 in a list: those with the same hash, or the free ones */
	char *text;    /* NULL: the number is free */
};

struct found {
	pthread_mutex_t lock;
	uint32_t count, room;     /* of names; room is 0 or a power of two */
	uint32_t used;            /* names that are not free */
	uint32_t free;            /* number + 1; 0: none */
	struct found_name *names; /* [room] */
	uint32_t *heads;          /* [room] by hash: number + 1; 0: none */
};

void found_init(struct found *f);
void found_fini(struct found *f);

/* Gives a name its number, and adds a use.
 * -ENOMEM.
 */
int found_add(struct found *f, uint64_t dir, const char *text, uint32_t slot, uint32_t *number);
/* Adds a use to a number that has a name. */
void found_use(struct found *f, uint32_t number);
/* Takes n uses away. */
void found_drop(struct found *f, uint32_t number, uint64_t n);
/* Copies the name of a number; its text is valid while the caller has a use.  False: the number
 * is free.
 */
bool found_get(struct found *f, uint32_t number, struct found_name *name);

#endif
