/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FRAG_H
#define FRAG_H

/* libfrag: shows the sharded state of a training job, so that `fragfs HOST:PORT /frag` can
 * mount it and ranks can read and write each other's.  One struct frag per process, one process
 * per rank.
 *
 *	struct frag *f;
 *
 *	frag_open(&f, NULL);				 rank, world, address from the environment
 *	for (i = 0; i < n; i++)
 *		param[i] = frag_param(f, &(struct frag_tensor){ sizeof(struct frag_tensor), ... });
 *	group = frag_group(f, param, n, &(struct frag_zero){ sizeof(struct frag_zero), .stage = 2 });
 *	frag_state_alloc(f, group, 0, "fp32", FRAG_F32, &master);
 *	frag_state_keep(f, group, 0, "exp_avg", FRAG_F32, my_buffer);
 *	frag_ready(f);					 from here on it can be mounted
 *	for (;;) {
 *		frag_grads_gone(f);   backward();   frag_grads_valid(f, loss_scale);
 *		frag_step_begin(f);   adam();       frag_step_end(f);
 *	}
 *	frag_close(f);
 *
 * Errors.  Functions return 0 (or what they say) or -errno, and leave a line on stderr where
 * the cause is not the caller's argument.  A job must never stop for this library: when
 * frag_open fails it sets *f to NULL, and every function takes a NULL f: it does nothing and
 * returns -EINVAL. After fork the child's f is dead: its calls return -EINVAL and touch
 * nothing.
 *
 * Threads.  One thread at a time may be inside a frag_ call of one f (the trainer's, as a
 * rule), beside the engine's own thread, which blocks all signals.
 *
 * Memory.  Arguments are borrowed for the call.  Memory given to a ..._keep function or as lp
 * stays the caller's and must stay mapped until it is dropped; if it is freed early, readers
 * get EFAULT, nothing crashes.  Memory from frag_state_alloc is the library's until frag_close.
 *
 * States on NVMe (frag_state_swap) are nobody's memory: they visit it in slices
 * (frag_sweep_begin).  The calls that copy find them like others: frag_get, frag_set,
 * frag_local_get and so on.
 *
 * Units.  numel, offsets in partitions and in parameters are elements; bytes are named so.
 * Structs begin with their size, set by the caller, so that later versions can append to them.
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define FRAG_API __attribute__((visibility("default")))
#else
#define FRAG_API
#endif

struct frag;

enum frag_dtype {
	FRAG_F32 = 1,
	FRAG_F64,
	FRAG_F16,
	FRAG_BF16,
	FRAG_F8_E4M3,
	FRAG_F8_E5M2,
	FRAG_I8,
	FRAG_I16,
	FRAG_I32,
	FRAG_I64,
	FRAG_U8,
	FRAG_BOOL,
	FRAG_U16,
	FRAG_U32,
	FRAG_U64,
	FRAG_C32,
	FRAG_C64,
	FRAG_C128,
	FRAG_F8_E4M3FNUZ,
	FRAG_F8_E5M2FNUZ,
	FRAG_F8_E8M0,
};

enum {
	FRAG_NAME_MAX = 1023, /* bytes of a parameter's name */
	FRAG_KEY_MAX = 63, /* bytes of a state's key, a coordinate, a hyper-parameter's name */
	FRAG_DIMS_MAX = 16,
	FRAG_PARAMS_MAX = 4 << 20, /* of a job */
	FRAG_GROUPS_MAX = 65536,
	FRAG_WORLD_MAX = 65536,
};

/* Bytes of one element; 0: no such dtype.  Any thread. */
FRAG_API size_t frag_dtype_size(enum frag_dtype dtype);
/* "float32", "bfloat16" ...; "?": no such dtype.  Any thread. */
FRAG_API const char *frag_dtype_name(enum frag_dtype dtype);
FRAG_API const char *frag_version(void);

/* ---- a rank ---- */

/* What is 0 or NULL comes from the environment (man frag(3) has the table). */
struct frag_config {
	size_t size;             /* sizeof(struct frag_config) */
	const char *rank;        /* decimal text, so that 0 can be told from unset */
	uint32_t world;          /* ranks of the job */
	const char *job;         /* job id */
	const char *master_addr; /* where rank 0 listens */
	uint16_t port;
	const char *key_file;
	const char *swap_dir;    /* where states may live on NVMe; none: nowhere */
	uint64_t pinned_mem;     /* bytes of memory that they visit in */
	const char *swap_config; /* path of a file of DeepSpeed's sections */
	uint64_t swap_max;       /* bytes of their file; three times the states' */
};

