/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FRAG_H
#define FRAG_H

/* libfrag: shows the sharded state of a training job, so that `fragfs HOST:PORT /frag` can
 * mount it, and ranks can read and write each other's.  One process is one rank and has one
 * struct frag.
 *
 *	struct frag *f;
 *	struct frag_tensor tensor = { sizeof(tensor), .name = "w", .dtype = FRAG_BF16, ... };
 *	struct frag_zero zero = { sizeof(zero), .stage = 2 };
 *
 *	frag_open(&f, NULL);			rank, world, address from the environment
 *	param[0] = frag_param(f, &tensor);	and so on
 *	group = frag_group(f, param, n, &zero);
 *	frag_state_alloc(f, group, 0, "fp32", FRAG_F32, &master);
 *	frag_state_keep(f, group, 0, "exp_avg", FRAG_F32, my_buffer);
 *	frag_ready(f);				from here on it can be mounted
 *	for (;;) {
 *		frag_grads_gone(f);   backward();   frag_grads_valid(f, loss_scale);
 *		frag_step_begin(f);   adam();       frag_step_end(f);
 *	}
 *	frag_close(f);
 *
 * Errors.  Functions return 0 (or what they say) or -errno, and leave a line on stderr where
 * the cause is not the caller's argument.  A job must never stop for this library: when
 * frag_open fails it sets *f to NULL, and every function takes a NULL f: it does nothing and
 * returns -EINVAL.  After fork the child's f is dead: its calls do the same.
 *
 * Threads.  One thread at a time may be inside a frag_ call of one f (the trainer's, as a
 * rule), beside the engine's own thread, which blocks all signals.
 *
 * Memory.  Arguments are borrowed for the call.  Memory given to a ..._keep function or as lp
 * stays the caller's and must stay mapped until it is dropped; if it is freed early, readers
 * get EFAULT and nothing crashes.  Memory from frag_state_alloc is the library's until
 * frag_close.  A state on NVMe (frag_state_swap) has no address: its slices visit pinned
 * memory (frag_sweep_begin), and the calls that copy, such as frag_get or frag_local_set, work
 * on it as on any other.  Such a state, and one of frag_state_alloc without an address, moves
 * between NVMe, memory and a device of frag_devices when a mount says so, inside a boundary at
 * which no sweep is open.
 *
 * Units.  numel, and offsets in partitions and in parameters, are elements; bytes are named so.
 * Structs begin with their size, set by the caller, so that later versions can append to them.
 *
 * Words.  lp: the low-precision parameter that the model computes with.  Master, or hp: its
 * float32 copy in the optimizer, key "fp32".  Partition: the part of a group's flat tensor that
 * one rank has.  Fragment: the part of one parameter in a partition.  Boundary: a call of
 * frag_step_begin, frag_step_end or frag_safe_point.
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
	FRAG_CUTS_MAX = 8, /* of a parameter */
};

/* Bytes of one element; 0: no such dtype.  Any thread. */
FRAG_API size_t frag_dtype_size(enum frag_dtype dtype);
/* "float32", "bfloat16" ...; "?": no such dtype.  Any thread. */
FRAG_API const char *frag_dtype_name(enum frag_dtype dtype);
FRAG_API const char *frag_version(void);
/* Returns the newest line that a frag_ call of this thread has left on stderr since the last
 * frag_error of the thread, without its prefix; "": none.  The line is the reason where such a
 * call has failed.  The text is valid until the thread's next frag_error.  Any thread.
 */
FRAG_API const char *frag_error(void);

enum {
	FRAG_LOG_ERROR,
	FRAG_LOG_WARN,
	FRAG_LOG_INFO,
	FRAG_LOG_DEBUG,
	FRAG_LOG_TRACE,
};

/* Gives the lines of this process's library, up to the level of FRAG_LOG, to `line` in place of
 * stderr; NULL: to stderr again.  A thread of the library calls it, which holds none of its
 * locks, with one line at a time: `text` without prefix and newline, the library's again when
 * line returns.  Beyond 1024 lines that wait the oldest are left out.  frag_log returns when
 * the function that was given before has had all lines until now and is not called any more.
 * To be called by one thread at a time, at any time, also before frag_open; a forked child's
 * lines go to stderr until it calls frag_log itself.
 * -EDEADLK: called by line.
 * Errors of pthread_create.
 */
typedef void (*frag_log_line)(void *arg, int level, const char *text);
FRAG_API int frag_log(frag_log_line line, void *arg);

/* ---- a rank ---- */

/* A field that is 0 or NULL is taken from the environment (frag(3) has the table). */
struct frag_config {
	size_t size;             /* sizeof(struct frag_config) */
	const char *rank;        /* decimal text, so that 0 can be told from unset */
	uint32_t world;          /* ranks of the job */
	const char *job;         /* job id */
	const char *master_addr; /* host on which rank 0 listens */
	uint16_t port;           /* of rank 0 */
	const char *key_file;    /* the job's key, readable by its owner alone */
	const char *swap_dir;    /* folder for states on NVMe; unset: they cannot be there */
	uint64_t pinned_mem;     /* bytes of locked memory that such states visit */
	const char *swap_config; /* path of a JSON file with DeepSpeed's swap sections */
	uint64_t swap_max;       /* bytes on NVMe; unset: three times those of the states */
};

/* Starts the engine's thread, which looks for the other ranks; waits for none of them.
 * -EINVAL: rank or world is not given, or two sources contradict each other.
 * -EBUSY: the process has an open struct frag.
 * -EADDRINUSE: rank 0 cannot have its port.
 * -EEXIST: a running job of this user has this job id on this host.
 * -EACCES: the key file is readable by others.
 * Other errors are those of socket(2) and mmap(2).
 */
FRAG_API int frag_open(struct frag **f, const struct frag_config *config);
/* Tells ranks and mounts that this rank leaves, and waits at most 0.3 s for them to hear it;
 * rank 0 first waits up to 1 s for the others to leave.  Does nothing in a forked child.
 */
FRAG_API void frag_close(struct frag *f);

FRAG_API int frag_rank(const struct frag *f);
FRAG_API int frag_world(const struct frag *f);

