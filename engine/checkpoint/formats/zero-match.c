/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/formats/zero-match.h"

#include <errno.h>
#include <string.h>

enum { STEPS_MAX = 1 << 20 };

struct search {
	struct zero_match *m;
	uint64_t *at;     /* [ngroups], how far each is */
	uint32_t *choice; /* [nparams]; ngroups: in none */
	uint64_t room;    /* of all groups, still empty */
	uint64_t rest;    /* lengths of params that are not decided */
	uint32_t depth;   /* params that have been decided */
	uint32_t steps;
	uint32_t found;
};

static bool try_group(struct search *s, uint32_t group)
{
	const struct zero_match *m = s->m;
	uint64_t length = m->lengths[s->depth];

	if (group == m->ngroups) {
		if (s->rest - length < s->room) /* the rest could not fill the groups */
			return false;
	} else {
		if (m->ends[group] - s->at[group] < length ||
		    !m->fits(m->arg, s->depth, group, s->at[group]))
			return false;
		s->at[group] += length;
		s->room -= length;
	}
	s->rest -= length;
	s->choice[s->depth++] = group;
	return true;
}

/* Takes the newest decision back; returns the group to try next. */
static uint32_t undo(struct search *s)
{
	uint32_t group = s->choice[--s->depth];
	uint64_t length = s->m->lengths[s->depth];

	if (group < s->m->ngroups) {
		s->at[group] -= length;
		s->room += length;
	}
	s->rest += length;
	return group + 1;
}

static bool matters(const struct zero_match *m, uint32_t group, uint64_t position)
{
	return group < m->ngroups && m->matters(m->arg, group, position);
}

/* Keeps the first match, or compares another one with it.  false: they differ at a position
 * that matters.
 */
static bool take_way(struct search *s, bool first)
{
	struct zero_match *m = s->m;
	bool same = true;

	memset(s->at, 0, m->ngroups * sizeof(*s->at)); /* the loop fills it as it was */
	for (uint32_t i = 0; i < m->nparams; i++) {
		uint32_t group = s->choice[i];
		uint64_t position = group < m->ngroups ? s->at[group] : 0;

		if (first) {
			m->groups[i] = group;
			m->positions[i] = position;
		} else if (m->groups[i] != group || m->positions[i] != position) {
			same &= !matters(m, group, position) &&
				!matters(m, m->groups[i], m->positions[i]);
		}
		if (group < m->ngroups)
			s->at[group] += m->lengths[i];
	}
	return same;
}

static void look(struct search *s)
{
	uint32_t group = 0;

	while (s->found < 2 && ++s->steps < STEPS_MAX) {
		if (s->depth < s->m->nparams) {
			while (group <= s->m->ngroups && !try_group(s, group))
				group++;
			if (group <= s->m->ngroups) {
				group = 0;
				continue;
			}
		} else if (!s->room && (!take_way(s, !s->found) || !s->found)) {
			s->found++;
		}
		if (!s->depth)
			return;
		group = undo(s);
	}
	s->found = 2;
}

int zero_match(struct zero_match *m)
{
	struct search s = { .m = m };

	for (uint32_t g = 0; g < m->ngroups; g++)
		s.room += m->ends[g];
	for (uint32_t i = 0; i < m->nparams; i++)
		s.rest += m->lengths[i];
	s.at = calloc((size_t)m->ngroups + 1, sizeof(*s.at));
	s.choice = calloc((size_t)m->nparams + 1, sizeof(*s.choice));
	if (s.at && s.choice)
		look(&s);
	free(s.at);
	free(s.choice);
	if (!s.at || !s.choice)
		return -ENOMEM;
	return s.found == 1 ? 0 : s.found ? -EEXIST : -ENOENT;
}