/* -EINVAL: no rank or world to be found, or they contradict; -EBUSY: a second frag_open;
 * -EADDRINUSE; -EEXIST: a job of that name of this user has its rank 0 here; -EACCES: key file
 * readable by others; others of socket(2), mmap(2). Waits for nobody: finding the other ranks
 * goes on in the engine's thread.
 */
FRAG_API int frag_open(struct frag **f, const struct frag_config *config);
/* Of the trainer's process alone; a forked child's copy stays as it is.  Tells the other ranks,
 * and waits 0.3 s for them at most.
 */
FRAG_API void frag_close(struct frag *f);

FRAG_API int frag_rank(const struct frag *f);
FRAG_API int frag_world(const struct frag *f);

/* ---- what this rank has; all before frag_ready, states also after it ---- */

enum {
	FRAG_FROZEN = 1 << 0, /* requires_grad is False: no fragment, no states */
};

struct frag_tensor {
	size_t size;            /* sizeof(struct frag_tensor) */
	const char *name;       /* "layers.17.mlp.up.weight"; unique together with coordinate */
	const char *coordinate; /* "tp=1", "ep=3,tp=0"; NULL: none */
	enum frag_dtype dtype;  /* of the low-precision parameter */
	uint32_t ndim;
	const uint64_t *shape; /* [ndim] of the whole parameter (of this coordinate) */
	void *lp;              /* the whole low-precision parameter on this rank, or NULL */
	void *lp_shard; /* stage 3, FSDP2: this rank's piece of it, padded (ceil), or NULL */
	unsigned flags;
};

/* Returns the parameter's number, 0, 1, 2 ... in order of calls.
 * -EINVAL, -EEXIST: (name, coordinate) given twice; -EOVERFLOW: bytes do not fit 63 bits.
 */
FRAG_API int frag_param(struct frag *f, const struct frag_tensor *tensor);

enum frag_sharding {
	FRAG_ZERO,  /* as stage says */
	FRAG_FSDP2, /* rows of dimension 0, torch.chunk; stage is not looked at */
};

enum {
	FRAG_ROUND_ROBIN = 1 << 0, /* stages 1 and 2: round_robin_gradients */
};

struct frag_zero {
	size_t size; /* sizeof(struct frag_zero) */
	int stage;   /* 0 to 3; BF16_Optimizer has the layout of stage 1 */
	enum frag_sharding sharding;
	const uint32_t
		*ranks; /* [nranks] that share the group, of replica 0 first; NULL: all */
	uint32_t nranks;
	uint32_t replicas;       /* HSDP: nranks / replicas shards; 0 and 1: no replicas */
	uint64_t sub_group_size; /* stage 3, elements of a shard; 0: 1000000000 */
	unsigned flags;
};

/* An optimizer's param group: params[n] in its order.  Returns its number, 0, 1, 2 ...
 * All ranks of zero->ranks must give the same group, in the same order of calls among them.
 * -EINVAL: a parameter twice or unknown, this rank not among ranks, nranks not a multiple of
 * replicas.
 */
FRAG_API int frag_group(struct frag *f, const int *params, size_t n,
			const struct frag_zero *zero);

/* How many sub-groups, and elements of this rank's flat partition of one, padding included.
 * 0: no such group.
 */
FRAG_API uint32_t frag_sub_groups(const struct frag *f, int group);
FRAG_API uint64_t frag_partition_numel(const struct frag *f, int group, uint32_t sub);

/* Where a parameter lies in this rank's partition (DeepSpeed's lp and hp fragment_address). */
struct frag_fragment {
	uint32_t group;
	uint32_t sub;
	uint64_t partition_offset;
	uint64_t param_offset;
	uint64_t numel;
};

/* -ENOENT: nothing of it on this rank. */
FRAG_API int frag_fragment(const struct frag *f, int param, struct frag_fragment *fragment);

