/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_API_API_H
#define ENGINE_API_API_H

/* What the files behind frag.h share: frag-open, frag-describe, frag-step, frag-access, linkage
 * ...
 */

#include "engine/device/device.h"
#include "engine/node/node.h"

struct frag {
	struct engine *engine;
	bool ready; /* frag_ready was called */
	bool only;  /* the process's one frag_open */
	struct frag_arena arena;
	struct frag_sweep *sweep;     /* NULL: none */
	struct frag_fetches *fetches; /* NULL: none was ever */
	struct frag_sweep *next; /* frag_sweep_then's, of which slices may be in; NULL: none */
};

/* The rank's engine, or NULL: f is NULL, or we are a forked child. */
static inline struct engine *api_engine(const struct frag *f)
{
	return f && f->engine->registry.control->cookie[0] ? f->engine : NULL;
}

/* A struct that begins with its size, from a caller who may know more or fewer fields.
 * -EINVAL: too few for any version.
 */
int api_copy_versioned(void *to, const void *from, size_t known);

/* Trainer's thread. */
static inline bool api_grads_are_valid(const struct engine *e)
{
	return atomic_load_explicit(&e->registry.control->grads, memory_order_relaxed) & 1;
}

/* A rank over given ports.  Tests: no thread (loop_turn by hand), seed the address of rank 0.
 */
int api_open_over(struct frag **f, const struct launch *launch,
		  const struct transport_ops *messages, const struct transport_ops *memory,
		  const char *seed, bool thread);

/* frag_devices over a given port. */
int api_devices_over(struct frag *f, const struct frag_devices *devices,
		     const struct device_ops *ops);

/* Group, sub-group and position of a parameter that has a fragment on this rank.  -ENOENT,
 * -EINVAL.
 */
int api_locate(const struct engine *e, int param, struct layout_fragment *fragment,
	       uint32_t *group);

/* Whether a partition state can be registered so.  -EINVAL; -ENOENT: no such group or
 * sub-group.
 */
int api_check_state(const struct frag *f, int group, uint32_t sub, const char *key,
		    enum frag_dtype dtype);

/* No sweep comes next. */
void api_sweep_forget(struct frag *f);
/* What is in ahead gives way to a put, which needs a buffer and cannot be done twice. */
void api_make_room(struct frag *f);

/* The job's number of this rank's parameter.  -EAGAIN: not all ranks have come yet; -EINVAL. */
int api_address_of(struct frag *f, int param, const char *key, struct engine_address *a);
/* The same, when all have: -ETIMEDOUT, and a line of `who` says which have not.  *timeout_ms
 * becomes what is left of it.
 */
int api_address_in_time(struct frag *f, int param, const char *key, const char *who,
			unsigned *timeout_ms, struct engine_address *a);

/* Trainer's thread: all of a state to memory of the host or of a device, by reading. */
int api_read_to(struct engine *e, const struct engine_address *a, void *out, uint64_t size);

/* Trainer's thread, which has met the others at a barrier: its counts are theirs. */
void api_count_on(struct engine *e, const struct wire_barrier *at);

/* One transaction of n > 0 writes, done and owner filled in here; when all holders have it,
 * this rank applies its part.
 */
int api_write(struct frag *f, struct engine_write *writes, size_t n);
/* The same of one whose bytes holders[world] have aside already, under that transaction;
 * holders is taken over.
 */
int api_write_staged(struct frag *f, struct engine_write *write, const uint64_t transaction[2],
		     uint32_t *holders);

#endif
