/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/commit/coordinator.h"
#include "engine/commit/edit-report.h"
#include "engine/commit/freezes.h"
#include "engine/write/transaction.h"
#include "engine/job/barrier.h"
#include "engine/job/join.h"
#include "engine/job/leave.h"
#include "engine/job/rendezvous.h"
#include "engine/live/loop.h"
#include "engine/catalog/leaves.h"
#include "engine/node/bulk.h"
#include "engine/node/comms.h"
#include "engine/node/event-log.h"
#include "engine/node/fabric.h"
#include "engine/node/peers.h"
#include "engine/node/permissions.h"
#include "engine/rank/arena-memory.h"
#include "engine/read/owner-stats.h"
#include "engine/read/prefetch.h"
#include "engine/read/readahead.h"
#include "engine/read/remote-read.h"
#include "engine/read/view-reader.h"
#include "engine/rounds/communicator.h"
#include "engine/rounds/landing.h"
#include "engine/rounds/rounds.h"
#include "engine/serve/checks.h"
#include "engine/serve/readers.h"
#include "engine/serve/serve-pending.h"
#include "engine/serve/serve-stats.h"
#include "engine/serve/serve.h"
#include "engine/serve/watch-server.h"
#include "engine/watch/edit-history.h"
#include "engine/watch/place-order.h"
#include "engine/watch/rank-query.h"
#include "engine/watch/watch.h"

#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>

enum {
	MESSAGES_PER_TURN = 64,
	LOOK_NS = 50000,       /* polls for so long after a READ or a DATA before it sleeps */
	LOOK_LONG_NS = 200000, /* polls for so long where the last two came within that time */
	YIELD_NS = 100000,     /* a sched_yield that takes longer has let a busy thread run */
	COLD_NS = 500000000,   /* then there is no polling for so long */
};

/* Allocates what each module keeps in the engine; the modules never see NULL there. */
static int alloc_modules(struct engine *e)
{
#define ALLOC(module) (e->module = calloc(1, sizeof(*e->module)))
	if (!ALLOC(rpc) || !ALLOC(event_log) || !ALLOC(read.prefetch) ||
	    !ALLOC(commit.coordinator) || !ALLOC(watch) || !ALLOC(serve.state) ||
	    !ALLOC(serve.readers) || barrier_new(e) || rendezvous_new(e) || leave_new(e))
		return -ENOMEM;
	return 0;
#undef ALLOC
}

static void free_modules(struct engine *e)
{
	free(e->rpc);
	free(e->event_log);
	barrier_free(e);
	rendezvous_free(e);
	leave_free(e);
	free(e->read.prefetch);
	free(e->commit.coordinator);
	free(e->watch);
	free(e->serve.state);
	readers_free(e->serve.readers);
}

int loop_new(struct engine **out, const struct engine_ops *ops,
	     const struct transport_ops *messages, const struct transport_ops *memory)
{
	struct engine *e = calloc(1, sizeof(*e));
	int rc = e ? alloc_modules(e) : -ENOMEM;

	if (rc) {
		if (e)
			free_modules(e);
		free(e);
		return rc;
	}
	e->door.ops = ops;
	pthread_mutex_init(&e->lock, NULL);
	thread_cond_init(&e->changed);
	STAILQ_INIT(&e->thread.to_self);
	e->rank = WIRE_OBSERVER;
	e->timeout_ms = 10000;
	e->comms = comms_new();
	e->messages.ops = messages;
	e->memory.ops = memory;
	e->thread.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (e->thread.wake_fd < 0 || getrandom(&e->job.engine_id, sizeof(e->job.engine_id),
					       0) != sizeof(e->job.engine_id))
		rc = -errno;
	if (!rc && memory)
		rc = memory->open(&e->memory.transport, &(struct transport_config){ 0 });
	if (rc) {
		loop_free(e);
		return rc;
	}
	*out = e;
	return 0;
}

static void *run(void *arg)
{
	struct engine *e = arg;

	/* Texts have numbers with a point, whatever the trainer's locale is. */
	uselocale(newlocale(LC_ALL_MASK, "C", NULL));
	thread_be_engine(e);
	while (!atomic_load_explicit(&e->thread.stop, memory_order_acquire))
		loop_turn(e, NODE_IDLE_MS);
	return NULL;
}

