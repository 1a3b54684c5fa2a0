/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_DCP_GROUPS_H
#define ENGINE_CHECKPOINT_FORMATS_DCP_GROUPS_H

/* What is no tensor in a .metadata: an optimizer's groups, "optim.param_groups.0.lr", and the
 * step.
 */

#include "engine/checkpoint/formats/dcp-files.h"
#include "engine/checkpoint/formats/dcp-names.h"

/* *step becomes the value where that is higher, and a step. */
void dcp_groups_step(double *step, double value);

/* To the table, whose tensors are there already; what is left out is said. */
int dcp_groups_add(const struct dcp_names *names, struct dcp_files *files, struct table *t,
		   double *step);

#endif
