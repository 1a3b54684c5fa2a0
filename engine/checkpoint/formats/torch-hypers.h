/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_TORCH_HYPERS_H
#define ENGINE_CHECKPOINT_FORMATS_TORCH_HYPERS_H

/* Adds numbers of an optimizer's group, or of one of its states, as hyper-parameters of the
 * table's group: integers, reals, tensors of one element, and tuples of these (betas as beta1
 * and beta2).  A hyper-parameter that the group has already stays as it is.
 */

#include "engine/checkpoint/formats/torch-source.h"

/* Adds all numbers of a dict. */
int torch_hypers_add(const struct torch_source *s, uint32_t group, uint32_t dict);
/* Adds the numbers of a dict of states.  Tensors of the master's shape are states and are left
 * out, but for step; master NULL: all tensors but step are left out.
 */
int torch_hypers_add_states(const struct torch_source *s, uint32_t group, uint32_t dict,
			    const struct tensor *master);
/* Adds a node under `name`, if it is a number or a tuple of numbers. */
int torch_hypers_add_one(const struct torch_source *s, uint32_t group, const char *name,
			 uint32_t node);
/* Reads a number, or that of a tensor of one element.  Returns false if the node is neither. */
bool torch_hypers_number(const struct torch_source *s, uint32_t node, double *out);

#endif