/* ---- what this rank has: described before frag_ready; states may change later ---- */

enum {
	FRAG_FROZEN = 1 << 0, /* requires_grad is False: no fragment, no states */
};

/* One step in cutting a parameter: divides what the steps before have left along dimension dim,
 * as torch.chunk does.
 */
struct frag_cut {
	uint32_t dim;
	uint32_t parts;
};

struct frag_tensor {
	size_t size;            /* sizeof(struct frag_tensor) */
	const char *name;       /* "layers.17.mlp.up.weight"; unique together with coordinate */
	const char *coordinate; /* "tp=1", "ep=3,tp=0"; NULL: none */
	enum frag_dtype dtype;  /* of lp */
	uint32_t ndim;
	const uint64_t *shape; /* [ndim] of the whole parameter (of this coordinate) */
	void *lp;              /* the whole low-precision parameter on this rank, or NULL */
	void *lp_shard;        /* stage 3, FSDP2: this rank's piece of it, padded, or NULL */
	unsigned flags;        /* FRAG_FROZEN */
	/* [ncuts] FSDP2: how the group's shards cut the parameter (DTensor's Shard(dim), also
	 * several in a device mesh).  A shard's number is that of its part in cuts[0], times
	 * cuts[1].parts, plus that in cuts[1], and so on.  ncuts 0: rows of dimension 0.  A
	 * parameter with cuts has no lp, and its lp_shard has no padding.
	 */
	const struct frag_cut *cuts;
	uint32_t ncuts;
};

/* Describes a parameter.  Returns its number: 0, 1, 2 ... in the order of calls.
 * -EINVAL: a field is wrong; a cut names no dimension of the shape or makes no part; the cuts
 * are more than FRAG_CUTS_MAX, or make more than FRAG_WORLD_MAX parts; a parameter with cuts
 * has lp.
 * -EEXIST: (name, coordinate) was given before.
 * -EOVERFLOW: its bytes do not fit 63 bits.
 */
FRAG_API int frag_param(struct frag *f, const struct frag_tensor *tensor);

enum frag_sharding {
	FRAG_ZERO, /* as stage says */
	/* Rows of dimension 0, as torch.chunk cuts them, or as a parameter's cuts say; stage is
	 * ignored.
	 */
	FRAG_FSDP2,
	/* The flat tensor of one FlatParameter, cut into equal partitions: its parameters in
	 * their order, each at a multiple of zero->alignment elements; stage is ignored.
	 */
	FRAG_FSDP1,
};

enum {
	FRAG_ROUND_ROBIN = 1 << 0, /* stages 1 and 2: round_robin_gradients */
	FRAG_ALIGNED = 1 << 1,     /* stages 1 and 2: parameter_alignment, of 16 bytes of lp */
};

struct frag_zero {
	size_t size; /* sizeof(struct frag_zero) */
	int stage;   /* 0 to 3; BF16_Optimizer has the layout of stage 1 */
	enum frag_sharding sharding;
	const uint32_t *ranks;   /* [nranks] that share the group, replica 0 first; NULL: all */
	uint32_t nranks;         /* a multiple of replicas */
	uint32_t replicas;       /* HSDP: nranks / replicas shards; 0 and 1: no replicas */
	uint64_t sub_group_size; /* stage 3, elements of a shard; 0: 1000000000 */
	unsigned flags;          /* FRAG_ROUND_ROBIN, FRAG_ALIGNED */
	uint32_t alignment;      /* FSDP1, elements; 0 and 1: there are no gaps */
};

/* Describes an optimizer's param group: params[n] in its order.  Returns the group's number:
 * 0, 1, 2 ...  All ranks of zero->ranks must describe the same groups in the same order.
 * -EINVAL: a parameter is unknown, given twice or in another group; its cuts make another
 * number of parts than there are shards, or the group is not FRAG_FSDP2; this rank is not among
 * ranks, or one of these is given twice or is none of the job's; nranks is not a multiple of
 * replicas; stage or sharding is wrong.
 */
FRAG_API int frag_group(struct frag *f, const int *params, size_t n,
			const struct frag_zero *zero);

/* Number of the group's sub-groups; elements of this rank's flat partition of one, padding
 * included.  0: no such group.
 */
FRAG_API uint32_t frag_sub_groups(const struct frag *f, int group);
FRAG_API uint64_t frag_partition_numel(const struct frag *f, int group, uint32_t sub);

/* Position of a parameter in this rank's partition (DeepSpeed's lp and hp fragment_address).
 * param_offset of a parameter with cuts: the elements of all shards before.
 */
struct frag_fragment {
	uint32_t group;
	uint32_t sub;
	uint64_t partition_offset;
	uint64_t param_offset;
	uint64_t numel;
};

/* -ENOENT: this rank has no fragment of the parameter. */
FRAG_API int frag_fragment(const struct frag *f, int param, struct frag_fragment *fragment);

/* Registers a partition-shaped state.  key is "fp32" (the master), "grad", or an optimizer's
 * own, such as "exp_avg"; not the name of another file that a mount has beside it (lp, bf16,
 * fp16, shape, dtype, numel, group, group_index, fragments).
 *
 * frag_state_alloc gives zeroed memory of the library, in huge pages where the machine has
 * them; with memory NULL it gives no address: sweeps visit the state, and a mount may move it
 * to NVMe, or a device, and back (fragctl place).  frag_state_keep takes memory of the caller:
 * partition_numel elements; NULL declares the state, whose memory frag_state_move will bring.
 * -EINVAL: the key is one of those files', or another argument is wrong.
 * -ENOENT: no such group or sub-group.
 * -EEXIST: the key is registered.
 * -ENOMEM.
 */
FRAG_API int frag_state_alloc(struct frag *f, int group, uint32_t sub, const char *key,
			      enum frag_dtype dtype, void **memory);
FRAG_API int frag_state_keep(struct frag *f, int group, uint32_t sub, const char *key,
			     enum frag_dtype dtype, void *memory);

/* Registers a state that every rank holds for the whole group, unsharded and in the order of
 * the flat tensor (stages 0 to 2; BF16_Optimizer's gradients): frag_flat_numel elements.
 * Errors are those of frag_state_keep.
 */
