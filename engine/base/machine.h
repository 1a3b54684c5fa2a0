/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_MACHINE_H
#define ENGINE_BASE_MACHINE_H

/* Which machine this is, and whether a process of it still runs.  Any thread. */

#include "engine/base/base.h"

#include <sys/types.h>

enum { MACHINE_ID = 64 };

/* The boot id and the pid namespace: two processes with the same can know each other by pid,
 * and read each other's memory where they may.
 */
void machine_id(char id[MACHINE_ID]);

/* /proc/PID/stat's field 22, ticks since boot.  -ESRCH: no such process, or it has ended;
 * others: it cannot be known, as where no descriptor is left.
 */
int machine_start_time(pid_t pid, uint64_t *start_time);

/* Bytes of memory; UINT64_MAX: not known. */
uint64_t machine_memory(void);

/* The NUMA node at which the disk is that this folder is on, as sysfs says ("/sys").  -ENOENT:
 * none is known.
 */
int machine_disk_node(const char *sysfs, const char *folder);

#endif
