/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

/* The door of the engine for fs/ and the helpers: an observer of a job, or a checkpoint.
 *
 * Any thread may call any function here.  What a function copies out is the caller's; the names
 * and arrays an engine_param or engine_group points to live until engine_close.
 */

#include "engine/base/base.h"
#include "engine/frag.h"

#include <sys/queue.h>

struct engine;

struct engine_options {
	const char *source;   /* "HOST:PORT[,HOST:PORT]", or the path of a checkpoint */
	const char *format;   /* of a checkpoint; NULL: "auto" */
	const char *key_file; /* NULL: FRAG_KEY_FILE, else the key the job left under the user's
				 * runtime directory */
	const char *transport; /* "auto" (NULL): memory of this host's ranks; "zmq": never */
	const char *gather;    /* states on devices: "nccl": by rounds; "host"; "auto" (NULL) */
	unsigned timeout_ms;   /* silence after which a request fails; 0: 10000 */
	bool plain;            /* speak to a job that has no key */
	bool readahead_off;
	bool writable;
	bool local;          /* what one rank of a job holds is writable by itself too */
	const char *overlay; /* folder for edits of a checkpoint; NULL: they go to its files */
	bool incoherent; /* edits of a checkpoint's fp32 leave its low-precision values alone */
};

/* Connects and fetches the catalog; blocks at most timeout_ms.  On error why (whysize bytes)
 * has one line for the user, such as "127.0.0.1:21017: 3 of 4 ranks have joined; not yet: 2".
 * -EINVAL, -ENOENT, -ECONNREFUSED (nobody there), -EAGAIN (not ready), -EACCES, -ENOKEY (key),
 * -EPROTO (version), -ETIMEDOUT.
 */
int engine_open(struct engine **e, const struct engine_options *options, char *why,
		size_t whysize);
void engine_close(struct engine *e);

/* Do they name a checkpoint, not a job?  By their form alone. */
bool engine_is_checkpoint(const struct engine_options *options);
/* An edit of the checkpoint was interrupted: opening it undoes that, and must be able to write.
 */
bool engine_is_unfinished(const struct engine_options *options);

/* A job: what is there changes.  False: a checkpoint, of which there are no changes to wait
 * for, and no events.
 */
bool engine_is_live(struct engine *e);

/* ---- what there is; the params and groups of a job do not change while it is mounted ---- */

struct engine_param {
	const char *name;
	const char *coordinate; /* "" : none */
	enum frag_dtype dtype;  /* of the low-precision parameter */
	uint32_t ndim;
	const uint64_t *shape;
	uint64_t numel;
	int group;         /* -1: none */
	uint32_t position; /* among the group's */
	bool frozen;
};

struct engine_group {
	const char *kind; /* "zero0" ... "zero3", "fsdp2" */
	uint32_t shards;
	uint32_t replicas;
	uint32_t sub_groups;
	uint32_t nparams;
	const uint32_t *params; /* in the optimizer's order */
	uint32_t nranks;        /* shards * replicas */
	const uint32_t *ranks;  /* ranks[replica * shards + shard] */
};

uint32_t engine_nparams(struct engine *e);
/* A checkpoint's buffers are numbered behind the parameters, and asked about in the same way.
 */
uint32_t engine_nbuffers(struct engine *e);
uint32_t engine_ngroups(struct engine *e);
uint32_t engine_nranks(struct engine *e);

/* A checkpoint of several model-parallel ranks is one tree each: parts, whose parameters,
 * buffers, groups and ranks are neighbours, and whose name is their parameters' coordinate.
 */
struct engine_part {
	const char *name; /* "mp_rank_00" */
	uint32_t params, nparams;
	uint32_t buffers, nbuffers; /* numbers, as parameters have */
	uint32_t groups, ngroups;
	uint32_t ranks, nranks;
};

/* 0: all is one. */
uint32_t engine_nparts(struct engine *e);
bool engine_part(struct engine *e, uint32_t part, struct engine_part *out);

/* False: no such number. */
bool engine_param(struct engine *e, uint32_t param, struct engine_param *out);
bool engine_group(struct engine *e, uint32_t group, struct engine_group *out);

/* ---- states: they come and go; engine_epoch grows when any did, or a rank came or went ----
 */

enum {
	ENGINE_STATE_WRITABLE = 1 << 0,
	ENGINE_STATE_LP = 1 << 1, /* the low-precision parameter */
};

struct engine_state {
	char key[FRAG_KEY_MAX +
		 1]; /* also the file's name: "fp32", "grad", "exp_avg", "bf16" ... */
	enum frag_dtype dtype;
	uint64_t bytes; /* of the whole parameter; in a rank's view: of what the rank has */
	unsigned flags;
};

uint64_t engine_epoch(struct engine *e);

/* What there is now is asked of the ranks, and who needs an answer that is not here waits for
 * it, at most timeout_ms: in engine_states and all down to engine_hypers, in engine_rank_arena,
 * and in engine_file_open.  A thread in a hurry is told -EAGAIN instead, and that engine_epoch
 * will have grown when it may try again.
 */
