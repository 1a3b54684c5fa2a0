/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RANKS_JOB_H
#define RANKS_JOB_H

/* A made-up job: W ranks in this process over the loop transport, turned by hand in an order
 * drawn from a seed (printed; TEST_SEED=N gives it again).  Each rank registers what a trainer
 * would, filled with known bits; -0.0 and signalling NaNs are among them, and JOB_PADDING where
 * nothing belongs.
 *
 *	static const struct job_param params[] = { { "a.w", .ndim = 2, .shape = { 5, 3 } } };
 *	static const struct job_group groups[] = { { .stage = 2, .nparams = 1, .params = { 0 } } };
 *	struct job job;
 *
 *	job_open(&job, &(struct job_spec){ .world = 3, JOB_PARAMS(params), JOB_GROUPS(groups) });
 *	frag_get(job_frag(&job, 1), job_number(&job, 1, 0), "fp32", out, bytes);
 *	job_boundary(&job);  job_check(&job);
 *	job_close(&job);
 *
 * While a rank's call waits, all engines are turned: no other rank has to call anything.
 */

#include "engine/api/api.h"
#include "tests/ranks/hidden.h"

enum {
	JOB_PARAMS_MAX = 16,
	JOB_GROUPS_MAX = 8,
	JOB_STATES_MAX = 8,
	JOB_WORLD_MAX = 16,
	JOB_PADDING = 0xa5, /* each byte */
	JOB_WAIT_MS = 60000,
};

struct job_param {
	const char *name;
	const char *coordinate;
	uint32_t ndim;
	uint64_t shape[4];
	unsigned flags;        /* FRAG_FROZEN */
	enum frag_dtype dtype; /* 0: FRAG_BF16 */
};

struct job_group {
	int stage;
	enum frag_sharding sharding;
	unsigned flags;
	uint32_t replicas;
	uint64_t sub_group_size;
	uint32_t nranks; /* 0: all */
	uint32_t ranks[JOB_WORLD_MAX];
	uint32_t nparams;
	uint32_t params[JOB_PARAMS_MAX]; /* numbers in job_spec.params */
};

enum job_how {
	JOB_KEEP,      /* frag_state_keep */
	JOB_ALLOC,     /* frag_state_alloc */
	JOB_SWAP,      /* frag_state_swap, in a folder of the test's; slices of 4096 bytes */
	JOB_WHOLE,     /* frag_state_keep_whole */
	JOB_FRAGMENTS, /* frag_fragment_keep */
};

struct job_key {
	const char *key;
	enum frag_dtype dtype;
	enum job_how how;
};

enum job_lp {
	JOB_LP_FITTING,
	JOB_LP_NONE,
	JOB_LP_WHOLE,
	JOB_LP_SHARD,
	JOB_LP_BOTH,
	JOB_LP_SWAP, /* pieces, by frag_params_swap; with a key that is JOB_SWAP */
};

struct job_spec {
	uint32_t world;
	uint32_t hosts; /* rank r is on host r % hosts; 0: one, all memory in reach */
	const struct job_param *params;
	uint32_t nparams;
	const struct job_group *groups;
	uint32_t ngroups;
	const struct job_key
		*keys; /* NULL: fp32, grad, exp_avg, exp_avg_sq, all float32, JOB_KEEP */
	uint32_t nkeys;
	const struct transport_ops *messages; /* NULL: transport_loop */
	enum job_lp lp; /* FITTING: pieces in stage 3 and FSDP2, else whole */
	bool on_device; /* all memory of the trainer's is of device rank % 2, by device_host */
	const struct device_ops *device_ops; /* which does as device_host does; NULL: that */
	struct frag_devices devices;         /* but for its number and stream */
};

#define JOB_PARAMS(a) .params = (a), .nparams = ARRAY_SIZE(a)
#define JOB_GROUPS(a) .groups = (a), .ngroups = ARRAY_SIZE(a)
#define JOB_KEYS(a) .keys = (a), .nkeys = ARRAY_SIZE(a)

struct job_memory { /* one buffer of one rank */
	enum state_kind kind;
	uint32_t group, sub, key;
	int param; /* of the job: STATE_LP, STATE_LP_SHARD, JOB_FRAGMENTS; else -1 */
	bool library;
	bool swapped; /* bytes_at: a copy, as it was when it was last looked at */
	uint64_t bytes;
	uint8_t *bytes_at;
	bool on_device; /* bytes_at is where the test has the same bytes */
	struct hidden hidden;
};

struct job_rank {
	struct frag *f;
	struct device_host_stream
		*stream; /* on which it changes what is on its device; NULL: nothing is */
	int param[JOB_PARAMS_MAX]; /* the rank's number; -1: it does not have it */
	int group[JOB_GROUPS_MAX];
	struct job_memory *memory;
	uint32_t nmemory;
};

struct job {
	struct job_spec spec; /* its arrays are copies */
	struct job_param params[JOB_PARAMS_MAX];
	struct job_group groups[JOB_GROUPS_MAX];
	struct job_key keys[JOB_STATES_MAX];
	struct job_rank ranks[JOB_WORLD_MAX];
	uint8_t *truth[JOB_PARAMS_MAX][JOB_STATES_MAX + 1]; /* whole tensors; the last is lp */
	uint64_t random;
};

/* Aborts the test when anything fails; all ranks have joined when it returns. */
void job_open(struct job *job, const struct job_spec *spec);
void job_close(struct job *job);
/* One rank goes, without a word. */
void job_close_rank(struct job *job, uint32_t rank);
/* Another process of it, which the others have not heard of; of rank 0 they know where they
 * find it.
 */
void job_start_again(struct job *job, uint32_t rank);

/* Every engine once, in an order of its own each time. */
void job_turn(struct job *job);
/* A number below n, of the seed. */
uint32_t job_random(struct job *job, uint32_t n);

struct frag *job_frag(struct job *job, uint32_t rank);
int job_number(struct job *job, uint32_t rank, uint32_t param);
uint64_t job_numel(struct job *job, uint32_t param);
enum frag_dtype job_dtype(struct job *job, uint32_t param, const char *key);
uint64_t job_bytes(struct job *job, uint32_t param, const char *key);
bool job_rank_has_group(struct job *job, uint32_t rank, uint32_t group);
int job_group_of(struct job *job, uint32_t param); /* -1: none */

/* What the tensor ought to be; job_expect: from now on. */
const void *job_truth(struct job *job, uint32_t param, const char *key);
void job_expect(struct job *job, uint32_t param, const char *key, const void *value);
/* The same of the low-precision parameter, after its master was set to value. */
void job_expect_lp_of(struct job *job, uint32_t param, const void *master);

/* A buffer of the rank, for partitions and whole states; NULL: none. */
struct job_memory *job_memory(struct job *job, uint32_t rank, uint32_t group, uint32_t sub,
			      const char *key);

/* A buffer of JOB_SWAP: what it is now, into bytes_at. */
void job_look(struct job *job, uint32_t rank, const struct job_memory *m);

/* All ranks pass one: edits are applied. */
void job_boundary(struct job *job);
void job_grads_valid(struct job *job);
void job_grads_gone(struct job *job);

/* Every buffer of every rank is, bit for bit and with its padding, what it ought to be. */
void job_check(struct job *job);

/* Bits for a value of that many elements: numbers, -0.0, signalling NaNs, infinities. */
void job_fill(void *to, enum frag_dtype dtype, uint64_t numel, uint64_t seed);

#endif
