/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/state-list.h"

#include <errno.h>
#include <string.h>

enum { ROOM = 16 }; /* more than most parameters need */

/* Writes as many as there is room for, and returns how many there are. */
static int list(struct state_list *l, struct engine *e, const struct engine_address *at)
{
	switch (at->kind) {
	case ENGINE_PARAM:
		return engine_states(e, at->param, l->states, l->room);
	case ENGINE_RANK_PARAM:
		return engine_rank_states(e, at->rank, at->param, l->states, l->room);
	case ENGINE_RANK_PARTITION:
		return engine_partition_states(e, at->rank, at->group, at->sub, l->states,
					       l->room);
	case ENGINE_HYPER:
		return engine_hypers(e, at->group, l->states, l->room);
	default:
		return -EINVAL;
	}
}

static bool make_room(struct state_list *l, int room)
{
	struct engine_state *grown = reallocarray(l->states, (size_t)room, sizeof(*grown));

	if (!grown)
		return false;
	l->states = grown;
	l->room = room;
	return true;
}

int state_list_fill(struct state_list *l, struct engine *e, const struct engine_address *at)
{
	int n = ROOM;

	l->count = 0;
	do {
		if (n > l->room && !make_room(l, n))
			return -ENOMEM;
		n = list(l, e, at);
	} while (n > l->room);
	l->count = n < 0 ? 0 : n;
	return n < 0 ? n : 0;
}

const struct engine_state *state_list_find(const struct state_list *l, const char *key)
{
	for (int i = 0; i < l->count; i++)
		if (!strcmp(l->states[i].key, key))
			return &l->states[i];
	return NULL;
}

void state_list_fini(struct state_list *l)
{
	free(l->states);
	*l = (struct state_list){ 0 };
}