FRAG_API int frag_state_keep_whole(struct frag *f, int group, const char *key,
				   enum frag_dtype dtype, void *memory);
FRAG_API uint64_t frag_flat_numel(const struct frag *f, int group);

/* Registers one parameter's fragment in memory of its own (FSDP2, lists of gradients):
 * frag_fragment's numel elements.  The state can be read when all parameters of the group that
 * have a fragment here have theirs.  Errors are those of frag_state_keep.
 */
FRAG_API int frag_fragment_keep(struct frag *f, int param, const char *key,
				enum frag_dtype dtype, void *memory);
/* frag_fragment_keep of n parameters: memory[i] for params[i]; memory NULL declares the state,
 * whose fragments may still be kept.  After an error some may have been registered.
 */
FRAG_API int frag_fragments_keep(struct frag *f, const int *params, size_t n, const char *key,
				 enum frag_dtype dtype, void *const *memory);

/* Gives a state of frag_state_keep or frag_state_keep_whole other memory, of as many elements;
 * frag_fragments_move does so for states of frag_fragment_keep, where memory[i] is for
 * params[i].  NULL (memory, or memory[i]): the state has no memory now.  The old memory is the
 * caller's again.  Gradients that are new tensors in each step are declared once, without
 * memory, and moved before each frag_grads_valid.  A state other than gradients may get other
 * values between frag_step_begin and frag_step_end only.  A reader of a state without memory
 * gets -ENODATA, or waits, if the state is gradients that are not valid now.  All bytes of a
 * state that was moved go to readers by message, also on this host.
 * -ENOENT: no such state, or this rank has no fragment of a parameter.
 * -EINVAL: memory is for all of a state in pieces, or for a piece of one that is not, or is on
 * another device than the state's other pieces.
 * -EBUSY: a sweep visits it.
 * -EOPNOTSUPP: the state is frag_state_alloc's, or on NVMe.
 * -ENOMEM.
 * After an error some of the parameters may have been moved.
 */
FRAG_API int frag_state_move(struct frag *f, int group, uint32_t sub, const char *key,
			     void *memory);
FRAG_API int frag_fragments_move(struct frag *f, const int *params, size_t n, const char *key,
				 void *const *memory);

/* Gives a parameter's low-precision values other memory, with NULL none for now: with flags 0
 * the lp of frag_param, with FRAG_SHARD the lp_shard, whether there was one or not.
 * -ENOENT: memory is NULL and there were none; FRAG_SHARD of a parameter that is not cut, or of
 * which this rank has no element.
 * -EINVAL: no such parameter; flags 0 of a parameter with cuts, which has no lp; memory is on
 * another device than before.
 * -EOPNOTSUPP: the values are in an arena, or on NVMe.
 * -ENOSPC: too many states.
 * -ENOMEM.
 */
FRAG_API int frag_lp_move(struct frag *f, int param, unsigned flags, void *memory);

/* Forgets a state, and frees its memory if it is frag_state_alloc's.
 * -ENOENT: no such state.
 * -EBUSY: a sweep visits it.
 */
FRAG_API int frag_state_drop(struct frag *f, int group, uint32_t sub, const char *key);

/* Shows a hyper-parameter of a group as groups/G/NAME.  An edit of that file writes *value at a
 * boundary.
 */
FRAG_API int frag_hyper(struct frag *f, int group, const char *name, double *value);
/* Shows a hyper-parameter of a group whose value the trainer's own functions get and set.  get
 * is called in this call and before each boundary (frag_step_begin, frag_step_end,
 * frag_safe_point), which shows readers what it returns; set is called with an edit's value
 * before the boundary returns at which the edit was applied.  Both are called in the thread
 * that makes the frag_ call, which holds no lock of the library then.  They may call
 * frag_state_drop, frag_state_move, frag_fragments_move, frag_lp_move and frag_grads_gone of f,
 * as finalizers of memory do, and no other function that takes f.  get, set and arg stay the
 * caller's, and are used until frag_close.  get NULL: arg is the double itself, as in
 * frag_hyper.
 * -EINVAL: no such group; a wrong name; set is NULL; get and arg are NULL.
 * -EEXIST: the group shows that name already.
 * -ENOMEM.
 */
typedef double (*frag_hyper_get)(void *arg);
typedef void (*frag_hyper_set)(void *arg, double value);
FRAG_API int frag_hyper_calls(struct frag *f, int group, const char *name, frag_hyper_get get,
			      frag_hyper_set set, void *arg);

/* Lets other ranks read memory by frag_peer_read, under a name of this rank's own. */
FRAG_API int frag_publish(struct frag *f, const char *name, void *memory, uint64_t bytes);

/* Says that parameters and groups are complete.  Returns at once; mounts are admitted when all
 * ranks have called it.
 * -EINVAL: the description contradicts itself; the line on stderr says where.
 */
FRAG_API int frag_ready(struct frag *f);
/* Waits until all ranks have called frag_ready: from then on mounts are admitted, and
 * frag_address is known on every rank.
 * -ETIMEDOUT: a rank has not called it within timeout_ms.
 * -EACCES: rank 0 has another key.
 * -EPROTO: rank 0 speaks another version of the protocol, or breaks it.
 * -EINVAL: the ranks' descriptions contradict each other.
 * -EEXIST: a parameter's name and coordinate are given twice.
 * -ENOMEM.
 * After each but -ETIMEDOUT this rank cannot join its job any more; the log says why.
 */
FRAG_API int frag_wait_ready(struct frag *f, unsigned timeout_ms);

/* ---- the step: a few atomic stores and no system call, when nobody reads or writes ---- */

/* Gradients will change: readers no longer get them. */
FRAG_API int frag_grads_gone(struct frag *f);
/* Counts a window of gradients that this rank does not show: in place of frag_grads_valid and
 * frag_grads_gone, where to register them takes time and frag_asked says that nobody looks.
 * Readers wait for the next window.
 */
