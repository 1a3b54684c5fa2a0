/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/transport/tls/tls-context.h"

#include "engine/base/log.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
	PSK_BYTES = 32,
	AHEAD = 128 << 10, /* bytes that OpenSSL takes from a socket at a time */
	END_MS = 1000,     /* the longest wait for a call of OpenSSL when the process ends */
};

struct psk {
	const char *name;
	uint8_t bytes[PSK_BYTES];
	bool is_there;
};

struct tls_context {
	SSL_CTX *ssl;
	struct psk job, readers;
	const struct psk *own;
};

/* ---- OpenSSL in this process ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_rwlock_t gate = PTHREAD_RWLOCK_INITIALIZER; /* held while OpenSSL is called */
static _Atomic bool ended;
static OSSL_LIB_CTX *library; /* lives as long as the process */

/* Waits, at exit(3), until no thread is in OpenSSL.  Handlers of atexit run in reverse order:
 * this one before OpenSSL's own, which was registered earlier.
 */
static void end_library(void)
{
	uint64_t until = monotonic_ms() + END_MS;

	atomic_store(&ended, true);
	while (pthread_rwlock_trywrlock(&gate))
		if (monotonic_ms() >= until)
			return;
		else
			usleep(100);
	pthread_rwlock_unlock(&gate);
}

/* A thread that the child does not have may hold the gate. */
static void open_gate_in_child(void)
{
	gate = (pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER;
}

static void begin_library(void)
{
	if (OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, NULL) && !atexit(end_library) &&
	    !pthread_atfork(NULL, NULL, open_gate_in_child))
		library = OSSL_LIB_CTX_new();
}

bool tls_context_enter(void)
{
	pthread_rwlock_rdlock(&gate);
	if (!atomic_load(&ended))
		return true;
	pthread_rwlock_unlock(&gate);
	return false;
}

void tls_context_leave(void)
{
	pthread_rwlock_unlock(&gate);
}

/* ---- keys ---- */

static int derive(struct psk *psk, const uint8_t key[KEY_BYTES], const char *name)
{
	psk->name = name;
	psk->is_there = EVP_Q_mac(library, "HMAC", NULL, "SHA256", NULL, key, KEY_BYTES,
				  (const uint8_t *)name, strlen(name), psk->bytes,
				  sizeof(psk->bytes), NULL) != NULL;
	return psk->is_there ? 0 : -ENOTSUP;
}

static int derive_all(struct tls_context *c, const uint8_t *key, bool reads_only)
{
	uint8_t readers[KEY_BYTES];
	int rc = 0;

	if (reads_only)
		memcpy(readers, key, sizeof(readers));
	else
		rc = key_for_readers(key, readers);
	if (!rc)
		rc = derive(&c->readers, readers, "fragfs TLS, a reader");
	if (!rc && !reads_only)
		rc = derive(&c->job, key, "fragfs TLS, a process of the job");
	explicit_bzero(readers, sizeof(readers));
	c->own = reads_only ? &c->readers : &c->job;
	return rc;
}

static unsigned give_own(SSL *ssl, const char *hint, char *name, unsigned name_max,
			 uint8_t *psk, unsigned psk_max)
{
	const struct tls_context *c = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));

	if (strlen(c->own->name) >= name_max || psk_max < PSK_BYTES)
		return 0;
	memcpy(name, c->own->name, strlen(c->own->name) + 1);
	memcpy(psk, c->own->bytes, PSK_BYTES);
	return PSK_BYTES;
}

/* The handshake fails where the client names a key that it does not have. */
static unsigned find_named(SSL *ssl, const char *name, uint8_t *psk, unsigned psk_max)
{
	const struct tls_context *c = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
	const struct psk *all[] = { &c->job, &c->readers };
	bool *reads_only = SSL_get_app_data(ssl);

	for (unsigned i = 0; i < ARRAY_SIZE(all); i++) {
		if (!all[i]->is_there || strcmp(name, all[i]->name) || psk_max < PSK_BYTES)
			continue;
		*reads_only = all[i] == &c->readers;
		memcpy(psk, all[i]->bytes, PSK_BYTES);
		return PSK_BYTES;
	}
	return 0;
}

/* ---- contexts ---- */

static int set_up(struct tls_context *c)
{
	c->ssl = SSL_CTX_new_ex(library, NULL, TLS_method());
	if (!c->ssl)
		return -ENOTSUP;
	SSL_CTX_set_app_data(c->ssl, c);
	SSL_CTX_set_options(c->ssl, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
	SSL_CTX_set_session_cache_mode(c->ssl, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_mode(c->ssl, SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_read_ahead(c->ssl, 1);
	SSL_CTX_set_default_read_buffer_len(c->ssl, AHEAD);
	SSL_CTX_set_psk_client_callback(c->ssl, give_own);
	SSL_CTX_set_psk_server_callback(c->ssl, find_named);
	if (!SSL_CTX_set_min_proto_version(c->ssl, TLS1_3_VERSION) ||
	    !SSL_CTX_set_ciphersuites(c->ssl, "TLS_AES_128_GCM_SHA256") ||
	    !SSL_CTX_set1_groups_list(c->ssl, "X25519") || !SSL_CTX_set_num_tickets(c->ssl, 0))
		return -ENOTSUP;
	return 0;
}

int tls_context_new(struct tls_context **out, const uint8_t *key, bool reads_only)
{
	struct tls_context *c = calloc(1, sizeof(*c));
	int rc = c ? 0 : -ENOMEM;

	pthread_once(&once, begin_library);
	if (!rc && (!library || !tls_context_enter())) {
		rc = -ENOTSUP;
	} else if (!rc) {
		rc = derive_all(c, key, reads_only);
		if (!rc)
			rc = set_up(c);
		ERR_clear_error();
		tls_context_leave();
	}
	if (rc) {
		log_once(LOG_WARN, "no TLS 1.3 by this OpenSSL (%s): %s",
			 OpenSSL_version(OPENSSL_VERSION), strerror(-rc));
		tls_context_free(c);
		return rc;
	}
	*out = c;
	return 0;
}

void tls_context_free(struct tls_context *c)
{
	if (!c)
		return;
	if (tls_context_enter()) {
		SSL_CTX_free(c->ssl);
		tls_context_leave();
	}
	explicit_bzero(c, sizeof(*c));
	free(c);
}

SSL *tls_context_ssl(struct tls_context *c, bool is_client, BIO *bio, bool *reads_only)
{
	SSL *ssl = SSL_new(c->ssl);

	if (!ssl) {
		BIO_free(bio);
		return NULL;
	}
	SSL_set_bio(ssl, bio, bio);
	SSL_set_app_data(ssl, reads_only);
	if (is_client) {
		SSL_set_connect_state(ssl);
		/* no certificate is trusted: a server that sends one is refused */
		SSL_set_verify(ssl, SSL_VERIFY_PEER, NULL);
	} else {
		SSL_set_accept_state(ssl);
	}
	return ssl;
}

bool tls_context_is_proven(SSL *ssl)
{
	return SSL_session_reused(ssl) && SSL_version(ssl) == TLS1_3_VERSION;
}
