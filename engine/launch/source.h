/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_LAUNCH_SOURCE_H
#define ENGINE_LAUNCH_SOURCE_H

/* "HOST:PORT[,HOST:PORT]": what an observer is told, and what it finds by it. */

#include "engine/base/key.h"
#include "engine/engine.h"

/* To message addresses, "tcp://10.0.0.1:21017,...": names are resolved.  why: one line.
 * -EINVAL, -ENOENT: no such host, -ENAMETOOLONG.
 */
int source_parse(const char *source, char *seeds, size_t size, char *why, size_t whysize);

/* Whether it begins as HOST:PORT does. */
bool source_is_address(const char *source);
/* Whether it names a checkpoint: has a slash, or is no HOST:PORT and is there. */
bool source_is_path(const char *source);

struct source_key {
	uint8_t bytes[KEY_BYTES];
	bool is_there;   /* false: options say plain, or the job does */
	bool reads_only; /* it is the one for readers: who does not write takes no more */
};

/* The job's key: the option, FRAG_KEY_FILE, else what the job of that port left for its user.
 * -EACCES: also one for readers, and options say writable; -ENOKEY.
 */
int source_key(const struct engine_options *options, struct source_key *key, char *why,
	       size_t whysize);

/* Whether anything listens at one of them: 0; -ECONNREFUSED and so on, with why. */
int source_probe(const char *source, char *why, size_t whysize);

#endif
