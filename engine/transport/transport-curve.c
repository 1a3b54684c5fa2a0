/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/transport/transport-curve.h"

#include "engine/base/log.h"
#include "engine/transport/transport-socket.h"

#include <errno.h>
#include <string.h>
#include <zmq.h>

/* Parts of a question of ZAP, RFC 27: version, request id, domain, address, identity,
 * mechanism, and for CURVE the client's public key.
 */
enum { REVISION, REQUEST, DOMAIN, ADDRESS, IDENTITY, MECHANISM, CREDENTIALS, PARTS };
enum { PART_MAX = 256 };

struct zap_request {
	unsigned nparts;
	size_t size[PARTS];
	uint8_t part[PARTS][PART_MAX];
};

/* Makes the keys of all members.  The job's public key is also the readers' secret key; the
 * readers' public key follows from it.
 */
static int make_keys(struct transport_curve *c, const uint8_t *key)
{
	const uint8_t *own = c->reads_only ? c->readers_public : c->job_public;
	int rc = 0;

	if (c->reads_only)
		memcpy(c->job_public, key, KEY_BYTES);
	else
		rc = key_for_readers(key, c->job_public);
	if (!rc)
		rc = key_for_readers(c->job_public, c->readers_public);
	if (rc) {
		log_error("this libzmq has no CURVE: FRAG_PLAIN=1 goes without authentication");
		return rc;
	}
	zmq_z85_encode(c->secret_text, key, KEY_BYTES);
	zmq_z85_encode(c->public_text, own, KEY_BYTES);
	zmq_z85_encode(c->server_text, c->job_public, KEY_BYTES);
	return 0;
}

int transport_curve_open(struct transport_curve *c, void *context, const uint8_t *key,
			 bool reads_only)
{
	int rc;

	c->plain = !key;
	c->reads_only = key && reads_only;
	rc = key ? make_keys(c, key) : 0;
	if (rc)
		return rc;
	c->questions = zmq_socket(context, ZMQ_REP);
	rc = c->questions ? 0 : transport_socket_error();
	if (!rc && zmq_bind(c->questions, "inproc://zeromq.zap.01"))
		rc = transport_socket_error();
	if (rc)
		transport_curve_close(c);
	return rc;
}

void transport_curve_close(struct transport_curve *c)
{
	if (c->questions)
		zmq_close(c->questions);
	explicit_bzero(c, sizeof(*c));
}

static int set_domain(void *socket)
{
	return zmq_setsockopt(socket, ZMQ_ZAP_DOMAIN, "fragfs", strlen("fragfs"))
		       ? transport_socket_error()
		       : 0;
}

int transport_curve_serve(const struct transport_curve *c, void *socket)
{
	if (c->plain)
		return set_domain(socket);
	if (c->reads_only)
		return -EACCES;
	if (zmq_setsockopt(socket, ZMQ_CURVE_SERVER, &(int){ 1 }, sizeof(int)) ||
	    zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, c->secret_text, TRANSPORT_CURVE_TEXT))
		return transport_socket_error();
	return set_domain(socket);
}

int transport_curve_join(const struct transport_curve *c, void *socket)
{
	if (c->plain)
		return set_domain(socket);
	if (zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, c->server_text, TRANSPORT_CURVE_TEXT) ||
	    zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, c->public_text, TRANSPORT_CURVE_TEXT) ||
	    zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, c->secret_text, TRANSPORT_CURVE_TEXT))
		return transport_socket_error();
	return 0;
}

/* Takes libzmq's next question.  false: there is none. */
static bool take_question(void *socket, struct zap_request *q)
{
	int more = 1;

	for (q->nparts = 0; more; q->nparts++) {
		uint8_t rest[PART_MAX];
		bool known = q->nparts < PARTS;
		int n = zmq_recv(socket, known ? q->part[q->nparts] : rest, PART_MAX,
				 ZMQ_DONTWAIT);

		if (n < 0)
			return false;
		if (known)
			q->size[q->nparts] = (size_t)n;
		if (zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &(size_t){ sizeof(more) }))
			return false;
	}
	return true;
}

/* The answers to libzmq, which come back with the messages as "User-Id". */
static const char writes[] = "writes", reads[] = "reads";

static bool part_is(const struct zap_request *q, unsigned part, const void *bytes, size_t size)
{
	return q->nparts > part && q->size[part] == size && !memcmp(q->part[part], bytes, size);
}

/* Returns what the asker may do; NULL: it has none of our keys. */
static const char *who_is(const struct transport_curve *c, const struct zap_request *q)
{
	if (c->plain)
		return part_is(q, MECHANISM, "NULL", strlen("NULL")) ? writes : NULL;
	if (q->nparts != PARTS || !part_is(q, MECHANISM, "CURVE", strlen("CURVE")))
		return NULL;
	if (part_is(q, CREDENTIALS, c->job_public, KEY_BYTES))
		return writes;
	return part_is(q, CREDENTIALS, c->readers_public, KEY_BYTES) ? reads : NULL;
}

static void answer(void *socket, const struct zap_request *q, const char *who)
{
	const char *status = who ? "200" : "400", *text = who ? "" : "another key";
	/* zmq_recv tells the whole size of a part that it has cut */
	size_t id_size = q->nparts > REQUEST ? u64_min(q->size[REQUEST], PART_MAX) : 0;

	zmq_send(socket, "1.0", 3, ZMQ_SNDMORE | ZMQ_DONTWAIT);
	zmq_send(socket, q->part[REQUEST], id_size, ZMQ_SNDMORE | ZMQ_DONTWAIT);
	zmq_send(socket, status, 3, ZMQ_SNDMORE | ZMQ_DONTWAIT);
	zmq_send(socket, text, strlen(text), ZMQ_SNDMORE | ZMQ_DONTWAIT);
	zmq_send(socket, who, who ? strlen(who) : 0, ZMQ_SNDMORE | ZMQ_DONTWAIT);
	zmq_send(socket, "", 0, ZMQ_DONTWAIT);
}

void transport_curve_turn(struct transport_curve *c)
{
	struct zap_request q;

	while (take_question(c->questions, &q))
		answer(c->questions, &q, who_is(c, &q));
}

/* A message without a User-Id is taken for a reader's. */
bool transport_curve_reads_only(const struct transport_curve *c, void *message)
{
	const char *who = c->plain ? writes : zmq_msg_gets(message, "User-Id");

	return !who || strcmp(who, writes);
}
