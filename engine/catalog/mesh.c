/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/mesh.h"

#include "engine/frag.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Returns the number of ranks of a sequence-data group. */
static uint32_t lane_size(const struct mesh *m)
{
	return m->world / m->pp / m->tp;
}

static int refuse(char *why, size_t whysize, const struct mesh *m, const char *name,
		  uint32_t size)
{
	char pp[32] = "", tp[32] = "";

	if (m->pp > 1)
		snprintf(pp, sizeof(pp), " / pp %u", m->pp);
	if (m->tp > 1)
		snprintf(tp, sizeof(tp), " / tp %u", m->tp);
	snprintf(why, whysize,
		 "%u ranks share a partition (world %u%s%s): not a multiple of %s %u",
		 lane_size(m), m->world, pp, tp, name, size);
	return -EINVAL;
}

int mesh_init(struct mesh *m, char *why, size_t whysize)
{
	uint32_t *const sizes[] = { &m->world, &m->pp, &m->sp, &m->tp, &m->ep, &m->hpz };
	uint64_t product;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		*sizes[i] += !*sizes[i];
		if (*sizes[i] <= FRAG_WORLD_MAX)
			continue;
		snprintf(why, whysize, "%u ranks are more than %d", *sizes[i], FRAG_WORLD_MAX);
		return -EINVAL;
	}
	product = (uint64_t)m->pp * m->sp * m->tp; /* at most 2^48 */
	if (m->world % product) {
		char pp[32] = "";

		if (m->pp > 1)
			snprintf(pp, sizeof(pp), "pp %u x ", m->pp);
		snprintf(why, whysize, "world %u is not a multiple of %ssp %u x tp %u",
			 m->world, pp, m->sp, m->tp);
		return -EINVAL;
	}
	if (lane_size(m) % m->ep)
		return refuse(why, whysize, m, "ep", m->ep);
	return lane_size(m) % m->hpz ? refuse(why, whysize, m, "hpz", m->hpz) : 0;
}

const char *mesh_kind_name(enum mesh_kind kind)
{
	static const char *const names[MESH_KINDS] = {
		[MESH_DATA] = "data",         [MESH_TENSOR] = "tensor",
		[MESH_SEQUENCE] = "sequence", [MESH_SEQUENCE_DATA] = "sequence-data",
		[MESH_PIPELINE] = "pipeline", [MESH_EXPERT] = "expert",
		[MESH_HPZ] = "hpz",           [MESH_EXPERT_DATA] = "expert-data",
	};

	return names[kind];
}

uint32_t mesh_size(const struct mesh *m, enum mesh_kind kind)
{
	switch (kind) {
	case MESH_DATA:
		return lane_size(m) / m->sp;
	case MESH_TENSOR:
		return m->tp;
	case MESH_SEQUENCE:
		return m->sp;
	case MESH_SEQUENCE_DATA:
		return lane_size(m);
	case MESH_PIPELINE:
		return m->pp;
	case MESH_EXPERT:
		return m->ep;
	case MESH_EXPERT_DATA:
		return lane_size(m) / m->ep;
	default:
		return m->hpz;
	}
}

uint32_t mesh_count(const struct mesh *m, enum mesh_kind kind)
{
	return m->world / mesh_size(m, kind);
}

/* Returns the position of a group's member in the sequence-data group that the group lies in:
 * for expert, expert-data and hpZ groups.
 */
static uint32_t position(const struct mesh *m, enum mesh_kind kind, uint32_t group,
			 uint32_t index)
{
	uint32_t size = mesh_size(m, kind), others = lane_size(m) / size;
	bool consecutive = kind == MESH_HPZ || (kind == MESH_EXPERT) != m->data_first;

	return consecutive ? group % others * size + index : group % others + index * others;
}

uint32_t mesh_rank(const struct mesh *m, enum mesh_kind kind, uint32_t group, uint32_t index)
{
	uint32_t lanes = m->tp, stage = m->world / m->pp, lane = group;

	switch (kind) {
	case MESH_TENSOR:
		return group * m->tp + index;
	case MESH_SEQUENCE:
		return (group / m->tp * m->sp + index) * m->tp + group % m->tp;
	case MESH_PIPELINE:
		return index * stage + group;
	case MESH_DATA:
		lanes *= m->sp;
		break;
	case MESH_SEQUENCE_DATA:
		break;
	default:
		index = position(m, kind, group, index);
		lane = group / (lane_size(m) / mesh_size(m, kind));
	}
	return lane / lanes * stage + index * lanes + lane % lanes;
}

void mesh_see(struct mesh *m, const char *coordinate)
{
	const struct {
		const char *axis;
		uint32_t *size;
	} axes[] = { { "pp=", &m->pp }, { "tp=", &m->tp }, { "ep=", &m->ep } };

	for (const char *at = coordinate; *at; at += strcspn(at, ","), at += *at == ',')
		for (size_t i = 0; i < ARRAY_SIZE(axes); i++)
			if (!strncmp(at, axes[i].axis, 3) && strspn(at + 3, "0123456789") < 8)
				*axes[i].size = (uint32_t)u64_max(*axes[i].size,
								  (uint64_t)atoi(at + 3) + 1);
}

bool mesh_has(const struct mesh *m, enum mesh_kind kind, const uint32_t *ranks, uint32_t n)
{
	uint32_t count = mesh_count(m, kind), group = 0, i = 0;

	if (n != mesh_size(m, kind))
		return false;
	while (group < count && mesh_rank(m, kind, group, 0) != ranks[0])
		group++;
	while (group < count && i < n && mesh_rank(m, kind, group, i) == ranks[i])
		i++;
	return i == n;
}
