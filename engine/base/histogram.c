/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/histogram.h"

#include "engine/base/base.h"

/* Bucket 8 * (e - 2) + m is of the numbers whose highest bit is e and whose next three are m,
 * for e of 3 and more.
 */
static unsigned bucket_of(uint64_t value)
{
	unsigned high;

	if (value < 8)
		return (unsigned)value;
	high = 63 - (unsigned)__builtin_clzll(value);
	return 8 * (high - 2) + (unsigned)(value >> (high - 3) & 7);
}

static uint64_t middle_of(unsigned bucket)
{
	unsigned shift = bucket < 8 ? 0 : bucket / 8 - 1;
	uint64_t low = bucket < 8 ? bucket : (uint64_t)(8 + bucket % 8) << shift;

	return low + ((1ULL << shift) - 1) / 2;
}

void histogram_add(struct histogram *h, uint64_t value)
{
	value = u64_min(value, (1ULL << HISTOGRAM_BITS) - 1);
	h->min = h->count ? u64_min(h->min, value) : value;
	h->max = u64_max(h->max, value);
	h->count++;
	h->sum += value;
	h->buckets[bucket_of(value)]++;
}

uint64_t histogram_quantile(const struct histogram *h, double quantile)
{
	uint64_t rank = (uint64_t)(quantile * (double)h->count), below = 0;
	unsigned i = 0;

	if (!h->count)
		return 0;
	rank = u64_min(rank, h->count - 1);
	if (quantile <= 0)
		return h->min;
	if (quantile >= 1)
		return h->max;
	while (below + h->buckets[i] <= rank)
		below += h->buckets[i++];
	return u64_max(h->min, u64_min(h->max, middle_of(i)));
}

uint64_t histogram_below(const struct histogram *h, unsigned bit)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < 8 * (bit - 2) && i < HISTOGRAM_BUCKETS; i++)
		n += h->buckets[i];
	return n;
}
