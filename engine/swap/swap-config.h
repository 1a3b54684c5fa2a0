/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SWAP_SWAP_CONFIG_H
#define ENGINE_SWAP_SWAP_CONFIG_H

/* The settings of a rank's swapper: whether it has states on NVMe, in which folder, and with
 * how much pinned memory.  They come from frag_config, FRAG_SWAP_DIR, FRAG_PINNED_MEM,
 * FRAG_SWAP_MAX, FRAG_SWAP_DEBUG, and a file with DeepSpeed's sections `aio`,
 * `offload_optimizer` and `offload_param` (FRAG_SWAP_CONFIG).  frag(3) has the table.
 */

#include "engine/base/base.h"
#include "engine/frag.h"

struct swap_config {
	char dir[1024];  /* "": no states on NVMe */
	const char *by;  /* the variable, or the key of the file, that names dir */
	uint64_t pinned; /* bytes of all buffers */
	uint64_t slice;  /* bytes of one, a multiple of 4096 */
	uint64_t least;  /* states of fewer bytes stay in memory */
	uint64_t stay;   /* elements of parameters that stay in memory */
	/* down to `debug` as in struct swapper_options; max: its capacity */
	uint64_t max;
	uint32_t chunk;
	unsigned depth, threads;
	bool unlocked, no_ahead, no_behind, debug;
	bool fast_init; /* frag_update_hp reads low-precision parameters ahead */
	/* share of the sub-groups, the first ones, whose states stay in memory */
	double in_memory;
};

/* On error why has one line that names the variable, or the file and the key.
 * -EINVAL: a value.
 * Errors of open: the file's.
 */
int swap_config_read(struct swap_config *c, const struct frag_config *config, char *why,
		     size_t whysize);

#endif
