/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_DEVICES_H
#define ENGINE_DEVICES_H

/* The devices in whose memory a rank has states: the port, the trainer's stream on each, and the place that it had come to
 * when the rank last said that its states are whole.  Copies between them and host memory, of many pieces.
 *
 *   trainer's stream  --- adam --- mark(step_end) --- backward ---
 *                                      |
 *   a reader's copy                after ... copies ... done
 */

#include "engine/device.h"

#include <sys/uio.h>

struct devices;
struct devices_mark;

/* Errors of the port's open. */
int devices_open(struct devices **d, const struct device_ops *ops,
		 const struct device_options *options);
/* No mark is held; nothing is under way. */
void devices_close(struct devices *d);

/* What it is made of; closed with it. */
struct device *devices_port(struct devices *d);

/* ---- trainer's thread ---- */

/* Memory of that device may come; its states change on that stream.  Called again: on another stream, from the next mark
 * on.  -EINVAL: no such device; -ENOMEM, -EIO.
 */
int devices_use(struct devices *d, int number, void *stream);
/* The device whose memory that is, or DEVICE_NONE.  -EINVAL: of one that is not in use; -EIO. */
int devices_where(struct devices *d, const void *memory, int *number);
/* What has been enqueued by now is what readers are to see. */
void devices_mark(struct devices *d);

/* ---- any thread ---- */

/* The newest of the device, the caller's to put; NULL: there is none yet.  -EIO, -EBUSY, -ENOMEM: why it could not be made.
 */
int devices_newest(struct devices *d, int number, struct devices_mark **mark);
void devices_mark_put(struct devices *d, struct devices_mark *mark);

struct devices_figures { /* ever */
	uint64_t from_bytes, to_bytes, errors;
};
void devices_figures(struct devices *d, struct devices_figures *f);

/* ---- copies ---- */

struct devices_copy {
	int number;
	bool to_device;
	unsigned n;
	const struct iovec
		*parts; /* of the device's memory; not looked at any more when it has begun */
	void *host;     /* as many bytes as all of them */
	struct devices_mark *mark; /* NULL: at once; held by the caller until done */
	/* 0, or an errno of the port's; from the port's thread, or where there is nothing to do, from the caller's.
	 * The copy is the caller's again.
	 */
	void (*done)(struct devices_copy *c, int result);
	void *owner;
	struct devices *devices; /* from here on ours */
	struct devices_copy *next;
	uint64_t sequence;
	struct device_io *ios;
	_Atomic unsigned left;
	_Atomic int result;
};

/* -ENOMEM: done is not called. */
int devices_copy_begin(struct devices *d, struct devices_copy *c);
/* Trainer's thread: after what its stream has been given by now; returns when it is over. */
int devices_copy_now(struct devices *d, struct devices_copy *c);
/* Returns when the copies that have begun are over. */
void devices_drain(struct devices *d);

#endif
