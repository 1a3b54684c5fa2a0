/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_LAUNCH_SOURCE_H
#define ENGINE_LAUNCH_SOURCE_H

/* The source of a mount, "HOST:PORT[,HOST:PORT]": addresses of the job, and the job's key. */

#include "engine/base/key.h"
#include "engine/engine.h"

/* Resolves the hosts of source, to message addresses "tcp://10.0.0.1:21017,...".  With an
 * error, why has one line.
 * -EINVAL: source has another form.
 * -ENOENT: no such host.
 * -ENAMETOOLONG.
 */
int source_parse(const char *source, char *seeds, size_t size, char *why, size_t whysize);

/* Resolves the host at *at in source (NULL: the first), as resolver_ask does, to its message
 * address.  Unless the result is -EAGAIN, *at is moved to the next host.
 */
struct resolver;
int source_ask(const char *source, const char **at, struct resolver **r, char *seed,
	       size_t size);

/* Returns true if source begins with HOST:PORT. */
bool source_is_address(const char *source);
/* Returns true if source names a checkpoint: has a slash, or is no HOST:PORT and exists. */
bool source_is_path(const char *source);

/* Returns the address of a job that source names: source, or, where that is the name of a live
 * job of this host, what its job file says, which is read into *job.
 */
struct jobfile;
const char *source_address(const char *source, struct jobfile *job);

struct source_key {
	uint8_t bytes[KEY_BYTES];
	bool is_there;   /* false: the options or the job file say plain */
	bool reads_only; /* bytes are the readers' key, which observers that do not write use */
};

/* Finds the job's key: by the options, FRAG_KEY_FILE, or the job file with that port.  With an
 * error, why has one line.
 * -ENOKEY: none of them names one.
 * -EACCES: the file is a readers' key and the options say writable, or others may read it.
 * -errno of keyfile_load.
 */
int source_key(const struct engine_options *options, struct source_key *key, char *why,
	       size_t whysize);

/* Connects to the source's addresses, one after the other, until one accepts.
 * 0: a process listens at that address.
 * -errno of the last connect: none listens; why has one line.
 */
int source_probe(const char *source, char *why, size_t whysize);

#endif
