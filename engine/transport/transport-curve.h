/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TRANSPORT_TRANSPORT_CURVE_H
#define ENGINE_TRANSPORT_TRANSPORT_CURVE_H

/* Who may speak with transport zmq.  All engines of a job have one curve25519 key pair, made
 * from the job's secret, as servers and as clients; readers (engine/base/key.h) another, as
 * clients only; whoever has a third is refused.  libzmq asks for each connection (its ZAP
 * protocol) and is answered from turn, without a thread.  What it was answered stands by each
 * message of that connection.
 *
 * Without a key it is asked too, and answers yes: then libzmq refuses peers of before ZMTP 3,
 * on whose greeting libzmq 4.3.4 can abort the process (an assertion in zmtp_engine.cpp when
 * they leave early).
 */

#include "engine/base/key.h"

enum { TRANSPORT_CURVE_TEXT = 41 };

struct transport_curve {
	void *questions; /* the socket on which libzmq asks */
	bool plain;      /* no key: all are taken */
	bool reads_only; /* ours is the readers' */
	uint8_t job_public[KEY_BYTES], readers_public[KEY_BYTES];
	char server_text[TRANSPORT_CURVE_TEXT]; /* the job's public key */
	char public_text[TRANSPORT_CURVE_TEXT]; /* ours */
	char secret_text[TRANSPORT_CURVE_TEXT];
};

/* context: of libzmq; key NULL: plain; reads_only: key is the one for readers.  -ENOTSUP: a
 * libzmq without CURVE; -EMFILE, -ENOMEM.  On error nothing stays open.
 */
int transport_curve_open(struct transport_curve *c, void *context, const uint8_t *key,
			 bool reads_only);
void transport_curve_close(struct transport_curve *c);

/* Sets a socket's options before it is bound; before it connects.  -EACCES: readers serve
 * nobody.
 */
int transport_curve_serve(const struct transport_curve *c, void *socket);
int transport_curve_join(const struct transport_curve *c, void *socket);

/* Answers all that libzmq has asked. */
void transport_curve_turn(struct transport_curve *c);

/* Whether a message (zmq_msg_t) that came to a serving socket is of one who may read only. */
bool transport_curve_reads_only(const struct transport_curve *c, void *message);

#endif
