/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/queue.h"
#include "engine/base/slot-map.h"
#include "engine/transport/transport-common.h"
#include "tests/ports/transport-loop.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

enum { NO_NUMBER = UINT32_MAX };

/* One connect: end 0 called it, end 1 is the addressee.  Behaves as a socket does: end 0 may
 * send until the queue is full though nobody is there; end 1 knows it from its first message
 * on.
 */
struct connection {
	struct {
		struct transport *at; /* NULL: not there, or gone */
		uint32_t number;      /* by which at knows it */
		uint32_t waiting;     /* messages on the way to at */
	} end[2];
	unsigned refs;  /* ends and messages */
	uint64_t heard; /* by end 1: which of all its messages was the last from here */
};

struct message {
	STAILQ_ENTRY(message) next;
	struct connection *connection;
	int to; /* the end it goes to */
	size_t size;
	uint8_t data[];
};

struct transport {
	const struct transport_ops *ops;
	struct transport *host;     /* for memory */
	LIST_ENTRY(transport) next; /* in the table */
	uint64_t number;
	char address[32];
	int event;
	uint32_t queue_max;
	struct slot_map connections; /* under the table's lock, as is what follows */
	uint64_t delivered;
	STAILQ_HEAD(, message) messages; /* that it has not read */
};

/* All transports of the process; the lock covers their connections and queues too. */
static struct {
	pthread_mutex_t lock;
	LIST_HEAD(, transport) transports;
	uint64_t opened;
} table = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void connection_put(struct connection *c)
{
	assert(c->refs);
	if (!--c->refs)
		free(c);
}

/* ---- open and close ---- */

static uint32_t peers_max(const struct transport_config *config)
{
	return config->peers_max ? (uint32_t)u64_min(config->peers_max, TRANSPORT_PEERS_MAX)
				 : TRANSPORT_PEERS_MAX;
}

static int loop_open(struct transport **out, const struct transport_config *config)
{
	struct transport *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->ops = &transport_loop;
	t->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (t->event < 0 || transport_host.open(&t->host, config)) {
		int rc = t->event < 0 ? -errno : -ENOMEM;

		if (t->event >= 0)
			close(t->event);
		free(t);
		return rc;
	}
	t->queue_max = config->queue_max ? config->queue_max : 1000;
	STAILQ_INIT(&t->messages);
	slot_map_init(&t->connections, peers_max(config));
	pthread_mutex_lock(&table.lock);
	t->number = table.opened++;
	LIST_INSERT_HEAD(&table.transports, t, next);
	pthread_mutex_unlock(&table.lock);
	snprintf(t->address, sizeof(t->address), "loop:%llu", (unsigned long long)t->number);
	*out = t;
	return 0;
}

static struct message *take_message(struct transport *t)
{
	struct message *m = STAILQ_TAKE(&t->messages, next);

	if (m)
		m->connection->end[m->to].waiting--;
	return m;
}

static void message_free(struct message *m)
{
	connection_put(m->connection);
	free(m);
}

static int end_of(const struct connection *c, const struct transport *t, uint32_t number)
{
	return c->end[0].at == t && c->end[0].number == number ? 0 : 1;
}

static void drop_number(struct connection *c, int end)
{
	slot_map_remove(&c->end[end].at->connections, c->end[end].number);
	c->end[end].number = NO_NUMBER;
	connection_put(c);
}

/* End 1 forgets a connection when end 0 has gone and its last message is read. */
static void forget_if_over(struct connection *c)
{
	if (!c->end[0].at && c->end[1].at && c->end[1].number != NO_NUMBER &&
	    !c->end[1].waiting)
		drop_number(c, 1);
}

static void leave(struct connection *c, int end)
{
	c->refs++;
	drop_number(c, end);
	if (end == 0) {
		c->end[0].at = NULL;
		forget_if_over(c);
	}
	connection_put(c);
}

