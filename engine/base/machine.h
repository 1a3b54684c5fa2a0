/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_MACHINE_H
#define ENGINE_BASE_MACHINE_H

/* Which machine this is, and whether a process of it still runs.  Any thread. */

#include "engine/base/base.h"
#include "engine/base/cpus.h"

#include <sys/types.h>

enum { MACHINE_ID = 64 };

/* Writes the boot id and the pid namespace.  Two processes with equal ids know each other by
 * pid, and can read each other's memory where permissions let them.
 */
void machine_id(char id[MACHINE_ID]);

/* Reads when the process began, in ticks since boot: field 22 of /proc/PID/stat.
 * -ESRCH: no such process, or it has ended.
 * Errors of open and read: not known.
 */
int machine_start_time(pid_t pid, uint64_t *start_time);

/* Bytes of memory of this machine; UINT64_MAX: not known. */
uint64_t machine_memory(void);

/* Returns the NUMA node of the folder's disk, as sysfs ("/sys") says.
 * -ENOENT: none is known.
 */
int machine_disk_node(const char *sysfs, const char *folder);

/* Reads the processors of a NUMA node.
 * -ENOENT: sysfs has no such node, or it has no processors.
 */
int machine_node_cpus(const char *sysfs, unsigned node, struct cpus *cpus);

#endif
