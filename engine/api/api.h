/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_API_API_H
#define ENGINE_API_API_H

/* Shared by the files behind frag.h: frag-open.c, frag-describe.c, frag-step.c, frag-access.c,
 * hp-lp.c ...  All functions are for the trainer's thread.
 */

#include "engine/base/phase.h"
#include "engine/base/thread.h"
#include "engine/device/device.h"
#include "engine/node/node.h"

/* State that the trainer's thread alone reads and writes. */
struct trainer_state {
	bool owes_generation; /* some states of owed_generation are not readable yet */
	uint64_t owed_generation;
	bool unpublished;     /* the last publish() failed */
	uint64_t boundary_ns; /* when the last boundary was entered; 0: never */
	uint64_t step_end_ns; /* when the last step ended; before its end: the first boundary */
	uint64_t whole_step_ns; /* between the last two values of step_end_ns */
	/* begun while the trainer's thread works for readers, edits or freezes */
	struct phase_span stall;
	uint64_t gather_mem;                   /* bytes, FRAG_GATHER_MEM */
	struct swapped_params *swapped_params; /* NULL: no parameters are on NVMe */
	SLIST_HEAD(, hyper_calls) hypers;      /* of frag_hyper_calls */
	frag_frozen frozen;                    /* of frag_frozen_call; NULL: none */
	void *frozen_arg;
};

struct frag {
	struct engine *engine;
	struct trainer_state trainer; /* engine->trainer points here */
	bool ready;                   /* frag_ready was called */
	/* made by frag_open, of which a process has one at a time; tests open several */
	bool only;
	struct frag_arena arena;
	struct frag_sweep *sweep;     /* the open sweep, or NULL */
	struct frag_fetches *fetches; /* NULL before the first frag_fetch */
	struct frag_sweep *next;      /* announced by frag_sweep_then, read ahead; or NULL */
};

/* The rank's engine; NULL when f is NULL, or in a forked child, where the control page, which
 * is wiped on fork, has no cookie.
 */
static inline struct engine *api_engine(const struct frag *f)
{
	assert(thread_may_be_trainer());
	return f && f->engine->registry.control->cookie[0] ? f->engine : NULL;
}

/* Copies a struct that begins with its size, from a caller compiled with more or fewer fields;
 * fields that the caller does not have become 0.
 * -EINVAL: from is NULL, or the size is none of any version.
 */
int api_copy_versioned(void *to, const void *from, size_t known);

/* Returns true between frag_grads_valid and frag_grads_gone. */
static inline bool api_grads_are_valid(const struct engine *e)
{
	return atomic_load_explicit(&e->registry.control->grads, memory_order_relaxed) & 1;
}

/* Opens a rank over the given ports, for frag_open and for tests, which call it without a
 * thread (they call loop_turn by hand) and with rank 0's address as seed.
 */
int api_open_over(struct frag **f, const struct launch *launch,
		  const struct transport_ops *messages, const struct transport_ops *memory,
		  const char *seed, bool thread);

/* Does frag_devices over the given port. */
int api_devices_over(struct frag *f, const struct frag_devices *devices,
		     const struct device_ops *ops);

/* Fills group, sub-group and position of a parameter's fragment on this rank.
 * -ENOENT: this rank has no fragment of it.
 * -EINVAL: no such parameter.
 */
int api_locate(const struct engine *e, int param, struct layout_fragment *fragment,
	       uint32_t *group);

/* Returns 0 if a partition state with this key and dtype can be registered.
 * -EINVAL: key or dtype is wrong.
 * -ENOENT: no such group or sub-group.
 */
int api_check_state(const struct frag *f, int group, uint32_t sub, const char *key,
		    enum frag_dtype dtype);

/* Preserves what open files still need of a state.  Returns its row's number, or -ENOENT. */
int api_preserve_for_views(struct engine *e, enum state_kind kind, uint32_t index, uint32_t sub,
			   const char *key);

/* Returns true if the open sweep will copy its slice of the row back to a device, over bytes
 * that are written there meanwhile.
 */
bool api_sweep_changes(const struct frag *f, int row);
/* Drops the sweep that frag_sweep_then has announced, if there is one. */
void api_sweep_forget(struct frag *f);
/* Frees buffers for a put, which needs one and, having failed midway, cannot be repeated: drops
 * the announced sweep unless a sweep is open, and, when all buffers are lent, parameters that
 * were read ahead.
 */
void api_make_room(struct frag *f);

/* api_hypers_get gets the values of frag_hyper_calls from the trainer, before a boundary at
 * which edits may replace them; api_hypers_set gives the trainer the values that edits have
 * replaced.
 */
void api_hypers_get(struct engine *e);
void api_hypers_set(struct engine *e);
/* Frees the list; the engine has ended. */
void api_hypers_free(struct frag *f);

/* Notes in the control page that the calling thread is the trainer's.  anew: the process may
 * have been forked since.
 */
void api_note_trainer(struct engine *e, bool anew);

/* Fills the job-wide address of this rank's parameter.
 * -EAGAIN: not all ranks have joined yet.
 * -EINVAL: no such parameter or key.
 */
int api_address_of(struct frag *f, int param, const char *key, struct engine_address *a);
/* Does api_address_of once all ranks have joined, and waits for that; *timeout_ms becomes the
 * time that is left.
 * -ETIMEDOUT: not all have joined; a line of the log that begins with `who` names those
 * missing.
 */
int api_address_in_time(struct frag *f, int param, const char *key, const char *who,
			unsigned *timeout_ms, struct engine_address *a);

/* Reads all of a state into memory of the host or of a device, without rounds. */
int api_read_to(struct engine *e, const struct engine_address *a, void *out, uint64_t size);

/* Sets this rank's counts of steps and boundaries to those of the ranks it has met at a
 * barrier.
 */
void api_count_on(struct engine *e, const struct wire_barrier *at);

/* Runs n > 0 writes as one transaction and returns when all ranks have agreed on the boundary
 * at which they, this one too, apply it.  Fills in done, owner and caller of the first write.
 */
#define api_write(...) api_write_from(LOG_PLACE, __VA_ARGS__)
int api_write_from(const char *caller, struct frag *f, struct engine_write *writes, size_t n);
/* Does api_write with one write whose bytes the ranks in holders[world] have staged already,
 * under this transaction id.  Takes holders.
 */
int api_write_staged(struct frag *f, struct engine_write *write, const uint64_t transaction[2],
		     uint32_t *holders);

#endif
