/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_DCP_NAMES_H
#define ENGINE_CHECKPOINT_FORMATS_DCP_NAMES_H

/* Tells the tensors of a .metadata apart: parameters, and an optimizer's states of one:
 *
 *      model.layers.0.weight                   layers.0.weight
 *      optim.state.layers.0.weight.exp_avg     its state exp_avg
 *      optimizer.state.exp_avg.layers.0.weight its state exp_avg, as Megatron writes it
 *
 * A state has its parameter's shape or, like `step`, one element.  A state whose parameter is
 * not there becomes a parameter, under its whole name.  A prefix of the model's names that the
 * optimizer's names lack ("model.") is cut off, if no two names become equal.
 */

#include "engine/checkpoint/parse/dcp-metadata.h"

struct dcp_name {
	const char *name; /* not terminated */
	size_t size;
	uint32_t cut;    /* length of the prefix that is cut off */
	const char *key; /* a state's key, not terminated; NULL: a parameter */
	size_t key_size;
	uint32_t param;           /* of a state: the number of its parameter */
	uint32_t states, nstates; /* of a parameter: its states in dcp_names.states */
	bool is_taken;
	bool is_tensor; /* false: an item of bytes */
	bool is_scalar; /* a state of one element, whatever the parameter has */
	bool is_alone;  /* a state that fits no parameter: it becomes a parameter */
	bool is_added;  /* the item is in the table, as `tensor` */
	uint32_t tensor;
};

struct dcp_names {
	const struct dcp_metadata *metadata;
	struct dcp_name *items; /* in the order of the metadata */
	uint32_t count;
	uint32_t *by_name; /* numbers of tensors, sorted by name */
	uint32_t ntensors;
	uint32_t *states; /* numbers of states, sorted by parameter, then key */
	uint32_t nstates;
	const char *prefix; /* stands before parameters' names; NULL: none is known */
	size_t prefix_size;
	bool mixed; /* names have different prefixes */
};

/* Calls see for each item that is left out, with the reason.
 * -EBADMSG: the .metadata is damaged.
 * -ENOMEM.
 */
int dcp_names_make(struct dcp_names *n, const struct dcp_metadata *d,
		   void (*see)(void *arg, const struct dcp_metadata_item *item,
			       const char *why),
		   void *arg, struct parse_error *error);
void dcp_names_free(struct dcp_names *n);

/* Returns the number of the parameter that an optimizer calls `name`; UINT32_MAX: none.
 * section: the part of the optimizer's names before "state." or "param_groups.", with its dot.
 */
uint32_t dcp_names_find(const struct dcp_names *n, const char *section, size_t section_size,
			const char *name, size_t size);

#endif