FRAG_API int frag_grads_skip(struct frag *f);
/* Returns 1 if another rank has ever asked for this rank's states, or for an edit or a freeze,
 * or a mount has and some mount has been heard within the last 10 s, else 0: then nobody reads
 * any.  fd < 0: one load.  fd >= 0: the library writes 8 bytes, once, to a copy of fd, such as
 * an eventfd or a pipe: now, if it returns 1; else when somebody asks next, who is answered
 * 0.1 s later, or at frag_close.  A later call replaces the fd.
 * -EBADF: fd is not open.
 * -EMFILE: no descriptor is left for a copy of fd.
 */
FRAG_API int frag_asked(struct frag *f, int fd);
/* Gradients may be read, and stay as they are, until frag_grads_gone; they are to be divided by
 * loss_scale.  Called again before that, it changes the loss scale.
 */
FRAG_API int frag_grads_valid(struct frag *f, double loss_scale);
/* The boundaries.  Edits are applied inside these three calls and nowhere else.  Boundaries are
 * counted, and an edit names one by its number: all ranks must pass the same ones in the same
 * order.
 */
FRAG_API int frag_step_begin(struct frag *f);
FRAG_API int frag_step_end(struct frag *f);
FRAG_API int frag_safe_point(struct frag *f);
/* Has frozen(arg) called in these three calls, in their thread, some 50 times a second while a
 * freeze holds it.  When it returns other than 0, this rank goes on as if it were thawed; the
 * others stand on.  Edits that were agreed on for this boundary are applied before.  frozen may
 * call what set of frag_hyper_calls may.  NULL: no function, as at first.
 */
typedef int (*frag_frozen)(void *arg);
FRAG_API int frag_frozen_call(struct frag *f, frag_frozen frozen, void *arg);

/* ---- whole parameters: one rank calls, the others need do nothing ----
 *
 * key is "fp32", "grad", an optimizer's key, or "lp" for the low-precision parameter.  Bytes
 * are copied and never computed with: -0.0 and signalling NaNs arrive as they are.
 * -ENOENT: no such key.
 * -ENODATA: gradients are not valid now.
 * -EIO: an owner is lost.
 * -ETIMEDOUT: an owner has been silent for too long.
 * -EINVAL: no such parameter, or bytes is not the state's size.
 * -EAGAIN: not all ranks have joined yet.
 */
FRAG_API int64_t frag_get_bytes(struct frag *f, int param, const char *key);
FRAG_API int frag_get(struct frag *f, int param, const char *key, void *out, uint64_t bytes);
FRAG_API int frag_get_range(struct frag *f, int param, const char *key, uint64_t offset,
			    void *out, uint64_t bytes);

/* Sends value to every holder; the low-precision copies follow an edit of "fp32".  Returns when
 * every holder has staged its bytes and all ranks have agreed on a later boundary, at which all
 * of them, this one too, apply them.  After an error no rank applies anything.  An edit of
 * gradients is for those that are valid now: if the ranks pass no boundary before
 * frag_grads_gone, no rank applies it.
 */
FRAG_API int frag_set(struct frag *f, int param, const char *key, const void *value,
		      uint64_t bytes);

/* Calls update(arg, param, grad, numel) for each full gradient as float32, then writes all of
 * them back as one transaction.
 * -ENODATA: gradients are not valid now.
 * -EINVAL: a parameter is unknown or given twice.
 */
typedef void (*frag_grad_update)(void *arg, int param, float *grad, uint64_t numel);
FRAG_API int frag_update_grads(struct frag *f, const int *params, size_t n,
			       frag_grad_update update, void *arg);

/* Copies this rank's own fragment out or in, at once; bytes is the fragment's size.  Setting
 * "fp32" does not change the low-precision parameter: frag_update_lp does.
 * -ENOENT: this rank has no fragment of it, or no such key.
 * -ENODATA: gradients are not valid now.
 * -EINVAL: bytes is not the fragment's size.
 * -EBUSY: a set of a state on a device, of which a sweep has a slice.
 * -EFAULT: the registered memory is not mapped any more.
 */
FRAG_API int frag_local_get(struct frag *f, int param, const char *key, void *out,
			    uint64_t bytes);
FRAG_API int frag_local_set(struct frag *f, int param, const char *key, const void *value,
			    uint64_t bytes);

/* Points *memory at the fragment in the flat state: frag_fragment's numel elements.  A state on
 * NVMe has it only while a sweep or frag_params_in holds it, and one that a mount can move
 * until the next boundary.
 * -EOPNOTSUPP: the state is on NVMe and neither holds it, the fragment lies in two slices, or a
 * mount has moved the state to a device.
 */
FRAG_API int frag_local_view(struct frag *f, int param, const char *key, void **memory,
			     enum frag_dtype *dtype);

/* Writes the keys of the states that a parameter has on this rank, at most max of them, sorted
 * and NUL-terminated.  Returns how many there are.
 */
FRAG_API int frag_state_keys(struct frag *f, int param, char (*keys)[FRAG_KEY_MAX + 1],
			     int max);

/* Copies this rank's fragment: frag_update_hp from lp to the master (widening), frag_update_lp
 * from the master to lp (to nearest, ties to even).
 * -ENOENT: the rank has not both.
 * -EOPNOTSUPP: lp is neither bfloat16, nor float16, nor of the master's dtype.
 * -EBUSY: frag_update_hp, where the master is on a device and a sweep has a slice of it.
 * -EFAULT: the registered memory is not mapped any more.
 */
FRAG_API int frag_update_hp(struct frag *f, int param);
FRAG_API int frag_update_lp(struct frag *f, int param);

/* Builds a partition state from pieces (DeepSpeed's map_to_flat_opt_states): pieces[i] is the
 * fragment of the group's i-th parameter, frag_fragment's numel elements, or NULL; gaps and
 * padding become 0.  Registers the state as frag_state_alloc does if it is not there.
 * -EINVAL: n is not the group's number of parameters, or the state has another dtype.
 * -EEXIST: the key is that of a whole state.
 */
FRAG_API int frag_state_from_fragments(struct frag *f, int group, uint32_t sub, const char *key,
				       enum frag_dtype dtype, const void *const *pieces,
				       size_t n);

/* ---- the files of DeepSpeed's optimizer swapper (NVMe, ZeRO stage 3) ---- */

