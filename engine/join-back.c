/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/join.h"
#include "engine/log.h"

/* All ranks count the same steps, boundaries, windows of gradients and barriers.  The process of a rank that comes
 * back begins with none: it adds what another has, to what its trainer's thread counts meanwhile.
 */

static void raise_to(_Atomic uint64_t *word, uint64_t to, uint64_t unit)
{
	uint64_t now = atomic_load(word);

	if (to > now)
		atomic_fetch_add(word, (to - now + unit - 1) / unit * unit);
}

void join_catch_up(struct engine *e, const struct wire_control *at, uint64_t barrier)
{
	struct control_page *page = e->registry.control;

	raise_to(&page->step, at->step, 1);
	raise_to(&page->boundary, at->boundary, 1);
	raise_to(&page->generation, at->generation, 1);
	raise_to(&page->grads, at->grads & ~(uint64_t)1, 2); /* odd stays odd */
	e->barrier.before = u64_max(e->barrier.before, barrier);
	log_info("back in the job, at step %llu, boundary %llu", (unsigned long long)at->step,
		 (unsigned long long)at->boundary);
}