int loop_start_thread(struct engine *e)
{
	int rc;

	e->thread.started = true; /* before the thread reads it */
	rc = thread_start(&e->thread.id, run, e);
	if (rc)
		e->thread.started = false;
	return rc;
}

static int answer_status(enum wire_type type, const void *body)
{
	struct wire_ack ack; /* a wire_refuse, too, begins with the status */

	if (type != WIRE_ACK && type != WIRE_REFUSE)
		return 0;
	memcpy(&ack, body, sizeof(ack));
	return type == WIRE_REFUSE && !ack.status ? -EPROTO : wire_status(ack.status);
}

static void take_answer(struct engine *e, uint32_t peer, const struct wire_header *header,
			const void *body, const void *tail, size_t tail_size)
{
	struct answer answer = { .status = answer_status(header->type, body),
				 .type = header->type,
				 .body = body,
				 .tail = tail,
				 .tail_size = tail_size,
				 .peer = peer };

	if (header->rank < e->world && e->peers[header->rank].linked &&
	    e->peers[header->rank].link == peer &&
	    header->life == node_life(e->peers[header->rank].entry.cookie))
		peers_heard(e, header->rank, NULL);
	if (header->rank < e->world)
		bulk_heard(e, header->rank, peer);
	if (rpc_answer(e, header, &answer))
		join_newer_membership(e, peer, header->membership);
}

static void lose_gone(struct engine *e, const struct node_port *port)
{
	uint32_t peer;

	while (port->ops->gone && port->ops->gone(port->transport, &peer)) {
		peers_gone(e, peer);
		bulk_gone(e, peer);
		join_gone(e, peer);
		if (e->is_rank)
			edit_report_gone(e, peer);
		leave_gone(e, peer);
		serve_pending_gone(e, peer);
		serve_stats_gone(e, peer);
		fabric_peer_gone(e, peer);
	}
}

static void refuse_version(struct engine *e, uint32_t peer, const struct wire_header *header)
{
	node_refuse(e, peer, header->request, -EPROTO, "speaks protocol version %d, not %u",
		    WIRE_VERSION, header->version);
}

static void refuse_right(struct engine *e, uint32_t peer, const struct wire_header *header)
{
	atomic_fetch_add_explicit(&e->counters.messages_bad, 1, memory_order_relaxed);
	/* two engines would refuse each other's answers for ever */
	if (!permissions_is_answer(header->type))
		node_ack(e, peer, header->request, -EACCES);
}

static void note_bytes(struct engine *e)
{
	uint64_t now = monotonic_ns();
	bool soon = now < e->thread.hot_ns + LOOK_LONG_NS;

	e->thread.hot_ns = now;
	e->thread.look_ns = now + (soon ? LOOK_LONG_NS : LOOK_NS);
}

static void receive(void *owner, uint32_t peer, const void *data, size_t size)
{
	struct engine *e = owner;
	struct wire_header header;
	const void *body, *tail;
	size_t tail_size;
	int status;

	atomic_fetch_add_explicit(&e->counters.messages_in, 1, memory_order_relaxed);
	body = wire_open(data, size, &header, &tail, &tail_size, &status);
	if (!body) {
		atomic_fetch_add_explicit(&e->counters.messages_bad, 1, memory_order_relaxed);
		if (status == -EPROTO && permissions_is_answer(header.type))
			join_other_version(e, peer, &header);
		else if (status == -EPROTO)
			refuse_version(e, peer, &header);
		return;
	}
	log_trace("message from peer %u, rank %d: %s %llu, %zu bytes", peer, (int)header.rank,
		  wire_type_name(header.type), (unsigned long long)header.request,
		  size - sizeof(header));
	if (permissions_check(e, peer, &header)) {
		refuse_right(e, peer, &header);
		return;
	}
	if (header.type == WIRE_READ || header.type == WIRE_DATA)
		note_bytes(e);
	if (permissions_is_answer(header.type))
		take_answer(e, peer, &header, body, tail, tail_size);
	else
		serve_request(e, peer, &header, body, tail, tail_size);
}