struct frag_swp {
	size_t size; /* sizeof(struct frag_swp) */
	/* This rank's folder: NVME_PATH/zero_stage_3/optimizer/rank0 of a run, or
	 * CHECKPOINT/TAG/offloaded_tensors/rank00 of a checkpoint.
	 */
	const char *folder;
	/* [calls of frag_param] DeepSpeed's numbers of the parameters (ds_id), after which it
	 * names the files of sub-groups.  NULL: they are in the order of frag_param, as when
	 * that was the order of model.parameters().
	 */
	const uint64_t *numbers;
	/* Bytes of the smallest state that DeepSpeed swaps: its block_size if that is above
	 * 1 MiB; 0: 1 MiB.
	 */
	uint64_t smallest;
	/* DeepSpeed's intra_op_parallelism, by which it pads files; 0: 1.  Import takes any. */
	unsigned threads;
};

/* Reads masters and optimizer states of this rank's sub-groups from these files, and leaves the
 * files as they are; a state that is not registered is allocated as by frag_state_alloc,
 * float32.  To be called where the trainer may change states.  Returns the number of files.
 * -ENOENT: a file is missing.
 * -EINVAL: a file is not what it must be.
 * -ELOOP: a file is a symbolic link.
 * Other errors of open(2): a file cannot be opened.  After these and those above no state has
 * changed, and the line on stderr says which file it was.
 * -EIO: reading failed midway; states of the files before have changed.
 */
FRAG_API int64_t frag_swp_import(struct frag *f, const struct frag_swp *swp);
/* Writes these files so that DeepSpeed can take them; an error leaves each file whole, new or
 * as it was.  States below `smallest` have no file: DeepSpeed keeps those elsewhere.
 */
FRAG_API int64_t frag_swp_export(struct frag *f, const struct frag_swp *swp);

/* ---- an arena: low-precision parameters in one run of memory, one arena a rank ----
 *
 * Blocks are allocated and released in any order.  frag_arena_compact makes the free bytes one
 * run again: it moves blocks, and with them the parameters assigned to them, in steps as small
 * as the trainer likes.  Readers see a parameter's values all the time, also in open files.
 * Blocks begin at, and have, multiples of 256 bytes.
 *
 * flags of these calls: 0 is the whole parameter (lp), FRAG_SHARD this rank's piece (lp_shard).
 * -ENOENT of any call: there is no arena, or no such block any more.
 */
enum {
	FRAG_SHARD = 1 << 0,
};

struct frag_arena {
	size_t size;    /* sizeof(struct frag_arena) */
	uint64_t bytes; /* rounded up to a multiple of 256 */
	/* NULL, or called by frag_arena_compact for each parameter (param, flags) that it has
	 * moved to memory.  It must not call frag_arena_ functions.
	 */
	void (*moved)(void *arg, int param, unsigned flags, void *memory);
	void *arg;
	/* NULL: the arena is zeroed memory of the library.  Else it is this memory of the
	 * caller's, of the host or of a device (frag_devices), as it is, until
	 * frag_arena_close; memory and bytes are multiples of 256.
	 */
	void *memory;
};

/* Makes the arena.
 * -EEXIST: this rank has one.
 * -EINVAL: bytes is 0; memory or bytes is no multiple of 256, or memory is on a device that was
 * not named by frag_devices.
 * -ENOMEM.
 */
FRAG_API int frag_arena_open(struct frag *f, const struct frag_arena *arena);
/* Frees the arena; its parameters have no low-precision values on this rank any more. */
FRAG_API int frag_arena_close(struct frag *f);

/* Cuts a block of bytes out of the arena.
 * -ENOSPC: fewer bytes are free.
 * -EAGAIN: enough bytes are free, but not in one run: call frag_arena_compact.
 * -EINVAL: bytes is 0.
 * -ENOMEM.
 */
FRAG_API int frag_arena_alloc(struct frag *f, uint64_t bytes, uint64_t *block);
/* Frees a block; parameters assigned to it have no low-precision values on this rank any more.
 * -EBUSY: the block is pinned.
 */
FRAG_API int frag_arena_release(struct frag *f, uint64_t block);
/* Frees the block that the parameter is assigned to, as frag_arena_release does. */
FRAG_API int frag_arena_release_param(struct frag *f, int param, unsigned flags);

/* Gives the block's address, which holds until the next frag_arena_compact, and while the block
 * is pinned.
 * -EAGAIN: half of the block has been moved; the next frag_arena_compact goes on with it.
 */
FRAG_API int frag_arena_memory(struct frag *f, uint64_t block, void **memory, uint64_t *bytes);
/* Keeps a block where it is until it has been unpinned as often as pinned.
 * -EAGAIN: half of the block has been moved.
 * -EINVAL: frag_arena_unpin of a block that is not pinned.
 */
FRAG_API int frag_arena_pin(struct frag *f, uint64_t block);
FRAG_API int frag_arena_unpin(struct frag *f, uint64_t block);

/* Puts a parameter's low-precision values at offset (bytes) of a block: values that it has on
 * this rank are copied there, and its lp or lp_shard is the caller's again; a parameter without
 * values takes those that lie there.
 * -EEXIST: the parameter is assigned to a block.
 * -EINVAL: no such parameter; it does not fit there; offset is no multiple of an element.
 * -EAGAIN: half of the block has been moved.
 * -EFAULT: lp or lp_shard is not mapped any more.
 * -ENOENT: also FRAG_SHARD of a parameter without a group.
 * -ENOMEM.
 */
FRAG_API int frag_arena_assign(struct frag *f, int param, unsigned flags, uint64_t block,
			       uint64_t offset);
/* Takes the values away: the parameter has none on this rank any more.
 * -ENOENT: the parameter is not assigned.
 */
FRAG_API int frag_arena_unassign(struct frag *f, int param, unsigned flags);
/* Gives a parameter's block, unless block is NULL, and its address as frag_arena_memory does.
 */
FRAG_API int frag_arena_find(struct frag *f, int param, unsigned flags, uint64_t *block,
			     void **memory);