static void close_connections(struct transport *t)
{
	struct connection *c;
	uint32_t slot = 0;

	while ((c = slot_map_next(&t->connections, &slot))) {
		int end = c->end[0].at == t && (c->end[0].number & 0xffff) == slot - 1 ? 0 : 1;

		c->refs++;
		leave(c, end);
		c->end[end].at = NULL;
		connection_put(c);
	}
}

/* Those that were made to t but of which it has not read yet. */
static void forget_addressee(struct transport *t)
{
	struct transport *other;

	LIST_FOREACH (other, &table.transports, next) {
		struct connection *c;
		uint32_t slot = 0;

		while ((c = slot_map_next(&other->connections, &slot)))
			if (c->end[1].at == t)
				c->end[1].at = NULL;
	}
}

static void loop_close(struct transport *t)
{
	struct message *m;

	if (!t)
		return;
	pthread_mutex_lock(&table.lock);
	LIST_REMOVE(t, next);
	while ((m = take_message(t)))
		message_free(m);
	close_connections(t);
	forget_addressee(t);
	pthread_mutex_unlock(&table.lock);
	slot_map_fini(&t->connections);
	transport_host.close(t->host);
	close(t->event);
	free(t);
}

/* ---- messages ---- */

static int loop_fd(struct transport *t)
{
	return t->event;
}

static const char *loop_address(struct transport *t)
{
	return t->address;
}

static bool parse_address(const char *address, uint64_t *number)
{
	char *end;

	if (strncmp(address, "loop:", 5) || address[5] < '0' || address[5] > '9')
		return false;
	*number = strtoull(address + 5, &end, 10);
	return !*end;
}

static struct transport *find(uint64_t number)
{
	struct transport *t;

	LIST_FOREACH (t, &table.transports, next)
		if (t->number == number)
			break;
	return t;
}

static struct connection *heard_least_recently(struct transport *t)
{
	struct connection *c, *oldest = NULL;
	uint32_t slot = 0;

	while ((c = slot_map_next(&t->connections, &slot))) {
		bool inbound = c->end[1].at == t && (c->end[1].number & 0xffff) == slot - 1;

		if (inbound && (!oldest || c->heard < oldest->heard))
			oldest = c;
	}
	return oldest;
}

static int give_number(struct transport *t, struct connection *c, uint32_t *number)
{
	struct connection *oldest;
	int rc = slot_map_add(&t->connections, c, number);

	if (rc != -ENFILE)
		return rc;
	oldest = heard_least_recently(t);
	if (!oldest)
		return rc;
	drop_number(oldest, 1);
	return slot_map_add(&t->connections, c, number);
}

static int loop_connect(struct transport *t, const char *address, uint32_t *peer)
{
	struct connection *c;
	uint64_t number;
	int rc;

	if (!parse_address(address, &number))
		return -EINVAL;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->refs = 1;
	pthread_mutex_lock(&table.lock);
	rc = give_number(t, c, &c->end[0].number);
	if (rc) {
		free(c);
	} else {
		c->end[0].at = t;
		c->end[1].at = find(number);
		c->end[1].number = NO_NUMBER;
		*peer = c->end[0].number;
	}
	pthread_mutex_unlock(&table.lock);
	return rc;
}

static void loop_disconnect(struct transport *t, uint32_t peer)
{
	struct connection *c;

	pthread_mutex_lock(&table.lock);
	c = slot_map_get(&t->connections, peer);
	if (c)
		leave(c, end_of(c, t, peer));
	pthread_mutex_unlock(&table.lock);
}

static void wake(struct transport *t)
{
	ssize_t n = write(t->event, &(uint64_t){ 1 }, sizeof(uint64_t));

	(void)n; /* full is awake enough */
}

static void sleep_again(struct transport *t)
{
	uint64_t count;
	ssize_t n = read(t->event, &count, sizeof(count));

	(void)n; /* empty already */
}

static void queue(struct connection *c, int to, struct message *m)
{
	struct transport *t = c->end[to].at;

	m->connection = c;
	m->to = to;
	c->refs++;
	STAILQ_INSERT_TAIL(&t->messages, m, next);
	wake(t);
}

