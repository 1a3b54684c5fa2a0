/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

/* The interface of the engine for fs/ and the helpers.  An engine observes a running job, or
 * shows a checkpoint.
 *
 * Any thread may call any function.  Results are copies, which the caller owns; the names and
 * arrays that an engine_param or engine_group points to live until engine_close.
 */

#include "engine/base/base.h"
#include "engine/base/log.h"
#include "engine/frag.h"

#include <sys/queue.h>
#include <sys/types.h>

struct engine;
struct operation;
struct slice;

struct engine_options {
	/* "HOST:PORT[,HOST:PORT]", the name of a job of this host, or a checkpoint's path */
	const char *source;
	const char *format;   /* of a checkpoint; NULL: "auto" */
	const char *key_file; /* NULL: FRAG_KEY_FILE, else the key the job left under the user's
				 * runtime directory */
	/* "auto" or NULL: reads the memory of ranks on this host; "zmq": asks for all bytes */
	const char *transport;
	const char *gather;  /* of states on devices: "nccl" (rounds), "host", "auto" or NULL */
	unsigned timeout_ms; /* silence after which a request fails; 0: 10000 */
	bool plain;          /* accept a job without a key */
	bool readahead_off;
	bool writable;
	bool local;          /* with writable: the copies of single ranks are writable too */
	const char *overlay; /* folder that takes edits of a checkpoint; NULL: its files do */
	bool incoherent;     /* edits of a checkpoint's fp32 leave low-precision values alone */
};

/* Connects to the job and fetches its catalog, or reads the checkpoint's; blocks at most
 * timeout_ms.  On error `why` (whysize bytes) has one line for the user, such as
 * "127.0.0.1:21017: 3 of 4 ranks have joined; not yet: 2".
 * -EINVAL: the source or an option is malformed.
 * -ENOENT: there is no such checkpoint.
 * -ECONNREFUSED: nobody listens at the address.
 * -EAGAIN: the job's ranks have not all joined.
 * -EACCES: the key is not the job's, or a file may not be read.
 * -ENOKEY: there is no key file.
 * -EPROTO: the job speaks another version of the protocol.
 * -ETIMEDOUT
 */
int engine_open(struct engine **e, const struct engine_options *options, char *why,
		size_t whysize);
void engine_close(struct engine *e);

/* Returns true if the options name a checkpoint, false if a job, by their form: a format, or a
 * source that is a path.
 */
bool engine_is_checkpoint(const struct engine_options *options);
/* Writes the address of the job whose name is the checkpoint's path; "": there is none. */
void engine_hidden_job(const struct engine_options *options, char *address, size_t size);
/* Returns true if an edit of the checkpoint was interrupted.  engine_open undoes that edit, and
 * writes to the checkpoint then.
 */
bool engine_is_unfinished(const struct engine_options *options);

/* Returns true for a job, false for a checkpoint.  A checkpoint has no events, and nothing that
 * engine_wait could wait for.
 */
bool engine_is_live(struct engine *e);

/* ---- parameters and groups: they do not change while an engine is open ---- */

struct engine_param {
	const char *name;
	const char *coordinate; /* "" : none */
	enum frag_dtype dtype;  /* of the low-precision parameter */
	uint32_t ndim;
	const uint64_t *shape;
	uint64_t numel;
	int group;         /* -1: none */
	uint32_t position; /* among the group's parameters */
	bool frozen;
	/* the parameter that this one is tied to, and whose states it shows; else itself */
	uint32_t same_as;
};

struct engine_group {
	const char *kind; /* "zero0" ... "zero3", "fsdp2", "fsdp1" */
	uint32_t shards;
	uint32_t replicas;
	uint32_t sub_groups;
	uint32_t nparams;
	const uint32_t *params; /* in the optimizer's order */
	uint32_t nranks;        /* shards * replicas */
	const uint32_t *ranks;  /* ranks[replica * shards + shard] */
};

uint32_t engine_nparams(struct engine *e);
/* The buffers of a checkpoint have the numbers behind those of its parameters; engine_param and
 * engine_states take either.
 */
uint32_t engine_nbuffers(struct engine *e);
uint32_t engine_ngroups(struct engine *e);
uint32_t engine_nranks(struct engine *e);

