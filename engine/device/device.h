/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_DEVICE_DEVICE_H
#define ENGINE_DEVICE_DEVICE_H

/* The port to memory of accelerators.  No call waits for a device, unless its comment says so;
 * a port never retries and never chooses.
 *
 *   trainer's stream   --- backward --- mark --- adam ------ preserve ---- backward --->
 *                                        |                      | copy, event
 *   the port's thread        submit ...  after  copies in chunks, on its own stream ... done
 *
 * One port serves all devices of the process, which it numbers from 0 as the runtime does.  It
 * touches only devices that `use` named, so that no context appears on another one.  A *stream*
 * is the trainer's, as the runtime has it (cudaStream_t); NULL is its default stream.  The port
 * enqueues nothing there but events and the copies of `preserve`.  An *event* is the point that
 * a stream had reached when it was marked; it *passes* when the stream's work up to there is
 * done.
 *
 * Threads: use, where, pin, unpin, alloc, free, mark and preserve are for the trainer's thread;
 * the device that is current in it stays current.  submit, unmark, release and figures: any
 * thread.  The port calls done in one thread of its own.
 */

#include "engine/base/base.h"
#include "engine/base/queue.h"

struct device;
struct device_event;

#define DEVICE_NONE (-1) /* the number of host memory */

enum { DEVICE_CHUNK_MIN = 32 << 10 };

struct device_options { /* 0 of each: the default */
	/* The file to load in place of the runtime by its usual names. */
	const char *library;
	/* Bytes moved at a time, and of a staging buffer: at least DEVICE_CHUNK_MIN;
	 * 0: 4 MiB.
	 */
	uint64_t chunk;
	/* Staging buffers of each device: at least 2, at most 1 GiB in all; 0: 4. */
	unsigned chunks;
	/* Bytes of each device's memory for what is preserved; 0: none.  They are allocated
	 * when first needed, or by `use` where allocating could wait for the device.
	 */
	uint64_t keep;
	/* The time that a request may wait for its event before it begins; 0: 10 s. */
	uint64_t wait_ms;
	/* The time after which a device without progress is given up; 0: 10 s. */
	uint64_t stuck_ms;
};

struct device_where {
	int number;  /* DEVICE_NONE: host memory, or not mapped */
	bool pinned; /* host memory that devices can access */
};

enum device_what {
	/* size bytes, between a device and host memory, or device to device. */
	DEVICE_COPY,
	/* size elements, on the device; the same bits as convert.h gives. */
	DEVICE_F32_TO_BF16,
	DEVICE_BF16_TO_F32,
	DEVICE_F32_TO_F16,
	DEVICE_F16_TO_F32,
	/* Sums over size elements of the device's memory; to is a struct device_sums in host
	 * memory.
	 */
	DEVICE_SUMS_F32,
	DEVICE_SUMS_BF16,
	DEVICE_SUMS_F16,
	DEVICE_RELEASE, /* the port's own */
};

static inline bool device_is_sums(enum device_what what)
{
	return what >= DEVICE_SUMS_F32 && what <= DEVICE_SUMS_F16;
}

/* Returns the bytes of an element that a conversion or sums read. */
static inline size_t device_element_size(enum device_what what)
{
	return what == DEVICE_F32_TO_BF16 || what == DEVICE_F32_TO_F16 ||
			       what == DEVICE_SUMS_F32
		       ? sizeof(uint32_t)
		       : sizeof(uint16_t);
}

#define DEVICE_SUMS_NONE UINT64_MAX

/* As struct stats; the same elements give the same sums. */
struct device_sums {
	uint64_t finite, nan, inf, zero;
	/* Numbers of elements; DEVICE_SUMS_NONE: there is none. */
	uint64_t first_nan, first_inf;
	/* Sums over the finite elements: minimum, maximum, mean, sum of squared distances from
	 * the mean, sum of squares; all 0 if no element is finite.
	 */
	float min, max;
	double mean, deviations, squares;
};

/* A request.  The caller keeps it, and all that it points to, until done is called.  Requests
 * end in any order.
 */
