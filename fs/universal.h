/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_UNIVERSAL_H
#define FS_UNIVERSAL_H

/* The files in export/ that DeepSpeed's loader of universal checkpoints reads:
 *
 *	latest_universal			"universal", the folder of all others
 *	mp_rank_00_model_states.pt		the checkpoint's own, or names and counts
 *	zero_pp_rank_0_mp_rank_00_model_states.pt	the same, as ZeRO-3's loader names it
 *	zero/optimizer_state.pt			the optimizer's groups
 *	zero/NAME/fp32.pt, exp_avg.pt ...	a state of the whole parameter
 *	zero/NAME/step.pt
 *
 * A state's bytes lie between a header and a trailer (fs/torch-file.h); the other files are
 * made when they are opened.
 */

#include "fs/cells.h"
#include "fs/state-list.h"

struct hypers; /* fs/hypers.h */

enum universal_file {
	UNIVERSAL_LATEST,
	UNIVERSAL_MODEL,
	UNIVERSAL_OPTIMIZER,
	UNIVERSAL_STEP, /* of a parameter whose optimizer has no state `step` of its own */
};

/* Lists the states of a parameter that have a file, as state_list_fill does. */
int universal_states(struct engine *e, uint32_t param, struct state_list *out);
/* Returns the key in the name of a state's file: "fp32" for a parameter's own values, which
 * have a file only where there is no master.
 */
const char *universal_key(const char *key);
/* Returns 1 if the parameter has a UNIVERSAL_STEP, else 0; -errno of engine_states. */
int universal_has_step(struct engine *e, uint32_t param);

/* Sets *c to the file of a state, and *text, unless text is NULL, to the header and the
 * trailer, which the caller frees.
 * -ENOENT: there is no such file.
 * -ENOMEM.
 */
int universal_cells(struct cells *c, const struct engine_state *state,
		    const struct engine_param *param, char **text);

/* Makes the content of a file that is not a state's; *text is the caller's to free.  Returns
 * its length.
 * -ENOMEM.
 * Errors of hypers_get.
 */
int64_t universal_build(struct engine *e, struct hypers *hypers, enum universal_file file,
			uint32_t param, char **text);

#endif