/* A partition-shaped state: "fp32" (the master), "grad", or an optimizer's key; not one that a
 * mount has a file of beside it (lp, bf16, fp16, shape, dtype, numel, group, group_index,
 * fragments): -EINVAL, as for frag_state_keep_whole and frag_fragment_keep. alloc: zeroed
 * memory of the library, in huge pages where the machine gives them. keep: the caller's memory,
 * partition_numel elements. -EINVAL, -ENOENT: no such group or sub-group; -EEXIST: the key is
 * there; -ENOMEM.
 */
FRAG_API int frag_state_alloc(struct frag *f, int group, uint32_t sub, const char *key,
			      enum frag_dtype dtype, void **memory);
FRAG_API int frag_state_keep(struct frag *f, int group, uint32_t sub, const char *key,
			     enum frag_dtype dtype, void *memory);

/* The same for a state that every rank holds for the whole group, unsharded and in the order of
 * the flat tensor (stages 0 to 2; BF16_Optimizer's gradients): frag_flat_numel elements.
 */
FRAG_API int frag_state_keep_whole(struct frag *f, int group, const char *key,
				   enum frag_dtype dtype, void *memory);
FRAG_API uint64_t frag_flat_numel(const struct frag *f, int group);

/* One parameter's fragment in memory of its own (FSDP2, lists of gradients): frag_fragment's
 * numel elements.  All parameters of the group that have a fragment here need one before they
 * can be read.
 */
FRAG_API int frag_fragment_keep(struct frag *f, int param, const char *key,
				enum frag_dtype dtype, void *memory);

/* Forgets a state; memory of frag_state_alloc is freed.  -ENOENT; -EBUSY: inside a sweep. */
FRAG_API int frag_state_drop(struct frag *f, int group, uint32_t sub, const char *key);

/* A hyper-parameter of a group, shown as groups/<g>/<name>; an edit writes *value at a
 * boundary.
 */
FRAG_API int frag_hyper(struct frag *f, int group, const char *name, double *value);

/* Memory that other ranks may read with frag_peer_read, under a name of this rank's own. */
FRAG_API int frag_publish(struct frag *f, const char *name, void *memory, uint64_t bytes);

/* What was given above is complete.  -EINVAL: it contradicts itself (the line says where).
 * Returns at once; mounts are admitted when all ranks have come.
 */
FRAG_API int frag_ready(struct frag *f);

/* ---- the step.  Cheap when nobody looks: a few atomic stores, no system call. ---- */

FRAG_API int frag_grads_gone(struct frag *f);
/* They are not changed until frag_grads_gone.  Called again before: the loss scale is another.
 */
FRAG_API int frag_grads_valid(struct frag *f, double loss_scale);
/* Boundaries: pending edits of state are applied inside these three.  They are counted, and an
 * edit names one: all ranks must pass the same ones in the same order.
 */
FRAG_API int frag_step_begin(struct frag *f);
FRAG_API int frag_step_end(struct frag *f);
FRAG_API int frag_safe_point(struct frag *f);

/* ---- reading and writing whole parameters, from any one rank, with nobody's help ----
 *
 * key: "fp32", "grad", an optimizer's key, or "lp" for the low-precision parameter. Bytes are
 * copied, never computed with: -0.0 and signalling NaNs arrive as they are. -ENOENT: no such
 * key; -ENODATA: gradients are not valid now; -EIO: an owner is lost; -ETIMEDOUT; -EINVAL: no
 * such parameter, or bytes is not its size; -EAGAIN: not all ranks have joined yet.
 */
FRAG_API int64_t frag_get_bytes(struct frag *f, int param, const char *key);
FRAG_API int frag_get(struct frag *f, int param, const char *key, void *out, uint64_t bytes);
FRAG_API int frag_get_range(struct frag *f, int param, const char *key, uint64_t offset,
			    void *out, uint64_t bytes);

/* Scatters value to every holder; "fp32" refreshes the low-precision copies too.  One rank
 * calls. Returns when every holder has it staged and all ranks have agreed on a boundary to
 * come, at which all of them, this one too, apply it.  On error nobody keeps it. Gradients: for
 * those that are valid now; where all pass no boundary before frag_grads_gone, nobody applies
 * it.
 */
FRAG_API int frag_set(struct frag *f, int param, const char *key, const void *value,
		      uint64_t bytes);

/* update(arg, param, grad, numel) for each full gradient as float32, then written back: one
 * transaction for all.  -ENODATA: they are not valid now; -EINVAL: a parameter unknown or
 * twice.
 */
