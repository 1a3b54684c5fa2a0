/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/numa.h"

#include <errno.h>
#include <stdio.h>

#ifdef HAVE_HWLOC
#include <dlfcn.h>
#include <hwloc.h>
#include <string.h>

#define HWLOC_CALLS(X)                                                                         \
	X(hwloc_bitmap_next)                                                                   \
	X(hwloc_get_api_version)                                                               \
	X(hwloc_get_nbobjs_by_depth)                                                           \
	X(hwloc_get_obj_by_depth)                                                              \
	X(hwloc_get_type_depth)                                                                \
	X(hwloc_topology_destroy)                                                              \
	X(hwloc_topology_init)                                                                 \
	X(hwloc_topology_load)

struct hwloc {
	void *library;
#define FIELD(name) __typeof__(&name) name;
	HWLOC_CALLS(FIELD)
#undef FIELD
};

static int load(struct hwloc *h, char *why, size_t whysize)
{
	h->library = dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL);
	if (!h->library) {
		snprintf(why, whysize, "no hwloc: %s", dlerror());
		return -ENODEV;
	}
#define FIND(name)                                                                             \
	if (!library_find(h->library, #name, &h->name))                                        \
		goto old;
	HWLOC_CALLS(FIND)
#undef FIND
	/* This file is compiled for the structs of the header, those of hwloc 2. */
	if (h->hwloc_get_api_version() >> 16 == HWLOC_API_VERSION >> 16)
		return 0;
old:
	snprintf(why, whysize, "this hwloc is none of version 2");
	dlclose(h->library);
	return -ENODEV;
}

static void copy_cpus(const struct hwloc *h, struct cpus *to, hwloc_const_bitmap_t from)
{
	for (int i = h->hwloc_bitmap_next(from, -1); i >= 0 && i < CPUS_MAX;
	     i = h->hwloc_bitmap_next(from, i))
		cpus_add(to, (unsigned)i);
}

static void read_cores(const struct hwloc *h, hwloc_topology_t t, struct numa *m)
{
	int depth = h->hwloc_get_type_depth(t, HWLOC_OBJ_CORE);

	/* a machine that does not tell its cores: each processor counts as a core */
	if (depth < 0)
		depth = h->hwloc_get_type_depth(t, HWLOC_OBJ_PU);
	for (unsigned i = 0; i < h->hwloc_get_nbobjs_by_depth(t, depth); i++) {
		hwloc_obj_t core = h->hwloc_get_obj_by_depth(t, depth, i);
		int first = h->hwloc_bitmap_next(core->cpuset, -1);

		copy_cpus(h, &m->allowed, core->cpuset);
		if (first >= 0 && first < CPUS_MAX)
			cpus_add(&m->cores, (unsigned)first);
	}
}

/* Returns true if the node has no processors, by complete_cpuset: cpuset is empty, too, if the
 * cgroup forbids all processors of the node.
 */
static bool is_memory_alone(const struct hwloc *h, const struct hwloc_obj *node)
{
	if (h->hwloc_bitmap_next(node->complete_cpuset, -1) < 0)
		return true;
	return node->subtype &&
	       (!strcmp(node->subtype, "HBM") || !strcmp(node->subtype, "MCDRAM") ||
		!strncmp(node->subtype, "CXL", 3));
}

static int compare(const void *a, const void *b)
{
	unsigned x = ((const struct numa_node *)a)->number;
	unsigned y = ((const struct numa_node *)b)->number;

	return x < y ? -1 : x > y;
}

/* Reads the nodes.  hwloc gives a node of memory alone the processors of the node nearest to
 * it.
 */
static int read_nodes(const struct hwloc *h, hwloc_topology_t t, struct numa *m)
{
	unsigned n = h->hwloc_get_nbobjs_by_depth(t, HWLOC_TYPE_DEPTH_NUMANODE);

	m->nodes = calloc(n ? n : 1, sizeof(*m->nodes));
	if (!m->nodes)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++) {
		hwloc_obj_t node = h->hwloc_get_obj_by_depth(t, HWLOC_TYPE_DEPTH_NUMANODE, i);
		struct numa_node *to = &m->nodes[m->nnodes];

		if (node->os_index >= CPUS_MAX)
			continue;
		*to = (struct numa_node){ .number = node->os_index, .near = -1 };
		to->memory_alone = is_memory_alone(h, node);
		m->nnodes++;
		if (!to->memory_alone) {
			copy_cpus(h, &to->cpus, node->complete_cpuset);
			continue;
		}
		for (unsigned k = 0; k < n && to->near < 0; k++) {
			hwloc_obj_t other =
				h->hwloc_get_obj_by_depth(t, HWLOC_TYPE_DEPTH_NUMANODE, k);
			struct cpus own = { { 0 } }, others = { { 0 } };

			if (is_memory_alone(h, other))
				continue;
			copy_cpus(h, &own, node->complete_cpuset);
			copy_cpus(h, &others, other->complete_cpuset);
			if (cpus_are_equal(&own, &others))
				to->near = (int)other->os_index;
		}
	}
	qsort(m->nodes, m->nnodes, sizeof(*m->nodes), compare);
	return 0;
}

int numa_read(struct numa *m, char *why, size_t whysize)
{
	hwloc_topology_t t;
	struct hwloc h;
	int rc = load(&h, why, whysize);

	if (rc)
		return rc;
	*m = (struct numa){ .nnodes = 0 };
	rc = h.hwloc_topology_init(&t) ? -ENOMEM : 0;
	if (rc)
		goto unload;
	if (h.hwloc_topology_load(t)) {
		rc = -ENODEV;
		snprintf(why, whysize, "hwloc cannot look at this machine: %s",
			 strerror(errno));
		goto destroy;
	}
	read_cores(&h, t, m);
	rc = read_nodes(&h, t, m);
destroy:
	h.hwloc_topology_destroy(t);
unload:
	if (rc == -ENOMEM)
		snprintf(why, whysize, "%s", strerror(ENOMEM));
	dlclose(h.library);
	return rc;
}

#else

int numa_read(struct numa *m, char *why, size_t whysize)
{
	snprintf(why, whysize, "this build has no hwloc (configure --with-hwloc)");
	return -EOPNOTSUPP;
}

#endif
