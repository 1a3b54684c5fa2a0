/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_CPUS_H
#define ENGINE_BASE_CPUS_H

/* Sets of processors, or of memory nodes, by their numbers, in the form of lists that the
 * kernel and numactl write: "0,2-4,6".
 */

#include "engine/base/base.h"

/* CPUS_MAX is the most that Linux has (NR_CPUS); the longest list and its NUL fit CPUS_TEXT. */
enum { CPUS_MAX = 8192, CPUS_TEXT = 32 * 1024 };

struct cpus {
	uint64_t word[CPUS_MAX / 64];
};

/* Reads a part of a list, "2" or "2-4", of numbers below `below`, and moves *text behind it, to
 * a comma or the end.  *first is above *last where the text has them so.
 * Returns false if the text is no such part.
 */
bool cpus_range(const char **text, unsigned below, unsigned *first, unsigned *last);
/* Reads a list, whose parts ascend and do not overlap, without blanks.
 * -EINVAL: text is no such list; why has one line.
 */
int cpus_parse(struct cpus *c, const char *text, char *why, size_t whysize);
/* Writes the list, cut to size, and returns text. */
const char *cpus_text(const struct cpus *c, char *text, size_t size);

void cpus_add(struct cpus *c, unsigned number); /* below CPUS_MAX */
bool cpus_has(const struct cpus *c, unsigned number);
/* Returns the least number in the set that is not below `from`; CPUS_MAX: none. */
unsigned cpus_next(const struct cpus *c, unsigned from);
bool cpus_are_equal(const struct cpus *a, const struct cpus *b);
/* Returns true if b has all of a. */
bool cpus_are_within(const struct cpus *a, const struct cpus *b);

#endif
