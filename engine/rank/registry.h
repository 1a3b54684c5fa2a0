/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_RANK_REGISTRY_H
#define ENGINE_RANK_REGISTRY_H

/* The registry: a table of the states that this rank has registered (engine/catalog/states.h),
 * and copies from and to them.  The kernel makes the copies, so that memory which the trainer
 * has freed is -EFAULT and not a crash.
 *
 * A row is in one tier: the host's memory, NVMe (engine/swap/swapper.h) or a device's memory
 * (engine/rank/devices.h).  registry_read, _write, _put and _clear work on rows of any tier,
 * by the tier's struct tier_ops; the trainer's thread calls them, and they wait for the disk
 * or the device without the lock.  Other threads read the host's memory by
 * registry_read_memory, and the other tiers by versions (engine/rank/registry-version.h).  The
 * other functions take the lock; any thread may call them unless said.
 *
 * Errors of all functions that take a row and an epoch:
 * -ESTALE: the row was dropped or replaced since that epoch; epoch 0 stands for any.
 * -EINVAL: the range ends behind the row.
 * -ENODATA: the row has no segment there.
 * -EFAULT: the trainer has freed the memory.
 */

#include "engine/catalog/control-page.h"
#include "engine/catalog/states.h"
#include "engine/device/device.h"

#include <pthread.h>

struct devices;

struct registry_placing { /* of engine/rank/registry-place.h; under the registry's lock */
	_Atomic uint32_t waiting; /* rows that are to move */
	uint64_t waiting_bytes;
	uint64_t moved, moved_bytes, failed; /* since nothing waited */
	int error;                           /* -errno of the last move that failed */
};

struct registry {
	pthread_mutex_t lock;
	struct states states; /* under lock */
	struct control_page *control;
	struct swapper *swapper; /* NULL: no row was ever on NVMe */
	struct devices *devices; /* NULL: no row was ever on one.  Set with the engine's lock */
	bool buffers_on_devices; /* under lock: the swapper's buffers are pinned by devices */
	struct registry_placing placing;
	bool arena_moves; /* under lock: between registry_move_begin and _end */
};

/* Allocates the control page, which forked children do not inherit, with a new cookie.
 * -ENOMEM
 */
int registry_init(struct registry *r);
/* Closes swapper and devices.  No version is in use, and no copy is under way. */
void registry_fini(struct registry *r);

/* Adds a row with one segment in the tier of the memory, or with none if memory is NULL:
 * registry_replace brings it.  Trainer's thread.
 * -EINVAL: the memory is on a device that is not in use.
 * Errors of states_add.
 */
int registry_keep(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		  const char *key, enum frag_dtype dtype, uint64_t numel, void *memory);
/* Sets the length of a row that registry_keep added with an address and numel 0. */
void registry_resize(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		     const char *key, uint64_t numel);
/* Adds a segment to the row of a partition, and the row if there is none; a segment without
 * an address is one that registry_replace will add.
 * -EINVAL: the row has another dtype, or is in another tier, or on another device.
 */
int registry_keep_segment(struct registry *r, uint32_t index, uint32_t sub, const char *key,
			  enum frag_dtype dtype, uint64_t numel, struct state_segment segment);
/* Adds a row of memory that the library allocates: zeroed, 2 MiB aligned, in huge pages where
 * the machine has them; in a sealed memfd where shared memory can have huge pages, else
 * anonymous.  memory NULL: the trainer gets no address, and the row can move to another tier
 * (engine/rank/registry-place.h).
 */
int registry_alloc(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		   const char *key, enum frag_dtype dtype, uint64_t numel, void **memory);
/* Adds a partition on NVMe.  A partition that stays, or is so small that the swapper would
 * never write it, is allocated in memory.
 * -EOPNOTSUPP: the registry has no swapper.
 */
int registry_swap(struct registry *r, uint32_t index, uint32_t sub, const char *key,
		  enum frag_dtype dtype, uint64_t numel, bool stays);
/* Moves the row of this rank's piece of a parameter to bytes [at, ...) of a state on NVMe,
 * which has the values already and may hold other pieces.  The trainer may free the row's old
 * memory; requests that name an older epoch are -ESTALE.
 * -ENOMEM
 * -ENOSPC
 */
int registry_swap_shard(struct registry *r, uint32_t param, enum frag_dtype dtype,
			uint64_t numel, struct swapper_state *s, uint64_t at);
/* Marks a row that was meant for NVMe but stays in memory; swap-text.h lists it, too. */
void registry_stays(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		    const char *key);
int registry_drop(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		  const char *key);
/* Gives n segments other addresses of the caller's memory, 0 for none; adds segments that are
 * not there.  numel 0 of a segment: all of the row.  The first call for a row begins an epoch,
 * later ones do not: the row's addresses are not sent to readers any more, who ask this rank
 * for the bytes.  Trainer's thread.
 * -ENOENT: no such row.
 * -EINVAL: a segment overlaps others, or is in another tier than these.
 * -EOPNOTSUPP: the row is on NVMe, in an arena, or in memory of the library.
 * -ENOMEM
 * After an error the segments before the one that failed have their new addresses.
 */
int registry_replace(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		     const char *key, const struct state_segment *segments, size_t n);

enum { REGISTRY_ARENA_CHUNK = 1 << 20 }; /* bytes of an arena that are copied at a time */

/* Moves a low-precision parameter, with its values, to `to` in the arena, whose tier it then is
 * in.  A parameter without a row gets one, whose values are the bytes at `to`.
 * -EFAULT: the trainer has freed its old memory.
 * Errors of registry_read and, where the arena is on a device, of devices_copy_now.
 * -EBUSY: the parameter is on NVMe.
 * -ENOMEM
 * -ENOSPC
 */