/* Moves blocks until want bytes are free in one run, and as few bytes as that takes; with want
 * 0 until all free bytes are one run, but for what pinned blocks keep apart.  Moves at most
 * `most` bytes (and at least 256) in a call.  A plan that has begun is carried out, whatever
 * later calls want, unless an allocation takes bytes that it keeps free.
 * Returns how many bytes it has moved; 0: there is nothing to do.
 * -ENOSPC: fewer than want bytes are free.
 * -EBUSY: pinned blocks are in the way.
 * -EIO: the device failed.  Where it lost the bytes of a block, the log says so: the block's
 * parameters are not assigned any more (frag_arena_find: -ENOENT), and have no low-precision
 * values on this rank; the other bytes of the block are undefined.
 * -EINVAL.
 * -ENOMEM.
 */
FRAG_API int64_t frag_arena_compact(struct frag *f, uint64_t want, uint64_t most);

struct frag_arena_figures {
	size_t size;             /* sizeof(struct frag_arena_figures), set by the caller */
	uint64_t bytes;          /* of the arena */
	uint64_t used, used_max; /* bytes in blocks, now and at most */
	uint64_t free, largest;  /* free bytes, in all and in one run */
	uint64_t blocks, holes;  /* how many */
	uint64_t moved;          /* bytes moved by frag_arena_compact, ever */
};

/* Takes time in proportion to the number of blocks. */
FRAG_API int frag_arena_figures(struct frag *f, struct frag_arena_figures *figures);

/* ---- states on NVMe: where FRAG_SWAP_DIR, or swap_dir of the config, names a folder ----
 *
 *	struct frag_swept swept[] = {
 *		{ "fp32" }, { "exp_avg" }, { "exp_avg_sq" }, { "grad", FRAG_READ_ONLY },
 *	};
 *
 *	frag_state_swap(f, group, 0, "fp32", FRAG_F32);	 and so on
 *	frag_step_begin(f);
 *	frag_sweep_begin(f, group, 0, swept, 4, &sweep);
 *	while (frag_sweep_next(sweep, &first, &numel, memory) == 1)
 *		adam(memory[0], memory[1], memory[2], memory[3], numel);
 *	frag_sweep_end(sweep);
 *	frag_step_end(f);
 *
 * Publication.  Changes made inside a step become visible to readers at frag_step_end, all of
 * them together; until then readers see the generation before.  Changes made outside a step
 * become visible at the next frag_grads_valid or boundary.
 *
 * Errors of the disk.  Changes that cannot be written stay in memory, up to FRAG_PINNED_MEM
 * bytes beside the pinned ones, and the job goes on; beyond that calls return the disk's errno.
 * A boundary that returns such an errno, or -EBUSY because a sweep is changing states, has been
 * passed all the same, but readers keep the generation before, all of it.  frag_grads_valid
 * that returns one has not made gradients valid.  Each later one of these calls tries again to
 * publish.
 */

/* Registers a state as frag_state_alloc does, in a file in the swap folder; it is all 0.  A
 * state that is small, or in one of the first sub-groups that the swap config's ratio leaves in
 * memory, is there.
 * -EOPNOTSUPP: this rank has no swap folder.
 * -EINVAL: also elements of more than 8 bytes.
 */
FRAG_API int frag_state_swap(struct frag *f, int group, uint32_t sub, const char *key,
			     enum frag_dtype dtype);

enum {
	FRAG_SWEEP_MAX = 16,
	/* flags of struct frag_swept */
	FRAG_READ_ONLY = 1 << 0,  /* changes of the memory are forgotten */
	FRAG_WRITE_ONLY = 1 << 1, /* memory begins with any content, and replaces the state's */
};

struct frag_swept {
	const char *key;
	unsigned flags;
};

struct frag_sweep;

/* Begins a walk over states of one partition, slice by slice, each slice the same elements of
 * all of them; following slices are read ahead, and slices before are written behind.  States
 * in memory may be among them: they are visited in place, and those that a mount has moved to a
 * device in memory of the host, to which each slice is copied and back.  One sweep at a time.
 * -EINVAL: n is 0 or above FRAG_SWEEP_MAX; a key is given twice; a state is in pieces
 * (frag_fragment_keep); states on NVMe have elements of 8 bytes and of other sizes.
 * -ENOENT: no such state.
 * -EBUSY: another sweep is open.
 * -ENOBUFS: pinned memory has no room for a slice of each.
 * -EOPNOTSUPP: the trainer keeps a state in a device's memory.
 * -ENOMEM.
 */
FRAG_API int frag_sweep_begin(struct frag *f, int group, uint32_t sub,
			      const struct frag_swept *states, size_t n,
			      struct frag_sweep **sweep);
/* Announces the next sweep: of the same states of that partition, to be begun by
 * frag_sweep_begin with the same arguments.  Its first slices are read while the last ones of
 * this sweep are in memory.  A sweep of something else may be begun all the same.  Errors are
 * those of frag_sweep_begin.
 */
FRAG_API int frag_sweep_then(struct frag_sweep *sweep, int group, uint32_t sub);
/* Takes the last slice back, and gives the next one: elements [*first, *first + *numel) of
 * states[i] at memory[i], the caller's until the next call.  Returns 1; 0: there are no more.
 * After an error it may be called again, and memory[i] is NULL for the states whose slice was
 * taken back; the others' are still the caller's.
 * -ENOSPC: the disk has no room for a last slice, which could not be taken back.
 * -EFBIG: nor could it, as the swap file would exceed RLIMIT_FSIZE.
 * -EIO: a last slice could not be taken back; or the next one is damaged on the disk.
 * -ETIMEDOUT: the disk is silent.
 * -ENOMEM.
 */
FRAG_API int frag_sweep_next(struct frag_sweep *sweep, uint64_t *first, uint64_t *numel,
			     void **memory);
/* Ends a sweep.  Changes of a slice that frag_sweep_next has not taken back are forgotten.  A
 * NULL sweep is allowed.
 */
FRAG_API void frag_sweep_end(struct frag_sweep *sweep);

enum {
	FRAG_ADD = 1 << 0, /* flag of frag_state_put: values are added; float32 only */
};

