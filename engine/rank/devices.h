/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_RANK_DEVICES_H
#define ENGINE_RANK_DEVICES_H

/* The devices in whose memory a rank has states: the port, the trainer's stream on each, and
 * the newest mark on it, an event up to which the rank's states are whole.  Copies of many
 * pieces between devices and host memory.
 *
 *   trainer's stream  --- adam --- mark(step_end) --- backward ---
 *                                      |
 *   a reader's copy                after ... copies ... done
 */

#include "engine/base/queue.h"
#include "engine/device/device.h"

#include <sys/uio.h>

struct devices;
struct devices_mark;
struct devices_part;

/* Errors of the port's open. */
int devices_open(struct devices **d, const struct device_ops *ops,
		 const struct device_options *options);
/* Closes the port.  No mark is held, and no copy is under way. */
void devices_close(struct devices *d);

/* Returns the port's device, which is closed with d. */
struct device *devices_port(struct devices *d);

/* ---- trainer's thread ---- */

/* Takes a device into use: its states change on that stream.  A later call changes the stream,
 * from the next mark on.
 * -EINVAL: there is no such device.
 * -ENOMEM
 * -EIO
 */
int devices_use(struct devices *d, int number, void *stream);
/* Sets *number to the device whose memory that is, or to DEVICE_NONE.
 * -EINVAL: the device is not in use.
 * -EIO
 */
int devices_where(struct devices *d, const void *memory, int *number);
/* Marks every stream: readers see the states as all work enqueued by now leaves them. */
void devices_mark(struct devices *d);
/* Pins whole pages of host memory for access by the devices themselves.  Errors of the port's
 * pin.
 */
int devices_pin(struct devices *d, void *memory, uint64_t size);
void devices_unpin(struct devices *d, void *memory);
/* Allocates memory of the device that was taken into use first.  May wait for the device.
 * -ENODEV: no device is in use.
 * Errors of the port's alloc.
 */
int devices_alloc(struct devices *d, uint64_t size, int *number, void **memory);
/* Waits for the trainer's stream and for copies of readers, and frees the memory.  Where the
 * stream does not come to an end in time, or is being captured, or memory of the host runs out,
 * the memory is left to the device, and a line of the log says so.
 */
void devices_free(struct devices *d, int number, void *memory);

/* ---- any thread ---- */

/* Sets *mark to the newest mark of a device in use, the caller's to put; NULL: there is none.
 * Returns the error with which the newest mark could not be made.
 * -EBUSY: the trainer's stream was being captured.
 * -EIO: the device failed.
 * -ENOMEM.
 */
int devices_newest(struct devices *d, int number, struct devices_mark **mark);
void devices_mark_put(struct devices *d, struct devices_mark *mark);
/* Returns the mark's event; NULL: mark is NULL. */
struct device_event *devices_mark_event(const struct devices_mark *mark);

struct devices_figures {
	uint64_t from_bytes, to_bytes, errors; /* of copies, ever */
	uint64_t kept;                         /* bytes in memory of devices, now */
};
void devices_figures(struct devices *d, struct devices_figures *f);

/* ---- copies ---- */

struct devices_copy {
	int number;
	/* DEVICE_COPY with `from` NULL: between the parts and host.  Sums, `from` NULL: of the
	 * elements of all parts, one after the other.  Else on the device: to parts[i], of any
	 * length, from from[i], whose length is the port's size.
	 */
	enum device_what what;
	const struct iovec *from;
	bool to_device;
	bool pinned; /* parts are pinned host memory, written before `after` */
	unsigned n;
	const struct iovec *parts; /* not used any more when the copy has begun */
	void *host; /* as many bytes as all parts together; or a struct device_sums */
	struct device_event *after; /* NULL: at once; the caller's until done */
	/* result: 0, or an error of the port.  Called by the port's thread, or, where there is
	 * nothing to copy, by the caller's.  From here on the struct is the caller's again.
	 */
	void (*done)(struct devices_copy *c, int result);
	void *owner;
	/* set by devices_copy_begin: */
	struct devices *devices;
	LIST_ENTRY(devices_copy) link;
	uint64_t sequence;
	struct devices_part *ours;
	_Atomic unsigned left;
	_Atomic int result;
};

/* Begins the copy.  Does not call done on error.
 * -EOPNOTSUPP: sums of pinned parts, or of a part that has not whole elements.
 * -ENOMEM
 */
int devices_copy_begin(struct devices *d, struct devices_copy *c);
/* Copies after all work that the stream has been given by now, and waits for the end.
 * Trainer's thread.  Errors of the port.
 */
int devices_copy_now(struct devices *d, struct devices_copy *c);
/* Waits for the copies that have begun by now. */
void devices_drain(struct devices *d);

/* ---- devices-preserve.c: bytes as they are when the trainer's stream comes there ---- */

struct devices_preserved;

#define DEVICES_HOST_MAX (UINT64_C(1) << 30)

/* Pins host memory for bytes that devices have no room to keep.  Trainer's thread.
 * -EINVAL: bytes is 0, or more than DEVICES_HOST_MAX.
 * -ENOMEM
 * -EIO
 */
int devices_preserve_on_host(struct devices *d, uint64_t bytes);
/* Enqueues a copy of the parts, so that later work of the stream may change them.  Trainer's
 * thread, which waits for nothing.
 * -EAGAIN: there is no room on the host either.
 * Errors of the port's preserve.
 */
int devices_preserve(struct devices *d, int number, const struct iovec *parts, unsigned n,
		     struct devices_preserved **preserved);
/* Returns the device memory that has all the bytes when `written` has passed; NULL: they lie in
 * several runs, or on the host.
 */
void *devices_preserved_memory(const struct devices_preserved *k,
			       struct device_event **written);
/* Any thread. */
void devices_preserved_put(struct devices_preserved *k);
/* Copies bytes [offset, offset + size) of k to c->host, then calls c->done.
 * -ENOMEM
 */
int devices_preserved_begin(struct devices_preserved *k, uint64_t offset, uint64_t size,
			    struct devices_copy *c);

#endif
