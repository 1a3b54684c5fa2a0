/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TRANSPORT_TLS_TLS_CONTEXT_H
#define ENGINE_TRANSPORT_TLS_TLS_CONTEXT_H

/* A job's key, for OpenSSL: TLS 1.3 with an external pre-shared key (RFC
 * 8446, 4.2.11) and an ephemeral X25519 exchange: both sides prove that they have the key, no
 * certificate is sent or taken, and who learns the key later cannot read what was sent before.
 * The pre-shared key of a process follows from the job's key; that of a reader from the
 * readers' key (engine/base/key.h).  Each has a name of its own, which the client sends.
 *
 * The contexts have a library context of their own (OSSL_LIB_CTX): neither the trainer's
 * configuration of OpenSSL nor its providers apply.
 */

#include "engine/base/key.h"

#include <openssl/ssl.h>

struct tls_context;

/* reads_only: key is the readers'.
 * -ENOTSUP: this OpenSSL lacks what is needed; a warning is logged.
 * -ENOMEM.
 */
int tls_context_new(struct tls_context **c, const uint8_t *key, bool reads_only);
void tls_context_free(struct tls_context *c);

/* Makes one side of a connection, which reads and writes by bio and owns it also on failure.
 * *reads_only, which must outlive the connection, becomes true when the client has only the
 * readers' key.
 * NULL: no memory.
 */
SSL *tls_context_ssl(struct tls_context *c, bool is_client, BIO *bio, bool *reads_only);
/* Returns true if the handshake, which has succeeded, was by the pre-shared key. */
bool tls_context_is_proven(SSL *ssl);

/* Encloses calls of OpenSSL, which must not run when exit(3) has ended the library in another
 * thread.  false: exit has ended it, or is about to.
 */
bool tls_context_enter(void);
void tls_context_leave(void);

#endif
