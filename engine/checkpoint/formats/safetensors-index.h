/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_SAFETENSORS_INDEX_H
#define ENGINE_CHECKPOINT_FORMATS_SAFETENSORS_INDEX_H

/* The index of a Hugging Face folder, model.safetensors.index.json: the file of each tensor. */

#include "engine/checkpoint/parse/blob.h"

struct safetensors_place { /* where a tensor is */
	const char *name;  /* of the tensor; not terminated */
	uint32_t name_size;
	uint32_t file;
};

struct safetensors_index {
	char *text; /* owns the names */
	uint32_t nplaces, nfiles;
	struct safetensors_place *places; /* by name */
	char **files; /* names in the index's folder, without '/', never "." or ".." */
};

/* Errors of parse-error.h.
 * -EBADMSG: the index is damaged, or names a file by a path.
 */
int safetensors_index_open(struct safetensors_index *x, const struct blob *b,
			   struct parse_error *error);
void safetensors_index_close(struct safetensors_index *x);
/* Returns the number of the file that has a tensor; UINT32_MAX: the index does not name the
 * tensor.
 */
uint32_t safetensors_index_find(const struct safetensors_index *x, const char *name,
				size_t size);

#endif
