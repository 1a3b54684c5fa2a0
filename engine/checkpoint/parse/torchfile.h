/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_PARSE_TORCHFILE_H
#define ENGINE_CHECKPOINT_PARSE_TORCHFILE_H

/* A file of torch.save, in its zip container or in the one before (five pickles, then
 * storages), or such an archive inside another file.  Opening reads the pickle and where things
 * are, no data.  Every tensor has been checked against the storage that is really there, so
 * that what torchfile_tensor says can be read.  Any thread.
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
	struct torchfile_storage *storages; /* legacy: by their keys */
	uint32_t nstorages;
};

/* Results as in parse-error.h. -EOPNOTSUPP: big-endian, TorchScript, tar, compressed ... */
int torchfile_open(struct torchfile *f, const struct blob *b, struct parse_error *error);
void torchfile_close(struct torchfile *f);

struct torchfile_tensor {
	struct tensor tensor;
	uint64_t at;         /* of element 0, in the file; 0 when it has no elements */
	uint64_t at_storage; /* the same, in the storage */
	const struct zip_entry
		*entry; /* of the storage; NULL when legacy or without elements */
};

/* node: one of f->pickle's.  -EBADMSG: no tensor; -EOPNOTSUPP: more dimensions than
 * FRAG_DIMS_MAX.
 */
int torchfile_tensor(const struct torchfile *f, uint32_t node, struct torchfile_tensor *out,
		     struct parse_error *error);

#endif
