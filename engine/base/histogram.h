/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_HISTOGRAM_H
#define ENGINE_BASE_HISTOGRAM_H

/* A histogram of numbers below 2^44, such as nanoseconds (4.9 hours), in 2.7 KiB: 8 buckets for
 * each power of two, so that a quantile is off by a sixteenth at the most; numbers below 8 have
 * a bucket each.  Larger numbers count as 2^44 - 1.  The caller locks.
 */

#include <stdint.h>

enum { HISTOGRAM_BITS = 44, HISTOGRAM_BUCKETS = (HISTOGRAM_BITS - 2) * 8 };

struct histogram { /* zeroed: empty */
	uint64_t count, sum;
	uint64_t min, max;
	uint64_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *h, uint64_t value);

/* Returns the number below which a share `quantile` (0 to 1) of the numbers lies, to the middle
 * of its bucket, and between min and max; 0: the histogram is empty.
 */
uint64_t histogram_quantile(const struct histogram *h, double quantile);

/* Returns how many numbers are less than 2^bit; bit is at least 3. */
uint64_t histogram_below(const struct histogram *h, unsigned bit);

#endif
