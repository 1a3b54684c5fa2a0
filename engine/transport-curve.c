/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/transport-curve.h"

#include "engine/log.h"
#include "engine/transport-socket.h"

#include <errno.h>
#include <string.h>
#include <zmq.h>

/* Parts of a question, RFC 27: version, request id, domain, address, identity, mechanism, and for
 * CURVE the client's public key.
 */
enum { REVISION, REQUEST, DOMAIN, ADDRESS, IDENTITY, MECHANISM, CREDENTIALS, PARTS };
enum { PART_MAX = 256 };

struct question {
	unsigned nparts;
	size_t size[PARTS];
	uint8_t part[PARTS][PART_MAX];
};

static int make_keys(struct transport_curve *c, const uint8_t *secret)
{
	if (!zmq_has("curve")) {
		log_error("this libzmq has no CURVE: FRAG_PLAIN=1 goes without authentication");
		return -ENOTSUP;
	}
	zmq_z85_encode(c->secret_text, secret, TRANSPORT_CURVE_KEY);
	if (zmq_curve_public(c->public_text, c->secret_text))
		return -ENOTSUP;
	zmq_z85_decode(c->public_key, c->public_text);
	return 0;
}

int transport_curve_open(struct transport_curve *c, void *context, const uint8_t *secret)
{
	int rc = secret ? make_keys(c, secret) : 0;

	c->plain = !secret;
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
	if (zmq_setsockopt(socket, ZMQ_CURVE_SERVER, &(int){ 1 }, sizeof(int)) ||
	    zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, c->secret_text, TRANSPORT_CURVE_TEXT))
		return transport_socket_error();
	return set_domain(socket);
}

int transport_curve_join(const struct transport_curve *c, void *socket)
{
	if (c->plain)
		return set_domain(socket);
	if (zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, c->public_text, TRANSPORT_CURVE_TEXT) ||
	    zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, c->public_text, TRANSPORT_CURVE_TEXT) ||
	    zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, c->secret_text, TRANSPORT_CURVE_TEXT))
		return transport_socket_error();
	return 0;
}

/* False: nothing more is asked. */
static bool take_question(void *socket, struct question *q)
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

static bool is_one_of_us(const struct transport_curve *c, const struct question *q)
{
	if (c->plain)
		return q->nparts > MECHANISM && q->size[MECHANISM] == strlen("NULL") &&
		       !memcmp(q->part[MECHANISM], "NULL", strlen("NULL"));
	return q->nparts == PARTS && q->size[MECHANISM] == strlen("CURVE") &&
	       !memcmp(q->part[MECHANISM], "CURVE", strlen("CURVE")) &&
	       q->size[CREDENTIALS] == TRANSPORT_CURVE_KEY &&
	       !memcmp(q->part[CREDENTIALS], c->public_key, TRANSPORT_CURVE_KEY);
}

static void answer(void *socket, const struct question *q, bool yes)
{
	const char *status = yes ? "200" : "400", *text = yes ? "" : "another key";
	size_t id_size = q->nparts > REQUEST ? u64_min(q->size[REQUEST], PART_MAX) : 0;

	zmq_send(socket, "1.0", 3, ZMQ_SNDMORE | ZMQ_DONTWAIT);
	zmq_send(socket, q->part[REQUEST], id_size, ZMQ_SNDMORE | ZMQ_DONTWAIT);
	zmq_send(socket, status, 3, ZMQ_SNDMORE | ZMQ_DONTWAIT);
	zmq_send(socket, text, strlen(text), ZMQ_SNDMORE | ZMQ_DONTWAIT);
	zmq_send(socket, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT);
	zmq_send(socket, "", 0, ZMQ_DONTWAIT);
}

void transport_curve_turn(struct transport_curve *c)
{
	struct question q;

	while (take_question(c->questions, &q))
		answer(c->questions, &q, is_one_of_us(c, &q));
}
