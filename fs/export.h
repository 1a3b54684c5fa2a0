/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_EXPORT_H
#define FS_EXPORT_H

/* The files in export/: what is in them, and in which order.  A safetensors file is
 *
 *	8 bytes: the header's length | header: JSON, then spaces to a multiple of 8 | data
 *
 * and its data are states, one after the other, those of large elements first.  Nothing in it
 * depends on the generation.
 */

#include "engine/engine.h"

#include <pthread.h>
#include <stdatomic.h>

/* The files of a part, by number; the shards in hf/ have those from EXPORT_SHARDS on. */
enum {
	EXPORT_MODEL,
	EXPORT_BF16,
	EXPORT_OPTIMIZER,
	EXPORT_INDEX, /* hf/model.safetensors.index.json */
	EXPORT_SHARDS,
	EXPORT_SHARDS_MAX = 1000,
	EXPORT_NAME_MAX = 40,
};

/* Most bytes of a shard, unless one tensor has more, or the shards would be more than
 * EXPORT_SHARDS_MAX.
 */
#define EXPORT_SHARD_BYTES UINT64_C(5000000000)

struct export_tensor {
	enum frag_dtype from, to; /* dtypes of the state, and of the tensor in the file */
	uint64_t source;          /* bytes of the states before this one */
	uint64_t at;              /* bytes of the file's data before this tensor */
	uint64_t numel;
};

struct export_file {
	char *head; /* length, header, spaces; of the index, all of it */
	uint64_t head_bytes;
	uint64_t bytes;                   /* bytes of the data */
	uint64_t source;                  /* bytes of the states */
	uint32_t n;                       /* count of tensors and of addresses */
	struct export_tensor *tensors;    /* [n], `at` rising */
	struct engine_address *addresses; /* [n], of the tensors' states */
	bool converts;                    /* some tensor has another dtype than its state */
};

/* All files of a part, for the states that there were at one time; immutable. */
struct export_set {
	_Atomic unsigned refs;
	/* engine_epoch before the states were listed: the set is right until it changes */
	uint64_t epoch;
	uint32_t nfiles;
	struct export_file files[];
};

struct exports {
	struct engine *engine;
	pthread_mutex_t lock; /* of newest */
	uint32_t nparts;
	struct export_set **newest; /* [nparts] */
};

/* Borrows engine.  -ENOMEM. */
int exports_init(struct exports *x, struct engine *engine, uint32_t nparts);
void exports_fini(struct exports *x);

/* Gives the files of a part as they are now; the caller puts *set.
 * -ENOMEM.
 * Errors of state_list_fill.
 */
int exports_get(struct exports *x, uint32_t number, const struct engine_part *part,
		struct export_set **set);
void export_put(struct export_set *set);

/* Returns the tensor with the byte at offset `at` of the data, below its size. */
const struct export_tensor *export_tensor_at(const struct export_file *f, uint64_t at);

/* Writes the file name of a shard; n is the count of shards. */
void export_shard_name(uint32_t shard, uint32_t n, char out[EXPORT_NAME_MAX]);

/* Converts n elements of a tensor, which are aligned: float32, float16 and bfloat16 to each
 * other, other dtypes to themselves.
 */
void export_convert(const struct export_tensor *x, void *to, const void *from, uint64_t n);

#endif
