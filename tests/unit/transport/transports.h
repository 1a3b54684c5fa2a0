/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_UNIT_TRANSPORT_TRANSPORTS_H
#define TESTS_UNIT_TRANSPORT_TRANSPORTS_H

/* Engines' ends of message transports in one process, turned only when their descriptor says
 * so.
 */

#include "engine/transport/transport.h"
#include "tests/ports/transport-loop.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum { SIDES_MAX = 8, WAIT_MS = 60000 };

static const uint8_t job_key[32] = "the secret of this job, in tests";

enum { LOOP, PLAIN, CURVE, TLS_PLAIN, TLS, UCX };

static const struct variant {
	const char *name;
	const struct transport_ops *ops;
	const uint8_t *key;
	const char *bind, *nobody;
} variants[] = {
	[LOOP] = { "loop", &transport_loop, NULL, "", "loop:999999" },
	[PLAIN] = { "zmq plain", &transport_zmq, NULL, "tcp://127.0.0.1", "tcp://127.0.0.1:1" },
	[CURVE] = { "zmq CURVE", &transport_zmq, job_key, "tcp://127.0.0.1",
		    "tcp://127.0.0.1:1" },
	[TLS_PLAIN] = { "tls plain", &transport_tls, NULL, "tcp://127.0.0.1",
			"tcp://127.0.0.1:1" },
	[TLS] = { "tls", &transport_tls, job_key, "tcp://127.0.0.1", "tcp://127.0.0.1:1" },
	[UCX] = { "ucx", &transport_ucx, NULL, "ucx://127.0.0.1", "ucx://127.0.0.1:1" },
};

struct side {
	const struct transport_ops *ops;
	struct transport *t;
	int turn_max;
	int count;     /* messages received */
	uint32_t from; /* of the last */
	size_t size;
	uint8_t data[TRANSPORT_MESSAGE_MAX];
	void (*received)(struct side *side); /* NULL, or called for each */
	void *arg;
};

static inline void side_open_with(struct side *s, const struct variant *v,
				  struct transport_config config)
{
	config.key = v->key;
	config.devices = "lo";
	s->ops = v->ops;
	s->count = 0;
	s->received = NULL;
	s->turn_max = 16;
	ck_assert_int_eq(v->ops->open(&s->t, &config), 0);
}

static inline void side_open(struct side *s, const struct variant *v)
{
	side_open_with(s, v, (struct transport_config){ .bind = v->bind });
}

static inline void side_close(struct side *s)
{
	s->ops->close(s->t);
	s->t = NULL;
}

static inline uint32_t side_connect(struct side *from, const struct side *to)
{
	uint32_t peer;

	ck_assert_int_eq(from->ops->connect(from->t, to->ops->address(to->t), &peer), 0);
	return peer;
}

static inline int side_port(const struct side *s)
{
	return atoi(strrchr(s->ops->address(s->t), ':') + 1);
}

static inline int side_send(struct side *s, uint32_t peer, const void *data, size_t size)
{
	struct iovec part = { (void *)(uintptr_t)data, size };

	return s->ops->send(s->t, peer, &part, 1);
}

static inline void side_receive(void *owner, uint32_t peer, const void *data, size_t size)
{
	struct side *s = owner;

	ck_assert_uint_le(size, TRANSPORT_MESSAGE_MAX);
	s->from = peer;
	s->size = size;
	memcpy(s->data, data, size);
	s->count++;
	if (s->received)
		s->received(s);
}

static inline int side_turn(struct side *s)
{
	return s->ops->turn(s->t, side_receive, s, s->turn_max);
}

/* Polls once, for at most that long, and turns whom it wakes. */
static inline void sides_poll(struct side *sides, int n, int timeout_ms)
{
	struct pollfd fds[SIDES_MAX];

	for (int i = 0; i < n; i++)
		fds[i] =
			(struct pollfd){ .fd = sides[i].ops->fd(sides[i].t), .events = POLLIN };
	ck_assert_int_ge(poll(fds, (nfds_t)n, timeout_ms), 0);
	for (int i = 0; i < n; i++)
		if (fds[i].revents)
			side_turn(&sides[i]);
}

/* Until side which has received count messages. */
static inline void sides_wait(struct side *sides, int n, int which, int count)
{
	uint64_t deadline = monotonic_ms() + WAIT_MS;

	while (sides[which].count < count) {
		uint64_t now = monotonic_ms();

		if (now >= deadline)
			ck_abort_msg("side %d has %d of %d messages", which, sides[which].count,
				     count);
		sides_poll(sides, n, (int)(deadline - now));
	}
}

#endif
