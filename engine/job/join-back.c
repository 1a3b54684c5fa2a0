/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/job/barrier-state.h"
#include "engine/job/join.h"

/* All ranks count the same steps, boundaries, windows of gradients and barriers.  The process
 * of a rank that comes back begins with none: it adds what another has, to what its trainer's
 * thread counts meanwhile.  What the others count until they meet it at a barrier it learns
 * there (api_count_on).
 */

/* Where theirs are valid and ours are not, the trainer may be about to restore them, or to make
 * the next ones: frag_grads_gone tells.
 */
void join_catch_up_grads(struct engine *e, uint64_t grads)
{
	control_raise(&e->registry.control->grads, grads & ~(uint64_t)1, 2); /* odd stays odd */
	control_raise(&e->grads_elsewhere, grads, 1);
}

void join_catch_up(struct engine *e, const struct wire_control *at, uint64_t barrier)
{
	struct control_page *page = e->registry.control;

	control_raise(&page->step, at->step, 1);
	control_raise(&page->boundary, at->boundary, 1);
	control_raise(&page->generation, at->generation, 1);
	join_catch_up_grads(e, at->grads);
	e->barrier->before = u64_max(e->barrier->before, barrier);
	log_info("back in the job, at step %llu, boundary %llu", (unsigned long long)at->step,
		 (unsigned long long)at->boundary);
}
