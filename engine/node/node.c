/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/slot-map.h"
#include "engine/base/thread.h"
#include "engine/node/node.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { ASK_MS = 100 }; /* the longest that node_ask_again waits */

bool node_is_engine_thread(const struct engine *e)
{
	return !e->thread.started || thread_engine() == e;
}

int node_open_messages(struct engine *e, const char *bind)
{
	struct transport_config config = { .bind = bind,
					   .key = e->job.key.is_there ? e->job.key.bytes : NULL,
					   .reads_only = e->job.key.reads_only,
					   .expected = e->world };

	return e->messages.ops->open(&e->messages.transport, &config);
}

const struct node_port *node_port_of(const struct engine *e, uint32_t peer)
{
	return slot_map_is_second(peer) ? &e->bulk : &e->messages;
}

void node_wake(struct engine *e)
{
	uint64_t one = 1;

	/* EAGAIN: the eventfd's counter is full, and wakes the thread as it is */
	if (write(e->thread.wake_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		log_error("eventfd: %s", strerror(errno));
}

void node_yield(struct engine *e)
{
	if (!e->thread.started && e->thread.yield)
		e->thread.yield(e->thread.yield_arg);
}

int node_wait(struct engine *e, uint64_t deadline_ms)
{
	struct timespec t = { .tv_sec = (time_t)(deadline_ms / 1000),
			      .tv_nsec = (long)(deadline_ms % 1000) * 1000000 };

	if (monotonic_ms() >= deadline_ms)
		return -ETIMEDOUT;
	if (e->thread.started) {
		pthread_cond_timedwait(&e->changed, &e->lock, &t);
		return 0;
	}
	pthread_mutex_unlock(&e->lock);
	node_yield(e);
	pthread_mutex_lock(&e->lock);
	return 0;
}

static _Thread_local struct engine_hurry *hurried;

void engine_hurry(struct engine_hurry *hurry)
{
	hurried = hurry;
}

int node_wait_answer(struct engine *e, uint64_t deadline_ms)
{
	node_wake(e);
	return hurried ? -EAGAIN : node_wait(e, deadline_ms);
}

bool node_ask_again(struct engine *e, int rc, uint64_t deadline_ms)
{
	uint64_t now = monotonic_ms();

	return rc == -EAGAIN && now < deadline_ms &&
	       !node_wait_answer(e, u64_min(deadline_ms, now + ASK_MS));
}

uint64_t engine_asked_since(void)
{
	if (!hurried)
		return monotonic_ns();
	if (!hurried->since_ns)
		hurried->since_ns = monotonic_ns();
	return hurried->since_ns;
}

void node_count_read(struct engine *e, const struct engine_read *read, int64_t result)
{
	if (read->is_part)
		return;
	atomic_fetch_add_explicit(&e->counters.reads, 1, memory_order_relaxed);
	if (result < 0)
		atomic_fetch_add_explicit(&e->counters.read_errors, 1, memory_order_relaxed);
	else
		atomic_fetch_add_explicit(&e->counters.read_bytes, (uint64_t)result,
					  memory_order_relaxed);
}

static int append_local(struct engine *e, const struct wire_header *header, const void *body,
			size_t body_size, const void *tail, size_t tail_size)
{
	size_t size = sizeof(*header) + body_size + tail_size;
	struct message *m = malloc(sizeof(*m) + size);

	if (!m)
		return -ENOMEM;
	m->size = size;
	memcpy(m->data, header, sizeof(*header));
	if (body_size)
		memcpy(m->data + sizeof(*header), body, body_size);
	if (tail_size)
		memcpy(m->data + sizeof(*header) + body_size, tail, tail_size);
	STAILQ_INSERT_TAIL(&e->thread.to_self, m, entry);
	return 0;
}

void node_header(const struct engine *e, struct wire_header *header, enum wire_type type,
		 uint64_t request)
{
	*header = (struct wire_header){ .magic = WIRE_MAGIC,
					.version = WIRE_VERSION,
					.type = (uint16_t)type,
					.request = request,
					.job = e->job.hash,
					.incarnation = e->job.incarnation,
					.membership = e->job.membership,
					.rank = e->rank,
					.life = e->is_rank
							? node_life(e->registry.control->cookie)
							: (uint32_t)e->job.engine_id };
}

int node_send(struct engine *e, uint32_t peer, enum wire_type type, uint64_t request,
	      const void *body, const void *tail, size_t tail_size)
{
	struct wire_header header;
	size_t body_size = wire_body_size(type);
	const struct node_port *port;
	struct iovec parts[3] = {
		{ &header, sizeof(header) },
		{ (void *)(uintptr_t)body, body_size },
		{ (void *)(uintptr_t)tail, tail_size },
	};

	assert(node_is_engine_thread(e));
	log_trace("message to peer %u: %s %llu, %zu bytes", peer, wire_type_name(type),
		  (unsigned long long)request, body_size + tail_size);
	node_header(e, &header, type, request);
	if (peer == NODE_LOCAL)
		return append_local(e, &header, body, body_size, tail, tail_size);
	atomic_fetch_add_explicit(&e->counters.messages_out, 1, memory_order_relaxed);
	port = node_port_of(e, peer);
	return port->transport ? port->ops->send(port->transport, peer, parts, 3) : -ENOTCONN;
}

void node_ack(struct engine *e, uint32_t peer, uint64_t request, int status)
{
	struct wire_ack ack = { .status = status };

	node_send(e, peer, WIRE_ACK, request, &ack, NULL, 0);
}

void node_refuse(struct engine *e, uint32_t peer, uint64_t request, int status, const char *fmt,
		 ...)
{
	struct wire_refuse r = { .status = status };
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r.why, sizeof(r.why), fmt, ap);
	va_end(ap);
	node_send(e, peer, WIRE_REFUSE, request, &r, NULL, 0);
}

void node_origin(const struct engine *e, struct wire_origin *origin)
{
	*origin = (struct wire_origin){ .writer = e->rank, .uid = getuid(), .pid = getpid() };
	gethostname(origin->host, sizeof(origin->host) - 1);
}

void node_observer(const struct engine *e, struct wire_observer *observer)
{
	*observer = (struct wire_observer){ .uid = getuid(),
					    .pid = getpid(),
					    .writes = e->write.allowed };
	gethostname(observer->host, sizeof(observer->host) - 1);
	snprintf(observer->program, sizeof(observer->program), "%s",
		 program_invocation_short_name);
}