/* A part is what one model-parallel rank of a checkpoint has.  Its parameters, buffers, groups
 * and ranks have consecutive numbers; its name is the coordinate of its parameters.
 */
struct engine_part {
	const char *name;         /* "mp_rank_00" */
	uint32_t params, nparams; /* the first number, and how many */
	uint32_t buffers, nbuffers;
	uint32_t groups, ngroups;
	uint32_t ranks, nranks;
};

/* Returns 0 if the checkpoint is not divided into parts, or the engine is a job's. */
uint32_t engine_nparts(struct engine *e);
bool engine_part(struct engine *e, uint32_t part, struct engine_part *out);

/* Both return false if there is no such number. */
bool engine_param(struct engine *e, uint32_t param, struct engine_param *out);
bool engine_group(struct engine *e, uint32_t group, struct engine_group *out);

/* ---- states ---- */

enum {
	ENGINE_STATE_WRITABLE = 1 << 0,
	ENGINE_STATE_LP = 1 << 1,      /* the low-precision parameter */
	ENGINE_STATE_WIDENED = 1 << 2, /* of a checkpoint that stores it in another dtype */
};

struct engine_state {
	/* The name of the state's file, too: "fp32", "grad", "exp_avg", "bf16". */
	char key[FRAG_KEY_MAX + 1];
	enum frag_dtype dtype;
	uint64_t bytes; /* of the whole parameter, or of one rank's share of it */
	unsigned flags;
};

/* Returns a number that grows when a state appears or is dropped, or a rank is lost or comes
 * back.
 */
uint64_t engine_epoch(struct engine *e);

/* The functions from engine_states to engine_hypers, engine_rank_arena and engine_file_open ask
 * the ranks, and wait for answers, at most timeout_ms.  For a thread in a hurry they return
 * -EAGAIN instead of waiting; engine_epoch will have grown when the thread may try again.
 */
struct engine_hurry {
	uint64_t since_ns; /* set by the first try, used by the next ones; 0 at first */
};

/* Puts the calling thread in a hurry, until it calls this with NULL. */
void engine_hurry(struct engine_hurry *hurry);
/* Returns the monotonic time of the calling thread's first try, or now if it is in no hurry.
 * Answers to older questions do not count.
 */
uint64_t engine_asked_since(void);

/* Both return the number of states, and write at most max of them, sorted by key.
 * engine_rank_states lists one rank's share of each state.
 * -ENOENT: there is no such parameter or rank.
 */
int engine_states(struct engine *e, uint32_t param, struct engine_state *out, int max);
int engine_rank_states(struct engine *e, uint32_t rank, uint32_t param,
		       struct engine_state *out, int max);

/* List, as engine_states does, the states of a rank's whole flat partition, padding included,
 * and the hyperparameters of a group (FRAG_F64).
 */
int engine_partition_states(struct engine *e, uint32_t rank, uint32_t group, uint32_t sub,
			    struct engine_state *out, int max);
int engine_hypers(struct engine *e, uint32_t group, struct engine_state *out, int max);

enum engine_rank_state {
	ENGINE_RANK_UNKNOWN,
	ENGINE_RANK_ALIVE,
	ENGINE_RANK_LOST,
	ENGINE_RANK_LEFT, /* its process ended in order */
};

struct engine_rank {
	char host[64];
	char address[128];
	int64_t pid;
	enum engine_rank_state state;
	char why[128];      /* why the rank is lost */
	uint64_t since_ms;  /* how long the rank has been in this state */
	time_t since;       /* when the rank came to this state */
	uint64_t silent_ms; /* how long the rank has owed an answer; 0: it owes none */
	/* by which the rank's bytes are read: "host" (its memory), "tls", "tcp" (TLS's port of
	 * a job without a key), or "zmq", as until the first of them are read; "file": a
	 * checkpoint's; "-": not known yet
	 */
	const char *way;
	uint64_t step;
	uint64_t boundary;
	uint64_t boundary_ms; /* how long the rank has stood at that boundary */
	uint64_t generation;
	const char *phase;               /* "ready", "stable", "step", "frozen", "closed" */
	uint64_t bytes_host, bytes_swap; /* of states, by tier */
	/* Sums since the rank joined, unless said. */
	uint64_t kept_bytes; /* bytes copied for open views before the trainer changed them */
	uint64_t held_ns; /* time that readers, edits and freezes cost the trainer's thread */
	uint64_t swap_in_bytes, swap_out_bytes, swap_errors;
	uint64_t pinned_bytes, pinned_lent; /* now */
	uint64_t arena_bytes, arena_used, arena_used_max, arena_largest, arena_moved;
	uint64_t bytes_device; /* of states, in memory of devices */
	uint64_t device_from_bytes, device_to_bytes, device_errors;
	uint64_t device_kept;  /* copies for open views in memory of devices, now */
	uint64_t swap_damaged; /* blocks on NVMe whose checksum was wrong */
	bool fabric;           /* the rank's bytes may come by the fabric or the bulk port */
	bool grads_valid;      /* the rank's gradients may be read */
	double loss_scale;     /* divide gradients by it */
};

