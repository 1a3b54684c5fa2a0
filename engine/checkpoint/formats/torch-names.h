/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_TORCH_NAMES_H
#define ENGINE_CHECKPOINT_FORMATS_TORCH_NAMES_H

/* The tensors of a file of torch.save and what they are called: the keys and indices that lead
 * to them, joined by dots.  An object's attributes, and the parameters and parts of a torch
 * module, stand right below it, so that a module has the names of its state_dict.
 */

#include "engine/checkpoint/parse/torchfile.h"
#include "engine/checkpoint/table/table.h"

struct torch_name {
	char *name; /* at most FRAG_NAME_MAX bytes */
	uint32_t node;
	bool buffer; /* of a module */
	bool twice;  /* an earlier one has the same name */
	struct torch_name
		*same; /* the first with the same bytes, dtype, shape and strides; itself */
	uint64_t key[2];
	uint32_t tensor; /* the caller's, as added */
	bool added;
};

struct torch_names {
	struct torch_name *items; /* in the file's order */
	uint32_t count;
};

/* alone: the name of a tensor that is all of the file.  What is left out is said in the table's
 * notes. -ENOMEM.
 */
int torch_names_find(struct torch_names *n, const struct torchfile *f, const char *alone,
		     struct table *t);
void torch_names_free(struct torch_names *n);

#endif
