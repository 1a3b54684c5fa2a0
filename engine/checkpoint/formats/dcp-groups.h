/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_DCP_GROUPS_H
#define ENGINE_CHECKPOINT_FORMATS_DCP_GROUPS_H

/* The entries of a .metadata that are no tensors: hyper-parameters of the optimizer's groups,
 * such as "optim.param_groups.0.lr", and the step.
 */

#include "engine/checkpoint/formats/dcp-files.h"
#include "engine/checkpoint/formats/dcp-names.h"

/* Sets *step to the value if it is higher and can be a step. */
void dcp_groups_step(double *step, double value);

/* Adds the groups to the table, which has its tensors.  The table notes what is left out. */
int dcp_groups_add(const struct dcp_names *names, struct dcp_files *files, struct table *t,
		   double *step);

#endif
