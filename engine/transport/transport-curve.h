/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TRANSPORT_TRANSPORT_CURVE_H
#define ENGINE_TRANSPORT_TRANSPORT_CURVE_H

/* Authentication of transport zmq, by CURVE.  All engines of a job have one curve25519 key
 * pair, made from the job's secret, as servers and as clients.  Readers (engine/base/key.h)
 * have another one, as clients only.  A peer with any other key is refused.  libzmq asks about
 * each connection by its ZAP protocol, and transport_curve_turn answers, without a thread;
 * libzmq attaches the answer to each message of that connection.
 *
 * Without a key libzmq asks too, and each answer is yes: because it asks, libzmq refuses peers
 * of before ZMTP 3, on whose greeting libzmq 4.3.4 can abort the process (an assertion in
 * zmtp_engine.cpp when they leave early).
 */

#include "engine/base/key.h"

enum { TRANSPORT_CURVE_TEXT = 41 };

struct transport_curve {
	void *questions; /* the socket on which libzmq asks */
	bool plain;      /* no key: all peers are accepted */
	bool reads_only; /* our key is the readers' */
	uint8_t job_public[KEY_BYTES], readers_public[KEY_BYTES];
	char server_text[TRANSPORT_CURVE_TEXT]; /* the job's public key */
	char public_text[TRANSPORT_CURVE_TEXT]; /* ours */
	char secret_text[TRANSPORT_CURVE_TEXT];
};

/* context: libzmq's.  key NULL: plain.  reads_only: key is the readers'.
 * -ENOTSUP: a libzmq without CURVE.
 * -EMFILE.
 * -ENOMEM.
 */
int transport_curve_open(struct transport_curve *c, void *context, const uint8_t *key,
			 bool reads_only);
void transport_curve_close(struct transport_curve *c);

/* Set the options of a socket: serve before it is bound, join before it connects.
 * -EACCES: a reader must not serve.
 */
int transport_curve_serve(const struct transport_curve *c, void *socket);
int transport_curve_join(const struct transport_curve *c, void *socket);

/* Answers all questions of libzmq. */
void transport_curve_turn(struct transport_curve *c);

/* Returns true if the sender of a message (zmq_msg_t) to a serving socket has the readers' key.
 */
bool transport_curve_reads_only(const struct transport_curve *c, void *message);

#endif
