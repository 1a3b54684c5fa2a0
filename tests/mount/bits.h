/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_BITS_H
#define MOUNT_BITS_H

/* The parts of bits-job: what every tensor ought to be (memory shared by launcher and ranks),
 * and a rank, which keeps its own copies of its pieces and compares.
 */

#include "engine/base/base.h"
#include "engine/frag.h"

#include <stdatomic.h>

enum {
	BITS_PARAMS_MAX = 8,
	BITS_KEYS_MAX = 3,
	BITS_LP = BITS_KEYS_MAX, /* the key after the last */
	BITS_WORLD_MAX = 8,
	BITS_LINE = 256,
	BITS_WAIT_MS = 60000,
	BITS_PADDING = 0xa5,
};

struct bits_param {
	const char *name;
	uint32_t ndim;
	uint64_t shape[3];
};

struct bits_shared {
	_Atomic bool dead[BITS_WORLD_MAX];
	_Atomic uint64_t steps[BITS_WORLD_MAX]; /* that a rank has trained */
};

struct bits_job {
	int stage; /* 4: FSDP2 */
	bool cuts; /* along the last dimension, in worlds of 4, 6 and 8 also along the first */
	uint32_t world;
	bool even;
	const struct bits_param *params;
	uint32_t nparams, nkeys;
	uint32_t
		nfrozen; /* the last parameters: in no group, whole on every rank, bf16 alone */
	struct bits_shared *shared;
	uint8_t *truth[BITS_PARAMS_MAX][BITS_KEYS_MAX + 1];
};

extern const char *const bits_keys[BITS_KEYS_MAX + 1];

_Noreturn void bits_fail(const char *why);
uint64_t bits_numel(const struct bits_param *p);

/* The box of a cut parameter that a rank holds: indices [from, to) of each dimension. */
struct bits_box {
	uint64_t from[3], to[3];
};
/* Returns how many steps cut the parameter: 0: it lies in rows. */
uint32_t bits_cuts(const struct bits_job *job, uint32_t param, struct frag_cut cuts[2]);
struct bits_box bits_box(const struct bits_job *job, uint32_t param, uint32_t rank);
uint64_t bits_box_numel(const struct bits_job *job, uint32_t param, const struct bits_box *box);
/* Returns the number in the whole parameter of element i of the box. */
uint64_t bits_box_at(const struct bits_job *job, uint32_t param, const struct bits_box *box,
		     uint64_t i);
static inline uint64_t bits_element(uint32_t key)
{
	return key == BITS_LP ? 2 : 4;
}
uint64_t bits_mix(uint64_t x);
uint16_t bits_bf16(uint32_t f32);

void bits_new(struct bits_job *job, const char *layout, uint32_t world, const char *set);

/* answer: "ok", or what is wrong. */
void bits_expect(struct bits_job *job, const char *param, const char *key, const char *file,
		 char *answer);
void bits_change(struct bits_job *job, const char *param, const char *key, uint64_t offset,
		 const char *file, char *answer);
void bits_ranges(struct bits_job *job, const char *file, const char *param, const char *key,
		 uint64_t n, uint64_t seed, char *answer);

/* A rank, until its input ends. */
int bits_be_rank(struct bits_job *job, uint32_t rank, int in, int out);

#endif
