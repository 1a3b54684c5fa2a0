/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RANKS_JOB_H
#define RANKS_JOB_H

/* A job of several ranks in this process, over the loop transport.  Tests turn the engines, in
 * an order drawn from a seed (printed; TEST_SEED=N repeats it).  Each rank registers the memory
 * of a trainer, filled with the bits of whole tensors that the job knows, its truth.  -0.0 and
 * signalling NaNs are among them, and padding is JOB_PADDING.
 *
 *	static const struct job_param params[] = { { "a.w", .ndim = 2, .shape = { 5, 3 } } };
 *	static const struct job_group groups[] = { { .stage = 2, .nparams = 1 } };
 *	struct job job;
 *
 *	job_open(&job, &(struct job_spec){ .world = 3, JOB_PARAMS(params),
 *					   JOB_GROUPS(groups) });
 *	frag_get(job_frag(&job, 1), job_number(&job, 1, 0), "fp32", out, bytes);
 *	job_boundary(&job);
 *	job_check(&job);
 *	job_close(&job);
 *
 * While a rank's call waits, it turns all engines.
 */

#include "engine/api/api.h"
#include "tests/ports/transport-loop.h"
#include "tests/ranks/hidden.h"

enum {
	JOB_PARAMS_MAX = 16,
	JOB_GROUPS_MAX = 8,
	JOB_STATES_MAX = 8,
	JOB_WORLD_MAX = 16,
	JOB_PADDING = 0xa5, /* the byte of padding */
	JOB_WAIT_MS = 60000,
};

struct job_param {
	const char *name;
	const char *coordinate;
	uint32_t ndim;
	uint64_t shape[4];
	unsigned flags;        /* FRAG_FROZEN */
	enum frag_dtype dtype; /* 0: FRAG_BF16 */
	uint32_t ncuts;
	/* [ncuts]; parts 0: as many as the shards of the group leave */
	struct frag_cut cuts[2];
};

struct job_group {
	int stage;
	enum frag_sharding sharding;
	unsigned flags;
	uint32_t replicas;
	uint64_t sub_group_size;
	uint32_t alignment; /* FSDP1 */
	uint32_t nranks;    /* 0: all ranks */
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
	JOB_LP_SWAP, /* pieces, by frag_params_swap; only with a key that is JOB_SWAP */
};

struct job_spec {
	uint32_t world;
	uint32_t hosts; /* rank r is on host r % hosts; 0 means 1: all memory is in reach */
	const struct job_param *params;
	uint32_t nparams;
	const struct job_group *groups;
	uint32_t ngroups;
	const struct job_key
		*keys; /* NULL: fp32, grad, exp_avg, exp_avg_sq, all float32, JOB_KEEP */
	uint32_t nkeys;
	const struct transport_ops *messages; /* NULL: transport_loop */
	enum job_lp lp; /* FITTING: pieces in stage 3 and FSDP2, else whole */
	bool on_device; /* the trainer's memory of rank r is on device r % 2 */
	const struct device_ops *device_ops; /* NULL: device_host */
	struct frag_devices devices;         /* of all ranks; number and stream are set here */
	double in_memory;                    /* as in struct swap_config; with JOB_SWAP */
	bool fast_init;
};

#define JOB_PARAMS(a) .params = (a), .nparams = ARRAY_SIZE(a)
#define JOB_GROUPS(a) .groups = (a), .ngroups = ARRAY_SIZE(a)
#define JOB_KEYS(a) .keys = (a), .nkeys = ARRAY_SIZE(a)

struct job_memory { /* one buffer of one rank */
	enum state_kind kind;
	uint32_t group, sub, key;
	/* number in the job of the parameter of STATE_LP, STATE_LP_SHARD, JOB_FRAGMENTS; else
	 * -1
	 */
	int param;
	bool library; /* allocated by the library */
	bool swapped; /* on NVMe: bytes_at is a copy, made by the last job_look */
	uint64_t bytes;
	uint8_t *bytes_at;
	bool on_device; /* bytes_at is the test's copy of hidden */
	struct hidden hidden;
};

