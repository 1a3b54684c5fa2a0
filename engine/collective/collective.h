/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_COLLECTIVE_COLLECTIVE_H
#define ENGINE_COLLECTIVE_COLLECTIVE_H

/* Bytes between the devices of several ranks, without waiting for them.  A port: it never
 * retries and never chooses.
 *
 *   rank 0   open, which makes the id -- warms up -- ready     launch: 3 MiB to 1       done
 *                           | sent by the caller                      : the port's stream, its peers' too
 *   rank 1                open(id) ------------------ ready     launch: 3 MiB from 0     done
 *
 * A *communicator* is ranks 0 to nranks - 1, each with one device, in one process or many.  It
 * connects them and warms up when it is opened, as what that takes (memory, code, connections)
 * may wait for devices: best before training begins. What is launched is enqueued on a stream
 * of the port's own, of the least priority, so that the trainer's goes first.
 *
 * Launches of one rank run one after the other.  So all ranks launch what they have a part in
 * in one order: two that do it in two orders wait for each other until the deadline.  A rank
 * that has no part in an operation launches nothing.
 *
 * With the first error of whatever kind the communicator has *failed*: what is under way ends
 * with that error, nothing can be launched any more, and the others, who may hear nothing of
 * it, are told by the caller, at once: they abort, as a peer's memory may be gone.  Another one
 * is opened then, over those that are left.
 *
 * Trainer's thread, in which the device is used: launch.  Any thread: all others, and one at a
 * time those of close and open. One thread of the port's: done, which may call all but close.
 */

#include "engine/device/device.h"

struct collective;

struct collective_id {
	uint8_t bytes[128];
};

struct collective_options {    /* 0 of each: the default */
	const char *library;   /* to load in place of NCCL by its usual name */
	struct device *device; /* kept until close.  collective_host: NULL: host memory alone */
	int number;            /* of the device, in use */
	uint64_t open_ms;      /* all ranks are ready within: 60 s */
	uint64_t wait_ms;      /* from launch until its event has passed: 10 s */
	/* From there to its end, its peers' being late included, with 1 s for each GB: 1 s. */
	uint64_t stuck_ms;
	uint64_t end_ms; /* for the library to let go what has failed: 5 s */
};

struct collective_move {
	bool to_peer;  /* memory is read; else written */
	unsigned peer; /* this rank too */
	uint64_t size; /* 0: nothing, there neither */
	void *memory;  /* of the communicator's device, or pinned */
};

enum collective_what {
	/* Those between the same two ranks pair up in their order on each, in this launch and
	 * the next; sizes are the same on both sides.  All of a launch are under way together.
	 */
	COLLECTIVE_MOVES,
	/* All ranks launch it, with the same size: each has what all gave, in the order of
	 * ranks.
	 */
	COLLECTIVE_GATHER_ALL,
};

/* The caller's until done is called, and so are its memory and moves. */
struct collective_io {
	enum collective_what what;
	unsigned nmoves;
	const struct collective_move *moves;
	const void *from; /* size bytes; may be their place in to */
	void *to;         /* nranks * size bytes */
	uint64_t size;    /* > 0 */
	/* It begins when the stream has come there; NULL: at once. */
	struct device_event *after;
	/* 0; -ETIMEDOUT: it or its event took too long; -EIO: the device, the network or the
	 * library failed; -ECANCELED: abort or close.  After an error what was to be written is
	 * undefined; nothing touches the memory any more, unless the library did not let go
	 * within end_ms: -EIO then, and a line says so.  From the port's thread.
	 */
	void (*done)(struct collective_io *io, int result);
	struct {
		struct collective_io *next;
		struct device_event *ended;
		uint64_t bytes; /* sent and received */
		uint64_t until_ms;
		int result;
		bool passed;
		bool is_asked; /* whether its event has passed */
	} port;                /* the port's */
};

struct collective_about {
	int version; /* of the library, as it counts them; 0: not loaded */
	unsigned rank, nranks;
	int number;                       /* of the device; DEVICE_NONE */
	int state;                        /* as by state() */
	uint64_t launched, ended, failed; /* launches; those ended without and with an error */
	/* Of those that ended without; a gather: to and from all others. */
	uint64_t bytes_sent, bytes_received;
	char error[160]; /* the first one's text; empty: none */
};

struct collective_ops {
	const char *name;
	/* Returns at once; the rest is the port's thread's.  id: NULL: this rank makes it; else
	 * what that one made. -EINVAL: rank, nranks, options or id.  -ENODEV: built without.
	 * -ENOMEM, -EAGAIN: no thread.
	 */
	int (*open)(struct collective **c, const struct collective_options *options,
		    unsigned rank, unsigned nranks, const struct collective_id *id);
	/* Within some end_ms: what is under way is -ECANCELED, and done has been called for all
	 * that was launched.
	 */
	void (*close)(struct collective *c);
	/* 0: there it is; -EINPROGRESS: not yet; else as state. */
	int (*id)(struct collective *c, struct collective_id *id);
	/* 0: ready; -EINPROGRESS: it is being opened.  -ENODEV: no library, or too old;
	 * -ETIMEDOUT: not all came, or an operation took too long; -EIO, -ENOMEM, -EAGAIN;
	 * -ECANCELED: aborted.  A line said why, once.
	 */
	int (*state)(struct collective *c);
	/* Enqueues it, and not within a group of the trainer's own.  0: done will be called.
	 * Else it will not, nothing was begun, and peers that launched their part are in vain:
	 * -EINVAL: a peer, a size; -EFAULT: memory that the device does not reach; -EOVERFLOW;
	 * what state says. -EIO, -ETIMEDOUT: it has failed now: the library refused it, or has
	 * not enqueued the last one yet.
	 */
	int (*launch)(struct collective *c, struct collective_io *io);
	/* It fails, with -ECANCELED, unless it has.  Returns at once. */
	void (*abort)(struct collective *c);
	/* It has failed, its library has let go or is not waited for any more, and done has
	 * been called for all that was launched: close returns at once.
	 */
	bool (*is_over)(struct collective *c);
	void (*about)(struct collective *c, struct collective_about *about);
};

extern const struct collective_ops collective_host; /* of one process, over device_host */
extern const struct collective_ops collective_nccl; /* over device_cuda */

#endif
