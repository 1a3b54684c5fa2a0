/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_SAFETENSORS_INDEX_H
#define ENGINE_CHECKPOINT_FORMATS_SAFETENSORS_INDEX_H

/* model.safetensors.index.json of a Hugging Face folder: which file has which tensor. */

#include "engine/checkpoint/parse/blob.h"

struct safetensors_place {
	const char *name; /* of the tensor; not terminated */
	uint32_t name_size;
	uint32_t file;
};

struct safetensors_index {
	char *text; /* what names point into */
	uint32_t nplaces, nfiles;
	struct safetensors_place *places; /* by name */
	char **files; /* names of files in the folder of the index, without '/', never "." or ".." */
};

/* Results as in parse-error.h; a file named by a path is -EBADMSG. */
int safetensors_index_open(struct safetensors_index *x, const struct blob *b,
			   struct parse_error *error);
void safetensors_index_close(struct safetensors_index *x);

#endif
