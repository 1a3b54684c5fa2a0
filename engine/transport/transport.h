/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TRANSPORT_TRANSPORT_H
#define ENGINE_TRANSPORT_TRANSPORT_H

/* Point to point between the engines of two processes.  A port: it never blocks, never retries,
 * never chooses.  Two kinds of service, and an implementation has one or both:
 *
 *   messages   connect, send, turn: whole messages, in order per peer, each delivered once or
 *              never.  A lost peer may be seen (gone); else the engine's own heartbeats find it.
 *   memory     attach, get: reads another process's memory without its help.
 *
 *   loop   messages and memory inside one process, for tests: N engines, stepped
 *   host   memory of processes of this machine (process_vm_readv, sealed memfds)
 *   zmq    messages, ZeroMQ over TCP, CURVE
 *   ucx    messages between ranks of a closed fabric, UCX; loaded at run time.  Nobody is authenticated
 */

#include "engine/base/base.h"

#include <sys/types.h>
#include <sys/uio.h>

enum {
	TRANSPORT_MESSAGE_MAX =
		2 << 20, /* bytes; larger ones are never sent, and dropped if received */
	TRANSPORT_PEERS_MAX = 65536,
};

struct transport_config {
	const char *bind; /* zmq: "tcp://10.0.0.1:21017", port 0 or absent: any free one below
				   * 32768; NULL: only connects out.  ucx: "ucx://10.0.0.1".  loop: ignored */
	const uint8_t
		*key;    /* 32 bytes, the job's secret: CURVE; NULL: plain, unauthenticated */
	bool reads_only; /* key is the one for readers (engine/base/key.h): connects out only */
	uint32_t queue_max;  /* messages waiting per peer before send says -EAGAIN; 0: 1000 */
	uint32_t peers_max;  /* numbers at a time; 0: TRANSPORT_PEERS_MAX */
	const char *devices; /* ucx: those it may use, "lo" or "mlx5_0:1,mlx5_1:1" */
	bool rdma;           /* ucx: they are InfiniBand's or RoCE's */
	uint32_t expected;   /* zmq: so many will connect to us; of others no more at a time
				   * than a quarter of RLIMIT_NOFILE */
};

/* Takes one received message; data lasts until it returns.  May call send, not turn or close.
 */
typedef void (*transport_receive)(void *owner, uint32_t peer, const void *data, size_t size);

/* What the owner's control page (engine/catalog/control-page.h) must say around a get. */
struct transport_target {
	pid_t pid;
	uint64_t control;   /* address of the owner's control page */
	uint64_t cookie[2]; /* its first 16 bytes */
};

struct transport; /* each implementation has its own; the first member is the ops pointer */

struct transport_ops {
	const char *name;

	/* -EADDRINUSE, -EADDRNOTAVAIL, -EINVAL, -EACCES (port), -ENOMEM, -EMFILE; -ENOTSUP: a
	 * key, but a libzmq without CURVE, or no libucp, or an old one: a line has been logged.
	 * close waits at most 0.1 s for what was sent just before.
	 */
	int (*open)(struct transport **t, const struct transport_config *config);
	void (*close)(struct transport *t);

	/* ---- messages; NULL where there are none.  Owner's thread only. ---- */

	/* A descriptor to poll for POLLIN: then call turn. */
	int (*fd)(struct transport *t);

	/* The address others connect to, "tcp://10.0.0.1:21018" or "loop:3"; the transport's.
	 */
	const char *(*address)(struct transport *t);

	/* Gives the number by which to send.  Returns at once: whether anyone answers shows in
	 * messages only.  -EINVAL: not an address; -ENFILE: TRANSPORT_PEERS_MAX reached. Peers
	 * that connect to us get numbers at their first message; those unheard for longest lose
	 * theirs when the room is needed, and get another with their next message. Numbers are
	 * of slot-map.h: not dense, never UINT32_MAX, not used again soon.  An address
	 * connected twice may get the same number twice, and wants disconnect as often; what
	 * was still queued for the peer then may be lost.
	 */
	int (*connect)(struct transport *t, const char *address, uint32_t *peer);
	void (*disconnect)(struct transport *t, uint32_t peer);

	/* Sends the parts, copied, as one message of at most TRANSPORT_MESSAGE_MAX bytes.
	 * -EAGAIN: the peer's queue is full, of messages or (zmq) of bytes; -EMSGSIZE; -ENOMEM;
	 * -ENOTCONN: no such peer, or it left, or it refused our key or speaks another
	 * protocol: its number is void now, connect anew.
	 */
	int (*send)(struct transport *t, uint32_t peer, const struct iovec *parts,
		    unsigned nparts);

	/* Whether the peer, one that connected to us, has but the key for readers.  NULL: there
	 * is no such key here.
	 */
	bool (*reads_only)(struct transport *t, uint32_t peer);

	/* Whether the peer, one that we connected to, hangs up on us before a first message: it
	 * has another key or speaks another protocol.  Its number stays until disconnect.
	 * NULL: all are taken.
	 */
	bool (*refused)(struct transport *t, uint32_t peer);

	/* Takes one peer that is gone.  Of those we connected to: nobody listens at its address
	 * any more, it broke the connection, and a new one is refused.  Of those that connected
	 * to us: its connection is over, and what came by it was delivered; who connects again
	 * has another number.  NULL: that is not known here.
	 */
	bool (*gone)(struct transport *t, uint32_t *peer);

	/* Delivers what has come, at most max messages.  Returns how many. */
	int (*turn)(struct transport *t, transport_receive receive, void *owner, int max);

	/* ---- memory; NULL where there is none.  Any thread, and blocks only for the copy. ----
	 */

	/* Looks whether target's memory can be read at all: 0; -EPERM (another user, Yama),
	 * -ESRCH (no such process), -ESTALE (the cookie differs: another process has its pid).
	 * On success *peer is the number for get.
	 */
	int (*attach)(struct transport *t, const struct transport_target *target,
		      uint32_t *peer);
	void (*detach)(struct transport *t, uint32_t peer);

	/* Copies remote ranges (addresses of the target, base and length) to local ones of the
	 * same total, then copies the target's control page to control, in this order, so that
	 * what control says was true after the bytes were read.  control_size bytes of it.
	 * -EFAULT: a range is not mapped there (freed); -ESRCH: the process is gone; -ESTALE:
	 * the cookie differs; -ENOTCONN: no such peer; -EINVAL: the totals differ, or
	 * control_size is less than the cookie.  Nothing is promised of local's content on
	 * error.
	 */
	int (*get)(struct transport *t, uint32_t peer, const struct iovec *local,
		   unsigned nlocal, const struct iovec *remote, unsigned nremote, void *control,
		   size_t control_size);

	/* host only, else NULL.  From now on [address, address + size) of the target is read by
	 * a mapping of the first size bytes of its descriptor fd (a memfd sealed against
	 * shrink, growth and later writers, reopened read-only through /proc).  fd -1: by
	 * mapping no more. An error means only that get goes on as before: -EPERM: not sealed
	 * so; -EINVAL: not a memfd, or shorter than size.
	 */
	int (*share)(struct transport *t, uint32_t peer, int fd, uint64_t address,
		     uint64_t size);
};

extern const struct transport_ops transport_loop;
extern const struct transport_ops transport_host;
extern const struct transport_ops transport_zmq;
extern const struct transport_ops transport_ucx;

#endif
