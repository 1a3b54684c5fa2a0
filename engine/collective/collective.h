/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_COLLECTIVE_COLLECTIVE_H
#define ENGINE_COLLECTIVE_COLLECTIVE_H

/* The port to operations between the devices of several ranks.  No call but close waits for a
 * device or a peer; a port never retries and never chooses.
 *
 *   rank 0   open, which makes the id -- warms up -- ready   launch: 3 MiB to 1          done
 *                           | sent by the caller                     : the port's stream
 *   rank 1                open(id) ----------------- ready   launch: 3 MiB from 0        done
 *
 * A *communicator* is ranks 0 to nranks - 1, each with one device, in one process or many.
 * open connects them and warms up, because memory, code and connections may wait for devices:
 * it is best called before training begins.  Operations are enqueued on a stream of the port's
 * own, which has the least priority, so that the trainer's streams go first.
 *
 * Operations of one rank run one after the other, so all ranks must launch those that they take
 * part in in the same order: two ranks that launch two operations in different orders wait for
 * each other until the deadline.  A rank without a part in an operation does not launch it.
 *
 * After its first error a communicator has *failed*: operations under way end with that error,
 * and nothing can be launched any more.  Peers may not notice.  The caller tells them at once,
 * and they abort, because a peer's memory may be gone.  Then the caller opens another
 * communicator over the ranks that are left.
 *
 * Threads: launch is for the trainer's thread, where the device is current.  All other
 * functions: any thread; close and open one at a time.  done is called in one thread of the
 * port's, and may call all functions but close.
 */

#include "engine/device/device.h"

struct collective;

struct collective_id {
	uint8_t bytes[128];
};

struct collective_options {  /* 0 of each: the default */
	const char *library; /* the file to load in place of NCCL by its usual name */
	/* The caller's until close.  NULL: host memory only. */
	struct device *device;
	int number;       /* of the device, which is in use */
	uint64_t open_ms; /* the time until all ranks must be ready; 0: 60 s */
	uint64_t wait_ms; /* the time from launch until the event `after` must pass; 0: 10 s */
	/* The time from there until the operation must end, peers that are late included; 1 s
	 * is added for each GB.  0: 1 s.
	 */
	uint64_t stuck_ms;
	/* The time that the library has to release an operation that failed; 0: 5 s. */
	uint64_t end_ms;
};

struct collective_move {
	bool to_peer;  /* memory is sent to the peer; else received from it */
	unsigned peer; /* may be this rank itself */
	uint64_t size; /* 0: no move, and none at the peer */
	void *memory;  /* of the communicator's device, or pinned */
};

enum collective_what {
	/* Sends and receives.  The moves between two ranks pair up in their order on either
	 * side, within a launch and over launches, and both sides name the same size.  The
	 * moves of one launch run at the same time.
	 */
	COLLECTIVE_MOVES,
	/* All-gather: all ranks launch it with the same size, and each gets the bytes of all,
	 * in the order of ranks.
	 */
	COLLECTIVE_GATHER_ALL,
};

/* An operation.  The caller keeps it, its moves and its memory until done is called. */
struct collective_io {
	enum collective_what what;
	unsigned nmoves;
	const struct collective_move *moves;
	const void *from; /* gather: size bytes; may be this rank's place in `to` */
	void *to;         /* gather: nranks * size bytes */
	uint64_t size;    /* gather: > 0 */
	/* The operation begins when this event has passed; NULL: at once. */
	struct device_event *after;
	/* Called in the port's thread.  After an error the content of memory to be written is
	 * undefined, and nothing touches it any more, unless the library did not release the
	 * operation within end_ms: then the result is -EIO, and a warning is logged.
	 * 0.
	 * -ETIMEDOUT: the operation or its event took too long.
	 * -EIO: the device, the network or the library failed.
	 * -ECANCELED: by abort or close.
	 */
	void (*done)(struct collective_io *io, int result);
	struct {
		STAILQ_ENTRY(collective_io) next;
		struct device_event *ended;
		uint64_t bytes; /* sent and received */
		uint64_t until_ms;
		int result;
		bool passed; /* `after` has */
	} port;              /* the port's */
};

struct collective_about {
	int version; /* of the library, as it counts them; 0: not loaded */
	unsigned rank, nranks;
	int number; /* of the device; DEVICE_NONE */
	int state;  /* what state() returns */
	/* operations: all, ended without an error, ended with one */
	uint64_t launched, ended, failed;
	/* By operations that ended without error; a gather: to and from all other ranks. */
	uint64_t bytes_sent, bytes_received;
	char error[160]; /* the text of the first error; empty: none */
};

struct collective_ops {
	const char *name;
	/* Starts to open a communicator in the port's thread, and returns at once.  id: the one
	 * that the first rank made; NULL: this rank makes it.
	 * -EINVAL: rank, nranks, options or id.
	 * -ENODEV: built without the library's header.
	 * -ENOMEM.
	 * -EAGAIN: no thread.
	 */
	int (*open)(struct collective **c, const struct collective_options *options,
		    unsigned rank, unsigned nranks, const struct collective_id *id);
	/* Operations under way end with -ECANCELED; returns when done was called for all, after
	 * at most a few times end_ms.
	 */
	void (*close)(struct collective *c);
	/* Gives the id.  -EINPROGRESS: it is not made yet.  After a failure, what state
	 * returns.
	 */
	int (*id)(struct collective *c, struct collective_id *id);
	/* After a failure the log has said why, once.
	 * 0: ready.
	 * -EINPROGRESS: the communicator is being opened.
	 * -ENODEV: no library, or one that is too old.
	 * -ETIMEDOUT: a rank did not come in time, or an operation took too long.
	 * -ECANCELED: aborted.
	 * -EIO: the device, the network or the library failed.
	 * -ENOMEM.
	 * -EAGAIN: no thread.
	 */
	int (*state)(struct collective *c);
	/* Enqueues an operation; must not be called within a group of the trainer's own.  After
	 * an error done is not called, nothing was begun, and what peers launched for their
	 * part will not end.
	 * -EINVAL: a peer or a size.
	 * -EFAULT: memory that the device cannot access.
	 * -EOVERFLOW: the sum of sizes does not fit 64 bits.
	 * Errors of state, where the communicator is not ready.
	 * -EIO: the library refused the operation; the communicator has failed by this.
	 * -ETIMEDOUT: the library has not enqueued the operation before; so it has failed, too.
	 */
	int (*launch)(struct collective *c, struct collective_io *io);
	/* Makes the communicator fail with -ECANCELED, unless it has failed already.  Returns
	 * at once.
	 */
	void (*abort)(struct collective *c);
	/* Returns true if the communicator has failed, done was called for all operations, and
	 * the library is not waited for any more, so that close returns at once.
	 */
	bool (*is_over)(struct collective *c);
	void (*about)(struct collective *c, struct collective_about *about);
};

extern const struct collective_ops collective_nccl; /* over device_cuda */

#endif