bool engine_rank(struct engine *e, uint32_t rank, struct engine_rank *out);

struct engine_job {
	char id[128];
	char address[128]; /* of the rank that the engine reached first */
	bool has_step;
	uint64_t step;
	uint64_t generation;
	const char *phase; /* as of a rank, or "lost"; equal phases are equal pointers */
	uint32_t alive;    /* number of live ranks */
	bool ended;        /* all ranks have left or ended; none is merely silent */
	uint64_t bytes;    /* of a checkpoint's files */
	bool authenticated;
};

void engine_job(struct engine *e, struct engine_job *out);

/* engine_wait waits until the job's step, generation or phase differs from what it was when
 * engine_changes returned `seen`.  The caller calls engine_changes, then looks at the job, then
 * waits.  The engine owns the struct until it calls `done`: once, from another thread, with 0
 * or -ECANCELED.  `done` may wait again with the same struct; the new wait is cancelled if
 * engine_wait_cancel was called meanwhile.
 */
struct engine_wait {
	uint64_t seen;
	void (*done)(struct engine_wait *wait, int result);
	void *owner;
	struct engine_wait *next; /* private to the engine, as is `cancelled`; 0 at first */
	bool cancelled;
};

uint64_t engine_changes(struct engine *e);
void engine_wait(struct engine *e, struct engine_wait *wait);
/* Waits until engine_epoch differs from `seen`. */
void engine_wait_epoch(struct engine *e, struct engine_wait *wait);
/* Idempotent; not to be called after the last `done` has returned. */
void engine_wait_cancel(struct engine *e, struct engine_wait *wait);

/* Returns a text, NUL-terminated, which the caller frees.  `what` is "config", "health"
 * (engine/catalog/health.h), "metrics" (Prometheus), "inflight", "log", "freeze", "control",
 * "place", "comms", "readers", or, of the lowest live rank, "leaves"
 * and "nccl", or, of a checkpoint, "source".  NULL: there is no such text, or no memory.
 * NULL, errno EAGAIN: the calling thread is in a hurry.
 * NULL, errno EIO: no rank lives.
 * NULL, errno ETIMEDOUT: the lowest live rank does not answer.
 */
char *engine_text(struct engine *e, const char *what);

/* Returns a text of one rank, as engine_text does: "swap", "pinned", "log", "comms", "arena"
 * (engine/rank/arena-memory.h).
 * NULL, errno EIO: the rank is lost; "log" is then what the rank has answered last, if it has.
 * NULL, errno ETIMEDOUT: the rank does not answer.
 */
char *engine_rank_text(struct engine *e, uint32_t rank, const char *what);

/* Returns 1 if the rank has an arena, else 0.
 * -ENOENT: there is no such rank.
 * -EIO: the rank is lost.
 * -ETIMEDOUT: the rank does not answer.
 */
int engine_rank_arena(struct engine *e, uint32_t rank);

