/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_PARSE_SAFETENSORS_H
#define ENGINE_CHECKPOINT_PARSE_SAFETENSORS_H

/* A safetensors file: the size of the header, the header in JSON, then the data, which the
 * tensors fill without gaps or overlaps.  All tensors are contiguous.  Once open it does not
 * change: any thread.
 */

#include "engine/checkpoint/parse/blob.h"
#include "engine/frag.h"

struct safetensor {
	const char *name; /* UTF-8, may have NUL bytes; not terminated */
	uint32_t name_size;
	uint32_t ndim;
	const uint64_t *shape;
	enum frag_dtype dtype; /* 0: elements that are not whole bytes (F4, F6_...) */
	uint8_t bits;          /* bits of an element */
	uint64_t numel;
	uint64_t at; /* in the file */
	uint64_t bytes;
};

/* A pair in "__metadata__". */
struct safetensors_fact {
	const char *key, *value; /* not terminated */
	uint32_t key_size, value_size;
};

struct safetensors {
	struct blob blob;
	char *header; /* owns names, keys and values */
	uint32_t ntensors, nfacts;
	struct safetensor *tensors;     /* in the order of the data */
	struct safetensors_fact *facts; /* by key */
	uint64_t *sizes;                /* owns shapes */
};

/* Errors of parse-error.h. */
int safetensors_open(struct safetensors *s, const struct blob *b, struct parse_error *error);
void safetensors_close(struct safetensors *s);

#endif
