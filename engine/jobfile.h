/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_JOBFILE_H
#define ENGINE_JOBFILE_H

/* What rank 0 leaves for others of its user on its host: <dir>/<job>.job and <dir>/<job>.key, dir
 * being $XDG_RUNTIME_DIR/fragfs, or ~/.cache/fragfs where there is none; mode 0700.  A job file
 * whose process is gone (pid and start time) is as good as absent.
 */

#include "engine/base.h"

#include <sys/types.h>

enum { JOBFILE_KEY_BYTES = 32 };

struct jobfile {
	char job[128];
	char address[160];   /* "HOST:PORT" of rank 0 */
	char key_file[1024]; /* "" : plain */
	uint32_t world;
	pid_t pid;
	uint64_t start_time; /* /proc/PID/stat field 22 */
};

/* Writes path (or, NULL: the place above) by rename.  -errno. */
int jobfile_publish(const struct jobfile *j, const char *path);
void jobfile_remove(const char *job);
/* Removes what dead processes of this host have left there a day ago; never what may be another host's. */
void jobfile_sweep(void);

int jobfile_read(const char *path, struct jobfile *out);
/* -ENOENT: no live job of that id; of that port on an address of this host. */
int jobfile_find(const char *job, struct jobfile *out);
/* What the killed process of a job's rank 0 has left.  -ENOENT. */
int jobfile_left(const char *job, struct jobfile *out);
int jobfile_find_port(uint16_t port, struct jobfile *out);
/* Calls see for each live job; returns how many. */
int jobfile_list(void (*see)(void *arg, const struct jobfile *j), void *arg);

/* 32 random bytes in a new file, O_EXCL, mode 0600.  path NULL: the place above, and the path used
 * goes to path_out; a file left there by a dead job is replaced.
 */
int keyfile_create(const char *job, const char *path, char *path_out, size_t size,
		   uint8_t key[JOBFILE_KEY_BYTES]);
/* *readers: it is the key for readers ("readers HEX"), -EACCES where readers is NULL.  -EACCES: mode allows others,
 * or another owner; -EINVAL: not 32 bytes (hex or raw).  why: a line.
 */
int keyfile_load(const char *path, uint8_t key[JOBFILE_KEY_BYTES], bool *readers, char *why,
		 size_t whysize);

#endif
