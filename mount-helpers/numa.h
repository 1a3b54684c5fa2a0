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
	bool memory_alone; /* a node without cores (HBM, CXL): cpus is empty */
	/* of memory alone: the node with cores that is nearest; -1: not known */
	int near;
};

struct numa {
	struct cpus cores; /* the first processor of each core that the cgroup allows */
	/* all processors that the cgroup allows, also those beyond the affinity of the process
	 */
	struct cpus allowed;
	struct numa_node *nodes; /* [nnodes] by number */
	unsigned nnodes;
};

/* -EOPNOTSUPP: built without hwloc. */
int numa_read(struct numa *m, char *why, size_t whysize);
void numa_fini(struct numa *m);

enum numa_memory {
	NUMA_LOCAL, /* of whatever node the core is in */
	NUMA_BIND,  /* of p->nodes alone */
	NUMA_PREFER /* of p->nodes while they have room */
};

struct numa_place {
	struct cpus cpus;
	enum numa_memory memory;
	struct cpus nodes; /* empty with NUMA_LOCAL; one with NUMA_PREFER */
};

/* Gives rank `rank` of `procs` its share of the cores; NULL: of m->cores, node after node.
 *
 *   all cores of the share in one node    NUMA_BIND to it, and to the nodes that have the same
 *                                         cores (numa=fake)
 *   a node of memory alone is near it     NUMA_PREFER that node, if each node has one
 *   else                                  NUMA_LOCAL
 *
 * -EINVAL: there is less than a core for each rank, no such rank, or a core that may not be
 * used; why has one line.
 */
int numa_place(struct numa_place *p, const struct numa *m, const struct cpus *cores,
	       unsigned procs, unsigned rank, char *why, size_t whysize);

/* Writes the prefix "numactl -m 0 -C 0-3", cut to size, and returns text. */
const char *numa_line(const struct numa_place *p, char *text, size_t size);

#endif
