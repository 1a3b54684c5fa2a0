/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/place.h"
#include "engine/registry-internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Rows on NVMe. */

static int add_place(struct registry *r, uint32_t index, uint32_t sub, const char *key,
		     enum frag_dtype dtype, uint64_t numel, struct place_state **s)
{
	enum place_kind kind = strcmp(key, "grad") ? PLACE_STATE : PLACE_GRADIENT;
	char name[FRAG_KEY_MAX + 40];

	snprintf(name, sizeof(name), "group %u sub %u %s", index, sub, key);
	return place_add(r->place, name, kind, (uint32_t)frag_dtype_size(dtype), numel, s);
}

/* Without elements it is in no tier. */
int registry_swap(struct registry *r, uint32_t index, uint32_t sub, const char *key,
		  enum frag_dtype dtype, uint64_t numel)
{
	struct place_state *s;
	int row, rc = r->place ? 0 : -EOPNOTSUPP;

	if (!rc && !numel)
		return registry_keep(r, STATE_PARTITION, index, sub, key, dtype, 0, NULL);
	if (!rc)
		rc = add_place(r, index, sub, key, dtype, numel, &s);
	if (rc)
		return rc;
	pthread_mutex_lock(&r->lock);
	row = states_add(&r->states, STATE_PARTITION, index, sub, key, dtype, numel,
			 (struct state_segment){ 0 });
	if (row >= 0) {
		r->states.rows[row].tier = STATE_SWAP;
		r->states.rows[row].place = s;
		registry_count(r, STATE_SWAP, (int64_t)(numel * frag_dtype_size(dtype)));
		registry_new_epoch(r);
	}
	pthread_mutex_unlock(&r->lock);
	if (row < 0)
		place_drop(r->place, s);
	return row < 0 ? row : 0;
}

struct place_state *registry_place(struct registry *r, uint32_t index, uint32_t sub,
				   const char *key, enum frag_dtype *dtype)
{
	struct place_state *s = NULL;
	int row;

	pthread_mutex_lock(&r->lock);
	row = states_find(&r->states, STATE_PARTITION, index, sub, key);
	if (row >= 0) {
		s = r->states.rows[row].place;
		*dtype = r->states.rows[row].dtype;
	}
	pthread_mutex_unlock(&r->lock);
	return s;
}

/* ---- for readers of what is on NVMe ---- */

static int hold_row(struct registry *r, const struct state_row *row, uint64_t offset,
		    uint64_t size, struct registry_hold **out)
{
	struct registry_hold *h = malloc(sizeof(*h));
	int rc;

	if (!h)
		return -ENOMEM;
	*h = (struct registry_hold){ .place = r->place, .state = row->place, .users = 1 };
	rc = place_hold(r->place, row->place, offset, size, &h->hold);
	if (rc)
		free(h);
	else
		*out = h;
	return rc == -ESTALE ? -EAGAIN : rc;
}

int registry_hold(struct registry *r, uint64_t epoch, uint32_t number, uint64_t offset,
		  uint64_t size, struct registry_hold **hold)
{
	const struct state_row *row;
	int rc = 0;

	*hold = NULL;
	pthread_mutex_lock(&r->lock);
	row = registry_row_at(r, epoch, number);
	if (!row)
		rc = -ESTALE;
	else if (row->place)
		rc = hold_row(r, row, offset, size, hold);
	pthread_mutex_unlock(&r->lock);
	return rc;
}

struct registry_hold *registry_hold_get(struct registry_hold *h)
{
	atomic_fetch_add_explicit(&h->users, 1, memory_order_relaxed);
	return h;
}

void registry_hold_put(struct registry_hold *h)
{
	if (!h || atomic_fetch_sub_explicit(&h->users, 1, memory_order_acq_rel) > 1)
		return;
	place_release(h->place, h->hold);
	free(h);
}
