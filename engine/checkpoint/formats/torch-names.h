/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_TORCH_NAMES_H
#define ENGINE_CHECKPOINT_FORMATS_TORCH_NAMES_H

/* Names the tensors of a torch.save file: a name is the keys and indices that lead to the
 * tensor, joined by dots.  Attributes of an object, and parameters and submodules of a torch
 * module, are named right below it, so that a module has the names of its state_dict.
 */

#include "engine/checkpoint/parse/torchfile.h"
#include "engine/checkpoint/table/table.h"

struct torch_name {
	char *name; /* at most FRAG_NAME_MAX bytes */
	uint32_t node;
	bool buffer;             /* a module's buffer */
	bool twice;              /* an earlier one has the same name */
	struct torch_name *same; /* first with these bytes, dtype, shape, strides; or itself */
	uint64_t key[2];
	uint32_t tensor; /* the caller's: in the table, if added */
	bool added;
};

struct torch_names {
	struct torch_name *items; /* in the file's order */
	uint32_t count;
};

/* Finds all tensors of f.  A tensor that is all of the file is named `alone`.  The table notes
 * what is left out.  -ENOMEM.
 */
int torch_names_find(struct torch_names *n, const struct torchfile *f, const char *alone,
		     struct table *t);
void torch_names_free(struct torch_names *n);

#endif
