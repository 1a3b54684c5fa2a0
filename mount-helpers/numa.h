/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_NUMA_H
#define MOUNT_HELPERS_NUMA_H

/* Which cores and which memory the ranks of one host get, as DeepSpeed's launcher divides them
 * (utils/numa.py): equal runs of the list of cores, one for each rank, and the memory of the
 * node that has all of a rank's cores.  The machine is described by hwloc.
 */

#include "engine/base/base.h"
#include "engine/base/cpus.h"

struct numa_node {
	unsigned number;
	struct cpus cpus;  /* of its cores, also those that the cgroup forbids */
	bool memory_alone; /* a node without cores of its own (HBM, CXL): cpus is empty */
	int near;          /* of memory alone: the node it belongs to; -1: not known */
};

struct numa {
	struct cpus cores;       /* the first processor of each core that the cgroup allows */
	struct cpus allowed;     /* all processors that the cgroup allows, also beyond the
			      * process's affinity (taskset) */
	struct numa_node *nodes; /* [nnodes] by number */
	unsigned nnodes;
};

/* Describes this machine, or what hwloc's environment puts in its place (HWLOC_XMLFILE,
 * HWLOC_SYNTHETIC).  numa_fini frees *m.  On error why has one line.
 * -EOPNOTSUPP: built without hwloc.
 * -ENODEV: hwloc is not there, or cannot look.
 * -ENOMEM
 */
int numa_read(struct numa *m, char *why, size_t whysize);
void numa_fini(struct numa *m);

enum numa_memory {
	NUMA_LOCAL, /* wherever a core is */
	NUMA_BIND,  /* of the nodes alone */
	NUMA_PREFER /* of the node while it has room */
};

struct numa_place {
	struct cpus cpus;
	enum numa_memory memory;
	struct cpus nodes; /* NUMA_BIND; NUMA_PREFER: one */
};

/* Gives rank `rank` of `procs` its share of the cores; NULL: of m->cores, node after node.
 *
 *   all cores of the share in one node    NUMA_BIND to it, and to the nodes that have the same
 *                                         cores (numa=fake)
 *   that node has one of memory alone     NUMA_PREFER that one, where each node has one
 *   else                                  NUMA_LOCAL
 *
 * -EINVAL: there is less than a core for each rank, no such rank, or a core that may not be
 * used; why has one line.
 */
int numa_place(struct numa_place *p, const struct numa *m, const struct cpus *cores,
	       unsigned procs, unsigned rank, char *why, size_t whysize);

/* Writes "numactl -m 0 -C 0-3", cut to size, and returns text. */
const char *numa_line(const struct numa_place *p, char *text, size_t size);

#endif
