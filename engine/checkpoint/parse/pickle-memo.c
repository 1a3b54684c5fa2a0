/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Slots are numbered from 0 as they are filled, so a slot is below the bytes read so far, and
 * an array of them no larger than the pickle.  A few others are taken too.
 */

#include "engine/checkpoint/parse/pickle-machine.h"

#include <errno.h>
#include <string.h>

static struct memo_far *find_far(struct machine *m, uint32_t slot)
{
	for (uint32_t i = 0; i < m->nfar; i++)
		if (m->far[i].slot == slot)
			return &m->far[i];
	return NULL;
}

static void put_far(struct machine *m, uint32_t slot, uint32_t node)
{
	struct memo_far *far = find_far(m, slot);

	if (!far && m->nfar == ARRAY_SIZE(m->far)) {
		machine_fail(m, -EFBIG, "memo slots far from each other");
		return;
	}
	if (!far) {
		far = &m->far[m->nfar++];
		m->memo_count++;
	}
	*far = (struct memo_far){ slot, node };
}

void machine_put(struct machine *m, uint64_t slot)
{
	uint32_t node = machine_top(m), old = m->memo_room;

	if (m->rc)
		return;
	if (slot >= m->at || slot >= WORDS_MAX || find_far(m, (uint32_t)slot)) {
		put_far(m, (uint32_t)slot, node);
		return;
	}
	if (!machine_room(m, (void **)&m->memo, &m->memo_room, (uint32_t)slot, 1,
			  sizeof(*m->memo), WORDS_MAX))
		return;
	memset(m->memo + old, 0, (m->memo_room - old) * sizeof(*m->memo));
	m->memo_count += !m->memo[slot];
	m->memo[slot] = node;
}

void machine_get(struct machine *m, uint64_t slot)
{
	const struct memo_far *far = find_far(m, (uint32_t)slot);
	uint32_t node = far ? far->node : slot < m->memo_room ? m->memo[slot] : PICKLE_NOTHING;

	if (!node)
		machine_fail(m, -EBADMSG, "memo slot %u is empty", (uint32_t)slot);
	machine_push(m, node);
}
