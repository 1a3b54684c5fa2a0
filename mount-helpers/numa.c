/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/numa.h"

#include <errno.h>
#include <stdio.h>

void numa_fini(struct numa *m)
{
	free(m->nodes);
}

/* Returns the node of memory alone that belongs to node i: the nearest or, if nearness is not
 * known, the one with the same place among its kind.  NULL: not each node with cores has one.
 */
static const struct numa_node *memory_of(const struct numa *m, unsigned i)
{
	unsigned before = 0, memories = 0;

	for (unsigned n = 0; n < m->nnodes; n++) {
		memories += m->nodes[n].memory_alone;
		before += n < i && !m->nodes[n].memory_alone;
	}
	if (2 * memories != m->nnodes)
		return NULL;
	for (unsigned n = 0; n < m->nnodes; n++)
		if (m->nodes[n].near == (int)m->nodes[i].number)
			return &m->nodes[n];
	for (unsigned n = 0; n < m->nnodes; n++)
		if (m->nodes[n].memory_alone && !before--)
			return m->nodes[n].near < 0 ? &m->nodes[n] : NULL;
	return NULL;
}

static void choose_memory(struct numa_place *p, const struct numa *m)
{
	for (unsigned i = 0; i < m->nnodes; i++) {
		const struct numa_node *node = &m->nodes[i], *memory;

		if (node->memory_alone || !cpus_are_within(&p->cpus, &node->cpus))
			continue;
		memory = memory_of(m, i);
		p->memory = memory ? NUMA_PREFER : NUMA_BIND;
		if (memory)
			cpus_add(&p->nodes, memory->number);
		for (unsigned n = i; n < m->nnodes && !memory; n++)
			if (cpus_are_equal(&m->nodes[n].cpus, &node->cpus))
				cpus_add(&p->nodes, m->nodes[n].number);
		return;
	}
}

/* Appends the numbers of c, within `within` and not in `taken`, to order, which has n; returns
 * its new length.
 */
static unsigned put_in_order(unsigned order[CPUS_MAX], unsigned n, const struct cpus *c,
			     const struct cpus *within, struct cpus *taken)
{
	for (unsigned i = cpus_next(c, 0); i < CPUS_MAX; i = cpus_next(c, i + 1)) {
		if (cpus_has(taken, i) || (within && !cpus_has(within, i)))
			continue;
		cpus_add(taken, i);
		order[n++] = i;
	}
	return n;
}

int numa_place(struct numa_place *p, const struct numa *m, const struct cpus *cores,
	       unsigned procs, unsigned rank, char *why, size_t whysize)
{
	const struct cpus *from = cores ? cores : &m->cores;
	unsigned order[CPUS_MAX], total = 0, share;
	struct cpus taken = { { 0 } };

	/* By nodes, not by numbers: some machines number the cores of their nodes in turn. */
	for (unsigned i = 0; i < m->nnodes && !cores; i++)
		total = put_in_order(order, total, from, &m->nodes[i].cpus, &taken);
	total = put_in_order(order, total, from, NULL, &taken);
	share = procs ? total / procs : 0;
	if (!share)
		snprintf(why, whysize, "%u cores are not one for each of %u ranks", total,
			 procs);
	else if (rank >= procs)
		snprintf(why, whysize, "rank %u is not below %u", rank, procs);
	if (!share || rank >= procs)
		return -EINVAL;
	for (unsigned i = 0; i < total; i++) {
		if (cpus_has(&m->allowed, order[i]))
			continue;
		snprintf(why, whysize, "this process may not use processor %u, or it has none",
			 order[i]);
		return -EINVAL;
	}
	*p = (struct numa_place){ .memory = NUMA_LOCAL };
	for (unsigned i = 0; i < share; i++)
		cpus_add(&p->cpus, order[rank * share + i]);
	choose_memory(p, m);
	return 0;
}

const char *numa_line(const struct numa_place *p, char *text, size_t size)
{
	size_t n = (size_t)snprintf(text, size, "numactl");
	char cpus[CPUS_TEXT], before = ' ';

	if (p->memory != NUMA_LOCAL)
		n += (size_t)snprintf(text + n, size - n, " -%c",
				      p->memory == NUMA_BIND ? 'm' : 'p');
	for (unsigned i = cpus_next(&p->nodes, 0); i < CPUS_MAX && n < size;
	     i = cpus_next(&p->nodes, i + 1), before = ',')
		n += (size_t)snprintf(text + n, size - n, "%c%u", before, i);
	if (n < size)
		snprintf(text + n, size - n, " -C %s", cpus_text(&p->cpus, cpus, sizeof(cpus)));
	return text;
}
