/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_RANK_COMPUTE_H
#define ENGINE_RANK_COMPUTE_H

/* An operation on elements of a row, which an edit carries in place of bytes
 * (engine/rank/participant.h).  The row has elements [start, end) of an array, from its element
 * `at` on; the operation is on those of them that are in a slice of the array.
 */

#include "engine/catalog/operation.h"
#include "engine/base/slice.h"
#include "engine/catalog/wire.h"
#include "engine/rank/registry.h"

struct compute {
	uint64_t epoch; /* of the registry */
	uint32_t row;
	enum frag_dtype dtype;
	struct slice slice;  /* in rising order */
	uint64_t first, end; /* the row has elements [first, end) of the slice */
	uint64_t start, at;
	struct operation operation;
	/* A low-precision copy follows its master, a row of this rank, whose element master_at
	 * is `start`: operation is not used.
	 */
	bool follows;
	uint32_t master;
	enum frag_dtype master_dtype;
	uint64_t master_at;
};

enum {
	COMPUTE_BUFFER = 3 << 20, /* bytes */
	COMPUTE_RUNS_MAX = 1 << 16,
};

/* Sets *c to what a message says.
 * -EINVAL: the message makes no sense.
 * -EOPNOTSUPP: the dtypes have no such operation.
 */
int compute_decode(struct compute *c, const struct wire_compute *message);
/* Returns the bytes of the row that change. */
uint64_t compute_bytes(const struct compute *c);
/* Returns the error that compute_apply would return, or 0: registry_check's.
 * -EINVAL: a row has another dtype.
 */
int compute_check(const struct compute *c, struct registry *r);
/* Returns true if the rows are not all in the host's memory, or are ordered to leave it, and
 * the elements are in more than COMPUTE_RUNS_MAX runs: the trainer would wait for the device or
 * the disk at each of them.  Once the operation is staged, its rows do not move
 * (participant_computes).
 */
bool compute_is_scattered(const struct compute *c, struct registry *r);
/* Computes the elements.  buffer: COMPUTE_BUFFER bytes.  Trainer's thread.  Errors of
 * registry_read and registry_write.
 */
int compute_apply(const struct compute *c, struct registry *r, uint8_t *buffer);

#endif