struct job_rank {
	struct frag *f;
	struct device_host_stream
		/* for changes of the memory of rank's device; NULL: the rank has no device */
		*stream;
	/* the rank's numbers of the job's parameters; -1: the rank lacks it */
	int param[JOB_PARAMS_MAX];
	int group[JOB_GROUPS_MAX];
	struct job_memory *memory;
	uint32_t nmemory;
};

struct job {
	struct job_spec spec; /* the spec; its arrays are copies */
	struct job_param params[JOB_PARAMS_MAX];
	struct job_group groups[JOB_GROUPS_MAX];
	struct job_key keys[JOB_STATES_MAX];
	struct job_rank ranks[JOB_WORLD_MAX];
	/* For a parameter with cuts: the element of the whole tensor at each place of stored
	 * order, and how many elements the shards before a shard have; else NULL.
	 */
	uint64_t *stored[JOB_PARAMS_MAX];
	uint64_t start[JOB_PARAMS_MAX][JOB_WORLD_MAX + 1];
	uint8_t *truth[JOB_PARAMS_MAX][JOB_STATES_MAX + 1]; /* whole tensors; the last is lp */
	uint64_t random;
};

/* Functions abort the test on an error. */

/* Returns when all ranks have joined. */
void job_open(struct job *job, const struct job_spec *spec);
void job_close(struct job *job);
/* Ends a rank as a kill would: the others are not told. */
void job_close_rank(struct job *job, uint32_t rank);
/* Starts the next process of a rank; the others are not told, except for the address of rank 0.
 */
void job_start_again(struct job *job, uint32_t rank);

/* Opens an observer on that host, and calls turn until the observer has joined; turn is also
 * what the observer calls while it waits.
 */
void job_observe(struct job *job, struct engine **observer, const char *host,
		 void (*turn)(void *));

/* Returns true if all ranks are in one communicator. */
bool job_is_connected(struct job *job);

/* Turns every engine once, in a random order. */
void job_turn(struct job *job);
/* Returns a random number below n, drawn from the seed. */
uint32_t job_random(struct job *job, uint32_t n);

struct frag *job_frag(struct job *job, uint32_t rank);
int job_number(struct job *job, uint32_t rank, uint32_t param);
uint64_t job_numel(struct job *job, uint32_t param);
enum frag_dtype job_dtype(struct job *job, uint32_t param, const char *key);
uint64_t job_bytes(struct job *job, uint32_t param, const char *key);
bool job_rank_has_group(struct job *job, uint32_t rank, uint32_t group);
int job_group_of(struct job *job, uint32_t param); /* -1: the parameter is in no group */

/* Returns the bits that the whole tensor ought to have. */
const void *job_truth(struct job *job, uint32_t param, const char *key);
/* Changes the truth of a state to value. */
void job_expect(struct job *job, uint32_t param, const char *key, const void *value);
/* Changes the truth of the low-precision parameter to master, converted. */
void job_expect_lp_of(struct job *job, uint32_t param, const void *master);

/* Returns the rank's buffer of a partition or a whole state; NULL: it has none. */
struct job_memory *job_memory(struct job *job, uint32_t rank, uint32_t group, uint32_t sub,
			      const char *key);

/* Copies the bytes of a JOB_SWAP buffer, as they are now, to bytes_at. */
void job_look(struct job *job, uint32_t rank, const struct job_memory *m);

/* Lets all ranks pass a boundary, at which edits are applied. */
void job_boundary(struct job *job);
void job_grads_valid(struct job *job);
void job_grads_gone(struct job *job);

/* Compares every buffer of every rank with the truth, bit for bit, padding too. */
void job_check(struct job *job);

/* Fills `to` with numel elements: numbers, -0.0, signalling NaNs, infinities. */
void job_fill(void *to, enum frag_dtype dtype, uint64_t numel, uint64_t seed);

#endif