struct device_io {
	enum device_what what;
	int number; /* the device that `from` or `to` belongs to */
	uint64_t size;
	void *to; /* must not overlap `from` */
	const void *from;
	struct device_event *after; /* begins when this event has passed; NULL: at once */
	uint64_t wait_ms;           /* for `after`; 0: that of the options */
	/* Called in the port's thread.
	 * 0.  With size 0 this tells only that `after` has passed.
	 * Nothing was begun:
	 * -ETIMEDOUT: `after` did not pass in time.
	 * -ECANCELED: the port closes.
	 * -EINVAL: the device is not in use.
	 * -EFAULT: from or to is not memory of that device.
	 * -ENOSYS: there is no kernel for this on that device.
	 * The content of `to` is undefined; a stuck device may still write it if it is pinned:
	 * -EIO: the device failed, or makes no progress.
	 */
	void (*done)(struct device_io *io, int result);
	struct {
		STAILQ_ENTRY(device_io) next;
		uint64_t until_ms;
		uint64_t issued; /* bytes */
		unsigned under_way;
		int result;
		bool from_pageable, to_pageable;
	} port; /* the port's */
};

/* A copy that `preserve` made: the bytes as they were at that point of the trainer's stream.
 * Requests that read it must name `written` as their `after`.
 */
struct device_kept {
	int number; /* of the device; DEVICE_NONE: in host memory */
	void *memory;
	uint64_t size;
	struct device_event *written; /* valid until release */
	uint64_t port;                /* the port's */
};

struct device_figures {
	uint64_t kept; /* bytes that are preserved in memory of devices */
};

struct device_ops {
	const char *name;
	/* On error the log says why.
	 * -ENODEV: no device, driver or runtime, or one that is too old.
	 * -EINVAL: options.
	 * -ENOMEM.
	 */
	int (*open)(struct device **d, const struct device_options *options);
	/* Requests that have not begun end with -ECANCELED, the others as they do, within
	 * stuck_ms.  The caller has unmarked all events and released all copies before.
	 */
	void (*close)(struct device *d);

	/* Prepares all that the device may need later.  May wait for the device: called before
	 * training begins, once for each device.  On error the log says why.
	 * -EINVAL: no such device.
	 * -ENOMEM.
	 * -EIO.
	 */
	int (*use)(struct device *d, int number);
	/* Finds out whose memory this is.  -EIO. */
	int (*where)(struct device *d, const void *memory, struct device_where *where);
	/* Makes whole pages of the caller's host memory pinned, until unpin.
	 * -EINVAL: they are pinned already.
	 * -ENOMEM.
	 * -EIO.
	 */
	int (*pin)(struct device *d, void *memory, uint64_t size);
	void (*unpin)(struct device *d, void *memory);
	/* Allocates memory of the device, with any content.  May wait for the device.
	 * -EINVAL: the device is not in use, or size is 0.
	 * -ENOMEM: it has no memory left.
	 * -EIO.
	 */
	int (*alloc)(struct device *d, int number, uint64_t size, void **memory);
	/* Frees memory that no request uses and no stream has a copy of to make.  May wait for
	 * the device.
	 */
	void (*free)(struct device *d, int number, void *memory);

	/* Makes an event at the point that the stream has reached.
	 * -EBUSY: the stream is being captured into a graph.
	 * -EINVAL: the device is not in use.
	 * -ENOMEM.
	 * -EIO.
	 */
	int (*mark)(struct device *d, int number, void *stream, struct device_event **event);
	/* No request may wait for the event. */
	void (*unmark)(struct device *d, struct device_event *event);
	/* Enqueues a copy of the range on the stream, so that the trainer may enqueue changes
	 * of it afterwards.  `to` is pinned host memory of the caller's; NULL: memory of the
	 * port's on the same device.
	 * -ENOSPC: `keep` would be exceeded.
	 * -ENOMEM: the device has no memory left.
	 * -EINVAL: `to` is not pinned, size is 0, or the device is not in use.
	 * -EBUSY: as of mark.
	 * -EIO: as of mark.
	 */
	int (*preserve)(struct device *d, int number, void *stream, const void *from,
			uint64_t size, void *to, struct device_kept **kept);
	/* Frees kept at once, and its memory when the stream has done the copy.  No request may
	 * read the copy.
	 */
	void (*release)(struct device *d, struct device_kept *kept);

	/* Starts a request; its result, errors too, comes by done. */
	void (*submit)(struct device *d, struct device_io *io);
	void (*figures)(struct device *d, struct device_figures *f);
};

extern const struct device_ops device_cuda;

/* Fills in the defaults.  -EINVAL: a value is out of range. */
int device_options_check(struct device_options *options);

#endif
