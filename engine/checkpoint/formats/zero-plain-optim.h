/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_ZERO_PLAIN_OPTIM_H
#define ENGINE_CHECKPOINT_FORMATS_ZERO_PLAIN_OPTIM_H

/* The optimizer of a run without ZeRO, as its model_states.pt has it:
 *
 *	float32	torch's state_dict
 *	lp	optimizer_state_dict, and masters: fp32_groups, a list for each group, or
 *		fp32_groups_flat, one vector for each, whose states are vectors too
 */

#include "engine/checkpoint/formats/model-states.h"

struct plain_param {
	char name[FRAG_NAME_MAX + 1];
	struct torchfile_tensor x; /* the model's own values */
	bool alias;                /* another one is there */
};

struct plain_optim {
	struct model_states *model;
	const struct pickle *p;
	const struct plain_param *params;
	uint32_t nparams;
	uint32_t states, param_groups, masters; /* nodes; masters: none of a float32 run */
	bool flat;
	bool known; /* which parameter is which */
	uint32_t ngroups;
	uint32_t first_group; /* in the table */
	uint64_t *ends;       /* [ngroups] */
	uint32_t *groups;     /* [nparams]; ngroups: none */
	uint64_t *positions;  /* [nparams] */
};

/* Also adds the groups. */
int plain_optim_open(struct plain_optim *o, struct model_states *m,
		     const struct plain_param *params, uint32_t nparams);
void plain_optim_close(struct plain_optim *o);

bool plain_optim_has_master(const struct plain_optim *o, const struct plain_param *param);
bool plain_optim_is_frozen(const struct plain_optim *o, const struct plain_param *param);
/* Of the newest tensor. */
int plain_optim_add_states(const struct plain_optim *o, const struct plain_param *param,
			   uint32_t tensor);

#endif
