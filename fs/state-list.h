/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_STATE_LIST_H
#define FS_STATE_LIST_H

/* A list of states (struct engine_state), sorted by key: all states of one parameter, one
 * rank's shares of them, the states of one flat partition, or the hyper-parameters of one
 * group.
 */

#include "engine/base/base.h"
#include "engine/engine.h"

struct state_list {
	struct engine_state *states;
	int count, room;
};

/* Fills a list, which is zeroed before its first use, with the states at an address, whose key
 * does not count.  Waits and fails as engine_states does; then the list is empty.
 * -ENOMEM.
 */
int state_list_fill(struct state_list *l, struct engine *e, const struct engine_address *at);
/* Returns the state of a key; NULL: the list has none. */
const struct engine_state *state_list_find(const struct state_list *l, const char *key);
void state_list_fini(struct state_list *l);

/* Declares an empty list, which its block frees. */
#define STATE_LIST(name)                                                                       \
	struct state_list name __attribute__((cleanup(state_list_fini))) = { 0 }

#endif
