/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_COMMANDS_H
#define MOUNT_HELPERS_COMMANDS_H

/* The functions of fragctl's commands, each in the file that is named like it, and the columns
 * of their tables.  A function returns the exit status; it has printed its errors.
 */

#include "mount-helpers/listing.h"

int status_run(const struct call *call); /* status-report.c */
extern const struct listing_column status_columns[];
int jobs_run(const struct call *call);
extern const struct listing_column jobs_columns[];
int keys_run(const struct call *call);
int break_run(const struct call *call);
int freeze_run(const struct call *call);
int freeze_run_thaw(const struct call *call);
int overlays_run(const struct call *call);
int overlays_run_commit(const struct call *call);
int overlays_run_discard(const struct call *call);
int arenas_run(const struct call *call);
int comms_run(const struct call *call);
extern const struct listing_column comms_columns[];

int ls_run(const struct call *call);
extern const struct listing_column ls_columns[];
int stat_run(const struct call *call);
int stats_run(const struct call *call);
extern const struct listing_column stats_columns[];
int diff_run(const struct call *call);
extern const struct listing_column diff_columns[];
int watch_run(const struct call *call);
int map_run(const struct call *call);
extern const struct listing_column map_columns[];
int doctor_run(const struct call *call);
extern const struct listing_column doctor_columns[];
int bench_run(const struct call *call);
extern const struct listing_column bench_columns[];
int get_run(const struct call *call);
int set_run(const struct call *call);
int place_run(const struct call *call); /* place.c: fragctl place */
extern const struct listing_column place_columns[];
int top_run(const struct call *call);
int numa_run(const struct call *call);
extern const struct listing_column numa_columns[];
int plan_run(const struct call *call);
extern const struct listing_column plan_columns[];

#endif
