/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TRANSPORT_TRANSPORT_H
#define ENGINE_TRANSPORT_TRANSPORT_H

/* The port between the engines of two processes.  A port never blocks, but for get while it
 * copies; it never retries and never chooses.  It has two kinds of service; an implementation
 * has one or both:
 *
 *   messages   connect, send, turn: whole messages, in order per peer, each delivered at most
 *              once.  `gone` tells of some lost peers; the engine's own heartbeats find the
 *              others.
 *   memory     attach, get: one-sided reads of another process's memory.
 *
 *   host   memory of processes of this machine (process_vm_readv, sealed memfds)
 *   zmq    messages, ZeroMQ over TCP, CURVE
 *   tls    messages, TLS 1.3 over TCP by OpenSSL; without a key plain TCP
 *   ucx    messages between ranks of a closed network, UCX, loaded at run time; without
 *          authentication
 *   loop   (tests/ports/) messages and memory inside one process: N engines, stepped
 */

#include "engine/base/base.h"

#include <sys/types.h>
#include <sys/uio.h>

enum {
	/* Bytes of a message; larger ones are never sent, and dropped if received. */
	TRANSPORT_MESSAGE_MAX = 2 << 20,
	TRANSPORT_PEERS_MAX = 65536,
	TRANSPORT_ROOM = 4 << 20, /* bytes of the memory that a large message comes in */
};

struct transport_config {
	/* The address to listen at.  zmq, tls: "tcp://10.0.0.1:21017"; port 0 or none: any free
	 * one below 32768; NULL: does not listen.  ucx: "ucx://10.0.0.1".  loop: ignored.
	 */
	const char *bind;
	const uint8_t *key;  /* 32 bytes, the job's secret; NULL: unauthenticated */
	bool reads_only;     /* key is the readers' (engine/base/key.h): does not listen */
	uint32_t queue_max;  /* messages queued per peer before send says -EAGAIN; 0: 1000 */
	uint32_t peers_max;  /* peers at a time; 0: TRANSPORT_PEERS_MAX */
	const char *devices; /* ucx: the devices that it may use, "lo" or "mlx5_0:1,mlx5_1:1" */
	bool rdma;           /* ucx: the devices are InfiniBand or RoCE */
	/* zmq, tls: how many peers will connect to us; strangers beyond them get at most a
	 * quarter of RLIMIT_NOFILE.
	 */
	uint32_t expected;
	bool second; /* tls: peers' numbers are of the second kind (slot-map.h) */
};

/* Receives one message; data is valid until it returns.  It may call send, but not turn or
 * close.
 */
typedef void (*transport_receive)(void *owner, uint32_t peer, const void *data, size_t size);

/* A process whose memory is read, as its control page (engine/catalog/control-page.h) says. */
struct transport_target {
	pid_t pid;
	uint64_t control;   /* address of the owner's control page */
	uint64_t cookie[2]; /* the control page's first 16 bytes */
};

struct transport; /* each implementation has its own; the first member is the ops pointer */

struct transport_ops {
	const char *name;

	/* -EINVAL: the address.
	 * -EADDRINUSE: another socket is bound to it.
	 * -EADDRNOTAVAIL: no interface of this machine has it.
	 * -EACCES: the port.
	 * -ENOTSUP: there is a key, but libzmq has no CURVE; or libucp is missing or too old.
	 * A warning is logged.
	 * -EMFILE: too few descriptors are left.
	 * -ENOMEM.
	 */
	int (*open)(struct transport **t, const struct transport_config *config);
	/* Waits at most 0.1 s for messages that were sent just before. */
	void (*close)(struct transport *t);

	/* ---- messages; NULL where there are none.  Owner's thread only. ---- */

	/* A descriptor; when it polls POLLIN, turn has something to do. */
	int (*fd)(struct transport *t);

	/* The address that others connect to, "tcp://10.0.0.1:21018" or "loop:3"; the string is
	 * the transport's.
	 */
	const char *(*address)(struct transport *t);

