/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_STATUS_H
#define MOUNT_HELPERS_STATUS_H

/* The status of one job, through a mount or from the job itself.  On an error
 * `why` (whysize bytes) has one line; a result NULL is an error.
 */

#include "engine/engine.h"

#include <jansson.h>

struct call;

struct status {
	char *mountpoint; /* NULL: read from the job */
	char *source;
	char job[128];
	char phase[16];
	uint64_t step;
	uint64_t generation;
	uint64_t nparams;
	struct engine_rank *ranks;
	uint32_t nranks;
	uint64_t nwaiting; /* reads of the mount that wait for a rank which is behind */
	char *waiting;     /* the first of them, as .frag/inflight has it; NULL: none */
	uint64_t nediting; /* edits of the mount, which wait for ranks and their boundary */
	char *editing;     /* the first of them; NULL: none */
};

/* Both fill *s; after an error *s needs no status_fini. */
int status_of_mount(struct status *s, const char *mountpoint, const char *source, char *why,
		    size_t whysize);
int status_of_job(struct status *s, const char *address, char *why, size_t whysize);
void status_fini(struct status *s);

/* Returns the exit status; in status-show.c, as the next. */
int status_print(const struct status *s, const struct call *call);
json_t *status_json(const struct status *s);

#endif