/* Has the states of a job that `states` names move to the tier "host", "swap" or "device", at
 * boundaries to come (engine/rank/registry-place.h); the text "place" tells how far they are.
 * states: "params/NAMES/KEYS", patterns of fnmatch(3), whose * matches dots, too.  A partition
 * moves as a whole.  Returns when every rank has taken the order or refused it, or after
 * timeout_ms; a rank that has taken it moves its states whatever others say:
 * -EOPNOTSUPP: a rank cannot move one of the states; the log says why.
 * -ENOENT: no rank has such a state.
 * -EINVAL: the arguments are wrong.
 * -ENAMETOOLONG: NAMES or KEYS is too long.
 * -EROFS: the engine was opened without `writable`.
 * -EAGAIN: the calling thread may not wait (engine_hurry).
 * -EIO: no rank has taken the order, and a rank is lost.
 * -ETIMEDOUT: no rank has taken the order, and a rank does not answer.
 * -ENOMEM.
 */
int engine_place(struct engine *e, const char *states, const char *tier);
/* Asks the ranks, as engine_place does, whether these states are in the tier, and moves none.
 * A state that is smaller than any on NVMe counts as there.
 * -EBUSY: a state is on its way there.
 * -ECANCELED: a state is not there, as where a later order has named another tier.
 * -EOPNOTSUPP: the engine is a checkpoint's.
 * Other errors of engine_place.
 */
int engine_place_check(struct engine *e, const char *states, const char *tier);

/* A range of a state's elements, and where it lies. */
struct engine_fragment {
	uint32_t rank;
	const char *tier; /* "host", "swap", "device", "file" */
	const char *file; /* of a checkpoint; NULL: in a rank's partition */
	uint64_t base;    /* bytes in the file */
	size_t element;   /* bytes of one element there, which may be widened when it is read */
	uint32_t group, sub;
	uint64_t partition_offset, param_offset, numel; /* elements */
	const uint64_t
		*box; /* offsets, then sizes, of a block of the parameter; NULL: a range */
};

/* Calls `see` for each fragment of the state, before it returns.  `key` is not that of a job's
 * low-precision parameter (ENGINE_STATE_LP), which has no fragments.
 */
void engine_fragments(struct engine *e, uint32_t param, const char *key,
		      void (*see)(void *arg, const struct engine_fragment *f), void *arg);

/* A stream of the job's events, lines of JSON (fragfs(1)), from the moment it is opened.  A
 * reader that is too slow gets one line with the number of lines that it missed.
 */
struct engine_events;

int engine_events_open(struct engine *e, struct engine_events **events);
void engine_events_close(struct engine_events *events);
/* Copies at most size bytes, which may end within a line, and returns their number.  0: there
 * are no events now; engine_wait waits for events, too.
 */
size_t engine_events_read(struct engine_events *events, char *out, size_t size);
bool engine_events_ready(struct engine_events *events);

/* ---- reading and writing ---- */

enum engine_address_kind {
	ENGINE_PARAM,          /* param, key: a state of a parameter */
	ENGINE_RANK_PARAM,     /* rank, param, key: the rank's share of such a state */
	ENGINE_RANK_PARTITION, /* rank, group, sub, key: the rank's flat partition */
	ENGINE_HYPER,          /* group, key: a hyperparameter, one float64 */
	ENGINE_MODEL_STATES,   /* of a checkpoint of DeepSpeed: its first model_states.pt */
	ENGINE_RANK_PUBLISHED, /* rank, key: bytes that the rank publishes to other ranks */
};

/* Returns true for what one rank holds.  Edits of it reach neither replicas nor low-precision
 * copies.
 */
static inline bool engine_is_local(enum engine_address_kind kind)
{
	return kind == ENGINE_RANK_PARAM || kind == ENGINE_RANK_PARTITION;
}

struct engine_address {
	enum engine_address_kind kind;
	uint32_t param;
	uint32_t group;
	uint32_t sub;
	uint32_t rank;
	bool now; /* ENGINE_PARAM of a job: bytes of any generation, and invalid gradients */
	char key[FRAG_KEY_MAX + 1];
};

/* Returns the time of the last change of the addressed bytes (CLOCK_REALTIME, ns); 0: it is not
 * known.  In a job this is the time of the newest generation of the lowest live rank, or of the
 * address's rank; in a checkpoint that of the last write to the state's files or the overlay,
 * and greater after each edit.  address NULL, of a checkpoint alone: that of the last write to
 * any of its files or the overlay.
 */
uint64_t engine_changed_ns(struct engine *e, const struct engine_address *address);

/* One or more open states.  Their first read opens a view: all reads are of one generation. */
struct engine_file;

