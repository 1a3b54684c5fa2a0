/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_RANK_REGISTRY_H
#define ENGINE_RANK_REGISTRY_H

/* The registry: a table of the states that this rank has registered (engine/catalog/states.h),
 * and copies in and out of them.  Memory that the trainer freed without telling us is -EFAULT
 * and not a crash, because the kernel walks its pages.
 *
 * A row is in one tier: the host's memory, NVMe (engine/swap/swapper.h) or a device's memory
 * (engine/rank/devices.h).  registry_read, _write, _put and _clear work on rows of any tier, by
 * the tier's struct tier_ops; they wait for the disk or the device, without the lock, and are
 * the trainer's thread's.  Other threads read memory by registry_read_memory, and the other
 * tiers by versions (engine/rank/registry-version.h).  All else: any thread, under one lock.
 */

#include "engine/catalog/control-page.h"
#include "engine/catalog/states.h"

#include <pthread.h>

struct devices;

struct registry {
	pthread_mutex_t lock;
	struct states states; /* under lock */
	struct control_page *control;
	struct swapper *swapper; /* NULL: no row is on NVMe; set before the first one is */
	struct devices
		*devices; /* NULL: no row is on a device; set before the first one is, with
				  * the engine's lock */
};

/* Allocates the control page with a new cookie, excluded from forked children's sight.
 * -ENOMEM.
 */
int registry_init(struct registry *r);
/* Closes place and devices.  No version is lent, and no copy is under way. */
void registry_fini(struct registry *r);

/* Adds a row with one segment, or with none if memory is NULL, in the tier of the memory.  The
 * epoch grows.  Trainer's thread.
 * -EINVAL: the memory is a device's that is not in use.
 * -EEXIST, -ENOMEM, -ENOSPC: as states_add.
 */
int registry_keep(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		  const char *key, enum frag_dtype dtype, uint64_t numel, void *memory);
/* Sets the length of a row kept with numel 0, whose address is known. */
void registry_resize(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		     const char *key, uint64_t numel);
/* Adds a segment to a partition's row, which it adds too if there is none.
 * -EINVAL: the row has another dtype, or is in another tier, or on another device.
 */
int registry_keep_segment(struct registry *r, uint32_t index, uint32_t sub, const char *key,
			  enum frag_dtype dtype, uint64_t numel, struct state_segment segment);
/* Adds a row of memory that the library allocates: zeroed, 2 MiB aligned, in huge pages where
 * the machine has them.  It is a sealed memfd where the machine gives huge pages to shared
 * memory, else anonymous.
 */
int registry_alloc(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		   const char *key, enum frag_dtype dtype, uint64_t numel, void **memory);
/* Adds a partition on NVMe; one that is so small that it would never leave memory is allocated
 * there.
 * -EOPNOTSUPP: the registry has no swapper.
 */
int registry_swap(struct registry *r, uint32_t index, uint32_t sub, const char *key,
		  enum frag_dtype dtype, uint64_t numel);
/* This rank's piece of a parameter becomes bytes [at, ...) of a state on NVMe, which has its
 * values already and may hold other pieces too.  The row's old memory is the caller's again;
 * requests that name an epoch before this one are -ESTALE.  -ENOMEM, -ENOSPC.
 */
int registry_swap_shard(struct registry *r, uint32_t param, enum frag_dtype dtype,
			uint64_t numel, struct swapper_state *s, uint64_t at);
/* Marks a row that was meant for NVMe but stays in memory: swap-text.h lists it too. */
void registry_stays(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		    const char *key);
int registry_drop(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		  const char *key);

/* Moves a low-precision parameter, with its values, to `to` in an arena.  If it has no row, one
 * is added, and the bytes at `to` are its values.
 * -EFAULT: its old memory has been freed.
 * -EBUSY: it is on NVMe.
 * -ENOMEM, -ENOSPC.
 */
int registry_assign(struct registry *r, enum state_kind kind, uint32_t index,
		    enum frag_dtype dtype, uint64_t numel, void *to);
/* Moves memory of an arena, as memmove, under the lock; repoint then tells by registry_point
 * where the rows are now.  The epoch grows before the first byte moves: a one-sided reader that
 * copied meanwhile finds the new epoch in the control page, which it reads after the bytes.
 */
void registry_move(struct registry *r, void *to, const void *from, size_t size,
		   void (*repoint)(void *arg), void *arg);
/* In repoint: a row of registry_assign is now in n parts, at most two. */
void registry_point(struct registry *r, enum state_kind kind, uint32_t index,
		    const struct iovec *parts, uint32_t n);

/* The row's number and dtype, or -ENOENT. */
int registry_find(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		  const char *key, enum frag_dtype *dtype);

/* Address of element at; NULL: no such state, or not all of [at, at + numel) is in one segment.
 */
void *registry_memory(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		      const char *key, uint64_t at, uint64_t numel, enum frag_dtype *dtype);

/* Copies bytes [offset, offset + size) of row number row.  Trainer's thread, of any tier.
 * -ESTALE: the row is not what it was at epoch (0: any).
 * -EINVAL: past the row's end.
 * -ENODATA: the row has no segment there.
 * -EFAULT: the trainer has freed the memory.
 */
int registry_read(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset, void *out,
		  size_t size);
/* As registry_read, by any thread, which waits for no disk or device.  -EREMOTE: the row is not
 * in the host's memory.
 */
int registry_read_memory(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
			 void *out, size_t size);
/* As registry_read_memory, by the trainer's thread or while it cannot change the row: quicker
 * where the library has allocated the memory.
 */
int registry_copy(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset, void *out,
		  size_t size);
int registry_write(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
		   const void *data, size_t size);
/* As registry_write with epoch 0, for many ranges one after the other; of a row on NVMe whole
 * elements.
 */
int registry_put(struct registry *r, uint32_t row, uint64_t offset, const void *data,
		 size_t size);
/* Zeroes the row.  Trainer's thread.  -ESTALE, -EFAULT. */
int registry_clear(struct registry *r, uint32_t row);
/* 0, if registry_read would find the row and the range in it; else its error.  Does not look at
 * the memory.
 */
int registry_covers(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
		    uint64_t size);
/* 0, if registry_write would succeed; else its error.  Does not see that memory is read-only.
 */
int registry_check(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
		   size_t size);

/* The state of a row on NVMe, and the byte of the state at which the row begins; NULL: the row
 * is not on NVMe.  Trainer's thread: the state lives until registry_drop.
 */
struct swapper_state *registry_swap_state(struct registry *r, enum state_kind kind,
					  uint32_t index, uint32_t sub, const char *key,
					  uint64_t *at);

/* Trainer's thread: where bytes of a row on a device are, and on which device.  -ESTALE,
 * -EINVAL, -ENODATA; -E2BIG: in several runs.
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

/* STATE_HOST, if there is no such row. */
enum state_tier registry_tier(struct registry *r, uint32_t row);
/* Is it a row of gradients?  Their content is valid only at times: control_content. */
bool registry_is_grad(struct registry *r, uint32_t row);

#endif
