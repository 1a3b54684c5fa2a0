/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/swap/swap-file-internal.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static uint64_t hash(const void *block)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx2"))
		return swap_file_hash_avx2(block);
#endif
	return XXH3_64bits(block, SWAP_BLOCK);
}

uint32_t swap_file_sum(const void *block)
{
	uint32_t sum = (uint32_t)hash(block);

	return sum > SWAP_DAMAGED ? sum : sum + SWAP_DAMAGED + 1;
}
