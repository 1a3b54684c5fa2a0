/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/transport/tls/tls-stream.h"

#include <errno.h>
#include <openssl/err.h>
#include <pthread.h>
#include <sys/socket.h>

enum {
	AHEAD = 64 << 10,  /* plain: bytes taken from the socket at a time */
	FLUSH = 128 << 10, /* bytes kept until they are sent */
	KEEP = 256 << 10,  /* room that an empty buffer keeps */
	GREETING = 8,
};

/* A key of AES-GCM may encrypt 2^24.5 records of 16 KiB (RFC 8446, 5.5). */
#define KEY_MAX_BYTES (1ull << 36)

static const char greeting[GREETING + 1] = "frag 1\r\n";

/* ---- the socket ---- */

static int room_for(struct tls_stream *s, size_t size)
{
	size_t waits = tls_stream_waits(s), room = s->out_room ? s->out_room : 64 << 10;
	uint8_t *out;

	if (s->out_at && s->out_end + size > s->out_room) {
		memmove(s->out, s->out + s->out_at, waits);
		s->out_at = 0;
		s->out_end = waits;
	}
	if (waits + size <= s->out_room)
		return 0;
	while (room < waits + size)
		room *= 2;
	out = realloc(s->out, room);
	if (!out)
		return -ENOMEM;
	s->out = out;
	s->out_room = room;
	return 0;
}

static int keep(struct tls_stream *s, const void *bytes, size_t size)
{
	int rc = room_for(s, size);

	if (rc)
		return rc;
	memcpy(s->out + s->out_end, bytes, size);
	s->out_end += size;
	return 0;
}

/* Returns the bytes sent.
 * -EAGAIN: the socket takes none now.
 * -ECONNRESET: the connection is broken.
 */