typedef void (*frag_grad_update)(void *arg, int param, float *grad, uint64_t numel);
FRAG_API int frag_update_grads(struct frag *f, const int *params, size_t n,
			       frag_grad_update update, void *arg);

/* This rank's own fragment, at once; bytes is the fragment's.  set of "fp32" leaves the
 * low-precision parameter: frag_update_lp.  -ENOENT: nothing of it on this rank, or no such
 * key; -ENODATA: gradients are not valid now; -EINVAL: bytes; -EFAULT: the memory is gone.
 */
FRAG_API int frag_local_get(struct frag *f, int param, const char *key, void *out,
			    uint64_t bytes);
FRAG_API int frag_local_set(struct frag *f, int param, const char *key, const void *value,
			    uint64_t bytes);

/* The fragment's own memory in the flat state: numel of frag_fragment.  Of a state on NVMe:
 * while a sweep, or frag_params_in, has it in; -EOPNOTSUPP: none has, or it lies in two slices.
 */
FRAG_API int frag_local_view(struct frag *f, int param, const char *key, void **memory,
			     enum frag_dtype *dtype);

/* Keys of the states a parameter has on this rank, NUL-terminated, sorted; returns how many
 * there are, at most max are written.
 */
FRAG_API int frag_state_keys(struct frag *f, int param, char (*keys)[FRAG_KEY_MAX + 1],
			     int max);

/* Copies this rank's fragment lp -> master (widening) or master -> lp (nearest even).  -ENOENT:
 * it has not both; -EOPNOTSUPP: lp is neither bfloat16, float16 nor of the master's dtype;
 * -EFAULT.
 */
FRAG_API int frag_update_hp(struct frag *f, int param);
FRAG_API int frag_update_lp(struct frag *f, int param);

/* Builds a partition state from per-parameter pieces (DeepSpeed's map_to_flat_opt_states):
 * pieces[i] is the fragment of the group's i-th parameter, frag_fragment's numel elements, or
 * NULL; gaps and padding become 0.  The state is registered by frag_state_alloc if it is not
 * there. -EINVAL: n is not the group's, or the state has another dtype; -EEXIST: it is a whole
 * state.
 */
FRAG_API int frag_state_from_fragments(struct frag *f, int group, uint32_t sub, const char *key,
				       enum frag_dtype dtype, const void *const *pieces,
				       size_t n);

/* ---- the files of DeepSpeed's optimizer swapper (NVMe, ZeRO stage 3) ---- */

struct frag_swp {
	size_t size; /* sizeof(struct frag_swp) */
	/* This rank's: NVME_PATH/zero_stage_3/optimizer/rank0 of a run,
	 * CHECKPOINT/TAG/offloaded_tensors/rank00 of what it has saved.
	 */
	const char *folder;
	/* [frag_param calls] DeepSpeed's numbers of the parameters (ds_id), by which it calls
	 * sub-groups; NULL: as they were given to frag_param, which is right where that was the
	 * order of model.parameters().
	 */
	const uint64_t *numbers;
	uint64_t
		smallest; /* bytes of a state that DeepSpeed swaps: its block_size, if above 1 MiB; 0: 1 MiB */
	unsigned
		threads; /* its intra_op_parallelism, by which it pads; 0: 1; import takes any */
};

/* Masters and optimizer states of this rank's sub-groups from the files there, which are left
 * as they are; a state that is not there is allocated as by frag_state_alloc, float32.  To be
 * called where the trainer may change states.  Returns how many files; -ENOENT, -EINVAL, -ELOOP
 * ...: one is missing, or not what it must be, and nothing has changed; a line says which.
 * -EIO: what was read before is changed.
 */
FRAG_API int64_t frag_swp_import(struct frag *f, const struct frag_swp *swp);
/* Writes them, so that DeepSpeed would take them: each file whole, or as it was.  Smaller ones
 * it keeps elsewhere.
 */
FRAG_API int64_t frag_swp_export(struct frag *f, const struct frag_swp *swp);

/* ---- an arena: low-precision parameters in one run of memory, one arena a rank ----
 *
 * Blocks are got and released in any order; what is free becomes one run again by
 * frag_arena_compact, which moves blocks, and with them the parameters that are assigned to
 * them, in steps as small as the trainer likes. Readers see a parameter's values all the time,
 * in files that are open too. -ENOENT: there is no arena, or no such block (any more).
 */
