/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_MODEL_STATES_H
#define ENGINE_CHECKPOINT_FORMATS_MODEL_STATES_H

/* What a DeepSpeed *model_states.pt says: the names, shapes and order of the parameters, and
 * the tensors of `module`, the model's own.  A format uses it so:
 *
 *	model_states_open
 *	  for each group, for each of its shapes:
 *	    model_states_add_tensor, then its states (fp32, exp_avg ...), model_states_add_copy
 *	  the frozen ones (zero-frozen.h)
 *	  model_states_add_rest		buffers, aliases, and whatever else module has
 *	model_states_close
 */

#include "engine/checkpoint/formats/torch-source.h"

struct model_states {
	struct torch_source source;
	uint32_t module; /* node; of a pipeline's stage: none */
	uint32_t first;  /* the table's tensors from there on are its */
};

int model_states_open(struct model_states *m, struct table *t, const struct folder *f,
		      const char *name, uint32_t rank);
void model_states_close(struct model_states *m);

/* The value of a key of the file; PICKLE_NOTHING: it has none. */
uint32_t model_states_get(const struct model_states *m, const char *key);
/* The table's step from global_steps, and what .frag/source says. */
void model_states_note(const struct model_states *m);

/* param_shapes.  An older file's single dict is one group. */
uint32_t model_states_ngroups(const struct model_states *m);
/* The dict of a group's names and shapes. */
uint32_t model_states_group(const struct model_states *m, uint32_t group);
/* The dict frozen_param_shapes. */
uint32_t model_states_frozen(const struct model_states *m);

struct model_shape {
	uint32_t key; /* node of the name */
	char name[FRAG_NAME_MAX + 1];
	uint32_t ndim;
	uint64_t shape[FRAG_DIMS_MAX];
	uint64_t numel;    /* below 2^59 */
	const char *unfit; /* why it cannot be shown; its elements count all the same; NULL */
};

/* The i-th of such a dict.  -EINVAL: no text, or no shape that a tensor can have. */
int model_states_shape(struct model_states *m, uint32_t dict, uint32_t i,
		       struct model_shape *out);

/* Of a module's _extra_state, which is no parameter. */
bool model_states_is_extra(const char *name);

/* ZeRO-3 leaves tensors without elements of shape [0] where parameters were. */
bool model_states_is_placeholder(const struct tensor *x);

/* A parameter of the table, its dtype that of module; its number. */
int model_states_add_tensor(struct model_states *m, const struct model_shape *s);
/* The newest tensor's low-precision state, where module holds all of it; `lp` where that is
 * float32.
 */
int model_states_add_copy(struct model_states *m, const struct model_shape *s);
/* Whether module has anything of that name. */
bool model_states_has(const struct model_states *m, const struct model_shape *s);
/* module's tensor of that name, if it has all elements. */
bool model_states_find(const struct model_states *m, const struct model_shape *s,
		       struct torchfile_tensor *out);

/* Buffers; the names of shared_params; module's tensors that are none of these: a frozen
 * parameter, or another name of one that is there.  Calls see_buffer (NULL: nobody wants to
 * know) when the newest tensor is the i-th of buffer_names.
 */
int model_states_add_rest(struct model_states *m,
			  int (*see_buffer)(const void *arg, uint32_t i), const void *arg);

#endif
