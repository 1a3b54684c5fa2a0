/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/launch/jobfile.h"
#include "mount-helpers/commands.h"
#include "mount-helpers/table.h"

enum { COLUMN_JOB, COLUMN_ADDRESS, COLUMN_WORLD, COLUMN_PID, COLUMN_KEY_FILE };

const struct table_column jobs_columns[] = {
	[COLUMN_JOB] = { "job", TABLE_TEXT },
	[COLUMN_ADDRESS] = { "address", TABLE_TEXT },
	[COLUMN_WORLD] = { "world", TABLE_NUMBER },
	[COLUMN_PID] = { "pid", TABLE_NUMBER },
	[COLUMN_KEY_FILE] = { "key_file", TABLE_TEXT },
	{ NULL },
};

static void add_job(void *arg, const struct jobfile *j)
{
	struct table *t = arg;

	table_row(t);
	table_text(t, COLUMN_JOB, j->job);
	table_text(t, COLUMN_ADDRESS, j->address);
	table_number(t, COLUMN_WORLD, j->world);
	table_number(t, COLUMN_PID, (uint64_t)j->pid);
	table_text(t, COLUMN_KEY_FILE,
		   j->key_file[0] || call_has(t->call, 'J') ? j->key_file : "(plain)");
}

int jobs_run(const struct call *call)
{
	struct table t;
	int rc = table_init(&t, call, jobs_columns);

	if (rc)
		return rc;
	jobfile_sweep();
	jobfile_list(add_job, &t);
	rc = table_print(&t, "jobs");
	table_fini(&t);
	return rc;
}