enum {
	FRAG_SHARD =
		1 << 0, /* this rank's piece of a parameter (lp_shard), not the whole (lp) */
};

struct frag_arena {
	size_t size; /* sizeof(struct frag_arena) */
	uint64_t
		bytes; /* rounded up to a multiple of 256, as blocks are, where they begin too */
	/* NULL, or called by frag_arena_compact, without which nothing moves, for each
	 * parameter (param, flags) that lies at memory now.  It must not call frag_arena_
	 * functions.
	 */
	void (*moved)(void *arg, int param, unsigned flags, void *memory);
	void *arg;
};

/* Zeroed memory of the library until frag_arena_close.  -EEXIST: there is one; -EINVAL: no
 * bytes; -ENOMEM.
 */
FRAG_API int frag_arena_open(struct frag *f, const struct frag_arena *arena);
/* Parameters in it have no low-precision values on this rank any more. */
FRAG_API int frag_arena_close(struct frag *f);

/* -ENOSPC: less is free; -EAGAIN: enough, but not in one run: frag_arena_compact; -EINVAL: 0
 * bytes; -ENOMEM.
 */
FRAG_API int frag_arena_alloc(struct frag *f, uint64_t bytes, uint64_t *block);
/* And what is assigned to it has no low-precision values on this rank any more.  -EBUSY:
 * pinned.
 */
FRAG_API int frag_arena_release(struct frag *f, uint64_t block);
/* The same of the block that the parameter is assigned to. */
FRAG_API int frag_arena_release_param(struct frag *f, int param, unsigned flags);

/* Where the block is until frag_arena_compact is called next; while it is pinned, then too.
 * -EAGAIN: half of it has been moved, the next frag_arena_compact goes on with it.
 */
FRAG_API int frag_arena_memory(struct frag *f, uint64_t block, void **memory, uint64_t *bytes);
/* A pinned block stays where it is, and is unpinned as often.  -EAGAIN: half of it has been
 * moved; -EINVAL: it is not pinned.
 */
FRAG_API int frag_arena_pin(struct frag *f, uint64_t block);
FRAG_API int frag_arena_unpin(struct frag *f, uint64_t block);

/* The parameter's low-precision values come to lie at offset (bytes) of the block: those it has
 * on this rank are copied there, and its lp or lp_shard is the caller's again; has it none, it
 * gets what is there.  -EEXIST: it is assigned; -EINVAL: no such parameter, it does not fit
 * there, or offset is no multiple of an element; -EAGAIN: as frag_arena_memory; -EFAULT: where
 * it was is no memory; -ENOENT also: FRAG_SHARD of one without a group; -ENOMEM.
 */
FRAG_API int frag_arena_assign(struct frag *f, int param, unsigned flags, uint64_t block,
			       uint64_t offset);
/* It has no low-precision values on this rank any more.  -ENOENT: it is not assigned. */
FRAG_API int frag_arena_unassign(struct frag *f, int param, unsigned flags);
/* As frag_arena_memory; *block: which it is assigned to; may be NULL. */
FRAG_API int frag_arena_find(struct frag *f, int param, unsigned flags, uint64_t *block,
			     void **memory);

/* Moves blocks until want bytes are free in one run, as few bytes as it can, or, want 0, until
 * all are, but for what pinned ones keep apart; most bytes (at least 256) in this call.
 * Returns how many it has moved; 0: there is nothing to do.  A plan that is begun is carried
 * out, whatever a later call wants, unless an allocation needs what it keeps free.  -ENOSPC:
 * less than want is free; -EBUSY: pinned blocks are in the way; -EINVAL; -ENOMEM.
 */
FRAG_API int64_t frag_arena_compact(struct frag *f, uint64_t want, uint64_t most);

struct frag_arena_figures {
	size_t size; /* sizeof(struct frag_arena_figures), set by the caller; bytes in what follows */
	uint64_t bytes;
	uint64_t used, used_max; /* in blocks, now and at most */
	uint64_t free, largest;  /* in all, and in one run */
	uint64_t blocks, holes;  /* how many */
	uint64_t moved;          /* by frag_arena_compact, ever */
};

/* Takes longer the more blocks there are. */
FRAG_API int frag_arena_figures(struct frag *f, struct frag_arena_figures *figures);