static void turn_port(struct engine *e, const struct node_port *port)
{
	if (!port->transport)
		return;
	port->ops->turn(port->transport, receive, e, MESSAGES_PER_TURN);
	/* a handler may have closed the port (bulk_close) */
	if (port->transport)
		lose_gone(e, port);
}

/* Handles the messages of this engine to itself.  Messages that it sends meanwhile are left for
 * the next turn.
 */
static void turn_local(struct engine *e)
{
	STAILQ_HEAD(, message) all = STAILQ_HEAD_INITIALIZER(all);
	struct message *m, *next;

	STAILQ_CONCAT(&all, &e->thread.to_self);
	STAILQ_FOREACH_SAFE (m, &all, entry, next) {
		receive(e, NODE_LOCAL, m->data, m->size);
		free(m);
	}
}

/* Returns wait_ms, or less while a module waits for a condition that no message announces. */
static int wait_time(struct engine *e, int wait_ms)
{
	if (!STAILQ_EMPTY(&e->thread.to_self) || e->serve.state->copies_ahead)
		return 0;
	if (!LIST_EMPTY(&e->read.remote))
		return (int)u64_min((uint64_t)wait_ms, remote_read_tick_ms(e));
	if (!LIST_EMPTY(&e->read.stats) || !LIST_EMPTY(&e->write.transactions) ||
	    !LIST_EMPTY(&e->commit.coordinator->transactions) ||
	    !LIST_EMPTY(&e->commit.orphans) || !e->job.ready || !LIST_EMPTY(&e->serve.waits) ||
	    edit_history_ticks(e) || watch_ticks(e) || communicator_ticks(e) ||
	    barrier_tick(e) || rendezvous_tick(e) || rounds_tick(e) ||
	    !LIST_EMPTY(&e->watch->place_orders) ||
	    (e->is_rank && view_owner_any(&e->view_owner)))
		return wait_ms < NODE_TICK_MS ? wait_ms : NODE_TICK_MS;
	return wait_ms;
}

/* Polls until look_ns before the thread sleeps: a reader that has just asked, or has its bytes,
 * goes on soon, and to wake a thread takes longer than to answer.  sched_yield gives the core
 * to another thread that wants it; where that thread keeps the core for long, as a trainer that
 * computes does, nothing is polled for COLD_NS.  Returns true if a descriptor is ready.
 */
static bool looks_again(struct engine *e, struct pollfd *fds, nfds_t n)
{
	uint64_t now = monotonic_ns();

	if (!e->thread.started || now < e->thread.cold_ns)
		return false;
	while (now < e->thread.look_ns) {
		uint64_t before = now;

		if (poll(fds, n, 0) > 0)
			return true;
		sched_yield();
		now = monotonic_ns();
		if (now > before + YIELD_NS) {
			e->thread.cold_ns = now + COLD_NS;
			return false;
		}
	}
	return false;
}

static void wait_for_work(struct engine *e, int wait_ms)
{
	struct pollfd fds[4] = { { .fd = e->thread.wake_fd, .events = POLLIN },
				 { .fd = fabric_fd(e), .events = POLLIN } };
	nfds_t n = 2;
	uint64_t count;

	if (e->messages.transport)
		fds[n++] = (struct pollfd){ .fd = e->messages.ops->fd(e->messages.transport),
					    .events = POLLIN };
	if (e->bulk.transport)
		fds[n++] = (struct pollfd){ .fd = e->bulk.ops->fd(e->bulk.transport),
					    .events = POLLIN };
	if (!looks_again(e, fds, n))
		poll(fds, n, wait_ms);
	e->thread.only_bulk = n == 4 && !fds[2].revents && fds[3].revents;
	if (fds[0].revents & POLLIN && read(e->thread.wake_fd, &count, sizeof(count)) < 0 &&
	    errno != EAGAIN)
		log_error("eventfd: %s", strerror(errno));
}