/* Under the table's lock.  Keeps m, or frees it where nobody will ever read it. */
static int queue_or_refuse(struct transport *t, uint32_t peer, struct message *m)
{
	struct connection *c = slot_map_get(&t->connections, peer);
	int to;

	if (!c)
		return -ENOTCONN;
	to = !end_of(c, t, peer);
	if (to == 0 && !c->end[0].at)
		return -ENOTCONN;
	if (c->end[to].waiting >= t->queue_max)
		return -EAGAIN;
	c->end[to].waiting++;
	if (c->end[to].at)
		queue(c, to, m);
	else
		free(m);
	return 0;
}

static int loop_send(struct transport *t, uint32_t peer, const struct iovec *parts,
		     unsigned nparts)
{
	struct message *m;
	uint64_t size;
	int rc = transport_message_size(parts, nparts, &size);

	if (rc)
		return rc;
	m = malloc(sizeof(*m) + size);
	if (!m)
		return -ENOMEM;
	*m = (struct message){ .size = size };
	transport_message_fill(m->data, parts, nparts);
	pthread_mutex_lock(&table.lock);
	rc = queue_or_refuse(t, peer, m);
	pthread_mutex_unlock(&table.lock);
	if (rc)
		free(m);
	return rc;
}

/* False: whom it is from has gone, or there is no room for one more. */
static bool accept_message(struct transport *t, struct message *m, uint32_t *number)
{
	struct connection *c = m->connection;

	if (m->to == 1 && c->end[1].number == NO_NUMBER) {
		if (give_number(t, c, &c->end[1].number))
			return false;
		c->refs++;
	}
	if (m->to == 1)
		c->heard = ++t->delivered;
	*number = c->end[m->to].number;
	return *number != NO_NUMBER;
}

static struct message *next_message(struct transport *t, uint32_t *number)
{
	struct message *m;

	pthread_mutex_lock(&table.lock);
	while ((m = take_message(t)) && !accept_message(t, m, number))
		message_free(m);
	pthread_mutex_unlock(&table.lock);
	return m;
}

static void finish_message(struct message *m)
{
	pthread_mutex_lock(&table.lock);
	forget_if_over(m->connection);
	message_free(m);
	pthread_mutex_unlock(&table.lock);
}

static void wake_if_waiting(struct transport *t)
{
	pthread_mutex_lock(&table.lock);
	if (!STAILQ_EMPTY(&t->messages))
		wake(t);
	pthread_mutex_unlock(&table.lock);
}

static int loop_turn(struct transport *t, transport_receive receive, void *owner, int max)
{
	struct message *m;
	uint32_t number;
	int n = 0;

	sleep_again(t);
	while (n < max && (m = next_message(t, &number))) {
		receive(owner, number, m->data, m->size);
		finish_message(m);
		n++;
	}
	if (n == max)
		wake_if_waiting(t);
	return n;
}

/* ---- memory ---- */

static int loop_attach(struct transport *t, const struct transport_target *target,
		       uint32_t *peer)
{
	if (target->pid != getpid())
		return -EPERM;
	return transport_host.attach(t->host, target, peer);
}

static void loop_detach(struct transport *t, uint32_t peer)
{
	transport_host.detach(t->host, peer);
}

static int loop_get(struct transport *t, uint32_t peer, const struct iovec *local,
		    unsigned nlocal, const struct iovec *remote, unsigned nremote,
		    void *control, size_t control_size)
{
	return transport_host.get(t->host, peer, local, nlocal, remote, nremote, control,
				  control_size);
}

const struct transport_ops transport_loop = {
	.name = "loop",
	.open = loop_open,
	.close = loop_close,
	.fd = loop_fd,
	.address = loop_address,
	.connect = loop_connect,
	.disconnect = loop_disconnect,
	.send = loop_send,
	.turn = loop_turn,
	.attach = loop_attach,
	.detach = loop_detach,
	.get = loop_get,
};
