/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_PARSE_DCP_METADATA_H
#define ENGINE_CHECKPOINT_PARSE_DCP_METADATA_H

/* The file .metadata of torch.distributed.checkpoint (DCP): a pickle of the tensors, the boxes
 * that each is cut into, and the part of a file that has each box.  Objects are told apart by
 * the names of their fields, since modules and classes have changed theirs.  Once open it does
 * not change: any thread.
 *
 *	Metadata	state_dict_metadata {name: tensor or bytes}, planner_data {name: path},
 *			storage_data {index: place}
 *	  tensor	properties (dtype ...), size, chunks [{offsets, sizes}]
 *	  index		fqn, offset		(index is only a hint)
 *	  place		relative_path, offset, length, transform_descriptors
 */

#include "engine/checkpoint/parse/pickle.h"

enum { DCP_NAME_MAX = 2047 };

struct dcp_metadata_row;

struct dcp_metadata {
	struct pickle *pickle;
	uint32_t items;                /* node: state_dict_metadata */
	struct dcp_metadata_row *rows; /* of storage_data, by name and offset */
	uint32_t nrows;
};

/* Errors of parse-error.h. */
int dcp_metadata_open(struct dcp_metadata *d, const struct blob *b, struct parse_error *error);
void dcp_metadata_close(struct dcp_metadata *d);

uint32_t dcp_metadata_count(const struct dcp_metadata *d);

struct dcp_metadata_item {
	const char *name; /* not terminated; has no NUL bytes */
	size_t name_size; /* at most DCP_NAME_MAX */
	bool is_tensor;   /* false: bytes, an object that torch.save wrote */
	enum frag_dtype dtype;
	uint32_t ndim;
	uint64_t shape[FRAG_DIMS_MAX];
	uint64_t numel;  /* below 2^62 */
	uint32_t chunks; /* node */
	uint32_t nchunks;
};

/* Reads the i-th item.
 * -EBADMSG: the item is damaged.
 * -EOPNOTSUPP: the dtype or the name is not supported, or there are too many dimensions.
 */
int dcp_metadata_item(const struct dcp_metadata *d, uint32_t i, struct dcp_metadata_item *out,
		      struct parse_error *error);

struct dcp_metadata_place {
	const char *file; /* not terminated, not checked */
	size_t file_size;
	uint64_t at, length;
	bool transformed; /* compressed, or otherwise encoded */
};

struct dcp_metadata_chunk {
	uint64_t offsets[FRAG_DIMS_MAX], sizes[FRAG_DIMS_MAX];
	bool is_empty; /* no elements; `place` is unset */
	struct dcp_metadata_place place;
};

/* Reads the i-th chunk of a tensor; i < nchunks. */
int dcp_metadata_chunk(const struct dcp_metadata *d, const struct dcp_metadata_item *item,
		       uint32_t i, struct dcp_metadata_chunk *out, struct parse_error *error);
/* Reads the place of an item of bytes. */
int dcp_metadata_bytes(const struct dcp_metadata *d, const struct dcp_metadata_item *item,
		       struct dcp_metadata_place *out, struct parse_error *error);

#endif
