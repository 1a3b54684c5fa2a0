/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_MODEL_STATES_H
#define ENGINE_CHECKPOINT_FORMATS_MODEL_STATES_H

/* A DeepSpeed *model_states.pt: the names, shapes and order of the parameters, and `module`,
 * which has the model's own tensors.  A format uses it so:
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
	uint32_t module; /* node; nothing in a stage of a pipeline */
	uint32_t first;  /* the first of the table's tensors that are of this file */
};

int model_states_open(struct model_states *m, struct table *t, const struct folder *f,
		      const char *name, uint32_t rank);
void model_states_close(struct model_states *m);

/* Returns the value of a key of the file; PICKLE_NOTHING: none. */
uint32_t model_states_get(const struct model_states *m, const char *key);
/* Sets the table's step from global_steps, and adds notes for .frag/source and the file as a
 * whole.
 */
int model_states_note(const struct model_states *m);

/* Returns the number of groups in param_shapes.  An older file's single dict is one group. */
uint32_t model_states_ngroups(const struct model_states *m);
/* Returns the dict of a group's names and shapes. */
uint32_t model_states_group(const struct model_states *m, uint32_t group);
/* Returns the dict frozen_param_shapes. */
uint32_t model_states_frozen(const struct model_states *m);

struct model_shape {
	uint32_t key; /* node of the name */
	char name[FRAG_NAME_MAX + 1];
	uint32_t ndim;
	uint64_t shape[FRAG_DIMS_MAX];
	uint64_t numel; /* below 2^59 */
	/* why the parameter is not shown, although its elements count; NULL: it is shown */
	const char *unsupported;
};

/* Reads the i-th name and shape of a dict.
 * -EINVAL: the name is no text, or no tensor has the shape.
 */
int model_states_shape(struct model_states *m, uint32_t dict, uint32_t i,
		       struct model_shape *out);

/* Returns true if the name is that of a module's _extra_state, which is no parameter. */
bool model_states_is_extra(const char *name);

/* Adds a parameter to the table, with the dtype that it has in module; returns its number. */
int model_states_add_tensor(struct model_states *m, const struct model_shape *s);
/* Adds the low-precision state of the newest tensor, if module holds all of its elements; a
 * float32 state gets the key `lp`.
 */
int model_states_add_copy(struct model_states *m, const struct model_shape *s);
/* Returns true if module has an item of that name. */
bool model_states_has(const struct model_states *m, const struct model_shape *s);
/* Finds module's tensor of that name.  Returns false if there is none with all elements. */
bool model_states_find(const struct model_states *m, const struct model_shape *s,
		       struct torchfile_tensor *out);

/* Adds buffers, the names in shared_params, and all further tensors of module: frozen
 * parameters, and other names of tensors that were added.  Calls see_buffer, unless it is NULL,
 * after the i-th of buffer_names became the newest tensor.
 */
int model_states_add_rest(struct model_states *m,
			  int (*see_buffer)(const void *arg, uint32_t i), const void *arg);

#endif
