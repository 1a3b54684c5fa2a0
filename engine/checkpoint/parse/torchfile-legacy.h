/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_PARSE_TORCHFILE_LEGACY_H
#define ENGINE_CHECKPOINT_PARSE_TORCHFILE_LEGACY_H

/* The container of torch.save before torch 1.6.  It begins with five pickles: a magic number, a
 * version, facts about the machine, the object, and the list of storage keys.  The storages
 * follow in the order of that list, each with the number of its elements (64 bits) before its
 * elements.
 */

#include "engine/checkpoint/parse/torchfile.h"

enum { TORCHFILE_PICKLE_MAX = 1 << 30 }; /* bytes */

struct torchfile_storage {
	const char *key; /* the pickle's; not terminated */
	size_t key_size;
	uint64_t at; /* in the blob */
	uint64_t size;
	uint64_t numel;
	uint8_t item; /* bytes of an element */
	bool placed;  /* its elements were found in the file */
};

/* torchfile_open() of such a file.  Errors: as in parse-error.h. */
int torchfile_open_legacy(struct torchfile *f, struct parse_error *error);
/* The storage of a key; NULL: none. */
const struct torchfile_storage *torchfile_find_legacy(const struct torchfile *f,
						      const char *key, size_t size);

#endif
