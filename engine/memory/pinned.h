/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_MEMORY_PINNED_H
#define ENGINE_MEMORY_PINNED_H

/* Equal buffers for requests to devices: in huge pages where the machine gives them, touched
 * and locked when the pool is opened, not there in a forked child; lent and returned.  What is
 * returned is poisoned under AddressSanitizer. Any thread.
 */

#include "engine/base/base.h"

#include <sys/uio.h>

struct pinned;

struct pinned_options {
	uint64_t size;  /* bytes of a buffer, at most 1 GiB; rounded up to 4096 */
	unsigned count; /* > 0 */
	bool on_node; /* on that NUMA node, as far as it has room; where there is none such, a line says so */
	unsigned node;
	bool locked_by_user; /* who registers it with a device locks it thereby */
	bool unlocked;       /* it may be paged out */
};

enum pinned_pages { PINNED_SMALL, PINNED_HUGE, PINNED_HUGETLB };

struct pinned_figures {
	uint64_t size;
	unsigned count, lent, lent_max;
	uint64_t gets, waits, refusals; /* buffers lent; of these after waiting; not lent */
	enum pinned_pages pages;
	bool locked;
};

/* Memory that may not be locked, for the limit or otherwise, is used unlocked, and a line says
 * so.  -EINVAL: no size, too large, or no count.  -ENOMEM.
 */
int pinned_open(const struct pinned_options *options, struct pinned **out);
/* All buffers are returned. */
void pinned_close(struct pinned *p);

/* A buffer, aligned to 4096, of any content.  wait_ms 0: -EAGAIN when all are lent; else
 * -ETIMEDOUT when none came back for so long.
 */
int pinned_get(struct pinned *p, uint64_t wait_ms, void **buffer);
/* As many that lie one behind the other; each is returned by itself.  -EAGAIN: there are none
 * such now.
 */
int pinned_get_run(struct pinned *p, unsigned n, void **buffers);
void pinned_put(struct pinned *p, void *buffer);

void pinned_figures(struct pinned *p, struct pinned_figures *figures);

/* All of it in pieces of at most 1 GiB, for registration; a buffer lies in one.  Returns how
 * many; slabs may be NULL.
 */
unsigned pinned_slabs(const struct pinned *p, struct iovec *slabs);
unsigned pinned_slab_of(const struct pinned *p, const void *buffer);

#endif