void loop_turn(struct engine *e, int wait_ms)
{
	struct remote_read_list reads = LIST_HEAD_INITIALIZER(reads);
	struct owner_stats_list sums = LIST_HEAD_INITIALIZER(sums);
	struct transaction_list transactions = LIST_HEAD_INITIALIZER(transactions);
	struct engine_wait *waits = NULL;
	struct engine_freeze *freezes = NULL;
	struct round_list rounds = LIST_HEAD_INITIALIZER(rounds);
	uint64_t now;

	assert(node_is_engine_thread(e));
	pthread_mutex_lock(&e->lock);
	wait_ms = wait_time(e, wait_ms);
	pthread_mutex_unlock(&e->lock);
	e->thread.only_bulk = false;
	if (wait_ms)
		wait_for_work(e, wait_ms);

	pthread_mutex_lock(&e->lock);
	now = monotonic_ms();
	if (!e->thread.only_bulk || now > e->thread.turned_ms) {
		turn_port(e, &e->messages);
		e->thread.turned_ms = now;
	}
	turn_port(e, &e->bulk);
	bulk_turn(e, now);
	fabric_turn(e, now, take_answer);
	turn_local(e);
	join_turn(e, now);
	rpc_expire(e, now);
	peers_turn(e, now);
	if (e->is_rank) {
		coordinator_turn(e, now);
		serve_turn(e, now);
		watch_server_turn(e, now);
	}
	prefetch_go_on(e, now);
	view_reader_tell_closed(e);
	remote_read_turn(e, now, &reads);
	owner_stats_turn(e, now, &sums);
	transaction_turn(e, now, &transactions);
	watch_turn(e, now, &waits);
	edit_history_turn(e, now);
	rank_query_turn(e, now);
	place_order_turn(e, now);
	freezes_turn(e, now, &freezes);
	communicator_turn(e, now);
	rendezvous_turn(e, now);
	leave_turn(e);
	rounds_turn(e, now, &rounds);
	landing_turn(e, now);
	pthread_mutex_unlock(&e->lock);
	remote_read_finish(e, &reads);
	owner_stats_finish(&sums);
	transaction_finish(&transactions);
	watch_finish(waits);
	freezes_finish(freezes);
	rounds_finish(&rounds);
}

void loop_free(struct engine *e)
{
	struct message *m, *next;

	if (!e)
		return;
	leave_say(e);
	if (e->thread.started) {
		atomic_store_explicit(&e->thread.stop, true, memory_order_release);
		node_wake(e);
		pthread_join(e->thread.id, NULL);
		/* from here on this thread may touch what only the engine thread did */
		e->thread.started = false;
	}
	readahead_free(e);
	remote_read_abandon(e);
	owner_stats_abandon(e);
	transaction_abandon(e);
	freezes_abandon(e);
	communicator_free(e);
	rounds_abandon(e);
	watch_abandon(e);
	watch_server_free(e);
	event_ring_fini(&e->event_log->ring);
	event_ring_fini(&e->event_log->own);
	edit_history_free(e);
	rank_query_free(e);
	place_order_free(e);
	if (e->leaves)
		leaves_fini(e->leaves);
	free(e->leaves);
	rpc_free(e);
	coordinator_free(e);
	view_reader_free(e);
	STAILQ_FOREACH_SAFE (m, &e->thread.to_self, entry, next)
		free(m);
	rounds_free(e);
	landing_free(e);
	peers_free(e);
	join_free(e);
	fabric_free(e);
	bulk_close(e);
	if (e->messages.transport)
		e->messages.ops->close(e->messages.transport);
	if (e->memory.transport)
		e->memory.ops->close(e->memory.transport);
	if (e->is_rank) {
		serve_pending_free(e);
		serve_stats_free(e);
		checks_free(e);
		participant_fini(&e->participant);
		view_owner_fini(&e->view_owner);
		arena_memory_close(e->arena);
		registry_fini(&e->registry);
	}
	if (e->catalog != e->own)
		catalog_free(e->catalog);
	catalog_free(e->own);
	free(e->job.map_params);
	free(e->job.map_groups);
	free(e->job.catalog_bytes.data);
	free(e->serve.state->chunk);
	free_modules(e);
	comms_free(e->comms);
	if (e->thread.wake_fd >= 0)
		close(e->thread.wake_fd);
	pthread_cond_destroy(&e->changed);
	pthread_mutex_destroy(&e->lock);
	explicit_bzero(e->job.key.bytes, sizeof(e->job.key.bytes));
	free(e);
}