static ssize_t send_some(const struct tls_stream *s, const void *bytes, size_t size)
{
	ssize_t n;

	do {
		n = send(s->fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n >= 0)
		return n;
	return errno == EAGAIN || errno == ENOBUFS ? -EAGAIN : -ECONNRESET;
}

/* Returns the bytes received.
 * -EAGAIN: none has come.
 * -ECONNRESET: the connection is broken, or over.
 */
static ssize_t receive_some(const struct tls_stream *s, void *to, size_t size)
{
	ssize_t n;

	do {
		n = recv(s->fd, to, size, MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n > 0)
		return n;
	return n < 0 && errno == EAGAIN ? -EAGAIN : -ECONNRESET;
}

int tls_stream_flush(struct tls_stream *s)
{
	while (tls_stream_waits(s)) {
		ssize_t n = send_some(s, s->out + s->out_at, tls_stream_waits(s));

		if (n < 0)
			return (int)n;
		s->out_at += (size_t)n;
	}
	s->out_at = s->out_end = 0;
	if (s->out_room > KEEP) {
		free(s->out);
		s->out = NULL;
		s->out_room = 0;
	}
	return 0;
}

/* ---- the socket, as OpenSSL sees it ---- */

static int bio_write(BIO *bio, const char *bytes, int size)
{
	return keep(BIO_get_data(bio), bytes, (size_t)size) ? -1 : size;
}

static int bio_read(BIO *bio, char *to, int size)
{
	ssize_t n = receive_some(BIO_get_data(bio), to, (size_t)size);

	BIO_clear_retry_flags(bio);
	if (n == -EAGAIN)
		BIO_set_retry_read(bio);
	return n < 0 ? (n == -EAGAIN ? -1 : 0) : (int)n;
}

static long bio_control(BIO *bio, int what, long number, void *pointer)
{
	return what == BIO_CTRL_FLUSH;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static BIO_METHOD *method;

static void make_method(void)
{
	method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "fragfs");
	if (!method)
		return;
	BIO_meth_set_write(method, bio_write);
	BIO_meth_set_read(method, bio_read);
	BIO_meth_set_ctrl(method, bio_control);
}

static int open_ssl(struct tls_stream *s, struct tls_context *context)
{
	BIO *bio;

	pthread_once(&once, make_method);
	bio = method ? BIO_new(method) : NULL;
	if (!bio)
		return -ENOMEM;
	BIO_set_data(bio, s);
	BIO_set_init(bio, 1);
	s->ssl = tls_context_ssl(context, s->is_client, bio, &s->reads_only);
	return s->ssl ? 0 : -ENOMEM;
}

/* -EACCES: the peer breaks the protocol, or says that we do.  OpenSSL's queue of errors is left
 * empty.
 */
static int ssl_error(struct tls_stream *s, int result)
{
	int why = SSL_get_error(s->ssl, result);
	bool at_end = ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING;

	ERR_clear_error();
	switch (why) {
	case SSL_ERROR_WANT_READ:
	case SSL_ERROR_WANT_WRITE:
		return -EAGAIN;
	case SSL_ERROR_SSL:
		return at_end ? -ECONNRESET : -EACCES;
	default:
		return -ECONNRESET;
	}
}

/* ---- open and close ---- */

int tls_stream_open(struct tls_stream *s, struct tls_context *context, int fd, bool is_client)
{
	*s = (struct tls_stream){ .fd = fd, .is_client = is_client };
	return context ? open_ssl(s, context) : 0;
}

void tls_stream_close(struct tls_stream *s, bool in_order)
{
	if (s->ssl && in_order && SSL_is_init_finished(s->ssl)) {
		SSL_shutdown(s->ssl);
		tls_stream_flush(s);
	}
	if (s->ssl) {
		SSL_free(s->ssl);
		ERR_clear_error();
	}
	free(s->out);
	free(s->ahead);
	*s = TLS_STREAM_NONE;
}

/* ---- handshake ---- */

static int greet(struct tls_stream *s)
{
	int rc = s->greeted ? 0 : keep(s, greeting, GREETING);

	s->greeted = true;
	if (!rc)
		rc = tls_stream_flush(s);
	return rc;
}

static int hear_greeting(struct tls_stream *s)
{
	char text[GREETING];

	while (s->greeting < GREETING) {
		ssize_t n = receive_some(s, text, GREETING - s->greeting);

		if (n < 0)
			return (int)n;
		if (memcmp(text, greeting + s->greeting, (size_t)n) != 0)
			return -EACCES;
		s->greeting += (size_t)n;
	}
	return 0;
}

/* The client greets first. */
static int handshake_plain(struct tls_stream *s)
{
	int rc = s->is_client ? greet(s) : hear_greeting(s);

	if (!rc)
		rc = s->is_client ? hear_greeting(s) : greet(s);
	return rc;
}

int tls_stream_handshake(struct tls_stream *s)
{
	int rc, flushed;

	if (!s->ssl)
		return handshake_plain(s);
	rc = SSL_do_handshake(s->ssl);
	rc = rc == 1 ? 0 : ssl_error(s, rc);
	if (!rc && !tls_context_is_proven(s->ssl))
		rc = -EACCES;
	flushed = tls_stream_flush(s); /* sends the alert of a failed handshake, too */
	return rc ? rc : flushed == -EAGAIN ? 0 : flushed;
}

/* ---- write ---- */

static int write_plain(struct tls_stream *s, const uint8_t *bytes, size_t size)
{
	int rc = size < FLUSH ? -EAGAIN : tls_stream_flush(s);

	while (!rc && size) {
		ssize_t n = send_some(s, bytes, size);

		if (n < 0) {
			rc = (int)n;
			break;
		}
		bytes += n;
		size -= (size_t)n;
	}
	return rc == -EAGAIN ? keep(s, bytes, size) : rc;
}

static int encrypt(struct tls_stream *s, const uint8_t *bytes, size_t size)
{
	int n;

	if (!size)
		return 0;
	s->encrypted += size;
	if (s->encrypted > KEY_MAX_BYTES &&
	    SSL_key_update(s->ssl, SSL_KEY_UPDATE_NOT_REQUESTED))
		s->encrypted = 0;
	n = SSL_write(s->ssl, bytes, (int)size);
	if (n == (int)size)
		return 0;
	n = ssl_error(s, n);
	return n == -EAGAIN ? -ENOMEM : -ECONNRESET;
}

int tls_stream_write(struct tls_stream *s, const void *bytes, size_t size)
{
	const uint8_t *at = bytes;
	int rc = s->ssl ? 0 : write_plain(s, at, size);

	/* the peer decrypts one part while the next is encrypted */
	while (s->ssl && size && !rc) {
		size_t part = u64_min(size, FLUSH);

		rc = encrypt(s, at, part);
		at += part;
		size -= part;
		if (!rc && tls_stream_waits(s) >= FLUSH)
			rc = tls_stream_flush(s);
		if (rc == -EAGAIN)
			rc = 0;
	}
	return rc;
}

/* ---- read ---- */

static ssize_t read_plain(struct tls_stream *s, void *to, size_t size)
{
	ssize_t n;

	if (s->ahead_at == s->ahead_end) {
		if (size >= AHEAD)
			return receive_some(s, to, size);
		if (!s->ahead && !(s->ahead = malloc(AHEAD)))
			return -ENOMEM;
		n = receive_some(s, s->ahead, AHEAD);
		if (n < 0)
			return n;
		s->ahead_at = 0;
		s->ahead_end = (size_t)n;
	}
	size = u64_min(size, s->ahead_end - s->ahead_at);
	memcpy(to, s->ahead + s->ahead_at, size);
	s->ahead_at += size;
	return (ssize_t)size;
}

ssize_t tls_stream_read(struct tls_stream *s, void *to, size_t size)
{
	int n;

	if (!s->ssl)
		return read_plain(s, to, size);
	n = SSL_read(s->ssl, to, (int)size);
	if (n > 0)
		return n;
	n = ssl_error(s, n);
	return n == -EAGAIN ? n : -ECONNRESET;
}
