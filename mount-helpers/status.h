/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_STATUS_H
#define MOUNT_HELPERS_STATUS_H

/* The status of one job, through a mount or from the job itself.  A negative or NULL result is
 * an error, of which `why` (whysize bytes) has one line.
 */

#include "engine/engine.h"

#include <jansson.h>

struct call;

struct status {
	char *mountpoint; /* NULL: the status comes from the job itself */
	char *source;
	char job[128];
	char phase[16];
	uint64_t step;
	uint64_t generation;
	uint64_t nparams;
	struct engine_rank *ranks;
	uint32_t nranks;
	uint64_t nwaiting; /* reads of the mount that wait for a rank that is behind */
	char *waiting;     /* the first such read, a line of .frag/inflight; NULL: none waits */
	/* edits of the mount, which wait for ranks to reach their boundary */
	uint64_t nediting;
	char *editing; /* the first such edit, a line of .frag/inflight; NULL: none waits */
};

/* Fills *s; after an error *s needs no status_fini. */
int status_of_mount(struct status *s, const char *mountpoint, const char *source, char *why,
		    size_t whysize);
int status_of_job(struct status *s, const char *address, char *why, size_t whysize);
void status_fini(struct status *s);

/* Prints the status, and returns the exit status.  In status-show.c, as status_json. */
int status_print(const struct status *s, const struct call *call);
json_t *status_json(const struct status *s);

#endif