int registry_assign(struct registry *r, enum state_kind kind, uint32_t index,
		    enum frag_dtype dtype, uint64_t numel, void *to);
/* Moves memory of an arena, as memmove does, under the lock; `repoint` then calls
 * registry_point for the rows that were moved.  The epoch grows before the first byte moves: a
 * one-sided reader that copied meanwhile finds the new epoch in the control page, which it
 * reads after the bytes.
 */
void registry_move(struct registry *r, void *to, const void *from, size_t size,
		   void (*repoint)(void *arg), void *arg);
/* registry_move in steps, for an arena on a device, whose memory the port alone copies.
 * Trainer's thread, without a lock while a copy is under way.
 *
 * registry_move_begin waits for the trainer's stream and for copies of readers; from now on
 * readers of what lies in the arena are told -EAGAIN.  registry_move_copy copies as memmove
 * does, through `bounce`, size bytes of the host's memory, where the two ranges overlap.
 * registry_move_end calls repoint, unless it is NULL, as registry_move does; it is to be called
 * also where registry_move_begin has failed.
 *
 * Errors of devices_copy_now: `from` has its bytes.
 * -ENODATA: the ranges overlap, and the device failed twice while it wrote `to`: the bytes of
 * both are undefined.  The caller drops the rows there before registry_move_end.
 */
int registry_move_begin(struct registry *r);
int registry_move_copy(struct registry *r, void *to, const void *from, size_t size,
		       void *bounce);
void registry_move_end(struct registry *r, void (*repoint)(void *arg), void *arg);
/* To be called by `repoint` alone: a row of registry_assign is now in n parts, at most two. */
void registry_point(struct registry *r, enum state_kind kind, uint32_t index,
		    const struct iovec *parts, uint32_t n);

/* Returns the row's number, or -ENOENT. */
int registry_find(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		  const char *key, enum frag_dtype *dtype);

/* Returns the address of element `at`; NULL: there is no such state, or elements
 * [at, at + numel) are not in one segment.
 */
void *registry_memory(struct registry *r, enum state_kind kind, uint32_t index, uint32_t sub,
		      const char *key, uint64_t at, uint64_t numel, enum frag_dtype *dtype);

/* Copies bytes [offset, offset + size) of a row of any tier.  Trainer's thread. */
int registry_read(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset, void *out,
		  size_t size);
/* Copies bytes as registry_read does, of a row in the host's memory.  Any thread.
 * -EREMOTE: the row is not in the host's memory.
 */
int registry_read_memory(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
			 void *out, size_t size);
/* Copies bytes as registry_read_memory does, and faster where the library has allocated the
 * memory.  Trainer's thread, or any thread while the trainer's cannot change the row.
 */
int registry_copy(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset, void *out,
		  size_t size);
int registry_write(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
		   const void *data, size_t size);
/* Does as registry_write with epoch 0, for consecutive calls; the range of a row on NVMe has
 * whole elements.
 */
int registry_put(struct registry *r, uint32_t row, uint64_t offset, const void *data,
		 size_t size);
/* Zeroes the row.  Trainer's thread. */
int registry_clear(struct registry *r, uint32_t row);
/* Returns the error that registry_read would return, or 0, without a look at the memory. */
int registry_covers(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
		    uint64_t size);
/* Returns the error that registry_write would return, or 0.  Does not notice read-only memory.
 */
int registry_check(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
		   size_t size);

/* Pins the swapper's buffers by the devices' port, once, so that copies between these buffers
 * and a device need no other.  On error a line says why, and the buffers stay as they were.
 * Trainer's thread.
 */
void registry_pin_buffers(struct registry *r);

/* Returns the swapper's state of a row on NVMe, and in *at the byte of that state at which the
 * row begins; NULL: the row is not on NVMe.  Trainer's thread; the state lives until
 * registry_drop.
 */
struct swapper_state *registry_swap_state(struct registry *r, enum state_kind kind,
					  uint32_t index, uint32_t sub, const char *key,
					  uint64_t *at);

/* Returns the address of bytes of a row on a device, and the device's number.  Trainer's
 * thread, or the engine's, which only learns that there is one: the trainer may drop the row.
 * -E2BIG: the bytes are in several runs.
 */
int registry_device_memory(struct registry *r, uint64_t epoch, uint32_t row, uint64_t offset,
			   uint64_t size, int *number, void **memory);

struct registry_elements {
	uint32_t row;
	uint64_t at;
};

/* Copies elements of a row to another on the same device, and converts them.  Trainer's thread.
 * -EOPNOTSUPP: the rows are not on one device, or it does not convert these dtypes.
 * -ENOMEM
 * Errors of devices_copy_now.
 */
int registry_device_convert(struct registry *r, const struct registry_elements *to,
			    const struct registry_elements *from, uint64_t numel);

/* Makes sums of a row's bytes on its device.  Trainer's thread.
 * -EOPNOTSUPP: they are not on a device, or are no whole elements there.
 * -ENOSYS: the device has no kernels for sums.
 * -ENODATA: the row has no segment there.
 * -ENOMEM
 * Errors of devices_copy_now.
 */
int registry_device_sums(struct registry *r, uint32_t row, uint64_t offset, uint64_t size,
			 enum device_what what, struct device_sums *sums);

/* Sets *dtype to the row's.
 * -ESTALE
 */
int registry_dtype(struct registry *r, uint64_t epoch, uint32_t row, enum frag_dtype *dtype);
/* Returns STATE_HOST if there is no such row. */
enum state_tier registry_tier(struct registry *r, uint32_t row);
/* Returns true for gradients, whose content is valid only at times (control_page_content). */
bool registry_is_grad(struct registry *r, uint32_t row);

#endif