/* ---- states on NVMe: where FRAG_SWAP_DIR or the config says that there are ----
 *
 *	frag_state_swap(f, group, 0, "fp32", FRAG_F32);	 and so on
 *	frag_step_begin(f);
 *	frag_sweep_begin(f, group, 0, (struct frag_swept[]){ { "fp32" }, { "exp_avg" }, { "exp_avg_sq" },
 *							     { "grad", FRAG_READ_ONLY } }, 4, &sweep);
 *	while (frag_sweep_next(sweep, &first, &numel, memory) == 1)
 *		adam(memory[0], memory[1], memory[2], memory[3], numel);
 *	frag_sweep_end(sweep);
 *	frag_step_end(f);
 *
 * Readers see what was changed in a step from frag_step_end on, all of it together, and until
 * then what was there before; what was changed outside of one from the next frag_grads_valid or
 * boundary on.  What cannot be written to the disk stays in memory, as much as FRAG_PINNED_MEM
 * again, and the job goes on; then calls end with the disk's errno. frag_step_end, _step_begin
 * and _safe_point with such an errno, or -EBUSY, inside a sweep that changes states, have
 * passed their boundary all the same, but readers go on with the generation before, all of it,
 * and frag_grads_valid has not said that gradients are: each next of these calls tries once
 * more to have all that was changed become what they see.
 */

/* As frag_state_alloc, of a state that lives in a file in the swap directory.  It is all 0.
 * Elements have at most 8 bytes. -EOPNOTSUPP: this rank has no swap directory.
 */
FRAG_API int frag_state_swap(struct frag *f, int group, uint32_t sub, const char *key,
			     enum frag_dtype dtype);

enum {
	FRAG_SWEEP_MAX = 16,
	/* flags of struct frag_swept */
	FRAG_READ_ONLY = 1 << 0,  /* what is changed in memory is forgotten */
	FRAG_WRITE_ONLY = 1 << 1, /* memory has any content, and becomes the state's */
};

struct frag_swept {
	const char *key;
	unsigned flags;
};

struct frag_sweep;

/* Goes through states of one partition, slice by slice, all of them at the same elements; the
 * next slices are read, and those before written, meanwhile.  States in memory may be among
 * them: they are visited where they are.  One sweep at a time. -EINVAL: n is 0 or above
 * FRAG_SWEEP_MAX, a key twice, or in pieces, or states on NVMe whose elements have 8 bytes with
 * others; -ENOENT: no such state; -EBUSY: there is a sweep; -ENOBUFS: less pinned memory than a
 * slice of each; -ENOMEM.
 */
FRAG_API int frag_sweep_begin(struct frag *f, int group, uint32_t sub,
			      const struct frag_swept *states, size_t n,
			      struct frag_sweep **sweep);
/* The next sweep will be of the same states of that partition, frag_sweep_begin's with the same
 * arguments: its first slices are read while the last of this one are in.  To be called once
 * frag_sweep_begin has returned.  Its errors; another sweep may be begun all the same.
 */
FRAG_API int frag_sweep_then(struct frag_sweep *sweep, int group, uint32_t sub);
/* Takes the last slice back, and gives the next: elements [*first, *first + *numel) of
 * states[i] at memory[i], the caller's until the next call.  1; 0: that was all. -ENOSPC, -EIO
 * and others: not all of the last slice could be taken back: memory[i] is NULL of those states
 * that were, and the others are still the caller's.  -EIO: the next is damaged on the disk;
 * -ENOMEM; -ETIMEDOUT: memory[i] is NULL of all states on NVMe.  It may be called again.
 */
FRAG_API int frag_sweep_next(struct frag_sweep *sweep, uint64_t *first, uint64_t *numel,
			     void **memory);
/* What is in when frag_sweep_next has not returned 0 is forgotten.  NULL is allowed. */
FRAG_API void frag_sweep_end(struct frag_sweep *sweep);

enum {
	FRAG_ADD = 1 << 0, /* flag of frag_state_put: added to what is there, of float32 */
};

/* Elements [first, first + numel) of this rank's partition state become values, or have them
 * added: gradients, range by range, as they come.  Of the state's dtype.  The state may be in
 * memory. -EINVAL: not inside; -ENOENT; -EOPNOTSUPP: FRAG_ADD, and it is not float32; -EBUSY: a
 * sweep, also one that frag_sweep_then names, has it in; -EFAULT; of a state on NVMe also
 * errors of frag_sweep_next.  After an error some of the values may have been put, or added.
 */