/* Opens a state, and stores its size in *bytes.
 * -ENOENT: there is no such state now.
 */
int engine_file_open(struct engine *e, const struct engine_address *address,
		     struct engine_file **file, uint64_t *bytes);
/* Opens n > 0 states as one file, which has the bytes of one after those of the other, all of
 * one generation.  It cannot be written.
 * -EINVAL: a state is no ENGINE_PARAM, or has `now`; or some are gradients, and others not.
 * -ENOENT: one of the states is not there now.
 */
int engine_file_open_many(struct engine *e, const struct engine_address *addresses, uint32_t n,
			  struct engine_file **file, uint64_t *bytes);
/* The caller has no request of the file under way. */
void engine_file_close(struct engine_file *file);

/* A read request.  The engine owns the struct until it calls `done`: once, before engine_read
 * returns or later from another thread, with the bytes at `data` (valid until `done` returns)
 * and their number, or with NULL and an error:
 * -EIO: an owner of the bytes is lost.
 * -ETIMEDOUT: an owner does not answer.
 * -ETIME: the read waited for ranks that are behind the others, and do not move.
 * -EAGAIN: with nowait, the read would wait for a trainer.
 * -ENODATA: the gradients are not valid, or, with nowait, not valid now.
 * -EDEADLK: `thread` is the training thread of a rank, for whose next boundary or gradients the
 * read waits.
 * -ECANCELED
 * -ESTALE: a state was dropped or replaced.
 * -ENOMEM: a rank may not keep so many bytes for readers (FRAG_VIEW_MEM).
 * -EFBIG: the file has too many pieces on one rank.
 */
struct engine_read {
	struct engine_file *file;
	uint64_t offset; /* bytes */
	size_t size;     /* at most ENGINE_READ_MAX; the state's end cuts it */
	bool nowait;     /* do not wait for a trainer */
	/* the thread that waits for the bytes, in this pid namespace; 0: not known */
	pid_t thread;
	void *into; /* size bytes that the engine may use for the data; NULL: its own */
	void (*done)(struct engine_read *read, const void *data, int64_t result);
	void *owner;
	const char *caller; /* set by engine_read: the line of the call, for `comms` */
	/* Private to the engine; 0 at first.  is_part: the read is a part of another one, which
	 * the metrics count.
	 */
	void *private;
	bool is_part;
};

enum { ENGINE_READ_MAX = 1 << 20 };

#define engine_read(...) engine_read_from(LOG_PLACE, __VA_ARGS__)
void engine_read_from(const char *caller, struct engine *e, struct engine_read *read);

/* Makes the engine call `done` soon, with -ECANCELED.  Idempotent; to be called after
 * engine_read has returned, and not after `done`.
 */
void engine_read_cancel(struct engine *e, struct engine_read *read);

/* The statistics of n states of parameters, made by the ranks that have their bytes, each of
 * one generation.  The engine owns the struct until it calls `done`: once, from another thread,
 * with each result set:
 * 0: values, which the caller has initialised, are those of the whole state, of `content`.
 * -EAGAIN: the state was changed, dropped or replaced meanwhile.
 * -EOPNOTSUPP: the state is to be read instead (engine_read): its owners cannot tell.
 * -ENOENT: there is no such state.
 * -EIO: an owner of the bytes is lost.
 * -ETIMEDOUT: an owner does not answer.
 * -ECANCELED
 * -ENOMEM
 */
struct engine_sum {
	struct engine_address address;
	/* The bytes of the file's view, which a read has opened; NULL: of the address, now. */
	struct engine_file *file;
	uint64_t at; /* byte of the file at which the state begins */
	struct stats *values;
	/* the generation of the bytes, as control_page_content counts it; 0 with a file */
	uint64_t content;
	int result;
};

struct engine_sums {
	struct engine_sum *states;
	uint32_t n;
	bool with_bins; /* for one state alone */
	void (*done)(struct engine_sums *sums);
	void *owner;
	void *private; /* to the engine; NULL at first */
};

/* -EOPNOTSUPP: the source is no job, and `done` is not called.
 * -ENOMEM: `done` is not called.
 */
int engine_sums(struct engine *e, struct engine_sums *sums);
/* Makes the engine call `done` soon, with -ECANCELED.  Idempotent; not to be called after
 * `done`.
 */
