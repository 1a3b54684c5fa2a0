/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_LAUNCH_JOBFILE_H
#define ENGINE_LAUNCH_JOBFILE_H

/* The job file, by which processes of rank 0's user and host find the job: JOB.job in the
 * folder of job-folder.h, beside JOB.key (keyfile.h).  It is live while rank 0's process runs,
 * which is known by pid and start time.
 */

#include "engine/base/base.h"

#include <sys/types.h>

struct jobfile {
	char job[128];
	char address[160];   /* "HOST:PORT" of rank 0 */
	char key_file[1024]; /* "": the job runs plain, without a key */
	uint32_t world;
	pid_t pid;           /* of rank 0 */
	uint64_t start_time; /* of that process, field 22 of /proc/PID/stat */
	bool is_of_here;     /* as read: pid is of this machine */
};

/* Replaces the file at path (NULL: in the folder) by one rename.
 * -errno.
 */
int jobfile_publish(const struct jobfile *j, const char *path);
/* Removes the job's file and key, unless they are another live process's, or of another
 * machine: whether that one's processes live is not known here.
 */
void jobfile_remove(const char *job);
/* Removes files and keys that processes of this host left when they died, a day ago or more. */
void jobfile_sweep(void);
/* Removes the job's file if a process of this host left it when it died: a new key of that job
 * would be swept with it.
 */
void jobfile_drop_dead(const char *job);

/* Reads any job file, live or not.
 * -errno.
 */
int jobfile_read(const char *path, struct jobfile *out);
/* Finds the live job of that name.
 * -ENOENT: none.
 */
int jobfile_find(const char *job, struct jobfile *out);
/* Finds the live job of this host whose rank 0 listens at that port; of several, the newest.
 * -ENOENT: none.
 */
int jobfile_find_port(uint16_t port, struct jobfile *out);
/* Reads the job's file if no process of this machine has the job: a next process of rank 0
 * continues it.
 * -ENOENT: none.
 */
int jobfile_left(const char *job, struct jobfile *out);
/* Calls see for each live job; returns their number, or -errno. */
int jobfile_list(void (*see)(void *arg, const struct jobfile *j), void *arg);

#endif