struct engine_hurry {
	uint64_t since_ns; /* the engine's, kept from one try to the next; 0 at first */
};

/* Of what this thread calls from now on; NULL: it is in no hurry, as all are at first. */
void engine_hurry(struct engine_hurry *hurry);
/* Since when (monotonic) an answer must have been asked for to be one: since the first try, or
 * now.
 */
uint64_t engine_asked_since(void);

/* Both return how many there are, sorted by key, and write at most max; -ENOENT: no such param,
 * rank. The second: what that rank holds of it.
 */
int engine_states(struct engine *e, uint32_t param, struct engine_state *out, int max);
int engine_rank_states(struct engine *e, uint32_t rank, uint32_t param,
		       struct engine_state *out, int max);

/* States of a rank's whole flat partition, padding included, and a group's hyper-parameters
 * (dtype FRAG_F64).
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
	char why[128];      /* lost: why */
	uint64_t since_ms;  /* how long it has been in this state */
	time_t since;       /* when that began */
	uint64_t silent_ms; /* how long it has not answered; 0: nothing was asked of it */
	const char *way;    /* "host", "zmq": how its bytes are read */
	uint64_t step;
	uint64_t boundary;
	uint64_t boundary_ms; /* how long it has stood there */
	uint64_t generation;
	const char *phase;               /* "ready", "stable", "step", "frozen", "closed" */
	uint64_t bytes_host, bytes_swap; /* registered, by tier */
	uint64_t kept_bytes;             /* copied for readers before they changed, ever */
	uint64_t held_ns; /* of its trainer's thread, for readers, edits and freezes, ever */
	uint64_t swap_in_bytes, swap_out_bytes, swap_errors; /* ever */
	uint64_t pinned_bytes, pinned_lent;                  /* now */
	uint64_t arena_bytes, arena_used, arena_used_max, arena_largest, arena_moved;
	uint64_t bytes_device; /* registered, in memory of devices */
	uint64_t device_from_bytes, device_to_bytes, device_errors; /* copies, ever */
	uint64_t device_kept;  /* preserved for readers in memory of devices, now */
	uint64_t swap_damaged; /* blocks on NVMe that were not what was written, ever */
	bool fabric;           /* its bytes may come by the fabric */
	bool grads_valid;      /* gradients may be read there */
	double loss_scale;     /* what those are to be divided by */
};

bool engine_rank(struct engine *e, uint32_t rank, struct engine_rank *out);

struct engine_job {
	char id[128];
	char address[128]; /* that it was reached by */
	bool has_step;
	uint64_t step;
	uint64_t generation;
	const char *phase; /* as a rank's, or "lost"; each is one constant */
	uint32_t alive;    /* ranks */
	bool ended;        /* all ranks are lost, and not but silent */
	uint64_t bytes;    /* of a checkpoint */
	bool authenticated;
};

void engine_job(struct engine *e, struct engine_job *out);

/* Waits until the job's step, generation or phase may be another than it was when
 * engine_changes said `seen`; ask that first, then look, then wait.  The caller's memory until
 * done is called: exactly once, from another thread, with 0 or -ECANCELED.  done may wait again
 * with the same struct: a cancel that came meanwhile holds.
 */
struct engine_wait {
	uint64_t seen;
	void (*done)(struct engine_wait *wait, int result);
	void *owner;
	struct engine_wait *next; /* the engine's; the same of what follows; 0 at first */
	bool cancelled;
};

uint64_t engine_changes(struct engine *e);
void engine_wait(struct engine *e, struct engine_wait *wait);
/* The same for engine_epoch: until it is not `seen`. */
void engine_wait_epoch(struct engine *e, struct engine_wait *wait);
/* Idempotent; not after the last done has returned. */
void engine_wait_cancel(struct engine *e, struct engine_wait *wait);

/* Texts for people and scrapers, NUL-terminated, the caller's to free; NULL: no memory, no
 * such, or, with errno EAGAIN, this thread is in a hurry. what: "config", "health"
 * (engine/catalog/health.h), "metrics" (Prometheus), "inflight", "log", "freeze", a
 * checkpoint's "source".
 */
char *engine_text(struct engine *e, const char *what);

/* The same of one rank of a job: "swap", "pinned", "arena" (engine/rank/arena-memory.h). */
char *engine_rank_text(struct engine *e, uint32_t rank, const char *what);

/* Whether a rank of a job has an arena.  -ENOENT: no such rank; -EIO, -ETIMEDOUT: it cannot be
 * asked.
 */
int engine_rank_arena(struct engine *e, uint32_t rank);

/* Where elements of a state lie. */
struct engine_fragment {
	uint32_t rank;
	const char *tier; /* "host", "swap", "device", "file" */
	const char *file; /* of a checkpoint; NULL: in a rank's partition */
	uint64_t base;    /* bytes in the file */
	uint32_t group, sub;
	uint64_t partition_offset, param_offset, numel; /* elements */
	const uint64_t *box; /* offsets, then sizes; NULL: neighbours from param_offset on */
};