void engine_sums_cancel(struct engine *e, struct engine_sums *sums);

/* A write request: extents of one file, sorted, disjoint.  It is all or nothing: `done` gets 0
 * when every holder has applied the extents; with an error no holder has:
 * -EIO: a holder is lost.
 * -ETIMEDOUT
 * -ECANCELED
 * -EROFS: the engine was opened without `writable`.
 * -EACCES: the address is of one rank, and the engine was opened without `local`; or the file
 * has several states.
 * -EDEADLK: `thread` is the training thread of a rank, which would apply the edit.
 *
 * With an operation the holders compute the new elements of a slice of the state from those
 * that they have at the boundary.  More errors:
 * -EOPNOTSUPP: the source is no job, the address no ENGINE_PARAM, the dtype has no such
 * operation (engine/catalog/operation.h), or a holder of the low-precision copy lacks a master
 * that it would have to be computed from.
 * -EINVAL: the slice is of another shape.
 */
struct engine_extent {
	uint64_t offset; /* bytes */
	uint64_t size;
	const void *data;
};

struct engine_write {
	struct engine_file *file;
	const struct engine_extent *extents;
	size_t nextents;
	const struct operation *operation; /* NULL: extents are written */
	const struct slice *slice;         /* of the state's elements; of an operation */
	pid_t thread; /* that waits for done, in this pid namespace; 0: not known */
	void (*done)(struct engine_write *write, int result);
	void *owner;
	bool logged;        /* out: the text "log" has a line about the write's outcome */
	const char *caller; /* set by engine_write: the line of the call, for `comms` */
	STAILQ_ENTRY(engine_write) entry; /* private to the engine */
};

#define engine_write(...) engine_write_from(LOG_PLACE, __VA_ARGS__)
void engine_write_from(const char *caller, struct engine *e, struct engine_write *write);
void engine_write_cancel(struct engine *e, struct engine_write *write);

/* A freeze stops the trainers of all live ranks at one boundary; a thaw (ms 0) lets them go on.
 * A freeze ends by itself `ms` after the first rank came to the boundary, and soon after this
 * engine is gone.  Reads and writes go on meanwhile; writes are applied at that boundary.
 *
 * `done` gets 0 when all ranks stand at the boundary, or go on; or an error, and then no rank
 * stands:
 * -EBUSY: another freeze lasts.
 * -ETIMEDOUT: not all ranks came to the boundary in time, or the freeze to thaw was over.
 * -ECANCELED
 * -EROFS: the engine was opened without `writable`.
 * -EDEADLK: `thread` is the training thread of a rank, which would have to stand.
 * -EIO; of a thaw: a rank could not be told for timeout_ms, and may stand on.
 *
 * A watch is a freeze at the first boundary at which a condition holds
 * (engine/catalog/condition.h).  `done` gets 0 when all ranks watch.  An engine has one watch:
 * a new one that is not refused takes the place of the last, or, with the same condition and
 * bound, shares it.  A watch that nobody but its holders wants ends when the last of them has
 * ended it.  When the job is started again, so is the watch.  More errors:
 * -EINVAL: the text is no condition.
 * -ENAMETOOLONG: the pattern has more than 127 bytes.
 * -ENOENT: the condition names no parameter that has such a state.
 * -E2BIG: a norm of too many parameters.
 * -EBUSY: another engine watches the job.
 */
struct engine_freeze {
	/* Out: the number of a freeze or a watch; in: the freeze to thaw, or the watch that a
	 * holder ends; 0: any.
	 */
	uint64_t id;
	uint32_t ms; /* 0: a thaw; a watch: unused */
	/* NULL: no watch; "": ends this engine's; read before engine_freeze returns */
	const char *watch;
	bool held;    /* a watch has a holder, which will end it by its number */
	pid_t thread; /* that waits for done, in this pid namespace; 0: not known */
	void (*done)(struct engine_freeze *freeze, int result);
	void *owner;
	int result; /* private to the engine, as is `next` */
	struct engine_freeze *next;
};

void engine_freeze(struct engine *e, struct engine_freeze *freeze);
void engine_freeze_cancel(struct engine *e, struct engine_freeze *freeze);

#endif
