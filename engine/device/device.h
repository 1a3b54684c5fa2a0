/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_DEVICE_DEVICE_H
#define ENGINE_DEVICE_DEVICE_H

/* Memory of accelerators, without waiting for them.  A port: it never retries and never
 * chooses.
 *
 *   trainer's stream   --- backward --- mark --- adam ------ preserve ---- backward --->
 *                                        |                      | copy, event
 *   the port's thread        submit ...  after  copies, in chunks, on a stream of its own ... done
 *
 * One port is for all devices of the process, numbered from 0 as its runtime does; it uses
 * those alone that it was told of (use), so that no context appears on another's.  A *stream*
 * is the trainer's, as the runtime has it (cudaStream_t), NULL its default stream; the port
 * enqueues nothing there but events and what it is told to preserve. An *event* is the place
 * that a stream had come to when it was marked.
 *
 * Trainer's thread: use, where, pin, unpin, mark, preserve: whoever calls these has a device of
 * the trainer's as its current one, and it stays that.  Any thread: submit, unmark, release,
 * figures.  One thread of the port's: done.
 */

#include "engine/base/base.h"

struct device;
struct device_event;

#define DEVICE_NONE (-1) /* the number of host memory */

struct device_options {      /* 0 of each: the default */
	const char *library; /* to load in place of the runtime by its usual names */
	uint64_t
		chunk; /* bytes moved at a time, and of a staging buffer: 4 MiB; at least 8 KiB */
	unsigned
		chunks; /* staging buffers of each device: 4; at least 2, 1 GiB in all at most */
	uint64_t
		keep; /* bytes of each device's memory for what is preserved; 0: none; taken when they are needed, or, where
			 * that could wait for the device, by use */
	uint64_t wait_ms;  /* how long a request waits before it begins: 10 s */
	uint64_t stuck_ms; /* a device without progress for so long is given up: 10 s */
};

struct device_where {
	int number;  /* DEVICE_NONE: host memory, or none at all */
	bool pinned; /* host memory that devices reach themselves */
};

enum device_what {
	DEVICE_COPY,        /* size: bytes.  Between a device and host memory, or on devices */
	DEVICE_F32_TO_BF16, /* size: elements.  On the device; the bits of convert.h */
	DEVICE_BF16_TO_F32,
	DEVICE_F32_TO_F16,
	DEVICE_F16_TO_F32,
	DEVICE_SUMS_F32, /* size: elements, of the device's memory; to: struct device_sums of the host's */
	DEVICE_SUMS_BF16,
	DEVICE_SUMS_F16,
	DEVICE_RELEASE, /* the port's */
};

struct device_sums {
	double squares; /* of what is finite; the same for the same elements */
	uint64_t nans, infinities;
};

/* The caller's until done is called, and so is all that it names.  Requests end in any order.
 */
struct device_io {
	enum device_what what;
	int number; /* of the device whose memory from or to is */
	uint64_t size;
	void *to; /* no overlap with from */
	const void *from;
	struct device_event
		*after;   /* it begins when the stream has come there; NULL: at once */
	uint64_t wait_ms; /* 0: as the options say */
	/* 0; size 0 is a way to be told that after has passed.  Nothing was begun: -ETIMEDOUT:
	 * it waited for too long, -ECANCELED: the port closes, -EINVAL: no such device in use,
	 * -EFAULT: from or to is no memory of that device, -ENOSYS: no such code for it.  -EIO:
	 * the device failed or does not go on; what was to be written is undefined, and where
	 * it is pinned memory a stuck device may write it yet.  From the port's thread.
	 */
	void (*done)(struct device_io *io, int result);
	struct {
		struct device_io *next;
		uint64_t until_ms;
		uint64_t issued; /* bytes */
		unsigned under_way;
		int result;
		bool from_pageable, to_pageable;
	} port; /* the port's */
};

/* Bytes as they were when the trainer's stream came there.  To be read by requests after
 * written.
 */
struct device_kept {
	int number; /* DEVICE_NONE: in host memory */
	void *memory;
	uint64_t size;
	struct device_event *written; /* until release */
	uint64_t port;                /* the port's */
};

struct device_figures {
	uint64_t kept; /* bytes that are preserved in memory of devices */
};

struct device_ops {
	const char *name;
	/* -ENODEV: no device, driver or runtime, or too old ones; a line says which.  -EINVAL:
	 * options.  -ENOMEM.
	 */
	int (*open)(struct device **d, const struct device_options *options);
	/* What has not begun is -ECANCELED; what has ends, within stuck_ms.  All events and all
	 * that was preserved have been given back.
	 */
	void (*close)(struct device *d);

	/* Prepares all that a device may later need, which may wait for it: before training
	 * begins, once for each device. -EINVAL: no such device.  -ENOMEM, -EIO: a line says
	 * why.
	 */
	int (*use)(struct device *d, int number);
	/* -EIO. */
	int (*where)(struct device *d, const void *memory, struct device_where *where);
	/* Makes host memory pinned, until unpin: the caller's, in whole pages.  -ENOMEM, -EIO,
	 * -EINVAL: it is already.
	 */
	int (*pin)(struct device *d, void *memory, uint64_t size);
	void (*unpin)(struct device *d, void *memory);

	/* The place that this stream of that device has come to.  -EBUSY: the stream is being
	 * captured.  -EINVAL: the device is not in use.  -ENOMEM, -EIO.
	 */
	int (*mark)(struct device *d, int number, void *stream, struct device_event **event);
	/* No request waits for it. */
	void (*unmark)(struct device *d, struct device_event *event);
	/* Enqueues a copy, so that the trainer may enqueue what changes the range: to pinned
	 * host memory of the caller's, or, to NULL, to memory of the port's on the same device.
	 * -ENOSPC: more than keep; -ENOMEM: the device has no room.  -EINVAL: to is not pinned,
	 * size is 0, or the device not in use.  -EBUSY, -EIO: as mark.
	 */
	int (*preserve)(struct device *d, int number, void *stream, const void *from,
			uint64_t size, void *to, struct device_kept **kept);
	/* No request reads it.  Its memory is free when the stream has come past it, and kept
	 * is at once.
	 */
	void (*release)(struct device *d, struct device_kept *kept);

	void (*submit)(struct device *d, struct device_io *io);
	void (*figures)(struct device *d, struct device_figures *f);
};

extern const struct device_ops device_host; /* ordinary memory, see device-host.h */
extern const struct device_ops device_cuda;

/* Fills in the defaults.  -EINVAL. */
int device_options_check(struct device_options *options);

#endif
