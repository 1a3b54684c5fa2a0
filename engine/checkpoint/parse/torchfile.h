/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_PARSE_TORCHFILE_H
#define ENGINE_CHECKPOINT_PARSE_TORCHFILE_H

/* A torch.save file, or such an archive inside another file, in the zip container or in the
 * legacy one of torch before 1.6.  torchfile_open() reads the pickle and the places of
 * storages, no data.  torchfile_tensor() checks a tensor against the storage that is in the
 * file, so its bytes can be read.  An open torchfile does not change: any thread.
 */

#include "engine/checkpoint/parse/pickle.h"
#include "engine/checkpoint/parse/tensor.h"
#include "engine/checkpoint/parse/zip.h"

struct torchfile_storage;

struct torchfile {
	struct blob blob;
	bool legacy;
	struct zip zip; /* empty when legacy */
	struct pickle *pickle;
	struct torchfile_storage *storages; /* legacy: sorted by key */
	uint32_t nstorages;
};

/* Opens a file of torch.save.
 * -EOPNOTSUPP: big-endian, TorchScript, tar, compressed ...
 * Errors of parse-error.h.
 */
int torchfile_open(struct torchfile *f, const struct blob *b, struct parse_error *error);
void torchfile_close(struct torchfile *f);

struct torchfile_tensor {
	struct tensor tensor;
	uint64_t at;         /* element 0's byte in the file; 0: there are no elements */
	uint64_t at_storage; /* element 0's byte in the storage */
	const struct zip_entry *entry; /* of the storage; NULL: legacy, or no elements */
};

/* Finds the tensor at a node of f->pickle.
 * -EBADMSG: the node is no tensor, or its storage is too small.
 * -EOPNOTSUPP: it has more than FRAG_DIMS_MAX dimensions.
 */
int torchfile_tensor(const struct torchfile *f, uint32_t node, struct torchfile_tensor *out,
		     struct parse_error *error);

#endif
