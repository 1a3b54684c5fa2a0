/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/launch/jobfile.h"
#include "mount-helpers/commands.h"
#include "mount-helpers/listing.h"

enum { COLUMN_JOB, COLUMN_ADDRESS, COLUMN_WORLD, COLUMN_PID, COLUMN_KEY_FILE };

const struct listing_column jobs_columns[] = {
	[COLUMN_JOB] = { "job", LISTING_TEXT },
	[COLUMN_ADDRESS] = { "address", LISTING_TEXT },
	[COLUMN_WORLD] = { "world", LISTING_NUMBER },
	[COLUMN_PID] = { "pid", LISTING_NUMBER },
	[COLUMN_KEY_FILE] = { "key_file", LISTING_TEXT },
	{ NULL },
};

static void add_job(void *arg, const struct jobfile *j)
{
	struct listing *t = arg;

	listing_row(t);
	listing_text(t, COLUMN_JOB, j->job);
	listing_text(t, COLUMN_ADDRESS, j->address);
	listing_number(t, COLUMN_WORLD, j->world);
	listing_number(t, COLUMN_PID, (uint64_t)j->pid);
	listing_text(t, COLUMN_KEY_FILE,
		     j->key_file[0] || call_has(t->call, 'J') ? j->key_file : "(plain)");
}

int jobs_run(const struct call *call)
{
	struct listing t;
	int rc = listing_init(&t, call, jobs_columns);

	if (rc)
		return rc;
	jobfile_sweep();
	jobfile_list(add_job, &t);
	rc = listing_print(&t, "jobs");
	listing_fini(&t);
	return rc;
}