/* Sets elements [first, first + numel) of this rank's partition state to values of its dtype,
 * or adds the values: gradients, range by range, as they come.  The state may be in memory or
 * on NVMe.  After an error some of the values may have been put or added.
 * -EINVAL: the range is not inside the partition.
 * -ENOENT: no such state.
 * -EOPNOTSUPP: FRAG_ADD to a state that is not float32.
 * -EBUSY: a sweep has the state in memory, also one announced by frag_sweep_then.
 * -EFAULT: values, or the state's memory, is not mapped.
 * Errors of frag_sweep_next, for a state on NVMe.
 */
FRAG_API int frag_state_put(struct frag *f, int group, uint32_t sub, const char *key,
			    uint64_t first, const void *values, uint64_t numel, unsigned flags);
/* Sets all of a state to 0.
 * -ENOENT: no such state.
 * -EBUSY: a sweep has the state in memory.
 * -EFAULT: the state's memory is not mapped.
 */
FRAG_API int frag_state_clear(struct frag *f, int group, uint32_t sub, const char *key);

/* ---- leaves: modules whose parameters are used as one ----
 *
 * A module is what parameters' names have before a dot: "layers.0", of "layers.0.mlp.up".
 * frag_params_in and frag_params_ahead of one parameter of a leaf read the others ahead, too:
 * for modules whose parameters are used in another order in each step, as experts are, or are
 * many and small.  The outermost of marked modules that lie in one another is the leaf.
 */

enum frag_leaf_match {
	FRAG_LEAF_NAME,   /* the module's whole name */
	FRAG_LEAF_SUFFIX, /* the end of it: "mlp" names layers.0.mlp, "p" too */
	FRAG_LEAF_GLOB,   /* fnmatch(3), whose * matches dots, too */
};

/* Marks the modules of this rank's parameters that `modules` names, or, with on 0, takes their
 * marks away.  Returns how many these are.  To be called after frag_param; any number of times.
 * -ENOENT: there are none.
 * -EINVAL: modules is "" or NULL, or match is wrong.
 * -ENOMEM.
 */
FRAG_API int frag_leaf(struct frag *f, enum frag_leaf_match match, const char *modules, int on);
/* Writes the parameters of the leaf that param is in, at most max of them: param first, then
 * those described after it, and then those before.  Returns how many there are; 0: param is in
 * none.
 * -EINVAL: no such parameter.
 */
FRAG_API int frag_leaf_params(struct frag *f, int param, int *params, int max);
/* Reads a state of all parameters of param's leaf into out, one behind the other, in the order
 * of frag_leaf_params: as frag_get of each, but by requests of up to 1 MiB and 256 pieces, four
 * at a time, so that small parameters share a round trip.  A parameter with frag_tensor.cuts
 * is read by itself, each shard after the other.  bytes is the size of out, which
 * frag_leaf_get_bytes returns.
 * -ENOENT: param is in no leaf, or one of the leaf's parameters has no such state.
 * Errors of frag_get.
 */
FRAG_API int64_t frag_leaf_get_bytes(struct frag *f, int param, const char *key);
FRAG_API int frag_leaf_get(struct frag *f, int param, const char *key, void *out,
			   uint64_t bytes);

/* ---- low-precision parameters on NVMe: this rank's pieces (stage 3, FSDP2) ----
 *
 *	frag_params_swap(f, params, n, NULL);		 the old lp_shard may then be freed
 *	for (i = 0; i < n; i++) {
 *		frag_params_in(f, &params[i], 1, &memory);
 *		frag_params_ahead(f, &params[i + 1], ...);
 *		gather(memory);   forward();
 *		frag_params_out(f, &params[i], 1, 0);
 *	}
 *
 * A piece comes in whole, padding included, into pinned buffers.  Pieces that are named one
 * after the other share a buffer while they fit, and then come in together.  Pieces of fewer
 * bytes than a state that leaves memory stay in memory, and these calls treat them alike.
 * Readers see the values all the time.
 */

/* Moves this rank's pieces of params to NVMe, in the order in which they will be used.  A
 * piece's values are values[i], in any memory.  Where values or values[i] is NULL, they are
 * those of its lp_shard, which is the caller's again unless the piece stays in memory; without
 * an lp_shard they are its master, converted as by frag_update_lp, or 0.  After an error some
 * pieces may have been moved.
 * -EINVAL: a parameter is unknown, or its group does not cut parameters.
 * -EEXIST: a piece is on NVMe already, or named twice.
 * -EBUSY: a piece is in an arena.
 * -EOPNOTSUPP: this rank has no swap folder.
 * -EFAULT: the memory of the values is not mapped.
 * -ENOMEM.
 * Errors of frag_state_put.
 */
FRAG_API int frag_params_swap(struct frag *f, const int *params, size_t n,
			      const void *const *values);
/* Brings pieces in and waits for them: memory[i] is the piece of params[i], the caller's until
 * frag_params_out was called for it as often as frag_params_in.  An edit changes it there, at a
 * boundary.
 * -ENOENT: a parameter is not on NVMe.
 * -ENOBUFS: the pieces need more pinned memory than there is; the line on stderr says how much;
 * none is in.
 * -EIO: a piece is damaged on the disk.
 * -ETIMEDOUT: the disk is silent.
 * -ENOMEM.
 */
FRAG_API int frag_params_in(struct frag *f, const int *params, size_t n, void **memory);
/* Begins to read pieces that are not in, in this order, as far as there are free buffers.
 * Waits for nothing.  Returns how many of the first ones are in or on their way.
 * -ENOENT: a parameter is not on NVMe.
 */
FRAG_API int frag_params_ahead(struct frag *f, const int *params, size_t n);

enum {
	/* Flag of frag_params_out: the memory has new values.  Without it changes are forgotten
	 * once all pieces that share the buffer are out.
	 */
	FRAG_CHANGED = 1 << 0,
};

/* Gives pieces back.
 * -ENOENT: a parameter is not on NVMe.
 * -EINVAL: a piece is not in.
 * -ENOSPC and others: the pieces are out, but readers see their old values until the new ones
 * can be written; frag_swap_flush and later calls of this section try again.
 */
