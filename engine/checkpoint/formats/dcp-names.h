/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_DCP_NAMES_H
#define ENGINE_CHECKPOINT_FORMATS_DCP_NAMES_H

/* Which tensors of a .metadata are parameters, and which are what an optimizer keeps of one:
 *
 *	model.layers.0.weight			layers.0.weight
 *	optim.state.layers.0.weight.exp_avg	its exp_avg
 *	optimizer.state.exp_avg.layers.0.weight	the same, as Megatron writes it
 *
 * A state has its parameter's shape or, as `step`, one element.  What belongs to no tensor that
 * is there is a parameter of its own, under its whole name.  A beginning of the model's names
 * that the optimizer's lack ("model.") is cut off, if all names stay apart.
 */

#include "engine/checkpoint/parse/dcp-metadata.h"

struct dcp_name {
	const char *name; /* not terminated */
	size_t size;
	uint32_t cut;    /* so many of its bytes are not shown */
	const char *key; /* of a state: not terminated; NULL: a parameter */
	size_t key_size;
	uint32_t param;           /* of a state; its number */
	uint32_t states, nstates; /* of a parameter: in names' states */
	bool is_taken;
	bool is_tensor; /* else of bytes */
	bool is_scalar; /* a state of one element, whatever the parameter has */
	bool is_alone;  /* no state after all */
	bool is_added;  /* as the table's tensor */
	uint32_t tensor;
};

struct dcp_names {
	const struct dcp *metadata;
	struct dcp_name *items; /* as the metadata's */
	uint32_t count;
	uint32_t *by_name; /* tensors */
	uint32_t ntensors;
	uint32_t *states; /* by parameter, then key */
	uint32_t nstates;
	const char *prefix; /* that stands before parameters' names; NULL: none known */
	size_t prefix_size;
	bool mixed; /* there are several */
};

/* -EBADMSG, -ENOMEM.  see: of an item that is not taken, and why. */
int dcp_names_make(struct dcp_names *n, const struct dcp *d,
		   void (*see)(void *arg, const struct dcp_item *item, const char *why),
		   void *arg, struct parse_error *error);
void dcp_names_free(struct dcp_names *n);

/* The parameter that an optimizer calls so; UINT32_MAX: none.  section: what stands before
 * "state." or "param_groups." in the optimizer's names, with its dot.
 */
uint32_t dcp_names_find(const struct dcp_names *n, const char *section, size_t section_size,
			const char *name, size_t size);

#endif
