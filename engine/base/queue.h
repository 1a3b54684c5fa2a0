/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_QUEUE_H
#define ENGINE_BASE_QUEUE_H

/* Linked lists: <sys/queue.h>, and what glibc's leaves out: loops in which the element may be
 * removed and freed, and taking the first element.
 */

#include <sys/queue.h>

#define STAILQ_FOREACH_SAFE(var, head, field, next)                                            \
	for ((var) = STAILQ_FIRST(head); (var) && ((next) = STAILQ_NEXT(var, field), 1);       \
	     (var) = (next))

/* Removes and returns the first element; NULL: the list is empty. */
#define STAILQ_TAKE(head, field)                                                               \
	({                                                                                     \
		__typeof__(STAILQ_FIRST(head)) first_ = STAILQ_FIRST(head);                    \
		if (first_)                                                                    \
			STAILQ_REMOVE_HEAD(head, field);                                       \
		first_;                                                                        \
	})

#define TAILQ_FOREACH_SAFE(var, head, field, next)                                             \
	for ((var) = TAILQ_FIRST(head); (var) && ((next) = TAILQ_NEXT(var, field), 1);         \
	     (var) = (next))

#define LIST_FOREACH_SAFE(var, head, field, next)                                              \
	for ((var) = LIST_FIRST(head); (var) && ((next) = LIST_NEXT(var, field), 1);           \
	     (var) = (next))

#endif
