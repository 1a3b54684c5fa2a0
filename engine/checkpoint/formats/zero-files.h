/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_ZERO_FILES_H
#define ENGINE_CHECKPOINT_FORMATS_ZERO_FILES_H

/* The files of a ZeRO checkpoint by rank and role, from DeepSpeed's names:
 *
 *	mp_rank_MM_model_states.pt			stages 0 to 2
 *	zero_pp_rank_D_mp_rank_MM_model_states.pt	stage 3
 *	[bf16_]zero_pp_rank_D_mp_rank_MM_optim_states.pt
 *
 * MM is the model-parallel rank, D the data-parallel one.
 */

#include "engine/checkpoint/table/folder.h"
#include "engine/checkpoint/table/table.h"

enum zero_role { ZERO_MODEL, ZERO_MODEL_SHARD, ZERO_OPTIM };

struct zero_file {
	const char *name; /* borrowed from the folder */
	enum zero_role role;
	uint32_t mp, dp;
};

struct zero_files {
	struct zero_file *files; /* by mp, role, dp */
	uint32_t n;
	uint32_t nmp; /* model-parallel ranks, 0 to nmp - 1 */
};

/* Returns true if the folder has any file of a ZeRO checkpoint. */
bool zero_files_any(const struct folder *f);
/* Lists the files.
 * -EINVAL: the file of a rank is missing, or a rank has two.
 * -ENOMEM.
 */
int zero_files_list(struct zero_files *z, const struct folder *f, struct table *t);
void zero_files_free(struct zero_files *z);

/* Returns the files of a role, of data-parallel ranks 0 to *n - 1; NULL: none. */
const struct zero_file *zero_files_of(const struct zero_files *z, uint32_t mp,
				      enum zero_role role, uint32_t *n);

#endif