	/* Makes a peer of the address; *peer is its number, for send.  Returns at once: only
	 * messages show whether anyone answers.
	 * -EINVAL: not an address.
	 * -ENFILE: peers_max reached.
	 *
	 * A peer that connects to us gets a number with its first message.  When numbers run
	 * out, the peer that was silent longest loses its number, and gets another with its
	 * next message.  Numbers are of slot-map.h: not dense, never UINT32_MAX, not used again
	 * soon.  An address that is connected twice may get the same number twice, and needs as
	 * many disconnects; messages still queued for the peer then may be lost.
	 */
	int (*connect)(struct transport *t, const char *address, uint32_t *peer);
	void (*disconnect)(struct transport *t, uint32_t peer);

	/* Sends the parts, copied, as one message of at most TRANSPORT_MESSAGE_MAX bytes.
	 * -EAGAIN: the peer's queue is full, of messages or (zmq, tls) of bytes.
	 * -EMSGSIZE: the message is larger.
	 * -ENOMEM.
	 * -ENOTCONN: no such peer; or it left, refused our key or speaks another protocol.  Its
	 * number is void from now on; connect again.
	 */
	int (*send)(struct transport *t, uint32_t peer, const struct iovec *parts,
		    unsigned nparts);

	/* True: the peer, which connected to us, has only the readers' key.  NULL: this
	 * transport has no such key.
	 */
	bool (*reads_only)(struct transport *t, uint32_t peer);

	/* True: the peer, which we connected to, hangs up on us before a first message: it has
	 * another key or speaks another protocol.  Its number stays until disconnect.  NULL:
	 * this transport accepts all.
	 */
	bool (*refused)(struct transport *t, uint32_t peer);

	/* Gives the next peer that is gone, once, after its messages were delivered; false:
	 * none.  A peer that we connected to is gone when its connection broke and a new one is
	 * refused, as nobody listens there.  A peer that connected to us is gone when its
	 * connection is over; if it connects again it gets another number.  NULL: this
	 * transport does not know.
	 */
	bool (*gone)(struct transport *t, uint32_t *peer);

	/* Delivers at most max of the messages that have arrived; returns how many. */
	int (*turn)(struct transport *t, transport_receive receive, void *owner, int max);

	/* In receive: gives the owner the memory that the message's data lies in, for other, of
	 * TRANSPORT_ROOM bytes like it, which the transport frees or uses again.  Both are from
	 * aligned_alloc.  Returns NULL where the message is a small one; other is still the
	 * owner's then.  A transport without the operation has small ones alone.
	 */
	void *(*exchange)(struct transport *t, void *other);

	/* ---- memory; NULL where there is none.  Any thread; blocks only for the copy. ---- */

	/* Checks that the target's memory can be read; *peer is its number, for get.
	 * -EPERM: another user's process, or Yama forbids it.
	 * -ESRCH: no such process.
	 * -ESTALE: the cookie differs: another process has the pid now.
	 */
	int (*attach)(struct transport *t, const struct transport_target *target,
		      uint32_t *peer);
	void (*detach)(struct transport *t, uint32_t peer);

	/* Copies remote ranges (addresses of the target, base and length) to local ones of the
	 * same total, then control_size bytes of the target's control page to control.  In this
	 * order, so that what control says was true after the bytes were read.  On error the
	 * content of local is undefined.
	 * -EFAULT: a range is not mapped in the target (any more).
	 * -ESRCH: the process is gone.
	 * -ESTALE: the cookie differs.
	 * -ENOTCONN: no such peer.
	 * -EINVAL: the totals differ, or control_size is less than the cookie.
	 */
	int (*get)(struct transport *t, uint32_t peer, const struct iovec *local,
		   unsigned nlocal, const struct iovec *remote, unsigned nremote, void *control,
		   size_t control_size);

	/* host only, else NULL.  From now on get reads [address, address + size) of the target
	 * through a mapping of the first size bytes of its descriptor fd: a memfd sealed
	 * against shrink, growth and later writers, reopened read-only through /proc.  fd -1:
	 * ends that.  After an error get goes on as before.
	 * -EPERM: not sealed so.
	 * -EINVAL: not a memfd, or shorter than size.
	 */
	int (*share)(struct transport *t, uint32_t peer, int fd, uint64_t address,
		     uint64_t size);
};

extern const struct transport_ops transport_host;
extern const struct transport_ops transport_zmq;
extern const struct transport_ops transport_ucx;
extern const struct transport_ops transport_tls;

#endif
