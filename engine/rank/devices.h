/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_RANK_DEVICES_H
#define ENGINE_RANK_DEVICES_H

/* The devices in whose memory a rank has states: the port, the trainer's stream on each, and
 * the place that it had come to when the rank last said that its states are whole.  Copies
 * between them and host memory, of many pieces.
 *
 *   trainer's stream  --- adam --- mark(step_end) --- backward ---
 *                                      |
 *   a reader's copy                after ... copies ... done
 */

#include "engine/device/device.h"

#include <sys/uio.h>

struct devices;
struct devices_mark;
struct devices_part;

/* Errors of the port's open. */
int devices_open(struct devices **d, const struct device_ops *ops,
		 const struct device_options *options);
/* No mark is held; nothing is under way. */
void devices_close(struct devices *d);

/* What it is made of; closed with it. */
struct device *devices_port(struct devices *d);

/* ---- trainer's thread ---- */

/* Memory of that device may come; its states change on that stream.  Called again: on another
 * stream, from the next mark on.  -EINVAL: no such device; -ENOMEM, -EIO.
 */
int devices_use(struct devices *d, int number, void *stream);
/* The device whose memory that is, or DEVICE_NONE.  -EINVAL: of one that is not in use; -EIO.
 */
int devices_where(struct devices *d, const void *memory, int *number);
/* What has been enqueued by now is what readers are to see. */
void devices_mark(struct devices *d);
/* Whole pages of the host's memory that devices reach themselves, until unpin.  Errors of the
 * port's pin.
 */
int devices_pin(struct devices *d, void *memory, uint64_t size);
void devices_unpin(struct devices *d, void *memory);

/* ---- any thread ---- */

/* The newest of the device, the caller's to put; NULL: there is none yet.  -EIO, -EBUSY,
 * -ENOMEM: why it could not be made.
 */
int devices_newest(struct devices *d, int number, struct devices_mark **mark);
void devices_mark_put(struct devices *d, struct devices_mark *mark);

struct devices_figures { /* of copies: ever */
	uint64_t from_bytes, to_bytes, errors;
	uint64_t kept; /* in memory of devices, now */
};
void devices_figures(struct devices *d, struct devices_figures *f);

struct device_event *devices_mark_event(const struct devices_mark *mark);

/* ---- copies ---- */

struct devices_copy {
	int number;
	/* DEVICE_COPY with `from` NULL: between the parts and host.  Else on the device:
	 * parts[i], of any length, from from[i], whose length the port's size is.
	 */
	enum device_what what;
	const struct iovec *from;
	bool to_device;
	bool pinned; /* parts are pinned host memory, written before `after` */
	unsigned n;
	const struct iovec *parts;  /* not looked at any more when it has begun */
	void *host;                 /* as many bytes as all of them */
	struct device_event *after; /* NULL: at once; the caller's until done */
	/* 0, or an errno of the port's; from the port's thread, or where there is nothing to
	 * do, from the caller's. The copy is the caller's again.
	 */
	void (*done)(struct devices_copy *c, int result);
	void *owner;
	struct devices *devices; /* from here on ours */
	struct devices_copy *next;
	uint64_t sequence;
	struct devices_part *ours;
	_Atomic unsigned left;
	_Atomic int result;
};

/* -ENOMEM: done is not called. */
int devices_copy_begin(struct devices *d, struct devices_copy *c);
/* Trainer's thread: after what its stream has been given by now; returns when it is over. */
int devices_copy_now(struct devices *d, struct devices_copy *c);
/* Returns when the copies that have begun are over. */
void devices_drain(struct devices *d);

/* ---- devices-keep.c: bytes as they were when the trainer's stream came there ---- */

struct devices_kept;

#define DEVICES_HOST_MAX (UINT64_C(1) << 30)

/* Trainer's thread: pinned memory of the host for what the devices' has no room for.  -EINVAL:
 * more than DEVICES_HOST_MAX, or none; -ENOMEM, -EIO.
 */
int devices_keep_on_host(struct devices *d, uint64_t bytes);
/* Trainer's thread, which waits for nothing: the stream may change the parts from here on.
 * Errors of preserve; -EAGAIN: no room on the host either.
 */
int devices_keep(struct devices *d, int number, const struct iovec *parts, unsigned n,
		 struct devices_kept **kept);
/* Where it is on the device when `written` has passed; NULL: in several runs, or on the host.
 */
void *devices_kept_memory(const struct devices_kept *k, struct device_event **written);
/* Any thread. */
struct devices_kept *devices_kept_get(struct devices_kept *k);
void devices_kept_put(struct devices_kept *k);
/* Bytes [offset, offset + size) of it to c->host; c->done as above.  -ENOMEM. */
int devices_kept_begin(struct devices_kept *k, uint64_t offset, uint64_t size,
		       struct devices_copy *c);

#endif