/* Calls see for each, before it returns.  Of a job: those of each state but the low-precision
 * one.
 */
void engine_fragments(struct engine *e, uint32_t param, const char *key,
		      void (*see)(void *arg, const struct engine_fragment *f), void *arg);

/* What happens to the job, lines of JSON (fragfs(1)), from open on; a slow reader gets one line
 * about those that he missed.  Steps are seen while a stream is open.
 */
struct engine_events;

int engine_events_open(struct engine *e, struct engine_events **events);
void engine_events_close(struct engine_events *events);
/* Bytes, at most size: a line's rest comes next time.  0: nothing now; engine_wait also ends by
 * an event.
 */
size_t engine_events_read(struct engine_events *events, char *out, size_t size);
bool engine_events_ready(struct engine_events *events);

/* ---- reading and writing ---- */

enum engine_address_kind {
	ENGINE_PARAM,          /* param, key */
	ENGINE_RANK_PARAM,     /* rank, param, key: what the rank holds of it */
	ENGINE_RANK_PARTITION, /* rank, group, sub, key: the flat partition */
	ENGINE_HYPER,          /* group, key: one float64 */
	ENGINE_RANK_PUBLISHED, /* rank, key: bytes for other ranks */
};

/* Of one rank alone: an edit of it reaches neither replicas nor low-precision copies. */
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
	/* ENGINE_PARAM of a job: read bytes as they are now, also of gradients that are not
	 * valid.
	 */
	bool now;
	char key[FRAG_KEY_MAX + 1];
};

/* CLOCK_REALTIME, ns, when what the state's file shows was changed last; 0: that is not known.
 * Of a job: when its newest generation came about, on the lowest live rank, or on the address'
 * own; of a checkpoint: when the newest of the state's files, or the overlay, was written to.
 */
uint64_t engine_changed_ns(struct engine *e, const struct engine_address *address);

struct engine_file; /* something opened: its read-ahead now, its view of one generation later */

/* -ENOENT: no such state (now).  *bytes: its size. */
int engine_file_open(struct engine *e, const struct engine_address *address,
		     struct engine_file **file, uint64_t *bytes);
/* No request of the file may be under way. */
void engine_file_close(struct engine_file *file);

/* One request, the caller's memory until done is called: exactly once, with the bytes at data
 * (lent until done returns) and their number, or NULL and -errno: -EIO (an owner is lost),
 * -ETIMEDOUT, -ETIME (it waits for ranks that are behind, and do not get on), -EAGAIN, of
 * gradients -ENODATA (with nowait: it would wait for such), -ECANCELED, -ESTALE (the state was
 * dropped or replaced). done may be called before engine_read returns, or later from another
 * thread.
 */
struct engine_read {
	struct engine_file *file;
	uint64_t offset; /* bytes */
	size_t size;     /* at most ENGINE_READ_MAX; cut at the end of the state */
	bool nowait;     /* it is not to wait for a trainer */
	void *into;      /* size bytes for what comes by message; NULL: the engine's own */
	void (*done)(struct engine_read *read, const void *data, int64_t result);
	void *owner;
	void *private; /* the engine's; NULL before engine_read */
};

enum { ENGINE_READ_MAX = 1 << 20 };

void engine_read(struct engine *e, struct engine_read *read);

/* Makes done come soon, with -ECANCELED, if it has not yet.  Idempotent; not after done. */
void engine_read_cancel(struct engine *e, struct engine_read *read);

/* All or nothing: extents of one file, sorted, not overlapping.  Result 0 when every holder has
 * applied it; else nobody keeps it: -EIO, -ETIMEDOUT, -ECANCELED, -EROFS, -EACCES (of one rank
 * alone, and the engine was opened without local).
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
	void (*done)(struct engine_write *write, int result);
	void *owner;
	STAILQ_ENTRY(engine_write) entry; /* the engine's */
};

void engine_write(struct engine *e, struct engine_write *write);
void engine_write_cancel(struct engine *e, struct engine_write *write);

/* Stops the trainers of all live ranks at one boundary, done comes when they stand there, or
 * lets them go on. They go on too ms after the first came there, and soon when this engine is
 * gone.  Meanwhile reads and writes go on; writes are applied at that boundary.
 *
 * done's result: 0; of a freeze, and then nothing is stopped: -EBUSY (another one lasts),
 * -ETIMEDOUT (not all came there in ms), -ECANCELED, -EROFS, -EIO; of a thaw by number:
 * -ETIMEDOUT (it was over before).
 */
struct engine_freeze {
	uint64_t id; /* a freeze, out: its number; a thaw, in: which freeze, 0: any */
	uint32_t ms; /* 0: a thaw */
	void (*done)(struct engine_freeze *freeze, int result);
	void *owner;
	int result; /* the engine's, as the next */
	struct engine_freeze *next;
};

void engine_freeze(struct engine *e, struct engine_freeze *freeze);
void engine_freeze_cancel(struct engine *e, struct engine_freeze *freeze);

#endif
