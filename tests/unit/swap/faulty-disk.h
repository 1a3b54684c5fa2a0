/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_UNIT_SWAP_FAULTY_DISK_H
#define TESTS_UNIT_SWAP_FAULTY_DISK_H

/* A disk whose n-th request of a kind goes wrong. */

#include "engine/swap/disk.h"

enum fault {
	FAULT_NONE,
	FAULT_ERROR, /* result */
	FAULT_SHORT, /* half of it, and says so */
	FAULT_TORN,  /* half of it, and says that it was all */
	FAULT_LOST,  /* a write: nothing, and says that it was all */
	FAULT_FLIP,  /* a read: one bit */
	FAULT_HOLD,  /* not before faulty_end, unless it is canceled */
	FAULT_DEAF,  /* not before faulty_end */
};

struct faulty {
	enum fault fault;
	enum disk_what what;
	int result;
	unsigned first, count; /* of the requests of that kind from now on; 1: the next */
};

extern const struct disk_ops faulty_disk;

/* What does the work; before open. */
void faulty_over(const struct disk_ops *ops);
void faulty_begin(struct faulty f);
/* None goes wrong any more, and those held go on.  Returns how many did. */
unsigned faulty_end(void);
/* Until so many are held. */
void faulty_wait_held(unsigned n);

#endif
