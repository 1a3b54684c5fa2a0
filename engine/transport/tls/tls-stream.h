/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TRANSPORT_TLS_TLS_STREAM_H
#define ENGINE_TRANSPORT_TLS_TLS_STREAM_H

/* Bytes in both directions over a connected socket that does not block: by TLS, or plain, which
 * begins with a greeting.  Bytes that the socket does not take are kept until it does.  One
 * thread.
 */

#include "engine/transport/tls/tls-context.h"

struct tls_stream {
	int fd;
	SSL *ssl; /* NULL: plain */
	bool is_client;
	bool reads_only;    /* accepted: the client has only the readers' key */
	uint64_t encrypted; /* bytes since the key for sending was made */
	/* bytes for the socket */
	uint8_t *out;
	size_t out_at, out_end, out_room;
	/* plain */
	bool greeted;    /* we have sent our greeting */
	size_t greeting; /* bytes of the peer's greeting that have come */
	uint8_t *ahead;  /* bytes received ahead of tls_stream_read */
	size_t ahead_at, ahead_end;
};

/* A stream that may be closed. */
#define TLS_STREAM_NONE ((struct tls_stream){ .fd = -1 })

/* context NULL: plain.  The descriptor stays the caller's.  -ENOMEM. */
int tls_stream_open(struct tls_stream *s, struct tls_context *context, int fd, bool is_client);
/* in_order: the peer is told that nothing more comes. */
void tls_stream_close(struct tls_stream *s, bool in_order);

/* Returns 0 once each side has proven that it has the key.
 * -EAGAIN: to be called again when the socket is readable, or writable while tls_stream_waits.
 * -EACCES: the peer has another key or speaks another protocol.
 * -ECONNRESET: the peer hung up.
 * -ENOMEM.
 */
int tls_stream_handshake(struct tls_stream *s);

/* Sends bytes, or keeps what the socket does not take.
 * -ECONNRESET: the connection is broken.
 * -ENOMEM.
 */
int tls_stream_write(struct tls_stream *s, const void *bytes, size_t size);
/* Sends what is kept.
 * -EAGAIN: the socket takes no more.
 * -ECONNRESET: the connection is broken.
 */
int tls_stream_flush(struct tls_stream *s);
/* Returns the number of bytes that are kept. */
static inline size_t tls_stream_waits(const struct tls_stream *s)
{
	return s->out_end - s->out_at;
}

/* Returns how many bytes were read, at most size, which is not 0.
 * -EAGAIN: none has come.
 * -ECONNRESET: the stream is over.
 * -ENOMEM.
 */
ssize_t tls_stream_read(struct tls_stream *s, void *to, size_t size);

#endif