FRAG_API int frag_state_put(struct frag *f, int group, uint32_t sub, const char *key,
			    uint64_t first, const void *values, uint64_t numel, unsigned flags);
/* All of it becomes 0.  -ENOENT; -EBUSY: a sweep has it in; -EFAULT. */
FRAG_API int frag_state_clear(struct frag *f, int group, uint32_t sub, const char *key);

/* ---- pieces of low-precision parameters on NVMe (stage 3, FSDP2) ----
 *
 *	frag_params_swap(f, params, n, NULL);		 what lp_shard was may be freed
 *	for (i = 0; i < n; i++) {
 *		frag_params_in(f, &params[i], 1, &memory);
 *		frag_params_ahead(f, &params[i + 1], ...);
 *		gather(memory);   forward();
 *		frag_params_out(f, &params[i], 1, 0);
 *	}
 *
 * Pieces come in whole, padding included, into pinned buffers; those that are named one after
 * the other share one while they fit, and so come in together.  Those of fewer bytes than a
 * state that leaves memory stay there, and are treated alike. Readers see the values all the
 * time.
 */

/* This rank's pieces of params, in the order in which they will be used, live on NVMe from now
 * on.  values[i]: what it is, in any memory, lent for the call; where that, or values, is NULL:
 * what is in its lp_shard, which is the caller's again unless the piece stays in memory; where
 * there is none: its master as frag_update_lp converts it, or 0. -EINVAL: unknown, or of no
 * group whose parameters are cut; -EEXIST: one is there already, or twice; -EBUSY: in an arena;
 * -EFAULT; -ENOMEM; -EOPNOTSUPP: this rank has no swap directory; errors of frag_state_put.
 * Then some of them may be there.
 */
FRAG_API int frag_params_swap(struct frag *f, const int *params, size_t n,
			      const void *const *values);
/* memory[i]: params[i]'s piece, the caller's until it is out as often.  An edit changes it
 * there at a boundary.  Waits for what is being written.  -ENOENT: one is not on NVMe;
 * -ENOBUFS: they need more pinned memory than there is, a line says how much, and nothing is
 * in; -EIO: damaged on the disk; -ENOMEM; -ETIMEDOUT.
 */
FRAG_API int frag_params_in(struct frag *f, const int *params, size_t n, void **memory);
/* Begins to read what is not in, in this order, as far as there are buffers that nobody needs,
 * and waits for nothing. Returns how many of the first are in or on their way.  -ENOENT.
 */
FRAG_API int frag_params_ahead(struct frag *f, const int *params, size_t n);

enum {
	FRAG_CHANGED =
		1 << 0, /* flag of frag_params_out: the memory is what they are now; else it is
			* forgotten once all are out that share its buffer */
};

/* -ENOENT; -EINVAL: one is not in.  -ENOSPC and others: they are out, but readers see what they
 * were until there is room: frag_swap_flush and the next calls of these try again.
 */
FRAG_API int frag_params_out(struct frag *f, const int *params, size_t n, unsigned flags);
/* Elements [first, first + numel) of this rank's piece become values, whether it is in or not,
 * on NVMe or not.  -EINVAL: not inside; -ENOENT: it has no piece here; -EFAULT; errors of
 * frag_state_put.
 */
FRAG_API int frag_param_put(struct frag *f, int param, uint64_t first, const void *values,
			    uint64_t numel);

/* Returns when all that was changed is on the disk; what could not be written is tried again:
 * 0, or the errno of what still cannot.  -ETIMEDOUT.
 */
FRAG_API int frag_swap_flush(struct frag *f, unsigned timeout_ms);

/* ---- states in memory of devices: CUDA's, loaded at run time ----
 *
 *	frag_devices(f, &(struct frag_devices){ sizeof(struct frag_devices), .number = device, .stream = stream });
 *	frag_state_keep(f, group, 0, "fp32", FRAG_F32, device_pointer);
 *
 * What the trainer has enqueued on its stream before frag_grads_valid or a boundary is what
 * readers see from there on. They have it copied by a stream of the library's; the trainer
 * waits for no reader.
 */

