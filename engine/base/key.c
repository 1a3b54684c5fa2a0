/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/key.h"

#include <errno.h>
#include <string.h>
#include <zmq.h>

enum { TEXT = KEY_BYTES * 5 / 4 + 1 };

int key_for_readers(const uint8_t key[KEY_BYTES], uint8_t readers[KEY_BYTES])
{
	char secret[TEXT], public[TEXT];
	int rc = 0;

	zmq_z85_encode(secret, key, KEY_BYTES);
	if (zmq_curve_public(public, secret))
		rc = -ENOTSUP;
	else
		zmq_z85_decode(readers, public);
	explicit_bzero(secret, sizeof(secret));
	return rc;
}

int key_for_writers_memory(const uint8_t key[KEY_BYTES], uint64_t word[2])
{
	uint8_t other[KEY_BYTES];
	int rc;

	memcpy(other, key, sizeof(other));
	other[KEY_BYTES / 2] ^= 0xff; /* curve25519 clamps bytes 0 and 31 alone */
	rc = key_for_readers(other, other);
	if (!rc)
		memcpy(word, other, 2 * sizeof(*word));
	explicit_bzero(other, sizeof(other));
	return rc;
}
