/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_LAUNCH_JOBFILE_H
#define ENGINE_LAUNCH_JOBFILE_H

/* What rank 0 leaves for others of its user on its host: <job>.job and <job>.key (keyfile.h) in
 * the folder of job-folder.h.  A job file whose process is gone (pid and start time) is as good
 * as absent.
 */

#include "engine/base/base.h"

#include <sys/types.h>

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
/* Removes what dead processes of this host have left there a day ago; never what may be another
 * host's.
 */
void jobfile_sweep(void);

int jobfile_read(const char *path, struct jobfile *out);
/* -ENOENT: no live job of that id; of that port on an address of this host. */
int jobfile_find(const char *job, struct jobfile *out);
/* Before a new key is there, which would be swept with it: the job file that a dead process of
 * this host left.
 */
void jobfile_drop_dead(const char *job);
/* What the killed process of a job's rank 0 has left.  -ENOENT. */
int jobfile_left(const char *job, struct jobfile *out);
int jobfile_find_port(uint16_t port, struct jobfile *out);
/* Calls see for each live job; returns how many. */
int jobfile_list(void (*see)(void *arg, const struct jobfile *j), void *arg);

#endif
