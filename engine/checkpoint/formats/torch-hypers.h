/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_TORCH_HYPERS_H
#define ENGINE_CHECKPOINT_FORMATS_TORCH_HYPERS_H

/* The numbers of an optimizer's group, or of a state of it, as hyper-parameters: integers,
 * reals, tensors of one element, and tuples of them, betas as beta1 and beta2.  What is there
 * already stays.
 */

#include "engine/checkpoint/formats/torch-source.h"

/* All numbers of a dict. */
int torch_hypers_add(const struct torch_source *s, uint32_t group, uint32_t dict);
/* Of a dict of states: no tensors of the master's shape, but for step; master NULL: no others
 * at all.
 */
int torch_hypers_add_states(const struct torch_source *s, uint32_t group, uint32_t dict,
			    const struct tensor *master);
/* One of them, where node is a number or a tuple of them. */
int torch_hypers_add_one(const struct torch_source *s, uint32_t group, const char *name,
			 uint32_t node);
/* false: it is none. */
bool torch_hypers_number(const struct torch_source *s, uint32_t node, double *out);

#endif