struct frag_devices {
	size_t size;  /* sizeof(struct frag_devices) */
	int number;   /* of a device, as its runtime counts */
	void *stream; /* on which the trainer changes states there; NULL: the default stream */
	unsigned timeout_ms; /* a device that does not go on for so long is given up; 0: 10 s */
	/* For what open files still need of states that are about to change: at most so many
	 * bytes of a device's memory, 0: 256 MiB, taken when they are needed, or, where the
	 * driver has no memory pools, now; and where these do not do, of pinned memory of the
	 * host, at most 1 GiB, taken now, in whole MiB.  Where there is no room such a file
	 * ends with ESTALE.
	 */
	uint64_t keep, keep_host;
};

/* From here on lp, lp_shard and memory given to frag_state_keep, _keep_whole,
 * frag_fragment_keep and frag_publish may be that device's; for each device before the first
 * memory of it.  Called again for a device: states change on another stream, what it has been
 * given so far before.  The device is to be the current one. -ENODEV: there are no devices, or
 * no driver; a line says why, and the job goes on.  -EINVAL: no such device; -ENOMEM, -EIO.
 */
FRAG_API int frag_devices(struct frag *f, const struct frag_devices *devices);

/* ---- between ranks ---- */

/* Reads what rank published.  -EAGAIN: it has not come yet, or has not published name. */
FRAG_API int frag_peer_read(struct frag *f, int rank, const char *name, uint64_t offset,
			    void *out, uint64_t bytes);

/* Returns 0 when all ranks have called it as often.  -ETIMEDOUT: the log names ranks that have
 * not; this one has, and is to call it again; -EIO: a rank is lost.  A rank whose process was
 * started again is to call this with the others before they train on: from then on its counts
 * are theirs.
 */
FRAG_API int frag_barrier(struct frag *f, unsigned timeout_ms);

/* All ranks of the parameter's group call it at the same place, and each has the whole state in
 * out: bytes as frag_get's.  By the ranks' devices where all pieces, and all ranks' out, are
 * their memory and they are connected; else each rank reads. Bounded: -ETIMEDOUT: a rank has
 * not come, or not joined, within timeout_ms, or a device did not go on; -EIO: one is lost;
 * -EINVAL: they have called it for different states; -ENOENT: the parameter is in no group;
 * others of frag_get.
 */
FRAG_API int frag_gather(struct frag *f, int param, const char *key, void *out, uint64_t bytes,
			 unsigned timeout_ms);

/* All ranks of the parameter's group call it at the same place, and all of the state becomes
 * root's value, bytes as frag_get's; others' value is not looked at.  As frag_set by root
 * alone, but what others hold of it goes to them by the ranks' devices where these are
 * connected; value may be memory of root's device.  0: all have agreed on a boundary to come at
 * which they apply it. Else nobody does: -ETIMEDOUT: a rank has not come, or not joined, within
 * timeout_ms, as one whose own call was wrong (-EINVAL, -ENOENT: it returns at once); -EIO: one
 * is lost; -EINVAL: they have called it for different states or roots; -ENOENT: the parameter
 * is in no group; others of frag_set.  Where a rank is lost after all have come, that is, with
 * -EIO or -ETIMEDOUT, all may apply it, or nobody.
 */
FRAG_API int frag_scatter(struct frag *f, int param, const char *key, int root,
			  const void *value, uint64_t bytes, unsigned timeout_ms);

/* Begins to fetch a whole state into out, the library's until it has come, and returns a
 * number; training goes on.  Where all pieces and out are devices' memory, and the devices are
 * connected, their ranks send them at one boundary to come, as they are there; else, and when
 * that fails, frag_fetched reads them.  -EBUSY: FRAG_FETCHES_MAX are under way; as frag_get.
 */
enum { FRAG_FETCHES_MAX = 16 };
FRAG_API int frag_fetch(struct frag *f, int param, const char *key, void *out, uint64_t bytes);
/* -EAGAIN: its boundary is yet to come; 0: there it is, and the number is free; -ENOENT: no
 * such number; as frag_get.
 */
FRAG_API int frag_fetched(struct frag *f, int number);

/* "HOST:PORT" to mount; NULL until it is known.  The library's. */
FRAG_API const char *frag_address(const struct frag *f);

#ifdef __cplusplus
}
#endif

#endif
