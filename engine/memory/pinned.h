/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_MEMORY_PINNED_H
#define ENGINE_MEMORY_PINNED_H

/* A pool of equal pinned buffers for requests to disks and devices.  Its memory is in huge
 * pages where the machine gives them, touched and locked when the pool is opened, and not
 * inherited by forked children.  Buffers are lent and returned; a returned buffer is poisoned
 * under AddressSanitizer.  Any thread.
 */

#include "engine/base/base.h"

#include <sys/uio.h>

struct pinned;

struct pinned_options {
	uint64_t size;  /* bytes of a buffer, at most 1 GiB; rounded up to 4096 */
	unsigned count; /* > 0 */
	/* The memory is on NUMA node `node`, as far as the node has room.  A warning is logged
	 * where there is no such node.
	 */
	bool on_node;
	unsigned node;
	bool locked_by_user; /* the caller registers the memory with a device, which locks it */
	bool unlocked;       /* the memory may be paged out */
};

enum pinned_pages { PINNED_SMALL, PINNED_HUGE, PINNED_HUGETLB };

struct pinned_figures {
	uint64_t size;
	unsigned count, lent, lent_max;
	uint64_t gets, waits, refusals; /* loans, loans after a wait, refusals */
	enum pinned_pages pages;
	bool locked;
};

/* Memory that cannot be locked (RLIMIT_MEMLOCK) is used unlocked, with a warning in the log.
 * -EINVAL: size is 0 or too large, or count is 0.
 * -ENOMEM.
 */
int pinned_open(const struct pinned_options *options, struct pinned **out);
/* All buffers must have been returned. */
void pinned_close(struct pinned *p);

/* Lends a buffer, aligned to 4096, of any content: the first that is free.
 * -EAGAIN: wait_ms is 0 and all buffers are lent.
 * -ETIMEDOUT: no buffer came back within wait_ms.
 */
int pinned_get(struct pinned *p, uint64_t wait_ms, void **buffer);
/* Lends n adjacent buffers; each is returned by itself.  -EAGAIN: no such run is free now. */
int pinned_get_run(struct pinned *p, unsigned n, void **buffers);
void pinned_put(struct pinned *p, void *buffer);

void pinned_figures(struct pinned *p, struct pinned_figures *figures);

/* Gives the pool's memory as slabs of at most 1 GiB, for registration; each buffer lies in one
 * slab.  Returns how many there are; slabs may be NULL.
 */
unsigned pinned_slabs(const struct pinned *p, struct iovec *slabs);
/* The number of the slab that the buffer lies in. */
unsigned pinned_slab_of(const struct pinned *p, const void *buffer);

#endif