FRAG_API int frag_params_out(struct frag *f, const int *params, size_t n, unsigned flags);
/* Sets elements [first, first + numel) of this rank's piece, whether it is in or not, on NVMe
 * or not.
 * -EINVAL: the range is not inside the piece.
 * -ENOENT: this rank has no piece of the parameter.
 * -EFAULT: values, or the piece's memory, is not mapped.
 * Errors of frag_state_put.
 */
FRAG_API int frag_param_put(struct frag *f, int param, uint64_t first, const void *values,
			    uint64_t numel);

/* Tries again to write what could not be written, and returns when all changes are on the disk.
 * -ETIMEDOUT: they are not after timeout_ms.
 * Errors of the disk, for what still cannot be written.
 */
FRAG_API int frag_swap_flush(struct frag *f, unsigned timeout_ms);

/* ---- states in memory of devices: CUDA's, loaded at run time ----
 *
 *	struct frag_devices devices = { sizeof(devices), .number = 0, .stream = stream };
 *
 *	frag_devices(f, &devices);
 *	frag_state_keep(f, group, 0, "fp32", FRAG_F32, device_pointer);
 *
 * Work that the trainer has enqueued on its stream before frag_grads_valid or a boundary is in
 * what readers see from there on.  A stream of the library's copies for readers; the trainer
 * waits for none of them.
 */

struct frag_devices {
	size_t size;  /* sizeof(struct frag_devices) */
	int number;   /* the device's, as its runtime counts */
	void *stream; /* on which the trainer changes states; NULL: the default stream */
	/* A device that makes no progress so long is given up, and so is a copy between devices
	 * whose peer makes none: it goes by the host.  0: 10 s for the device, 1 s for a peer.
	 */
	unsigned timeout_ms;
	/* Memory that preserves, for open files, states about to change.  keep: bytes of a
	 * device's memory, 0: 256 MiB, taken when they are needed, or now where the driver has
	 * no memory pools.  keep_host: bytes of the host's pinned memory for what does not fit
	 * there, at most 1 GiB, in whole MiB, taken now.  With no room in either such a file
	 * ends with ESTALE.
	 */
	uint64_t keep, keep_host;
};

/* Lets lp, lp_shard and the memory of frag_state_keep, frag_state_keep_whole,
 * frag_fragment_keep and frag_publish be this device's.  To be called for each device before
 * its first memory is given, while the device is the current one.  A second call for a device
 * names another stream, on which states change from then on, also those whose memory was given
 * before.
 * -ENODEV: no devices or no driver; the line on stderr says why, and the job goes on.
 * -EINVAL: no such device.
 * -ENOMEM.
 * -EIO.
 */
FRAG_API int frag_devices(struct frag *f, const struct frag_devices *devices);

/* ---- between ranks ---- */

/* Reads memory that rank has published.
 * -EAGAIN: the rank has not joined yet, or has not published name.
 */
FRAG_API int frag_peer_read(struct frag *f, int rank, const char *name, uint64_t offset,
			    void *out, uint64_t bytes);

/* Returns 0 when all ranks have called frag_barrier as often.  A rank whose process was started
 * again must call it with the others before they train on: from then on its counts are theirs.
 * -ETIMEDOUT: the log names ranks that have not come.  This rank has come, and must call again.
 * -EIO: a rank is lost.
 */
FRAG_API int frag_barrier(struct frag *f, unsigned timeout_ms);

/* Gathers a whole state into out on every rank; bytes as for frag_get.  All ranks of the
 * parameter's group call it at the same place.  Bytes go from device to device where all pieces
 * and every rank's out are in device memory and the devices are connected; else each rank reads
 * them as frag_get does.
 * -ETIMEDOUT: a rank has not come, or not joined, within timeout_ms, or a device made no
 * progress.
 * -EIO: a rank is lost.
 * -EINVAL: the ranks have called it for different states.
 * -ENOENT: the parameter is in no group.
 * Errors of frag_get.
 */
FRAG_API int frag_gather(struct frag *f, int param, const char *key, void *out, uint64_t bytes,
			 unsigned timeout_ms);

/* Sets all of a state to root's value, which may be in memory of root's device; bytes as for
 * frag_get; the others' value is ignored.  All ranks of the parameter's group call it at the
 * same place.  It does what frag_set by root does, but bytes go by the devices where these are
 * connected.  Returns 0 when all ranks have agreed on a later boundary, at which they apply it.
 * After an error no rank applies it, except as said below of a rank that is lost or silent.
 * -ETIMEDOUT: a rank has not come, or not joined, within timeout_ms; a rank whose own call was
 * wrong has returned at once and counts as one that has not come.
 * -EIO: a rank is lost.  If it was lost, or fell silent, after all had come, either all ranks
 * apply the value or none does.
 * -EINVAL: the ranks have called it for different states or roots.
 * -ENOENT: the parameter is in no group.
 * Errors of frag_set.
 */
FRAG_API int frag_scatter(struct frag *f, int param, const char *key, int root,
			  const void *value, uint64_t bytes, unsigned timeout_ms);

/* Begins to fetch a whole state into out, which is the library's until frag_fetched has
 * returned 0 or an error other than -EAGAIN; training goes on.  Where all pieces and out are in
 * device memory and the devices are connected, the owners send their pieces as they are at one
 * later boundary.  Otherwise, or when that fails, frag_fetched reads them.
 * Returns a number for frag_fetched.
 * -EBUSY: FRAG_FETCHES_MAX fetches are under way.
 * Errors of frag_get.
 */
enum { FRAG_FETCHES_MAX = 16 };
FRAG_API int frag_fetch(struct frag *f, int param, const char *key, void *out, uint64_t bytes);
/* Returns 0 when the bytes are in out; number is then free.
 * -EAGAIN: their boundary is yet to come.
 * -ENOENT: no such number.
 * Errors of frag_get.
 */
FRAG_API int frag_fetched(struct frag *f, int number);

/* "HOST:PORT", the source to mount; NULL until it is known (frag_wait_ready).  The text is the
 * library's.
 */
FRAG_API const char *frag_address(const struct frag *f);

#ifdef __cplusplus
}
#endif

#endif
