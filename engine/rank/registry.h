/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_RANK_REGISTRY_H
#define ENGINE_RANK_REGISTRY_H

/* This rank's own memory: what is registered, and copying in and out of it so that memory freed
 * behind our back is -EFAULT and not a crash.  Any thread: one lock.  Of states on NVMe
 * (engine/swap/swapper.h) registry_read, _write and _clear are the trainer's thread's, and wait
 * for the disk without the lock; other threads hold them.  So they are of states in a device's
 * memory (engine/rank/devices.h); other threads begin copies of these.
 */

#include "engine/catalog/control-page.h"
#include "engine/catalog/states.h"

#include <pthread.h>

struct devices;

struct registry {
	pthread_mutex_t lock;
	struct states states; /* under lock */
	struct control_page *control;
	struct swapper *place; /* NULL: nothing is on NVMe; set before any row is */
	struct devices *
		devices; /* NULL: nothing is on devices; set before any row is, with the engine's lock */
};

/* Allocates the control page with a new cookie, excluded from forked children's sight.
 * -ENOMEM.
 */
int registry_init(struct registry *r);
/* No hold is left, and no copy is under way.  Closes place and devices. */
void registry_fini(struct registry *r);

/* As states_add and so on, and the epoch grows.  memory NULL: no segment yet.  Trainer's
 * thread: what is a device's becomes such a row; -EINVAL: of a device that is not in use, or
 * segments here and there.
 */
int registry_keep(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		  const char *key, enum frag_dtype dtype, uint64_t numel, void *memory);
/* Sets the length of a row kept with numel 0, whose address is known. */
void registry_resize(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		     const char *key, uint64_t numel);
int registry_keep_segment(struct registry *r, uint32_t index, uint32_t sub, const char *key,
			  enum frag_dtype dtype, uint64_t numel, struct state_segment segment);
/* Zeroed, 2 MiB aligned, in huge pages where given: a sealed memfd where the machine gives
 * those to shared memory, else anonymous.
 */
int registry_alloc(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		   const char *key, enum frag_dtype dtype, uint64_t numel, void **memory);
/* A partition on NVMe; one that would never leave memory is a state there.  -EOPNOTSUPP: there
 * is no place for it.
 */
int registry_swap(struct registry *r, uint32_t index, uint32_t sub, const char *key,
		  enum frag_dtype dtype, uint64_t numel);
/* This rank's piece of a parameter comes to be bytes [at, ...) of a state on NVMe, which has
 * its values, and is others' too. Who has the row from before asks again.  -EBUSY: it is there
 * already, or in an arena; -ENOMEM, -ENOSPC.
 */
int registry_swap_shard(struct registry *r, uint32_t param, enum frag_dtype dtype,
			uint64_t numel, struct swapper_state *s, uint64_t at);
/* It would be there, but stays in memory. */
void registry_stays(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		    const char *key);
int registry_drop(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		  const char *key);

/* A low-precision parameter comes to lie at `to`, in an arena, with the values it has; where
 * there is no row of it, one is made, of what is there.  -EFAULT: where it was is no memory;
 * -EBUSY: it is on NVMe; -ENOMEM, -ENOSPC.
 */
int registry_assign(struct registry *r, enum state_kind kind, uint32_t index,
		    enum frag_dtype dtype, uint64_t numel, void *to);
/* Moves memory of an arena, as memmove.  Whoever copied it meanwhile finds another epoch behind
 * it; whoever asks us waits until repoint has said by registry_point where the rows lie now.
 */
void registry_move(struct registry *r, void *to, const void *from, size_t size,
		   void (*repoint)(void *arg), void *arg);
/* In repoint: a row of registry_assign's lies in n parts, at most two. */
void registry_point(struct registry *r, enum state_kind kind, uint32_t index,
		    const struct iovec *parts, uint32_t n);

/* The row's number and dtype, or -ENOENT. */
int registry_find(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		  const char *key, enum frag_dtype *dtype);

/* Address of element at; NULL: no such state, or not all of [at, at + numel) is in one segment.
 */
void *registry_memory(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		      const char *key, uint64_t at, uint64_t numel, enum frag_dtype *dtype);

/* Bytes [offset, offset + size) of row number row, if it is still what it was at epoch (0:
 * any). -ESTALE, -EINVAL, -ENODATA, -EFAULT.
 */
int registry_read(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset, void *out,
		  size_t size);
/* The same, by any thread: waits for no disk or device.  -EREMOTE: it is not in memory. */
int registry_read_memory(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
			 void *out, size_t size);
/* The same, by the trainer's thread or while it cannot change the row: quicker where the memory
 * is ours.
 */
int registry_copy(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset, void *out,
		  size_t size);
int registry_write(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
		   const void *data, size_t size);
/* The same of many ranges that come one after the other, by the trainer: of a row on NVMe whole
 * elements.
 */
int registry_put(struct registry *r, uint32_t row, uint64_t offset, const void *data,
		 size_t size);
/* All of the row's memory becomes 0.  -ESTALE, -EFAULT. */
int registry_clear(struct registry *r, uint32_t row);
/* Whether registry_read would find the row and the range in it; not looked at: the memory. */
int registry_covers(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
		    uint64_t size);
/* Whether registry_write would succeed: its errors.  Not looked at: whether the memory is
 * read-only.
 */
int registry_check(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
		   size_t size);

/* The state of a row on NVMe, and the bytes of it where the row begins; NULL: it is none such.
 * Trainer's thread: it lives until registry_drop.
 */
struct swapper_state *registry_place(struct registry *r, enum state_kind kind, uint32_t index,
				     uint32_t sub, const char *key, uint64_t *at);

/* Trainer's thread: where bytes of a row on a device are, and on which device.  -ESTALE, -EINVAL,
 * -ENODATA; -E2BIG: in several runs.
 */
int registry_device_memory(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
			   uint64_t size, int *number, void **memory);

/* Trainer's thread: elements of a row, converted or copied to another where they are.
 * -EOPNOTSUPP: not both are in one device's memory, or it converts no such pair; -ESTALE,
 * -EINVAL, -ENODATA, -ENOMEM; errors of devices_copy_now.
 */
struct registry_elements {
	uint32_t row;
	uint64_t at;
};
int registry_device_convert(struct registry *r, const struct registry_elements *to,
			    const struct registry_elements *from, uint64_t numel);

/* Of no row: STATE_HOST. */
enum state_tier registry_tier(struct registry *r, uint32_t row);
/* Is the row gradients, valid only now and then? */
bool registry_is_grad(struct registry *r, uint32_t row);

#endif
