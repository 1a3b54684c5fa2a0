/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_QUEUE_H
#define ENGINE_BASE_QUEUE_H

/* Linked lists: <sys/queue.h>, and what glibc's leaves out, loops in which the element may be
 * removed and freed.
 */

#include <sys/queue.h>

#define STAILQ_FOREACH_SAFE(var, head, field, next)                                            \
	for ((var) = STAILQ_FIRST(head); (var) && ((next) = STAILQ_NEXT(var, field), 1);       \
	     (var) = (next))

#define TAILQ_FOREACH_SAFE(var, head, field, next)                                             \
	for ((var) = TAILQ_FIRST(head); (var) && ((next) = TAILQ_NEXT(var, field), 1);         \
	     (var) = (next))

#define LIST_FOREACH_SAFE(var, head, field, next)                                              \
	for ((var) = LIST_FIRST(head); (var) && ((next) = LIST_NEXT(var, field), 1);           \
	     (var) = (next))

#endif
